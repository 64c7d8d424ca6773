from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.collectives import all_reduce
from reference.numerics import OFFICIAL, Variant
from verification.budget import Golden
from verification.contracts.ranks import RELAID, by_rank, cancelling, ranked, ranks_agree, ranks_reversed
from verification.inputs import Inputs
from verification.laws import batch_invariance, differences, equivalence, row_isolation, storage_order
from verification.localization import describe_failures
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
    pick,
)
from verification.shards import along, shards

DEFAULTS: dict[str, Any] = {"ranks": 8, "rows": 4, "hidden": 7168, "layout": "contiguous"}

ROWS = (0, 1, 2, 4, 8, 16, 17, 64, 257)
BF16 = torch.bfloat16


def case(distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
    """A case of all_reduce."""
    return make_case("all_reduce", DEFAULTS, "bf16", distribution, seed, **parameters)


def make(case: Case) -> Arguments:
    """A shard a rank, as the distribution names it."""
    p = DEFAULTS | dict(case.parameters)
    require(p["ranks"] >= 1, case.operator, f"ranks is {p['ranks']}; expected 1 or more")
    shards = Inputs(case.id).normal("shards", (p["ranks"], p["rows"], p["hidden"]))
    shards = pick(case.distribution, DISTRIBUTIONS, "distribution")(shards + 0.25 * by_rank(shards)).to(BF16)
    return {"shards": ranked(shards, p["layout"])}


def negative_zeros(shards: Tensor) -> Tensor:
    """Only −0 in the even columns, −0 and +0 in the odd ones: where a mailbox waits for another word than −0."""
    shards[:] = -0.0
    shards[1::2, :, 1::2] = 0.0
    return shards


def some_zeros(shards: Tensor) -> Tensor:
    """Rank by rank −0 among numbers."""
    return torch.where(shards.abs() < 0.7, -0.0, shards)


def nonfinite(shards: Tensor) -> Tensor:
    """NaN, Inf, Inf − Inf, and a sum that overflows."""
    shards[0, :1, :1], shards[-1, :1, 1:2] = torch.nan, torch.inf
    shards[0, 1:2, :1], shards[-1, 1:2, :1] = torch.inf, -torch.inf
    shards[:, -1:, -1:] = 3e38
    return shards


def one_rank(shards: Tensor) -> Tensor:
    """Zeros but on the last rank."""
    shards[:-1] = 0.0
    return shards


DISTRIBUTIONS = {
    "normal": lambda shards: shards,
    "fills": lambda shards: torch.ones_like(shards) + by_rank(shards),
    "cancelling": cancelling,
    "negative_zeros": negative_zeros,
    "some_zeros": some_zeros,
    "zeros": lambda shards: shards * 0,
    "large": lambda shards: shards * 2.0**126,
    "subnormal": lambda shards: shards * 2.0**-131,
    "nonfinite": nonfinite,
    "one_rank": one_rank,
}


def unsigned_zero(outputs: Outputs) -> Tensor:
    """The sum with the sign of zeros dropped."""
    return outputs["sum"] + 0.0


def structure(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """Every rank has the same bits; a variant that rewrites −0 leaves none."""
    yield from ranks_agree("sum", outputs["sum"])
    negative = (outputs["sum"] == 0) & torch.signbit(outputs["sum"])
    if golden.variant is POSITIVE_ZERO and negative.any():
        yield Finding("structure", f"sum: {int(negative.sum())} zeros are negative; {describe_failures(negative)}")


POSITIVE_ZERO = Variant(
    "positive_zero", "−0 rewritten to +0 (mailboxes whose empty word is −0)", adds=frozenset({"positive_zero"})
)


def scaled(arguments: Arguments) -> Arguments:
    """Every shard times 4."""
    return {"shards": arguments["shards"] * 4}


def last_rank_alone(arguments: Arguments) -> Arguments:
    """Zeros on every rank but the last."""
    return {"shards": torch.cat([torch.zeros_like(arguments["shards"][:-1]), arguments["shards"][-1:]])}


def every_rank_counts(context: LawContext) -> Iterator[str]:
    """Another shard on one rank changes the sum on all."""
    usual = context.call(context.arguments())
    for rank in range(len(context.arguments()["shards"])):
        arguments = context.arguments()
        arguments["shards"][rank] = 2.0**31  # beyond what `cancelling` has
        after = context.call(arguments)
        for reader in range(len(usual["sum"])):
            if not any(differences({"sum": usual["sum"][reader]}, {"sum": after["sum"][reader]}, "")):
                yield f"Another shard on rank {rank} changed no bit of the sum on rank {reader}."


def rank_order(context: LawContext) -> Iterator[str]:
    """The sum of the ranks in reverse is that order's own, bit for bit."""
    yield from (f"With the ranks in reverse: {finding}" for finding in context.judge(ranks_reversed(context)))


GROUPS = (
    CaseGroup(
        "production sizes", "smoke", (case(rows=0), case(rows=1), case(), case(rows=17), case(rows=4, hidden=3584))
    ),
    CaseGroup("production sizes", "full", tuple(case(rows=r, hidden=h) for r in ROWS for h in (7168, 3584))),
    CaseGroup("ranks", "smoke", tuple(case(ranks=w, rows=3, hidden=512) for w in (1, 2, 3, 4, 8))),
    CaseGroup("rows", "smoke", tuple(case(rows=r, hidden=128) for r in (2, 6, 7, 8, 16, 33, 64, 257))),
    CaseGroup("odd widths", "smoke", tuple(case(rows=3, hidden=h) for h in (1, 17, 513, 1025))),
    CaseGroup(
        "order of the sum",
        "smoke",
        tuple(case("cancelling", ranks=w, hidden=512) for w in (2, 4, 8)) + (case("fills", hidden=512),),
    ),
    CaseGroup(
        "special values",
        "smoke",
        tuple(case(d, hidden=512) for d in DISTRIBUTIONS if d not in ("normal", "fills", "cancelling")),
    ),
    CaseGroup(
        "layouts", "smoke", tuple(case(rows=5, hidden=130, layout=x) for x in ("staged", "row_padded", "offset"))
    ),
    CaseGroup("order of the sum", "full", tuple(case("cancelling", rows=r) for r in (1, 16))),
    CaseGroup("seeds", "nightly", tuple(case("cancelling", s, rows=s) for s in range(1, 33)) + (case(rows=2048),)),
)

OPERATOR = Operator(
    name="all_reduce",
    reference=all_reduce,
    outputs=(Output("sum", "exact", "=shards", meaning=unsigned_zero),),
    defaults=DEFAULTS,
    make=make,
    groups=GROUPS,
    law_cases=(case(rows=9, hidden=1000), case("cancelling", rows=16, ranks=4, hidden=512)),
    variants=(OFFICIAL, POSITIVE_ZERO),
    structure=structure,
    laws=(
        batch_invariance({"shards": 1}, {"sum": 1}),
        row_isolation({"shards": 1}, {"sum": 1}),
        storage_order("shards", RELAID),
        shards("column_shards", "Shards of the columns side by side are the whole.", along({"shards": 2}), {"sum": 2}),
        Law("every_rank_counts", "Every rank's shard reaches every rank.", every_rank_counts),
        Law("rank_order", "Ranks are added in their absolute order.", rank_order),
        equivalence(
            "scale",
            "Shards times a power of two give the sum times it.",
            scaled,
            lambda arguments, usual: {"sum": usual["sum"] * 4},
        ),
        equivalence(
            "last_rank_alone",
            "Beside zeros a shard is the sum.",
            last_rank_alone,
            lambda arguments, usual: {"sum": arguments["shards"][-1:].expand_as(arguments["shards"]).contiguous()},
        ),
    ),
    special_values=(
        "NaN and Inf in any rank's shard spread to that element of every rank's result, as fp32 addition in rank "
        "order has it; +Inf and −Inf give NaN. The sign of a zero is never compared. No rows launch nothing."
    ),
)
