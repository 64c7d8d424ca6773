from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require
from reference.numerics import ROUNDED, Numerics

GROUP = 32
"""Elements that share a scale, along the last axis."""

SCALE_BIAS = 127
NAN_SCALE = 255

LEAST_AMAX = 1e-10
"""What the largest magnitude of a group counts as where it is smaller, so that a group of zeros has a scale."""


@dataclass(frozen=True)
class ElementFormat:
    """A minifloat without infinities: `digits` of significand, exponent of its least normal, largest value."""

    bits: int
    digits: int
    smallest_exponent: int
    largest: float
    has_nan: bool


FORMATS = {
    "mxfp4": ElementFormat(bits=4, digits=2, smallest_exponent=0, largest=6.0, has_nan=False),
    "mxfp8": ElementFormat(bits=8, digits=4, smallest_exponent=-6, largest=448.0, has_nan=True),
}
"""E2M1 and E4M3."""

PACKED = {"mxfp4": 2, "mxfp8": 1}
"""Elements a byte of codes; the first is the low nibble."""


class Microscaled(NamedTuple):
    """Codes and the E8M0 bytes of their scales, 2^(byte − 127); 255 is NaN."""

    codes: Tensor
    scales: Tensor


def quantize_mx(x: Tensor, *, format: str, numerics: Numerics = ROUNDED) -> Microscaled:
    """Store groups of 32 along the last axis as small floats under one power of two.

    e = the least integer with amax ≤ largest · 2^e, exactly, where amax is the largest magnitude
    of the group that is no NaN, at least 1e-10; code = x · 2^−e to the nearest, ties to even, saturating.
    A NaN gives mxfp8's NaN code; in mxfp4 it makes the scale of its group NaN. Inf saturates under 2^127.
    The point `scale_floor` (off) takes e = ⌊log2 amax⌋ − ⌊log2 largest⌋, OCP's rule, `scale_even` (off)
    the same of amax rounded to the significand of the format.

    An fp32 product with the rounded reciprocal of `largest` gives the same e for every fp32 amax.

    Shapes: x [..., K] bf16, fp16 or fp32 → codes uint8 [..., K] (mxfp8), [..., K/2] (mxfp4, low nibble
    first), scales uint8 [..., K/32]. Raises ValueError where K is no multiple of 32.
    Source: OCP Microscaling Formats 1.0; the rule of Kimi-K3's activation quantisers.
    """
    form = element_format("quantize_mx", format)
    require(x.ndim >= 1, "quantize_mx", "x is a scalar; expected [..., K]")
    require(x.is_floating_point(), "quantize_mx", f"x is {x.dtype}; expected a floating-point tensor")
    columns = x.shape[-1]
    require(columns % GROUP == 0, "quantize_mx", f"x has {columns} columns; expected a multiple of {GROUP}, the group")
    groups = numerics.load(x).unflatten(-1, (-1, GROUP))
    elements, exponent = microscale(groups, form, numerics)
    codes = encode(elements, form).flatten(-2)
    scales = exponent.squeeze(-1) + SCALE_BIAS
    if format == "mxfp4":
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
        scales = scales.masked_fill(groups.isnan().any(-1), NAN_SCALE)
    return Microscaled(codes.to(torch.uint8), scales.to(torch.uint8))


def dequantize_mx(
    codes: Tensor, scales: Tensor, *, format: str, dtype: torch.dtype = torch.bfloat16, numerics: Numerics = ROUNDED
) -> Tensor:
    """Values of microscaled codes: x = element · 2^(scale − 127), exact in fp32, then rounded to `dtype`.

    What exceeds fp32 is Inf; a scale of 255 makes its whole group NaN, whatever the codes.

    Shapes: codes uint8 [..., K] (mxfp8) or [..., K/2] (mxfp4), scales uint8 [..., K/32] → x [..., K].
    Raises ValueError for scales that do not fit. Source: OCP Microscaling Formats 1.0.
    """
    check_codes("dequantize_mx", "codes", codes, "scales", scales, format)
    return numerics.output("x", decode(codes, scales, format), dtype)


def decode(codes: Tensor, scales: Tensor, format: str) -> Tensor:
    """The same in float64, before any rounding."""
    elements = byte_values(format).to(codes.device).index_select(0, codes.flatten().int())
    factors = torch.where(scales == NAN_SCALE, torch.nan, power_of_two(scales.long() - SCALE_BIAS))
    values: Tensor = (elements.view(*scales.shape, GROUP) * factors[..., None]).flatten(-2)
    return values


def byte_values(format: str) -> Tensor:
    """The elements of every byte of codes: float64 [256, 1] (mxfp8) or [256, 2] (mxfp4)."""
    values, byte = element_values(FORMATS[format]), torch.arange(256)
    return values[torch.stack([byte & 15, byte >> 4], dim=1)] if format == "mxfp4" else values[byte][:, None]


def microscaled(x: Tensor, format: str, numerics: Numerics, name: str, slack: Tensor | None = None) -> Tensor:
    """X [..., K] (float64) as it is after a round trip through the format; `slack` as in `microscale`."""
    form = FORMATS[format]
    groups = x.unflatten(-1, (-1, GROUP))
    elements, exponent = microscale(
        groups, form, numerics, name, None if slack is None else slack.unflatten(-1, (-1, GROUP))
    )
    if not form.has_nan:
        elements = elements.masked_fill(elements.isnan().any(-1, keepdim=True), torch.nan)
    return (elements * power_of_two(exponent)).flatten(-2)


def microscale(
    groups: Tensor, form: ElementFormat, numerics: Numerics, name: str = "", slack: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Elements [..., 32] on the format's grid and the exponent [..., 1] of their group, of float64 groups.

    Codes are discrete: of a value that lies within `slack` of a tie, or of a group whose largest
    magnitude exceeds that of a scale by no more than `slack`, an implementation that has rounded
    by as much before may choose the neighbour.
    """
    magnitude = groups.abs().masked_fill(groups.isnan(), 0.0)
    exponent = scale_exponent(magnitude.amax(-1, keepdim=True), form, numerics)
    if slack is not None:
        least = (magnitude - slack).clamp(min=0).amax(-1, keepdim=True)
        exponent = numerics.either(f"{name}.scale", exponent, scale_exponent(least, form, numerics))
    scaled = groups * power_of_two(-exponent)
    elements = nearest_element(scaled, form)
    if slack is not None:
        reach = slack * power_of_two(-exponent)
        below, above = nearest_element(scaled - reach, form), nearest_element(scaled + reach, form)
        elements = numerics.either(f"{name}.element", elements, below + above - elements)
    return elements, exponent


def scale_exponent(amax: Tensor, form: ElementFormat, numerics: Numerics) -> Tensor:
    """The exponent of a scale for groups whose largest magnitude is amax (float64): int64."""
    infinite = torch.isinf(amax)
    fraction, exponent = torch.frexp(amax.masked_fill(infinite, 1.0).clamp(min=LEAST_AMAX))
    largest_fraction, largest_exponent = math.frexp(form.largest)
    if numerics.has("scale_floor", default=False):
        carried = torch.zeros_like(infinite)
    elif numerics.has("scale_even", default=False):
        carried = fraction >= 1 - 2.0 ** -(form.digits + 1)
    else:
        carried = fraction > largest_fraction
    exponent = (exponent.long() - largest_exponent + carried).clamp(-SCALE_BIAS, SCALE_BIAS)
    return exponent.masked_fill(infinite, SCALE_BIAS)


def nearest_element(x: Tensor, form: ElementFormat) -> Tensor:
    """X (float64) to the nearest value of the format, ties to even, saturating."""
    _, exponent = torch.frexp(torch.nan_to_num(x))
    spacing = power_of_two((exponent - 1).clamp(min=form.smallest_exponent) - form.digits + 1)
    return (torch.round(x / spacing) * spacing).clamp(-form.largest, form.largest)


def encode(elements: Tensor, form: ElementFormat) -> Tensor:
    """Codes (int64) of values that lie on the format's grid; of NaN where it has one, else 0."""
    missing = elements.isnan()
    magnitude = elements.abs().masked_fill(missing, 0.0)
    _, exponent = torch.frexp(magnitude)
    exponent = (
        (exponent - 1).masked_fill(magnitude == 0, form.smallest_exponent).clamp(min=form.smallest_exponent).long()
    )
    steps = (magnitude * power_of_two(form.digits - 1 - exponent)).long()
    # Codes count the values upward from 0: a binade has 2^(digits − 1) of them.
    code = ((exponent - form.smallest_exponent) << (form.digits - 1)) + steps
    sign = torch.signbit(elements).long() << (form.bits - 1)
    if form.has_nan:
        return torch.where(missing, (1 << (form.bits - 1)) - 1, code | sign)
    return torch.where(missing, 0, code | sign)


def element_values(form: ElementFormat) -> Tensor:
    """The value of every code of the format: float64."""
    codes = torch.arange(1 << form.bits)
    magnitude = codes & ((1 << (form.bits - 1)) - 1)
    binade = magnitude >> (form.digits - 1)
    leading = torch.where(binade > 0, 1 << (form.digits - 1), 0)
    steps = (magnitude & ((1 << (form.digits - 1)) - 1)) + leading
    values = steps * power_of_two(binade.clamp(min=1) - 1 + form.smallest_exponent - form.digits + 1)
    if form.has_nan:
        values = values.masked_fill(magnitude == (1 << (form.bits - 1)) - 1, torch.nan)
    return torch.where(codes >> (form.bits - 1) == 1, -values, values)


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent (float64) by its bits; exponents of normal numbers only."""
    return ((exponent.long() + 1023) << 52).view(torch.float64)


def element_format(operator: str, format: str) -> ElementFormat:
    """The format by name, or ValueError."""
    require(format in FORMATS, operator, f"format is {format!r}; expected one of {', '.join(FORMATS)}")
    return FORMATS[format]


def check_codes(operator: str, name: str, codes: Tensor, scale_name: str, scales: Tensor, format: str) -> None:
    """Raise ValueError, naming the argument, for codes and scales that do not fit each other."""
    element_format(operator, format)
    for title, tensor in ((name, codes), (scale_name, scales)):
        hint = "; view packed dtypes as bytes" if tensor.dtype != torch.uint8 and tensor.element_size() == 1 else ""
        require(tensor.dtype == torch.uint8, operator, f"{title} is {tensor.dtype}; expected uint8{hint}")
    require(codes.ndim >= 1, operator, f"{name} is a scalar; expected [..., K / {PACKED[format]}]")
    columns = codes.shape[-1] * PACKED[format]
    require(columns % GROUP == 0, operator, f"{name} hold {columns} columns; expected a multiple of {GROUP}, the group")
    expected = (*codes.shape[:-1], columns // GROUP)
    swizzled = scales.ndim == codes.ndim and scales.numel() >= math.prod(expected) and scales.shape != expected
    hint = "; they look padded or swizzled: give one byte a group, in order" if swizzled and scales.numel() else ""
    require(
        tuple(scales.shape) == expected,
        operator,
        f"{scale_name} is {list(scales.shape)}; expected {list(expected)}, a byte for {GROUP} columns of {name}{hint}",
    )
