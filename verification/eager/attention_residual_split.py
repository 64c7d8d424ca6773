from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fused.boundary import implements
from verification.eager.rms_norm import official_norm
from verification.eager.tiles import rows_product, tiled


@implements("attention_residual_partial", name="eager", batch_invariant=True)
def attention_residual_partial(
    blocks: Tensor, score_weights: Tensor, num_blocks: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax states of the snapshots under every scorer, in fp32.

    Shapes: blocks [T, capacity, H], score_weights [S, H] → maximum, sum [S, T], accumulator [S, T, H].
    """
    rows = len(blocks)
    values = tiled(blocks[:, :num_blocks]).float()
    inverse_rms = torch.rsqrt(values.square().mean(-1) + eps)
    score = inverse_rms * (values * score_weights[:, None, None]).sum(-1)
    maximum = functional.pad(score, (0, 1), value=-torch.inf).amax(-1)
    mass = torch.exp(score - maximum[..., None])
    accumulator = (mass[..., None] * values).sum(2)
    return maximum[:, :rows].contiguous(), mass.sum(-1)[:, :rows].contiguous(), accumulator[:, :rows].contiguous()


@implements("attention_residual_combine", name="eager", batch_invariant=True)
def attention_residual_combine(
    prefix: Tensor,
    maximum: Tensor,
    sum: Tensor,
    accumulator: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None = None,
    *,
    eps: float,
    output_eps: float,
) -> Tensor:
    """The prefix merged into one scorer's softmax state, in fp32, then the official norm.

    Shapes: prefix [T, H], maximum, sum [T], accumulator [T, H], score_weight [H] → hidden [T, H].
    """
    mix = merged(prefix, maximum, sum, accumulator, score_weight, eps)
    return official_norm(mix.to(prefix.dtype), output_norm_weight, output_eps)


def merged(
    prefix: Tensor, maximum: Tensor, sum: Tensor, accumulator: Tensor, score_weight: Tensor, eps: float
) -> Tensor:
    """The mix of a partial and the prefix in fp32; an empty partial's accumulator is not looked at."""
    value = tiled(prefix).float()
    score = torch.rsqrt(value.square().mean(-1) + eps) * (value * score_weight).sum(-1)
    value, score = value[: len(prefix)], score[: len(prefix)]
    largest = torch.maximum(maximum, score)
    kept, own = torch.exp(maximum - largest), torch.exp(score - largest)
    accumulator = accumulator.masked_fill((maximum == -torch.inf)[:, None], 0.0)
    return (kept[:, None] * accumulator + own[:, None] * value) / (kept * sum + own)[:, None]


@implements("projection_attention_residual", name="eager", batch_invariant=True)
def projection_attention_residual(
    x: Tensor, weight: Tensor, blocks: Tensor, score_weights: Tensor, num_blocks: int, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A projection, and the softmax states of the snapshots.

    Shapes: x [T, H], weight [O, H], blocks [T, capacity, H], score_weights [S, H]
    → projection [T, O], maximum, sum [S, T], accumulator [S, T, H].
    """
    projection = rows_product(x, weight).to(x.dtype)
    return projection, *attention_residual_partial(blocks, score_weights, num_blocks, eps)
