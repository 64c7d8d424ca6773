from __future__ import annotations

from functools import partial
from typing import Any

import torch

from reference.attention_residual_split import attention_residual_combine
from reference.checks import require
from verification.contracts.partials import (
    MERGE_LAWS,
    MERGE_VARIANTS,
    STATE_SENSITIVITY,
    no_blocks,
    partial_state,
)
from verification.inputs import TORCH_DTYPES, Inputs, laid_out
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import Arguments, Case, CaseGroup, Operator, Output, make_case

DEFAULTS: dict[str, Any] = {
    "rows": 4, "hidden": 7168, "blocks": 8, "norm": True, "layout": "contiguous", "norm_weight": "bf16",
    "score_scale": 2.0, "eps": 1e-6, "output_eps": 2e-6,
}  # fmt: skip
"""The two eps differ, as they need not in the model, so that a kernel that swaps them is seen."""

ROWS = (0, 1, 2, 4, 8, 16, 17, 32)
BF16 = torch.bfloat16


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of attention_residual_combine."""
    return make_case("attention_residual_combine", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """A prefix and a partial as `blocks` snapshots may leave it."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    rows, hidden = p["rows"], p["hidden"]
    require(hidden >= 1, case.operator, f"hidden is {hidden}; expected 1 or more")
    state, scale = partial_state(inputs, p, case.distribution)
    prefix = inputs.normal("prefix", (rows, hidden), scale).to(BF16)
    if case.distribution == "nonfinite":
        prefix[:1, -1:] = torch.nan
    gain = 1 + inputs.normal("output_norm_weight", (hidden,), 0.1)
    return {
        "prefix": laid_out(prefix, p["layout"]),
        **state,
        "score_weight": inputs.normal("score_weight", (hidden,), p["score_scale"] * hidden**-0.5).to(torch.float32),
        "output_norm_weight": gain.to(TORCH_DTYPES[p["norm_weight"]]) if p["norm"] else None,
        "eps": p["eps"],
        "output_eps": p["output_eps"],
    }


ROW_ARGUMENTS = ("prefix", "maximum", "sum", "accumulator")

GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0), case(rows=1), case(), case(rows=16))),
    CaseGroup("production sizes", "full", tuple(case(rows=r) for r in ROWS)),
    CaseGroup(
        "rows",
        "smoke",
        tuple(case(rows=r, hidden=128) for r in (2, 7, 8, 17, 33, 64, 257)),
    ),
    CaseGroup(
        "options",
        "smoke",
        tuple(case(rows=5, hidden=h, norm=n) for h in (512, 130) for n in (True, False))
        + (case(hidden=1000, norm_weight="fp32"), case(rows=2, hidden=1024, eps=1e-5, output_eps=1e-5)),
    ),
    CaseGroup("layouts", "smoke", tuple(case(rows=5, hidden=130, layout=x) for x in ("row_padded", "offset"))),
    CaseGroup("odd widths", "smoke", tuple(case(rows=3, hidden=h) for h in (1, 96, 1025))),
    CaseGroup(
        "no block",
        "smoke",
        tuple(case(d, hidden=256, norm=n) for d in ("empty", "empty_nan", "some_empty") for n in (True, False))
        + (case("some_empty", rows=17, hidden=1024), case("zeros", hidden=256, blocks=0)),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, hidden=1024) for d in ("near_eps", "large", "zeros"))
        # Where one side has all the mass, and where scores are beyond what an exponential takes.
        + tuple(case("apart", hidden=256, norm=n) for n in (True, False))
        + tuple(case(rows=9, hidden=256, score_scale=s, norm=n) for s in (30.0, 300.0) for n in (True, False)),
    ),
    CaseGroup("magnitudes", "full", (case("near_eps"), case("large"), case(score_scale=30.0), case("apart"))),
    CaseGroup("NaN and Inf", "smoke", tuple(case("nonfinite", hidden=256, norm=n) for n in (True, False))),
    CaseGroup("seeds", "nightly", tuple(case(seed=s, rows=17, blocks=s % 9) for s in range(1, 33))),
)

OPERATOR = Operator(
    name="attention_residual_combine",
    reference=attention_residual_combine,
    outputs=(Output("hidden", "number", "=prefix"),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, hidden=1024), case(rows=16)),
    weights=("score_weight", "output_norm_weight"),
    variants=MERGE_VARIANTS,
    laws=(
        batch_invariance(ROW_ARGUMENTS),
        row_isolation(ROW_ARGUMENTS),
        parameter_sensitivity(
            STATE_SENSITIVITY
            | {
                "prefix": lambda a: a["prefix"].roll(1, 0),
                "output_norm_weight": lambda a: None,
                "eps": lambda a: 10.0,
                "output_eps": lambda a: 10.0,
            }
        ),
        storage_order(("prefix", "accumulator"), {"row-padded": partial(laid_out, layout="row_padded")}),
        *MERGE_LAWS,
        equivalence(
            "empty_is_identity",
            "Without a block and a norm the hidden rows are the prefix.",
            lambda arguments: no_blocks(arguments, 0.0) | {"output_norm_weight": None},
            lambda arguments, usual: {"hidden": arguments["prefix"]},
        ),
    ),
    special_values=(
        "A partial of no block (maximum −Inf, sum 0, accumulator 0) leaves the prefix alone; its accumulator is "
        "never multiplied into the result, so that NaN there does no harm. NaN in the prefix makes its row NaN."
    ),
)
