"""Eager implementations of the microscaling and expert operators with one thing wrong."""

from __future__ import annotations

from contextlib import contextmanager

import torch

from verification import candidate
from verification.eager import microscaling as mx
from verification.eager import moe_experts as moe
from verification.eager.situ import bounded_product


@candidate("quantize_mx", name="truncated_codes")
def truncated_codes(x, format):
    """Codes toward zero: right within a step, and one time in two wrong."""
    codes, scales = mx.quantize_mx(x, format)
    values = mx.expanded(codes, scales, format)
    too_large = values.abs() > x.float().abs()
    smaller = torch.where(too_large, codes_of(codes, format) - 1, codes_of(codes, format))
    return joined(smaller, format), scales


def codes_of(codes, format):
    pairs = torch.stack([codes & 15, codes >> 4], -1).flatten(-2) if format == "mxfp4" else codes
    return pairs.int()


def joined(codes, format):
    codes = codes.to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4 if format == "mxfp4" else codes


@candidate("quantize_mx", name="high_nibble_first")
def high_nibble_first(x, format):
    codes, scales = mx.quantize_mx(x, format)
    return (codes >> 4 | codes << 4 if format == "mxfp4" else codes), scales


@candidate("quantize_mx", name="nan_is_largest")
def nan_is_largest(x, format):
    """NaN counted in amax as the largest number."""
    return mx.quantize_mx(x.nan_to_num(nan=torch.finfo(x.dtype).max), format)


@candidate("quantize_mx", name="no_floor")
def no_floor(x, format):
    """A group of zeros has 0 ÷ 0 for its codes' scale: NaN."""
    codes, scales = mx.quantize_mx(x, format)
    zero = (x == 0).unflatten(-1, (-1, 32)).all(-1)
    return codes, scales.masked_fill(zero, 255)


@candidate("quantize_mx", name="neighbours_scale")
def neighbours_scale(x, format):
    codes, scales = mx.quantize_mx(x, format)
    return codes, scales.roll(1, -1)


@candidate("dequantize_mx", name="flushed_small_scales")
def flushed_small_scales(codes, scales, format):
    """Scales that are subnormal in fp16 lost."""
    x = mx.dequantize_mx(codes, scales, format)
    return x * (scales > 112).repeat_interleave(32, dim=-1)


@candidate("dequantize_mx", name="byte_zero_is_zero")
def byte_zero_is_zero(codes, scales, format):
    """2^−127 by shifting the byte into the exponent, where it is no normal number."""
    x = mx.dequantize_mx(codes, scales, format)
    return x * (scales > 0).repeat_interleave(32, dim=-1)


@candidate("dequantize_mx", name="scale_255_is_a_number")
def scale_255_is_a_number(codes, scales, format):
    return mx.dequantize_mx(codes, scales.clamp(max=254), format)


@candidate("dequantize_mx", name="transposed_scales")
def transposed_scales(codes, scales, format):
    return mx.dequantize_mx(codes, scales.t().contiguous().view(scales.shape), format)


@candidate("situ", name="silu")
def silu(gate_up, beta, linear_beta=None):
    gate, up = gate_up.float().chunk(2, dim=1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)


@candidate("situ", name="swapped_betas")
def swapped_betas(gate_up, beta, linear_beta=None):
    gate, up = gate_up.float().chunk(2, dim=1)
    return bounded_product(gate, up, linear_beta or beta, beta).to(gate_up.dtype)


@candidate("situ", name="sigmoid_of_ratio")
def sigmoid_of_ratio(gate_up, beta, linear_beta=None):
    gate, up = gate_up.float().chunk(2, dim=1)
    up = up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta)
    return (beta * torch.tanh(gate / beta) * torch.sigmoid(gate / beta) * up).to(gate_up.dtype)


@candidate("situ", name="tangent_rounded")
def tangent_rounded(gate_up, beta, linear_beta=None):
    """A bf16 rounding that the contract has not."""
    gate, up = gate_up.float().chunk(2, dim=1)
    gated = (beta * torch.tanh(gate / beta) * torch.sigmoid(gate)).bfloat16().float()
    return (gated * (up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta))).to(gate_up.dtype)


def experts(change):
    """The eager experts with their arguments changed: no layout is prepared."""

    def run(w13, w13_scale, w2, w2_scale, w13_layout, x, **options):
        arguments = {"x": x, "w13": w13, "w13_scale": w13_scale, "w2": w2, "w2_scale": w2_scale}
        arguments |= {"w13_layout": w13_layout, **options}
        arguments |= change(arguments)
        bank = moe.prepare(**{n: arguments.pop(n) for n in ("w13", "w13_scale", "w2", "w2_scale", "w13_layout")})
        return moe.moe_experts(bank, **arguments)

    return run


CHANGES = {
    "gates_and_ups_exchanged": lambda a: {n: torch.cat([*reversed(a[n].chunk(2, 1))], 1) for n in ("w13", "w13_scale")},
    "layout_ignored": lambda a: {"w13_layout": "separated"},
    "ids_not_localised": lambda a: {"expert_offset": 0},
    "next_experts_scales": lambda a: {"w2_scale": a["w2_scale"].roll(1, 0)},
    "next_groups_scales": lambda a: {"w13_scale": a["w13_scale"].roll(1, 2)},
    "activations_not_quantised": lambda a: {"activation_format": "bf16"},
    "betas_exchanged": lambda a: {"beta": a["linear_beta"], "linear_beta": a["beta"]},
    "last_block_dropped": lambda a: {"w2": without_last_block(a["w2"])},
    "high_nibble_of_w2_first": lambda a: {"w2": a["w2"] >> 4 | a["w2"] << 4},
    "duplicates_once": lambda a: {"expert_weights": a["expert_weights"] * first_of_its_row(a["expert_ids"])},
    "weight_of_first_slot": lambda a: {"expert_weights": a["expert_weights"][:, :1].expand(a["expert_weights"].shape)},
    "padding_is_a_pair": lambda a: {"num_valid_ids": a["num_valid_ids"] - a["block_size"]},
}


def without_last_block(codes):
    codes = codes.clone()
    codes[..., -16:] = 0
    return codes


def first_of_its_row(ids):
    earlier = (ids[:, :, None] == ids[:, None, :]).tril(-1)
    return (~earlier.any(2)).float()


for name, change in CHANGES.items():
    globals()[name] = candidate("moe_experts", name=name)(experts(change))


@candidate("moe_experts", name="unwritten_without_local_expert", prepare=moe.prepare)
def unwritten_without_local_expert(
    bank, x, *, beta, linear_beta, activation_format, num_local_experts, combine, **routing
):
    out = moe.moe_experts(bank, x, beta=beta, linear_beta=linear_beta, activation_format=activation_format, **routing)
    local, _ = moe.local_routes(len(x), len(bank.w13), **routing)
    written = (local < len(bank.w13)).any(1)
    result = torch.empty_like(out)
    result[written] = out[written]
    return result


@candidate("moe_experts", name="second_quantisation_dropped", prepare=moe.prepare)
def second_quantisation_dropped(
    bank, x, *, beta, linear_beta, activation_format, num_local_experts, combine, **routing
):
    x = x if activation_format == "bf16" else mx.round_trip(x, activation_format).to(x.dtype)
    return moe.gate_up_fp32(bank, x, beta=beta, linear_beta=linear_beta, **routing)


def quantised_by(quantize):
    """The experts with another quantiser of the activations."""

    def run(bank, x, **options):
        with replaced(moe, "round_trip", lambda x, format: mx.expanded(*quantize(x, format), format)):
            return moe.moe_experts(bank, x, **options)

    return run


@contextmanager
def replaced(module, name, value):
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


floor_of_scale = candidate("moe_experts", name="floor_of_scale", prepare=moe.prepare)(
    quantised_by(mx.quantize_mx_floor)
)


@candidate("moe_experts", name="quantised_in_fp32", prepare=moe.prepare, batch_invariant=True)
def quantised_in_fp32(bank, x, **options):
    """Right: SiTU's output is quantised before anything has rounded it."""
    unrounded = []

    def remembered(gate, up, beta, linear_beta):
        unrounded.append(bounded_product(gate, up, beta, linear_beta))
        return unrounded[0]

    def round_trip(value, format):
        return mx.round_trip(unrounded.pop() if unrounded else value, format)

    with replaced(moe, "bounded_product", remembered), replaced(moe, "round_trip", round_trip):
        return moe.moe_experts(bank, x, **options)
