"""Top-k judged by scores and margins: ids must agree wherever the margin exceeds the scores' error.

Two choices that are equal in float64 are a tie for every right implementation: the lower id is
first. Two that differ by less than their errors may come in either order.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from verification.budget import Golden
from verification.operator import Arguments, Finding


def precedes(a: Tensor, a_error: Tensor, a_id: Tensor, b: Tensor, b_error: Tensor, b_id: Tensor) -> Tensor:
    """Where a must come before b: better by more than both errors, or equal with a lower id; NaN last."""
    a_nan, b_nan = torch.isnan(a), torch.isnan(b)
    better = ~a_nan & ~b_nan & (a > b) & ~(a - b <= a_error + b_error)
    tied = ((a == b) | (a_nan & b_nan)) & (a_id < b_id)
    return better | (~a_nan & b_nan) | tied


def check_choice(ids: Tensor, arguments: Arguments, golden: Golden) -> Iterator[Finding]:
    """Findings about logical ids [T, k]: distinct, inside kept groups, in the right order."""
    ordered = ids.sort(dim=1).values
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    if repeated.any():
        row = int(repeated.nonzero()[0])
        yield Finding(
            "structure",
            f"expert_ids: row {row} holds an expert twice: {ids[row].tolist()}; expected k distinct ids; "
            f"{int(repeated.sum())} of {ids.shape[0]} rows",
        )
        return
    choice, error = golden.trace["choice"], golden.trace_error["choice"]
    surely, possibly = kept_experts(choice, error, arguments)
    outside = ~possibly.gather(1, ids)
    if outside.any():
        row, slot = (int(i) for i in outside.nonzero()[0])
        yield Finding(
            "structure",
            f"expert_ids: row {row}, slot {slot} is expert {int(ids[row, slot])}, outside the kept groups "
            f"({int(outside.sum())} such slots)",
        )
        return
    yield from _check_order(ids, choice, error, surely)


def _check_order(ids: Tensor, choice: Tensor, error: Tensor, eligible: Tensor) -> Iterator[Finding]:
    waiting = eligible.clone()
    everyone = torch.arange(choice.shape[1]).expand_as(choice)
    for slot in range(ids.shape[1]):
        taken = ids[:, slot : slot + 1]
        waiting.scatter_(1, taken, False)
        overlooked = waiting & precedes(choice, error, everyone, choice.gather(1, taken), error.gather(1, taken), taken)
        if overlooked.any():
            row, better = (int(i) for i in overlooked.nonzero()[0])
            got = int(taken[row])
            had, missed = float(choice[row, got]), float(choice[row, better])
            both = float(error[row, better] + error[row, got])
            yield Finding(
                "structure",
                f"expert_ids: row {row}, slot {slot} is expert {got} with choice {had:.9g}, but expert {better} with "
                f"{missed:.9g} comes first (margin {missed - had:.3g}, error of both {both:.2g}); "
                f"{int(overlooked.any(1).sum())} of {ids.shape[0]} rows",
            )
            return


def kept_experts(choice: Tensor, error: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Masks [T, E] of the experts whose group is surely, and possibly, among the kept ones."""
    groups, kept = arguments["num_groups"], arguments["top_groups"]
    if groups == kept:
        everyone = torch.ones_like(choice, dtype=torch.bool)
        return everyone, everyone
    size = choice.shape[1] // groups
    counted = min(2 if arguments["correction_bias"] is not None else 1, size)
    grouped = choice.unflatten(1, (groups, size))
    best = (
        torch.where(grouped.isnan(), -torch.inf, grouped)
        .sort(dim=-1, descending=True, stable=True)
        .values[..., :counted]
    )
    # Where fewer than the counted experts are numbers, a NaN is among the best and the sum is NaN.
    missing = (~grouped.isnan()).sum(-1) < counted
    score = best.sum(-1).masked_fill(missing, torch.nan)
    score_error = error.unflatten(1, (groups, size)).amax(-1) * counted
    index = torch.arange(groups)
    before = precedes(
        score[:, :, None],
        score_error[:, :, None],
        index[:, None],
        score[:, None, :],
        score_error[:, None, :],
        index[None, :],
    )  # before[t, a, b]: group a must be ranked before group b
    surely_beaten_by = before.sum(1)
    maybe_beaten_by = (~before.transpose(1, 2)).sum(1) - 1
    surely, possibly = maybe_beaten_by < kept, surely_beaten_by < kept
    return surely.repeat_interleave(size, dim=1), possibly.repeat_interleave(size, dim=1)
