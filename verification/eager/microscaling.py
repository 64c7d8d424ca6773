from __future__ import annotations

import torch
from torch import Tensor

from fused.boundary import implements

GROUP = 32
LARGEST = {"mxfp4": 6.0, "mxfp8": 448.0}
LEAST_AMAX = 1e-10
MANTISSA = 23


@implements("quantize_mx", name="eager", batch_invariant=True)
def quantize_mx(x: Tensor, format: str) -> tuple[Tensor, Tensor]:
    """Scales by the bits of amax ÷ largest in fp32, codes by comparison or conversion.

    Shapes: x [T, K] → codes uint8 [T, K] or [T, K/2], scales uint8 [T, K/32].
    """
    groups = x.float().unflatten(-1, (-1, GROUP))
    return coded(groups, ceiling(amax(groups) * (1.0 / LARGEST[format])), format)


def quantize_mx_floor(x: Tensor, format: str) -> tuple[Tensor, Tensor]:
    """OCP's rule: the exponent of amax less that of the largest code."""
    groups = x.float().unflatten(-1, (-1, GROUP))
    return coded(groups, exponent_byte(amax(groups)) - HEADROOM[format], format)


def quantize_mx_even(x: Tensor, format: str) -> tuple[Tensor, Tensor]:
    """The same once amax is rounded to the significand of a code: half a step is added to its bits."""
    groups = x.float().unflatten(-1, (-1, GROUP))
    half = 1 << (MANTISSA - 1 - CODE_MANTISSA[format])
    rounded = (amax(groups).view(torch.int32) + half).view(torch.float32)
    return coded(groups, exponent_byte(rounded) - HEADROOM[format], format)


implements("quantize_mx", name="eager_floor", variant="scale_floor", batch_invariant=True)(quantize_mx_floor)
implements("quantize_mx", name="eager_even", variant="scale_even", batch_invariant=True)(quantize_mx_even)

HEADROOM = {"mxfp4": 2, "mxfp8": 8}
"""Exponent of the largest code."""

CODE_MANTISSA = {"mxfp4": 1, "mxfp8": 3}


@implements("dequantize_mx", name="eager", batch_invariant=True)
def dequantize_mx(codes: Tensor, scales: Tensor, format: str) -> Tensor:
    """Codes and scales by their bits, one product in fp32.

    Shapes: codes uint8 [T, K] or [T, K/2], scales uint8 [T, K/32] → x [T, K] bf16.
    """
    return expanded(codes, scales, format).to(torch.bfloat16)


def expanded(codes: Tensor, scales: Tensor, format: str) -> Tensor:
    """The values in fp32, which holds all of them. Shapes: as `dequantize_mx`."""
    if format == "mxfp8":
        elements = codes.view(torch.float8_e4m3fn).float()
    else:
        elements = fp4_values(codes)
    values: Tensor = (elements.unflatten(-1, (-1, GROUP)) * power_of_two(scales)[..., None]).flatten(-2)
    return values


def fp4_values(codes: Tensor) -> Tensor:
    """Both elements of every byte, low nibble first, by their bits: uint8 [..., n] → fp32 [..., 2n].

    No table: one made in the call could not be copied to a device while a graph is captured.
    """
    nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).int()
    exponent, half = nibbles >> 1 & 3, (nibbles & 1) * 0.5
    power = (exponent + 126 << MANTISSA).view(torch.float32)
    magnitude = torch.where(exponent == 0, half, (1 + half) * power)
    return torch.where(nibbles > 7, -magnitude, magnitude)


def amax(groups: Tensor) -> Tensor:
    """Largest magnitude of each group that is no NaN, at least 1e-10: fp32 [..., 1]."""
    return torch.where(groups.isnan(), 0.0, groups).abs().amax(-1, keepdim=True).clamp(min=LEAST_AMAX)


def exponent_byte(x: Tensor) -> Tensor:
    """⌊log2 x⌋ + 127 of a positive fp32: int32."""
    return x.view(torch.int32) >> MANTISSA


def ceiling(x: Tensor) -> Tensor:
    """⌈log2 x⌉ + 127 of a positive fp32: int32."""
    return (x.view(torch.int32) + ((1 << MANTISSA) - 1)) >> MANTISSA


def power_of_two(byte: Tensor) -> Tensor:
    """2^(byte − 127) in fp32; of byte 0 that is subnormal, byte 255 is NaN."""
    byte = byte.int()
    bits = torch.where(byte == 0, 1 << (MANTISSA - 1), byte << MANTISSA)
    return torch.where(byte == 255, torch.nan, bits.view(torch.float32))


def coded(groups: Tensor, byte: Tensor, format: str) -> tuple[Tensor, Tensor]:
    """Codes and scales of fp32 groups [..., 32] under the scale bytes [..., 1], which are clamped."""
    infinite = groups.isinf().any(-1, keepdim=True)
    byte = torch.where(infinite, 254, byte.clamp(0, 254))
    limit = LARGEST[format]
    scaled = (groups * power_of_two(254 - byte)).clamp(-limit, limit)
    if format == "mxfp8":
        codes = scaled.to(torch.float8_e4m3fn).view(torch.uint8).flatten(-2)
        return codes, byte.squeeze(-1).to(torch.uint8)
    codes = fp4_codes(scaled).flatten(-2)
    byte = torch.where(groups.isnan().any(-1, keepdim=True), 255, byte)
    return codes[..., 0::2] | codes[..., 1::2] << 4, byte.squeeze(-1).to(torch.uint8)


def fp4_codes(x: Tensor) -> Tensor:
    """The nearest E2M1 code of |x| ≤ 6, ties to the even one: uint8."""
    size = x.abs()
    steps = (
        (size > 0.25).int() + (size >= 0.75) + (size > 1.25) + (size >= 1.75)
        + (size > 2.5) + (size >= 3.5) + (size > 5.0)
    )  # fmt: skip
    return (steps | torch.signbit(x).int() << 3).to(torch.uint8)


def round_trip(x: Tensor, format: str) -> Tensor:
    """X [T, K] as the format holds it: fp32."""
    return expanded(*quantize_mx(x, format), format)
