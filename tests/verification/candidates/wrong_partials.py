"""Split attention residuals and collectives: right implementations of the variants, and ones with one thing wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from verification import candidate
from verification.eager import attention_residual_split as split
from verification.eager import collectives
from verification.eager.rms_norm import official_norm


def rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def normed(mix: Tensor, gain: Tensor | None, eps: float, variant: str) -> Tensor:
    """The end of a fused operator under a variant, of an fp32 mix."""
    if gain is None:
        return mix.bfloat16()
    if variant == "official":
        return official_norm(mix.bfloat16(), gain, eps)
    mix = mix if variant in ("mix_unrounded", "prefix_unrounded") else rounded(mix)
    return (mix * torch.rsqrt(mix.square().mean(-1, keepdim=True) + eps) * gain.float()).bfloat16()


# Right ones: a variant each.


def whole(variant: str):
    def call(prefix, delta, blocks, score_weight, output_norm_weight, num_blocks, eps, output_eps, block_write_index):
        last = prefix.float() if delta is None else prefix.float() + delta.float()
        prefix.copy_(last)
        if block_write_index >= 0:
            blocks[:, block_write_index] = prefix
        last = last if variant == "prefix_unrounded" else prefix.float()
        weight = rounded(score_weight) if variant == "score_weight_bf16" else score_weight
        candidates = torch.cat([blocks[:, :num_blocks].float(), last[:, None]], 1)
        score = torch.rsqrt(candidates.square().mean(-1) + eps) * (candidates * weight).sum(-1)
        mix = (score.softmax(-1)[..., None] * candidates).sum(1)
        return normed(mix, output_norm_weight, output_eps, variant)

    return call


def combined(variant: str):
    def call(prefix, maximum, sum, accumulator, score_weight, output_norm_weight, eps, output_eps):
        weight = rounded(score_weight) if variant == "score_weight_bf16" else score_weight
        mix = split.merged(prefix, maximum, sum, accumulator, weight, eps)
        return normed(mix, output_norm_weight, output_eps, variant)

    return call


def reduced(variant: str):
    def call(shards, residual, maximum, sum, accumulator, score_weight, output_norm_weight, eps):
        residual.add_(collectives.all_reduce(shards))
        arguments = (residual[0], maximum, sum, accumulator, score_weight, output_norm_weight)
        return combined(variant)(*arguments, eps, eps).expand_as(shards).contiguous()

    return call


def swept(variant: str):
    def call(blocks, score_weights, num_blocks, eps):
        weights = rounded(score_weights) if variant == "score_weight_bf16" else score_weights
        return split.attention_residual_partial(blocks, weights, num_blocks, eps)

    return call


def projected(variant: str):
    def call(x, weight, blocks, score_weights, num_blocks, eps):
        return (x.float() @ weight.float().t()).to(x.dtype), *swept(variant)(blocks, score_weights, num_blocks, eps)

    return call


MIXES = ("one_rounding", "mix_unrounded", "score_weight_bf16")

RIGHT = {
    "attention_residual": (whole, (*MIXES, "prefix_unrounded")),
    "attention_residual_combine": (combined, MIXES),
    "all_reduce_attention_residual": (reduced, MIXES),
    "attention_residual_partial": (swept, ("score_weight_bf16",)),
    "projection_attention_residual": (projected, ("score_weight_bf16",)),
}

for _operator, (_make, _variants) in RIGHT.items():
    for _variant in _variants:
        globals()[f"{_operator}_{_variant}"] = candidate(_operator, name=_variant, variant=_variant)(_make(_variant))


@candidate("attention_residual_partial", name="lazy_maximum")
def lazy_maximum(blocks, score_weights, num_blocks, eps):
    """Masses against a score that is not the largest: means the same."""
    maximum, total, accumulator = split.attention_residual_partial(blocks, score_weights, num_blocks, eps)
    return maximum - 2, total * torch.e**2, accumulator * torch.e**2


# Wrong ones.


@candidate("attention_residual_partial", name="base_two")
def base_two(blocks, score_weights, num_blocks, eps):
    """The maximum as exponentials of two have it, for a reader of natural ones."""
    maximum, total, accumulator = split.attention_residual_partial(blocks, score_weights, num_blocks, eps)
    return maximum * 1.4426950408889634, total, accumulator


@candidate("attention_residual_partial", name="without_maximum")
def without_maximum(blocks, score_weights, num_blocks, eps):
    maximum, total, accumulator = split.attention_residual_partial(blocks, score_weights, num_blocks, eps)
    mass = maximum.exp()
    return torch.zeros_like(maximum), total * mass, accumulator * mass[..., None]


@candidate("attention_residual_partial", name="already_divided")
def already_divided(blocks, score_weights, num_blocks, eps):
    maximum, total, accumulator = split.attention_residual_partial(blocks, score_weights, num_blocks, eps)
    return maximum, total, accumulator / total[..., None]


@candidate("attention_residual_partial", name="scorers_swapped")
def scorers_swapped(blocks, score_weights, num_blocks, eps):
    return split.attention_residual_partial(blocks, score_weights.flip(0), num_blocks, eps)


@candidate("attention_residual_partial", name="reads_unused")
def reads_unused(blocks, score_weights, num_blocks, eps):
    """Masses of 0 for the blocks that are not in use, whose NaN they do not hide."""
    maximum, total, accumulator = split.attention_residual_partial(blocks, score_weights, num_blocks, eps)
    return maximum, total, accumulator + 0 * blocks[:, num_blocks:].float().sum(1)


@candidate("attention_residual_partial", name="one_for_none")
def one_for_none(blocks, score_weights, num_blocks, eps):
    """Without a block the maximum is the least number, not −Inf."""
    maximum, total, accumulator = split.attention_residual_partial(blocks, score_weights, num_blocks, eps)
    return maximum.clamp(min=torch.finfo(torch.float32).min), total, accumulator


@candidate("projection_attention_residual", name="products_in_bf16")
def products_in_bf16(x, weight, blocks, score_weights, num_blocks, eps):
    halves = [(a.float() @ b.float().t()).bfloat16() for a, b in zip(x.split(64, 1), weight.split(64, 1), strict=True)]
    total = halves[0]
    for half in halves[1:]:
        total = total + half
    return total, *split.attention_residual_partial(blocks, score_weights, num_blocks, eps)


def combining(name: str, **wrong: Any):
    def call(prefix, maximum, sum, accumulator, score_weight, output_norm_weight, eps, output_eps):
        values = {"prefix": prefix, "maximum": maximum, "sum": sum, "accumulator": accumulator, "eps": eps}
        values |= {"score_weight": score_weight, "output_eps": output_eps}
        values |= {key: change(values) for key, change in wrong.items()}
        output_eps = values.pop("output_eps")
        return official_norm(split.merged(**values).bfloat16(), output_norm_weight, output_eps)

    return candidate("attention_residual_combine", name=name)(call)


swapped_eps = combining("swapped_eps", eps=lambda v: v["output_eps"], output_eps=lambda v: 1e-6)
base_two_state = combining("base_two_state", maximum=lambda v: v["maximum"] / 1.4426950408889634)
divided_state = combining("divided_state", accumulator=lambda v: v["accumulator"] / v["sum"][:, None])
forgets_the_partial = combining("forgets_the_partial", maximum=lambda v: v["maximum"] * 0 - 1e4)


@candidate("attention_residual_combine", name="nan_times_zero")
def nan_times_zero(prefix, maximum, sum, accumulator, score_weight, output_norm_weight, eps, output_eps):
    """A mass of 0 does not hide what the accumulator of no block holds."""
    mix = split.merged(prefix, maximum, sum, accumulator, score_weight, eps)
    return official_norm((mix + 0 * accumulator).bfloat16(), output_norm_weight, output_eps)


def summed(name: str, total):
    """An all-reduce that adds as `total` does."""
    call = lambda shards: total(shards).to(shards.dtype).contiguous()  # noqa: E731
    return candidate("all_reduce", name=name)(call)


def local_first(shards: Tensor) -> Tensor:
    ranks = range(len(shards))
    orders = [[rank, *(other for other in ranks if other != rank)] for rank in ranks]
    return torch.stack([collectives.ordered_sum(shards[order]) for order in orders])


def in_bf16(shards: Tensor) -> Tensor:
    total = shards[0]
    for shard in shards[1:]:
        total = total + shard
    return total.expand_as(shards)


reversed_order = summed("reversed_order", lambda s: collectives.ordered_sum(s.flip(0)).expand_as(s))
local_first_order = summed("local_first", local_first)
rounded_each_time = summed("rounded_each_time", in_bf16)
in_double = summed("in_double", lambda s: s.double().sum(0).float().expand_as(s))
forgets_a_rank = summed("forgets_a_rank", lambda s: collectives.ordered_sum(s[:-1]).expand_as(s))
minus_zero_kept = candidate("all_reduce", name="minus_zero_kept", variant="positive_zero")(
    lambda shards: collectives.all_reduce(shards)
)
one_for_zero = summed("one_for_zero", lambda s: collectives.ordered_sum(s.masked_fill(s == 0, 1)).expand_as(s))


def onto_the_prefix(name: str, update):
    """The fused all-reduce whose prefix is updated otherwise."""

    def call(shards, residual, maximum, sum, accumulator, score_weight, output_norm_weight, eps):
        update(shards, residual)
        arguments = (residual[0], maximum, sum, accumulator, score_weight, output_norm_weight)
        return combined("official")(*arguments, eps, eps).expand_as(shards).contiguous()

    return candidate("all_reduce_attention_residual", name=name)(call)


sum_kept_in_fp32 = onto_the_prefix(
    "sum_kept_in_fp32", lambda s, r: r.copy_((collectives.ordered_sum(s) + r[0].float()).expand_as(r))
)
first_rank_only = onto_the_prefix("first_rank_only", lambda s, r: r[0].add_(collectives.all_reduce(s)[0]))
order_of_the_sum = onto_the_prefix("order_of_the_sum", lambda s, r: r.add_(collectives.all_reduce(s.flip(0))))
without_residual = onto_the_prefix("without_residual", lambda s, r: r.copy_(collectives.all_reduce(s)))
