from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.attention_residual import finish
from reference.attention_residual_split import Partials, check_partial_state, merge_candidate
from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics


class ReducedResidual(NamedTuple):
    """The mixed and normed hidden rows of each rank, and the new values of the running prefix."""

    hidden: Tensor
    residual: Tensor


def all_reduce(shards: Tensor, *, numerics: Numerics = ROUNDED) -> Tensor:
    """Sum the ranks' shards on every rank: fp32 in absolute rank order, rounded once.

    sum[w] = bf16((((shards[0] + shards[1]) + shards[2]) + …) in fp32), the same bits on every rank.

    The order is the contract, so that every reading gives the same bits. Nothing is said of a
    zero's sign; the point `positive_zero` (off) makes each zero positive, as mailboxes do that wait
    for a word other than −0.

    Shapes: shards [W, T, H] bf16, one a virtual rank → sum [W, T, H]. Raises ValueError for other
    shapes or no rank. Source: Kimi-K3's one-shot all-reduce.
    """
    check_shards("all_reduce", shards)
    total = ordered_sum(shards)
    if numerics.has("positive_zero", default=False):
        total = torch.where(total == 0, 0.0, total)
    return numerics.note("sum", total.expand_as(shards).clone())


def ordered_sum(shards: Tensor) -> Tensor:
    """The fp32 sum in rank order, rounded to the shards' dtype: [T, H]."""
    total = shards[0].float()
    for shard in shards[1:]:
        total = total + shard.float()
    return total.to(shards.dtype)


def all_reduce_attention_residual(
    shards: Tensor,
    residual: Tensor,
    maximum: Tensor,
    sum: Tensor,
    accumulator: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor,
    *,
    eps: float,
    numerics: Numerics = ROUNDED,
) -> ReducedResidual:
    """Sum the ranks' shards, add them to the running prefix, and mix it with one scorer's partial.

    residual' = bf16(residual + all_reduce(shards)), bit for bit; hidden =
    attention_residual_combine(residual', partial, score_weight, output_norm_weight, eps, eps).

    One eps serves both norms. The point `score_weight` (off) rounds the scorer to bf16.

    Shapes: shards [W, T, H], residual [W, T, H] bf16, each virtual rank's copy of the one prefix;
    maximum, sum [T], accumulator [T, H], score_weight [H] fp32; output_norm_weight [H] → hidden
    [W, T, H] equal on all ranks, residual. Raises ValueError for shapes that do not fit and for
    ranks whose prefixes differ. Source: Kimi-K3's attention residual, mixed in the all-reduce.
    """
    name = "all_reduce_attention_residual"
    check_shards(name, shards)
    ranks, rows, hidden = shards.shape
    alone = "; each rank has a copy of its own" if residual.shape == (rows, hidden) else ""
    require(
        residual.shape == shards.shape, name,
        f"residual is {list(residual.shape)}; expected [W, T, H] = [{ranks}, {rows}, {hidden}]{alone}",
    )  # fmt: skip
    partial = Partials(maximum, sum, accumulator)
    check_partial_state(name, partial, rows, hidden)
    require_shape(name, "score_weight", score_weight, (hidden,), "[H]")
    require_shape(name, "output_norm_weight", output_norm_weight, (hidden,), "[H]")
    first = residual[0].contiguous().view(torch.int16)
    apart = [rank for rank in range(ranks) if not torch.equal(residual[rank].contiguous().view(torch.int16), first)]
    require(not apart, name, f"residual of ranks {apart} differs from rank 0's; the prefix is one, replicated")

    updated = (residual[0].float() + ordered_sum(shards).float()).to(residual.dtype)
    mix = merge_candidate(numerics.load(updated), partial, score_weight, eps, numerics)
    mixed = numerics.output("hidden", finish(mix, output_norm_weight, eps, updated.dtype, numerics), updated.dtype)
    return ReducedResidual(mixed.expand(shards.shape).clone(), updated.expand_as(residual).clone())


def check_shards(operator: str, shards: Tensor) -> None:
    """Raise ValueError unless shards is [W, T, H] with a rank."""
    one = "; the reference wants every rank's, stacked" if shards.ndim == 2 else ""
    require(
        shards.ndim == 3 and len(shards) > 0, operator,
        f"shards is {list(shards.shape)}; expected [W, T, H] with W of 1 or more{one}",
    )  # fmt: skip
