from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference.attention_residual import attention_residual
from reference.checks import require
from reference.numerics import OFFICIAL, Variant
from verification.budget import Golden
from verification.comparison import same_bits
from verification.inputs import TORCH_DTYPES, Inputs, far_apart, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.localization import describe_failures
from verification.operator import Arguments, Case, CaseGroup, Finding, Operator, Output, Outputs, make_case, pick

DEFAULTS: dict[str, Any] = {
    "rows": 4, "hidden": 7168, "blocks": 8, "capacity": 8, "delta": True, "write": False, "norm": True,
    "order": "token_major", "layout": "contiguous", "norm_weight": "bf16", "score_scale": 2.0,
    "eps": 1e-6, "output_eps": 2e-6,
}  # fmt: skip
"""The two eps differ, as they need not in the model, so that a kernel that swaps them is seen."""

ROWS = (0, 1, 2, 4, 7, 8, 16, 17, 33)
BF16 = torch.bfloat16


SCALES = {"normal": 1.0, "near_eps": 2.0**-10, "large": 2.0**10, "zeros": 0.0, "nonfinite": 1.0}
"""Distributions, by the magnitude of their rows."""


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of attention_residual."""
    return make_case("attention_residual", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Snapshots of growing magnitude, scores of a few units; unused blocks hold NaN, as fresh memory may."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    rows, hidden = p["rows"], p["hidden"]
    require(hidden >= 1, case.operator, f"hidden is {hidden}; expected 1 or more")
    scale = pick(case.distribution, SCALES, "distribution")
    growth = (1 + torch.arange(p["capacity"], dtype=torch.float64))[None, :, None] / 4
    blocks = (inputs.normal("blocks", (rows, p["capacity"], hidden), scale) * growth).to(BF16)
    blocks[:, p["blocks"] :] = torch.nan
    prefix = inputs.normal("prefix", (rows, hidden), scale).to(BF16)
    if case.distribution == "nonfinite" and rows:
        prefix[0, -1], blocks[-1, 0, 0] = torch.nan, torch.inf
    delta = inputs.normal("delta", (rows, hidden), scale / 2).to(BF16)
    gain = 1 + inputs.normal("output_norm_weight", (hidden,), 0.1)
    return {
        "prefix": laid_out(prefix, p["layout"]),
        "delta": laid_out(delta, p["layout"]) if p["delta"] else None,
        "blocks": pick(p["order"], ORDERS, "order")(blocks),
        "score_weight": inputs.normal("score_weight", (hidden,), p["score_scale"] * hidden**-0.5).to(torch.float32),
        "output_norm_weight": gain.to(TORCH_DTYPES[p["norm_weight"]]) if p["norm"] else None,
        "num_blocks": p["blocks"],
        "eps": p["eps"],
        "output_eps": p["output_eps"],
        "block_write_index": p["blocks"] if p["write"] else -1,
    }


def block_major(blocks: Tensor) -> Tensor:
    """The same [T, capacity, H] values stored as [capacity, T, H]."""
    return blocks.transpose(0, 1).contiguous().transpose(0, 1)


def row_padded(blocks: Tensor) -> Tensor:
    """The same values with seven elements of NaN between rows."""
    wide = torch.full((*blocks.shape[:-1], blocks.shape[-1] + 7), torch.nan, dtype=blocks.dtype)
    return wide[..., :-7].copy_(blocks)


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "token_major": torch.Tensor.contiguous,
    "block_major": block_major,
    "far": partial(far_apart, axis=1),
}


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """The written block is the new prefix bit for bit; no other block and no undelta'd prefix changes."""
    index = arguments["block_write_index"]
    wanted = arguments["blocks"].clone()
    if index >= 0:
        wanted[:, index] = outputs["prefix"]
    different = ~same_bits(outputs["blocks"], wanted)
    if different.any():
        yield Finding(
            "structure",
            f"blocks: {int(different.sum())} elements are not as they must be: block {index} equal to "
            f"the new prefix, every other one untouched; {describe_failures(different)}",
        )
    if arguments["delta"] is None and (moved := ~same_bits(outputs["prefix"], arguments["prefix"])).any():
        yield Finding(
            "structure",
            f"prefix: {int(moved.sum())} elements changed although there is no delta; {describe_failures(moved)}",
        )


def added_beforehand(arguments: Arguments) -> Arguments:
    """The delta already in the prefix."""
    return arguments | {"prefix": arguments["prefix"] + arguments["delta"], "delta": None}


GROUPS = (
    CaseGroup(
        "production sizes",
        "smoke",
        (case(rows=0), case(rows=1), case(), case(rows=17, write=True, blocks=3), case(rows=2, order="block_major")),
    ),
    CaseGroup(
        "production sizes",
        "full",
        tuple(case(rows=r, order=o) for r in ROWS for o in ("token_major", "block_major"))
        + (case(rows=257, hidden=1024),),
    ),
    CaseGroup("production sizes", "nightly", (case(rows=256),)),
    CaseGroup(
        "block counts",
        "smoke",
        tuple(case(rows=3, hidden=1024, blocks=b) for b in (0, 1, 8))
        + tuple(case(rows=3, hidden=128, blocks=b, write=w) for b in range(9) for w in (False, True) if b + w < 9)
        + (case(rows=3, hidden=128, capacity=10, blocks=9, write=True),),
    ),
    CaseGroup(
        "block counts",
        "full",
        tuple(case(rows=4, blocks=b, write=w, delta=d) for b in range(8) for w in (False, True) for d in (False, True)),
    ),
    CaseGroup(
        "options",
        "smoke",
        tuple(
            case(rows=5, hidden=512, blocks=4, delta=d, norm=n, write=w)
            for d in (True, False)
            for n in (True, False)
            for w in (True, False)
        )
        + (case(rows=2, norm=False), case(rows=33, hidden=256), case(hidden=1000, norm_weight="fp32"))
        + tuple(case(rows=5, hidden=130, blocks=3, write=True, layout=layout) for layout in ("row_padded", "offset")),
    ),
    CaseGroup(
        "odd widths",
        "smoke",
        tuple(case(rows=3, hidden=h, blocks=5, write=True, order="block_major") for h in (96, 1000, 1025)),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        (
            case("near_eps", hidden=1024),
            case("large", hidden=1024),
            case("zeros", hidden=256),
            case("zeros", hidden=256, delta=False),
            case(hidden=1024, score_scale=30.0),
            # Scores far beyond ±88, where an exponential without the right maximum over- or underflows.
            *(case(rows=9, hidden=256, blocks=b, score_scale=300.0) for b in (0, 1, 8)),
        ),
    ),
    CaseGroup(
        "magnitudes",
        "full",
        (case("near_eps"), case("large"), case(score_scale=30.0), case("near_eps", rows=33, delta=False)),
    ),
    CaseGroup("NaN and Inf", "smoke", tuple(case("nonfinite", hidden=256, blocks=3, norm=n) for n in (True, False))),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17, blocks=s % 9) for s in range(1, 33))),
    # Offsets beyond 2³¹ elements: more than an index of 32 bits reaches.
    CaseGroup(
        "far blocks",
        "nightly",
        (
            case(rows=3, hidden=1024, order="far", layout="far"),
            case(rows=3, hidden=1024, blocks=3, write=True, order="far"),
        ),
        targets=("cuda", "hip"),
    ),
)

VARIANTS = (
    OFFICIAL,
    Variant(
        "one_rounding",
        "mix rounded to bf16, output norm rounded once (tokenspeed)",
        drops=frozenset({"output_normalized"}),
    ),
    Variant(
        "mix_unrounded",
        "no rounding between mix and output norm, one at the end (vllm, aiter FlyDSL)",
        drops=frozenset({"mix", "output_normalized"}),
    ),
    Variant(
        "prefix_unrounded",
        "as mix_unrounded, and the prefix is a candidate before it is rounded (ATOM, aiter Triton)",
        drops=frozenset({"prefix", "mix", "output_normalized"}),
    ),
    Variant(
        "score_weight_bf16",
        "as one_rounding, with the scorer rounded to bf16 (tokenspeed, split and fused)",
        adds=frozenset({"score_weight"}),
        drops=frozenset({"output_normalized"}),
    ),
)

ROW_ARGUMENTS = ("prefix", "delta", "blocks")

OPERATOR = Operator(
    name="attention_residual",
    reference=attention_residual,
    outputs=(
        Output("hidden", "number", "=prefix"),
        Output("prefix", "number", "=prefix", argument="prefix"),
        Output("blocks", "structural", "=blocks", argument="blocks"),
    ),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, hidden=1024, blocks=4, write=True), case(rows=16, blocks=7)),
    weights=("score_weight", "output_norm_weight"),
    in_place=("prefix", "blocks"),
    variants=VARIANTS,
    structure=structure,
    laws=(
        batch_invariance(ROW_ARGUMENTS),
        row_isolation(ROW_ARGUMENTS),
        parameter_sensitivity(
            {
                "prefix": lambda a: a["prefix"].roll(1, 0),
                "delta": lambda a: None,
                "blocks": lambda a: a["blocks"].roll(1, 0),
                "num_blocks": lambda a: a["num_blocks"] - 1,
                "score_weight": lambda a: a["score_weight"].roll(1),
                "output_norm_weight": lambda a: None,
                "eps": lambda a: 10.0,
                "output_eps": lambda a: 10.0,
                "block_write_index": lambda a: -1 if a["block_write_index"] >= 0 else a["num_blocks"],
            }
        ),
        storage_order(
            "blocks",
            {"block-major": block_major, "row-padded": row_padded},
            {name: {"row-padded": row_padded} for name in ("prefix", "delta")},
        ),
        equivalence(
            "in_place_is_out_of_place",
            "Adding the delta beforehand gives the same bits as adding it inside.",
            added_beforehand,
            lambda arguments, usual: {name: usual[name] for name in ("prefix", "blocks")},
            lambda case: dict(case.parameters).get("delta", True),
        ),
    ),
    special_values=(
        "A NaN or Inf in a candidate, or in prefix + delta, makes the row NaN (its score spoils the softmax) and "
        "touches no other row. num_blocks = 0 mixes the prefix alone, which is the identity. The sign of a zero is "
        "not compared."
    ),
)
