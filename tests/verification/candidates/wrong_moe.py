"""Eager implementations of the microscaling and expert operators with one thing wrong."""

from __future__ import annotations

import torch

from verification import candidate
from verification.eager import microscaling as mx
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
