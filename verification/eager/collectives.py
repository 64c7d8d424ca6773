from __future__ import annotations

from typing import Any

from torch import Tensor, distributed

from fused.boundary import implements
from verification.eager.attention_residual_split import merged
from verification.eager.rms_norm import official_norm


def ordered_sum(shards: Tensor) -> Tensor:
    """The fp32 sum in rank order, [T, H]; Σ over an axis would leave the order to the library."""
    total = shards[0].float()
    for shard in shards[1:]:
        total = total + shard
    return total


@implements("all_reduce", name="eager", batch_invariant=True)
def all_reduce(shards: Tensor) -> Tensor:
    """Virtual ranks: the sum in rank order, rounded once, on each.

    Shapes: shards [W, T, H] → sum [W, T, H].
    """
    return ordered_sum(shards).to(shards.dtype).expand_as(shards).contiguous()


@implements("all_reduce", name="eager_positive_zero", variant="positive_zero", batch_invariant=True)
def all_reduce_positive_zero(shards: Tensor) -> Tensor:
    """The same with −0 made +0 before it is sent, as for a mailbox whose empty word is −0.

    Shapes: shards [W, T, H] → sum [W, T, H].
    """
    return all_reduce(shards + 0.0)


@implements("all_reduce_attention_residual", name="eager", batch_invariant=True)
def all_reduce_attention_residual(
    shards: Tensor,
    residual: Tensor,
    maximum: Tensor,
    sum: Tensor,
    accumulator: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor,
    eps: float,
) -> Tensor:
    """Virtual ranks: the sum onto each rank's prefix in place, then one mix for all.

    Shapes: shards, residual [W, T, H], maximum, sum [T], accumulator [T, H], score_weight,
    output_norm_weight [H] → hidden [W, T, H].
    """
    residual.add_(ordered_sum(shards).to(shards.dtype))
    mix = merged(residual[0], maximum, sum, accumulator, score_weight, eps)
    hidden = official_norm(mix.to(residual.dtype), output_norm_weight, eps)
    return hidden.expand_as(shards).contiguous()


def gathered(shard: Tensor, group: Any = None) -> Tensor:
    """Every rank's shard on this one, for a process group: [T, H] → [W, T, H]."""
    shards = shard.new_empty(distributed.get_world_size(group), *shard.shape)
    distributed.all_gather(list(shards), shard.contiguous(), group)
    return shards


def all_reduce_across(shard: Tensor, group: Any = None) -> Tensor:
    """all_reduce for a process group, with the bits of the virtual ranks.

    Shapes: shard [T, H], this rank's → sum [T, H].
    """
    return ordered_sum(gathered(shard, group)).to(shard.dtype)
