from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from reference.checks import require
from reference.collectives import all_reduce_attention_residual, ordered_sum
from verification.budget import Golden
from verification.contracts.partials import MERGE_LAWS, MERGE_VARIANTS, STATE_SENSITIVITY, partial_state
from verification.contracts.ranks import RELAID, by_rank, cancelling, ranked, ranks_agree, ranks_reversed
from verification.inputs import TORCH_DTYPES, Inputs
from verification.laws import batch_invariance, equivalence, parameter_sensitivity, row_isolation, storage_order
from verification.operator import (
    Arguments,
    Case,
    CaseGroup,
    Finding,
    Law,
    LawContext,
    Operator,
    Output,
    Outputs,
    make_case,
)

DEFAULTS: dict[str, Any] = {
    "ranks": 8, "rows": 4, "hidden": 7168, "blocks": 8, "layout": "contiguous", "norm_weight": "bf16",
    "score_scale": 2.0, "eps": 1e-5,
}  # fmt: skip

ROWS = (0, 1, 2, 4, 8, 16)
BF16 = torch.bfloat16


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of all_reduce_attention_residual."""
    return make_case("all_reduce_attention_residual", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """Shards that differ by rank, one prefix on all of them, and a partial as `blocks` snapshots may leave it."""
    p = DEFAULTS | dict(case.parameters)
    inputs = Inputs(case.id)
    shape = ranks, rows, hidden = p["ranks"], p["rows"], p["hidden"]
    require(ranks >= 1, case.operator, f"ranks is {ranks}; expected 1 or more")
    distribution = "normal" if case.distribution == "cancelling" else case.distribution
    state, scale = partial_state(inputs, p, distribution)
    shards = inputs.normal("shards", shape, 0.3 * scale)
    shards = shards + 0.05 * scale * by_rank(shards)
    if case.distribution == "cancelling":
        shards = cancelling(shards)
    residual = inputs.normal("residual", (rows, hidden), scale).to(BF16)
    if case.distribution == "nonfinite":
        shards[-1, :1, -1:], residual[3:4, :1] = torch.nan, torch.inf
    gain = 1 + inputs.normal("output_norm_weight", (hidden,), 0.1)
    return {
        "shards": ranked(shards.to(BF16), p["layout"]),
        "residual": ranked(residual.expand(shape), p["layout"]),
        **state,
        "score_weight": inputs.normal("score_weight", (hidden,), p["score_scale"] * hidden**-0.5).to(torch.float32),
        "output_norm_weight": gain.to(TORCH_DTYPES[p["norm_weight"]]),
        "eps": p["eps"],
    }


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """Every rank has the same bits."""
    yield from ranks_agree("hidden", outputs["hidden"])
    yield from ranks_agree("residual", outputs["residual"])


def summed_beforehand(arguments: Arguments) -> Arguments:
    """The whole sum as the first rank's shard, zeros on the others."""
    shards = torch.zeros_like(arguments["shards"])
    shards[0] = ordered_sum(arguments["shards"])
    return arguments | {"shards": shards}


def rank_order(context: LawContext) -> Iterator[str]:
    """The result of the ranks in reverse is that order's own."""
    yield from (f"With the ranks in reverse: {finding}" for finding in context.judge(ranks_reversed(context)))


GROUPS = (
    CaseGroup("production sizes", "smoke", (case(rows=0), case(rows=1), case(rows=2))),
    CaseGroup("production sizes", "full", tuple(case(rows=r) for r in ROWS)),
    CaseGroup("ranks", "smoke", tuple(case(ranks=w, rows=3, hidden=512) for w in (1, 2, 3, 4))),
    CaseGroup("rows", "smoke", tuple(case(rows=r, ranks=2, hidden=128) for r in (7, 8, 16, 17, 33, 64, 257))),
    CaseGroup("odd widths", "smoke", tuple(case(rows=3, ranks=4, hidden=h) for h in (1, 96, 1000, 1025))),
    CaseGroup("options", "smoke", (case(hidden=1000, ranks=4, norm_weight="fp32"), case(hidden=256, eps=1e-2))),
    CaseGroup("order of the sum", "smoke", tuple(case("cancelling", ranks=w, hidden=256) for w in (2, 4, 8))),
    CaseGroup(
        "layouts",
        "smoke",
        tuple(case(rows=5, ranks=4, hidden=130, layout=x) for x in ("staged", "row_padded", "offset")),
    ),
    CaseGroup(
        "no block",
        "smoke",
        tuple(case(d, ranks=4, hidden=256) for d in ("empty", "empty_nan", "some_empty")),
    ),
    CaseGroup(
        "magnitudes",
        "smoke",
        tuple(case(d, ranks=4, hidden=256) for d in ("near_eps", "large", "zeros", "apart"))
        + tuple(case(rows=9, ranks=2, hidden=256, score_scale=s) for s in (30.0, 300.0)),
    ),
    CaseGroup("NaN and Inf", "smoke", (case("nonfinite", ranks=4, hidden=256),)),
    CaseGroup("seeds", "nightly", tuple(case("cancelling", s, rows=s % 17) for s in range(1, 17))),
)

ROW_AXES = {"shards": 1, "residual": 1, "maximum": 0, "sum": 0, "accumulator": 0}
OUTPUT_AXES = {"hidden": 1, "residual": 1}

OPERATOR = Operator(
    name="all_reduce_attention_residual",
    reference=all_reduce_attention_residual,
    outputs=(Output("hidden", "number", "=shards"), Output("residual", "exact", "=residual", argument="residual")),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, ranks=4, hidden=1024), case("cancelling", rows=16, hidden=256)),
    weights=("score_weight", "output_norm_weight"),
    in_place=("residual",),
    variants=MERGE_VARIANTS,
    structure=structure,
    laws=(
        batch_invariance(ROW_AXES, OUTPUT_AXES),
        row_isolation(ROW_AXES, OUTPUT_AXES),
        parameter_sensitivity(
            STATE_SENSITIVITY
            | {
                "shards": lambda a: a["shards"] * 2,
                "residual": lambda a: a["residual"].roll(1, 1),
                "output_norm_weight": lambda a: a["output_norm_weight"] * 2,
                "eps": lambda a: 10.0,
            }
        ),
        storage_order(("shards", "residual"), RELAID),
        *MERGE_LAWS,
        Law("rank_order", "Ranks are added in their absolute order.", rank_order),
        equivalence(
            "summed_beforehand",
            "The whole sum on one rank gives the bits that its shards give.",
            summed_beforehand,
            lambda arguments, usual: usual,
        ),
    ),
    special_values=(
        "A NaN or Inf in a shard, the residual or a partial makes its row NaN on every rank and no other row. The "
        "sign of a zero is not compared. With no block before it (sum 0) the mix is the reduced residual alone."
    ),
)
