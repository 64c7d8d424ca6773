from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.attention_residual import finish, score_candidates
from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics


class Partials(NamedTuple):
    """Softmax states over the snapshots, one a scorer and row: largest score, masses, unnormalised mix."""

    maximum: Tensor
    sum: Tensor
    accumulator: Tensor


class ProjectedPartials(NamedTuple):
    """A projection, and the softmax states that were swept beside it."""

    projection: Tensor
    maximum: Tensor
    sum: Tensor
    accumulator: Tensor


def attention_residual_partial(
    blocks: Tensor, score_weights: Tensor, *, num_blocks: int, eps: float, numerics: Numerics = ROUNDED
) -> Partials:
    """Softmax states of the block snapshots under several scorers, in one sweep.

    v = blocks[:, :num_blocks]; logit = rsqrt(mean(v²) + eps) · ⟨v, score_weights[s]⟩;
    maximum = max logit, sum = Σ exp(logit − maximum), accumulator = Σ exp(logit − maximum)·v.

    No block gives −Inf, 0, 0. The point `score_weight` (off) rounds the scorers to bf16.

    Shapes: blocks [T, capacity, H] bf16, any strides; score_weights [S, H] fp32 → maximum, sum
    [S, T], accumulator [S, T, H], fp32. Raises ValueError for shapes and counts that do not fit.
    Source: Kimi-K3's attention residual, split for decoding.
    """
    check_partial("attention_residual_partial", blocks, score_weights, num_blocks)
    return sweep(blocks, score_weights, num_blocks, eps, numerics)


def sweep(blocks: Tensor, score_weights: Tensor, num_blocks: int, eps: float, numerics: Numerics) -> Partials:
    """The same on checked arguments."""
    candidates = numerics.load(blocks[:, :num_blocks])
    score = score_candidates(candidates, score_weights[:, None, None], eps, numerics)
    nothing = score.new_full((*score.shape[:-1], 1), -torch.inf)
    maximum = torch.cat([score, nothing], -1).amax(-1)
    mass = numerics.apply("exponential", torch.exp, score - maximum[..., None])
    total = numerics.sum("mass_sum", mass, -1)
    accumulator = numerics.sum("accumulator_sum", mass[..., None] * candidates, 2)
    return Partials(
        numerics.output("maximum", maximum, torch.float32),
        numerics.output("sum", total, torch.float32),
        numerics.output("accumulator", accumulator, torch.float32),
    )


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
    numerics: Numerics = ROUNDED,
) -> Tensor:
    """Merge the running prefix, as the last candidate, into one scorer's partial; mix and norm.

    logit = rsqrt(mean(prefix²) + eps) · ⟨prefix, score_weight⟩; m = max(maximum, logit);
    mix = (exp(maximum − m)·accumulator + exp(logit − m)·prefix) ÷ (exp(maximum − m)·sum + exp(logit − m)),
    rounded at the point `mix`; hidden = rms_norm(mix, output_norm_weight, output_eps), or mix itself.

    A partial of no block (maximum −Inf) is ignored, whatever its accumulator holds. The point
    `score_weight` (off) rounds the scorer to bf16.

    Shapes: prefix [T, H] bf16; maximum, sum [T], accumulator [T, H], score_weight [H] fp32;
    output_norm_weight [H] → hidden [T, H] in prefix's dtype. Raises ValueError for shapes that do
    not fit, and for a maximum and a sum that disagree on there being a block. Source: Kimi-K3's
    attention residual, split for decoding.
    """
    name = "attention_residual_combine"
    require(prefix.ndim == 2, name, f"prefix is {list(prefix.shape)}; expected [T, H]")
    rows, hidden = prefix.shape
    partial = Partials(maximum, sum, accumulator)
    check_partial_state(name, partial, rows, hidden)
    require_shape(name, "score_weight", score_weight, (hidden,), "[H]")
    if output_norm_weight is not None:
        require_shape(name, "output_norm_weight", output_norm_weight, (hidden,), "[H]")
    mix = merge_candidate(numerics.load(prefix), partial, score_weight, eps, numerics)
    mixed = finish(mix, output_norm_weight, output_eps, prefix.dtype, numerics)
    return numerics.output("hidden", mixed, prefix.dtype)


def merge_candidate(
    candidate: Tensor, partial: Partials, score_weight: Tensor, eps: float, numerics: Numerics
) -> Tensor:
    """Softmax-weighted sum [T, H] of a partial's candidates and one more [T, H], float64."""
    score = score_candidates(candidate, score_weight, eps, numerics)
    maximum, total = numerics.load(partial.maximum), numerics.load(partial.sum)
    empty = maximum == -torch.inf
    accumulator = torch.where(empty[:, None], 0.0, numerics.load(partial.accumulator))
    largest = torch.maximum(maximum, score)
    kept = numerics.apply("kept", torch.exp, maximum - largest)
    own = numerics.apply("own", torch.exp, score - largest)
    mass = numerics.sum("mass_sum", torch.stack([kept * total, own]), 0)
    terms = torch.stack([kept[:, None] * accumulator, own[:, None] * candidate])
    return numerics.divide("mixed", numerics.sum("mix_sum", terms, 0), mass[:, None])


def projection_attention_residual(
    x: Tensor,
    weight: Tensor,
    blocks: Tensor,
    score_weights: Tensor,
    *,
    num_blocks: int,
    eps: float,
    numerics: Numerics = ROUNDED,
) -> ProjectedPartials:
    """A projection of x, and beside it the softmax states of the block snapshots.

    projection = bf16(x · weightᵀ) with fp32 sums; the rest as attention_residual_partial.

    Shapes: x [T, H], weight [O, H], blocks [T, capacity, H] bf16, any strides; score_weights [S, H]
    fp32 → projection [T, O] bf16; maximum, sum [S, T], accumulator [S, T, H] fp32. Raises
    ValueError for shapes and counts that do not fit. Source: Kimi-K3's attention residual, swept
    while the attention's input is projected.
    """
    name = "projection_attention_residual"
    check_partial(name, blocks, score_weights, num_blocks)
    rows, capacity, hidden = blocks.shape
    block_major = x.shape == (capacity, hidden) and rows != capacity
    advice = "; blocks looks block-major: pass blocks.transpose(0, 1)" if block_major else ""
    require(
        x.shape == (rows, hidden),
        name,
        f"x is {list(x.shape)}; expected [T, H] = [{rows}, {hidden}], as blocks{advice}",
    )
    transposed = weight.ndim == 2 and weight.shape[0] == hidden != weight.shape[1]
    hint = "; it looks transposed" if transposed else ""
    fits = weight.ndim == 2 and weight.shape[1] == hidden
    require(fits, name, f"weight is {list(weight.shape)}; expected [O, H] = [any, {hidden}]{hint}")
    product = numerics.matmul("product", numerics.load(x), numerics.load(weight).t())
    projection = numerics.output("projection", product, x.dtype)
    return ProjectedPartials(projection, *sweep(blocks, score_weights, num_blocks, eps, numerics))


def check_partial(operator: str, blocks: Tensor, score_weights: Tensor, num_blocks: int) -> None:
    """Raise ValueError, naming the argument, unless blocks, scorers and count fit together."""
    require(blocks.ndim == 3, operator, f"blocks is {list(blocks.shape)}; expected [T, capacity, H]")
    _, capacity, hidden = blocks.shape
    single = "; one scorer is score_weights[None]" if score_weights.ndim == 1 else ""
    fits = score_weights.ndim == 2 and score_weights.shape[1] == hidden
    require(fits, operator, f"score_weights is {list(score_weights.shape)}; expected [S, H] = [any, {hidden}]{single}")
    require(0 <= num_blocks <= capacity, operator, f"num_blocks is {num_blocks}; expected 0…{capacity}, the capacity")


def check_partial_state(operator: str, partial: Partials, rows: int, hidden: int) -> None:
    """Raise ValueError, naming the part, unless one scorer's partial fits the rows."""
    several = "; take one scorer's, without the S axis" if partial.maximum.ndim == 2 else ""
    require(
        partial.maximum.shape == (rows,), operator,
        f"maximum is {list(partial.maximum.shape)}; expected [T] = [{rows}]{several}",
    )  # fmt: skip
    require_shape(operator, "sum", partial.sum, (rows,), "[T]")
    require_shape(operator, "accumulator", partial.accumulator, (rows, hidden), "[T, H]")
    differing = ((partial.maximum == -torch.inf) != (partial.sum == 0)).nonzero().flatten().tolist()
    require(
        not differing, operator,
        f"rows {differing[:8]} have a maximum of −Inf or a sum of 0 but not both; a partial of no block has both",
    )  # fmt: skip
