from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.normalization import normalize
from reference.numerics import ROUNDED, Numerics


class AttentionResidual(NamedTuple):
    """The mixed (and normed) hidden rows, and the new values of the in-place arguments."""

    hidden: Tensor
    prefix: Tensor
    blocks: Tensor


def attention_residual(
    prefix: Tensor,
    delta: Tensor | None,
    blocks: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None = None,
    *,
    num_blocks: int,
    eps: float,
    output_eps: float,
    block_write_index: int = -1,
    numerics: Numerics = ROUNDED,
) -> AttentionResidual:
    """Mix the block snapshots and the running prefix by a softmax over their normed scores.

    prefix' = bf16(prefix + delta), the point `prefix`; v = blocks[:, :num_blocks], prefix';
    p = softmax(rsqrt(mean(v²) + eps) · ⟨v, score_weight⟩); mix = Σ p·v, rounded at the point
    `mix`; hidden = rms_norm(mix, output_norm_weight, output_eps), or mix itself.

    prefix' is stored to prefix and, where block_write_index = num_blocks, to that block, which is
    no candidate of this call. The point `score_weight` (off) rounds the scorer to bf16.

    Shapes: prefix, delta [T, H] bf16; blocks [T, capacity, H] bf16, any strides; score_weight [H]
    fp32; output_norm_weight [H] → hidden, prefix [T, H], blocks. Raises ValueError for counts and
    indices outside the capacity. Source: Kimi-K3's attention residual, official form.
    """
    check_arguments(prefix, delta, blocks, score_weight, output_norm_weight, num_blocks, block_write_index)
    dtype = prefix.dtype
    updated = numerics.load(prefix)
    if delta is not None:
        updated = numerics.computed("prefix_sum", updated + numerics.load(delta))
    candidate = numerics.round("prefix", updated, dtype)
    candidates = torch.cat([numerics.load(blocks[:, :num_blocks]), candidate[:, None]], dim=1)

    mix = mix_candidates(candidates, score_weight, eps, numerics)
    hidden = finish(mix, output_norm_weight, output_eps, dtype, numerics)
    stored = numerics.output("stored_prefix", updated, dtype)
    written = blocks.clone()
    if block_write_index >= 0:
        written[:, block_write_index] = stored.to(dtype)
    return AttentionResidual(numerics.output("hidden", hidden, dtype), stored, written)


def mix_candidates(candidates: Tensor, score_weight: Tensor, eps: float, numerics: Numerics) -> Tensor:
    """Softmax-weighted sum [T, H] of the candidates [T, N, H], float64."""
    score = score_candidates(candidates, score_weight, eps, numerics)
    shifted = score - score.amax(-1, keepdim=True)
    mass = numerics.apply("exponential", torch.exp, shifted)
    total = numerics.sum("mass_sum", mass, -1, keepdim=True)
    probability = numerics.divide("probability", mass, total)
    return numerics.sum("mix_sum", probability[..., None] * candidates, 1)


def score_candidates(candidates: Tensor, score_weight: Tensor, eps: float, numerics: Numerics) -> Tensor:
    """rsqrt(mean(v²) + eps) · ⟨v, score_weight⟩ of candidates v [..., H]; weights may broadcast before them."""
    weight = numerics.round("score_weight", numerics.load(score_weight), torch.bfloat16, default=False)
    mean_square = numerics.sum("square_sum", candidates.square(), -1) / candidates.shape[-1]
    inverse = numerics.apply("inverse_rms", torch.rsqrt, mean_square + eps)
    return numerics.computed("score", inverse * numerics.sum("dot", candidates * weight, -1))


def finish(
    mix: Tensor, output_norm_weight: Tensor | None, output_eps: float, dtype: torch.dtype, numerics: Numerics
) -> Tensor:
    """The mix rounded at the point `mix` and normed, where there is a weight; before the last rounding."""
    if output_norm_weight is None:
        return mix
    mix = numerics.round("mix", mix, dtype)
    return normalize(mix, output_norm_weight, output_eps, dtype, numerics, name="output_")


def check_arguments(
    prefix: Tensor,
    delta: Tensor | None,
    blocks: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None,
    num_blocks: int,
    block_write_index: int,
) -> None:
    """Raise ValueError, naming the argument, for shapes and counts that do not fit."""
    name = "attention_residual"
    require(prefix.ndim == 2, name, f"prefix is {list(prefix.shape)}; expected [T, H]")
    rows, hidden = prefix.shape
    require_shape(name, "blocks", blocks, (rows, None, hidden), "[T, capacity, H]")
    require_shape(name, "score_weight", score_weight, (hidden,), "[H]")
    if delta is not None:
        require_shape(name, "delta", delta, (rows, hidden), "[T, H]")
    if output_norm_weight is not None:
        require_shape(name, "output_norm_weight", output_norm_weight, (hidden,), "[H]")
    capacity = blocks.shape[1]
    require(0 <= num_blocks <= capacity, name, f"num_blocks is {num_blocks}; expected 0…{capacity}, the capacity")
    require(
        block_write_index == -1 or (block_write_index == num_blocks < capacity), name,
        f"block_write_index is {block_write_index}; expected −1 or num_blocks = {num_blocks} < {capacity}",
    )  # fmt: skip
