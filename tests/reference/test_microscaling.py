from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

from reference.microscaling import FORMATS, Microscaled, dequantize_mx, microscaled, quantize_mx
from reference.numerics import EXACT, ROUNDED, Variant, perturbed, rounded, ulp

ELEMENT = {"mxfp4": ml_dtypes.float4_e2m1fn, "mxfp8": ml_dtypes.float8_e4m3fn}
LARGEST = {"mxfp4": 6, "mxfp8": 448}
SMALLEST_AMAX = Fraction(1e-10)

FLOOR = rounded(Variant("floor", "", adds=frozenset({"scale_floor"})))
EVEN = rounded(Variant("even", "", adds=frozenset({"scale_even"})))


def scale_value(byte: int) -> float:
    return float(np.uint8(byte).view(ml_dtypes.float8_e8m0fnu))


def unpacked(codes: Tensor, format: str) -> np.ndarray[Any, Any]:
    """One byte a code."""
    packed = codes.numpy()
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1) if format == "mxfp4" else packed


def by_ml_dtypes(quantized: Microscaled, format: str) -> np.ndarray[Any, Any]:
    elements = unpacked(quantized.codes, format).view(ELEMENT[format]).astype(np.float64)
    scales = quantized.scales.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    return elements * np.repeat(scales, 32, axis=-1)


def same(got: Tensor, wanted: np.ndarray[Any, Any]) -> bool:
    return np.array_equal(got.double().numpy(), wanted, equal_nan=True)


def exponent_by_fractions(amax: float, format: str) -> int:
    exponent = -200
    while max(Fraction(amax), SMALLEST_AMAX) > LARGEST[format] * Fraction(2) ** exponent:
        exponent += 1
    return exponent


def codes_by_ml_dtypes(x: Tensor, exponents: list[int], format: str) -> np.ndarray[Any, Any]:
    """Saturated by hand, then converted by the library."""
    scaled = x.double().numpy() * np.repeat(2.0 ** -np.array(exponents, dtype=np.float64), 32)
    return np.clip(scaled, -LARGEST[format], LARGEST[format]).astype(ELEMENT[format]).view(np.uint8)


def group_of(*values: float, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.tensor([*values, *[0.0] * (32 - len(values))], dtype=torch.float64).to(dtype)


def test_every_scale_byte_and_fp4_code_decodes_as_ml_dtypes() -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    scales = torch.arange(256, dtype=torch.uint8)[:, None].expand(256, 16)
    got = dequantize_mx(codes, scales, format="mxfp4", numerics=EXACT)
    assert same(got, by_ml_dtypes(Microscaled(codes, scales), "mxfp4"))
    assert got.shape == (256, 512)


def test_every_scale_byte_and_e4m3_byte_decodes_as_ml_dtypes() -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    scales = torch.arange(256, dtype=torch.uint8)[:, None].expand(256, 8)
    got = dequantize_mx(codes, scales, format="mxfp8", numerics=EXACT)
    assert same(got, by_ml_dtypes(Microscaled(codes, scales), "mxfp8"))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_decoding_rounds_once_from_exact_fp32(format: str, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    scales = torch.arange(256, dtype=torch.uint8)[:, None].expand(256, 16 if format == "mxfp4" else 8)
    with np.errstate(over="ignore"):
        exact = by_ml_dtypes(Microscaled(codes, scales), format).astype(np.float32)
    wanted = torch.from_numpy(exact).to(dtype)
    got = dequantize_mx(codes, scales, format=format, dtype=dtype)
    assert got.dtype == dtype
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got.nan_to_num(), wanted.nan_to_num())
    assert torch.equal(torch.signbit(got) & ~got.isnan(), torch.signbit(wanted) & ~wanted.isnan())


@pytest.mark.parametrize("format", FORMATS)
def test_every_finite_bf16_quantises_as_exact_fractions_and_ml_dtypes_say(format: str) -> None:
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = x[x.isfinite()].view(-1, 32)
    exponents = [exponent_by_fractions(float(row.abs().max()), format) for row in x.double()]
    got = quantize_mx(x, format=format)
    assert (got.scales.flatten().int() - 127).tolist() == exponents
    wanted = codes_by_ml_dtypes(x.flatten(), exponents, format)
    assert np.array_equal(unpacked(got.codes, format).reshape(-1), wanted)


@pytest.mark.parametrize("format", FORMATS)
def test_values_between_and_at_ties_quantise_as_ml_dtypes_says(format: str) -> None:
    generator = random.Random(3)
    largest = float(LARGEST[format])
    grid = sorted({abs(float(v)) for v in np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
                   if not math.isnan(float(v))}) if format == "mxfp8" else [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # fmt: skip
    middles = [(a + b) / 2 for a, b in pairwise(grid)]
    near = [m * (1 + d * 2.0**-22) for m in middles for d in (-1, 0, 1)] + [
        generator.uniform(0, largest) for _ in range(999)
    ]
    signed = [v * generator.choice((-1, 1)) for v in near]
    rows = [[largest, *signed[i : i + 31]] for i in range(0, len(signed) - 30, 31)]
    x = torch.tensor(rows, dtype=torch.float32)
    got = quantize_mx(x, format=format)
    assert got.scales.eq(127).all()
    wanted = codes_by_ml_dtypes(x.flatten(), [0] * len(rows), format)
    assert np.array_equal(unpacked(got.codes, format).reshape(-1), wanted)


@pytest.mark.parametrize("format", FORMATS)
def test_an_fp32_reciprocal_gives_the_same_scale_for_every_significand(format: str) -> None:
    """Why `quantize_mx` has no variant for it: t = amax · fp32(1 ÷ largest), then its power-of-two ceiling."""
    reciprocal = torch.tensor(1 / LARGEST[format], dtype=torch.float32)
    for start in range(0, 1 << 23, 1 << 20):
        amax = (torch.arange(start, start + (1 << 20), dtype=torch.int32) | 127 << 23).view(torch.float32)
        byte = ((amax * reciprocal).view(torch.int32) + 0x7FFFFF) >> 23
        largest = LARGEST[format] * (byte << 23).view(torch.float32).double()
        assert (amax.double() <= largest).all()
        assert (amax.double() > largest / 2).all()
        some = torch.nn.functional.pad(amax[:: 1 << 10, None], (0, 31))
        assert torch.equal(quantize_mx(some, format=format).scales.flatten().int(), byte[:: 1 << 10])


@pytest.mark.parametrize(("amax", "official", "floor", "even"), [
    (1.0, -2, -2, -2), (1.49, -2, -2, -2), (1.5, -2, -2, -2), (1.51, -1, -2, -2), (1.74, -1, -2, -2),
    (1.75, -1, -2, -1), (3.99, 0, -1, 0), (6.0, 0, 0, 0), (6.01, 1, 0, 0), (6.99, 1, 0, 0),
    (7.0, 1, 0, 1), (8.0, 1, 1, 1),
])  # fmt: skip
def test_the_three_rules_of_the_scale_of_mxfp4(amax: float, official: int, floor: int, even: int) -> None:
    x = group_of(0.25, -amax, dtype=torch.float32)[None]
    exponents = [int(quantize_mx(x, format="mxfp4", numerics=n).scales) - 127 for n in (ROUNDED, FLOOR, EVEN)]
    assert exponents == [official, floor, even]


@pytest.mark.parametrize(("amax", "official", "floor", "even"), [
    (256.0, 0, 0, 0), (448.0, 0, 0, 0), (450.0, 1, 0, 0), (464.0, 1, 0, 0), (495.0, 1, 0, 0), (496.0, 1, 0, 1),
    (512.0, 1, 1, 1),
])  # fmt: skip
def test_the_three_rules_of_the_scale_of_mxfp8(amax: float, official: int, floor: int, even: int) -> None:
    x = group_of(0.25, -amax, dtype=torch.float32)[None]
    exponents = [int(quantize_mx(x, format="mxfp8", numerics=n).scales) - 127 for n in (ROUNDED, FLOOR, EVEN)]
    assert exponents == [official, floor, even]


def test_what_the_floor_of_the_scale_leaves_too_large_saturates() -> None:
    x = group_of(7.9, -7.9, 1.0)[None]
    quantized = quantize_mx(x, format="mxfp4", numerics=FLOOR)
    assert dequantize_mx(*quantized, format="mxfp4")[0, :3].tolist() == [6.0, -6.0, 1.0]


@pytest.mark.parametrize(("format", "byte"), [("mxfp8", 85), ("mxfp4", 92)])
def test_a_group_of_zeros_keeps_its_signs_and_has_the_scale_of_the_floor(format: str, byte: int) -> None:
    x = group_of(0.0, -0.0)[None]
    quantized = quantize_mx(x, format=format)
    assert quantized.scales.item() == byte
    back = dequantize_mx(*quantized, format=format)
    assert torch.equal(back, x)
    assert torch.equal(torch.signbit(back), torch.signbit(x))


def test_a_nan_is_a_code_in_mxfp8_and_a_scale_in_mxfp4() -> None:
    x = torch.cat([group_of(1.0, math.nan, -3.0), group_of(2.0)])[None]
    eight, four = (quantize_mx(x, format=f) for f in ("mxfp8", "mxfp4"))
    assert eight.codes[0, 1] & 127 == 127
    assert dequantize_mx(*eight, format="mxfp8")[0, :3].isnan().tolist() == [False, True, False]
    assert (eight.scales != 255).all()
    assert four.scales.tolist() == [[255, 126]]
    assert dequantize_mx(*four, format="mxfp4").isnan().sum() == 32


@pytest.mark.parametrize("format", FORMATS)
def test_infinity_saturates_under_the_largest_scale(format: str) -> None:
    quantized = quantize_mx(group_of(math.inf, -math.inf, 2.0**127, 1.0)[None], format=format)
    assert quantized.scales.item() == 254
    values = dequantize_mx(*quantized, format=format, numerics=EXACT)[0, :4].tolist()
    assert values == [LARGEST[format] * 2.0**127, -LARGEST[format] * 2.0**127, 2.0**127, 0.0]
    assert dequantize_mx(*quantized, format=format)[0, :2].tolist() == [math.inf, -math.inf]


def test_the_first_element_is_the_low_nibble() -> None:
    quantized = quantize_mx(group_of(6.0, -0.5, 1.0)[None], format="mxfp4")
    assert quantized.codes[0, :2].tolist() == [0x97, 0x02]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (32,), (2, 3, 96)])
def test_leading_axes_and_empty_ones_are_legal(format: str, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, dtype=torch.bfloat16)
    quantized = quantize_mx(x, format=format)
    assert quantized.scales.shape == (*shape[:-1], shape[-1] // 32)
    assert torch.equal(dequantize_mx(*quantized, format=format), x)


@pytest.mark.parametrize("format", FORMATS)
def test_readings_agree_since_inputs_are_exact(format: str) -> None:
    x = torch.randn(5, 96, generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = quantize_mx(x, format=format, numerics=EXACT)
    for numerics in (ROUNDED, perturbed(3)):
        other = quantize_mx(x, format=format, numerics=numerics)
        assert torch.equal(exact.codes, other.codes)
        assert torch.equal(exact.scales, other.scales)
    trip = microscaled(x.double(), format, EXACT, "x")
    assert torch.equal(trip, dequantize_mx(*exact, format=format, numerics=EXACT))


@pytest.mark.parametrize("format", FORMATS)
def test_a_value_within_the_slack_of_a_tie_goes_either_way_and_another_only_one(format: str) -> None:
    """Between 2 and the next value: in mxfp4 that is 3, in mxfp8 2.25."""
    step = 1.0 if format == "mxfp4" else 0.25
    largest = float(LARGEST[format])
    x = group_of(
        2 + step * 0.5 + 0.003, 2 + step * 0.5 - 0.003, 2 + step * 0.5 + 0.02, 2.0, largest, dtype=torch.float64
    )
    slack = torch.full_like(x, 0.005)
    seen = [set(), set(), set(), set()]
    for seed in range(16):
        for place, value in enumerate(microscaled(x, format, perturbed(seed), "x", slack)[:4].tolist()):
            seen[place].add(value)
    assert seen == [{2.0, 2.0 + step}, {2.0, 2.0 + step}, {2.0 + step}, {2.0}]
    assert microscaled(x, format, EXACT, "x", slack)[:4].tolist() == [2.0 + step, 2.0, 2.0 + step, 2.0]


@pytest.mark.parametrize("format", FORMATS)
def test_a_group_within_the_slack_above_a_scale_may_have_the_smaller_one(format: str) -> None:
    fine = 0.5 if format == "mxfp4" else 2.0**-9
    for excess, expected in ((0.001, {0.0, fine}), (0.01, {0.0}), (0.0, {fine}), (-0.001, {fine})):
        x = group_of(LARGEST[format] + excess, fine * 0.75, dtype=torch.float64)
        slack = torch.zeros_like(x)
        slack[0] = 0.005
        got = {float(microscaled(x, format, perturbed(seed), "x", slack)[1]) for seed in range(16)}
        assert got == expected


@pytest.mark.parametrize("format", FORMATS)
def test_a_round_trip_of_what_has_been_rounded_first_is_among_the_perturbed_ones(format: str) -> None:
    """ROUNDED stores bf16 before the codes; each element then equals one of the two that the slack allows."""
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    slack = ulp(x, torch.bfloat16) / 2
    stored = microscaled(x.bfloat16().double(), format, EXACT, "x")
    exact = microscaled(x, format, EXACT, "x")
    moved = torch.stack([microscaled(x, format, perturbed(seed), "x", slack) for seed in range(16)])
    assert (stored != exact).any()
    assert ((moved == stored).any(0)).double().mean() == 1.0


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.uint8)


def quantize(x: Tensor) -> Microscaled:
    return quantize_mx(x, format="mxfp4")


@pytest.mark.parametrize(("call", "said"), [
    (lambda: quantize_mx(torch.ones(2, 40), format="mxfp4"), "quantize_mx: x has 40 columns; expected a multi"),
    (lambda: quantize_mx(torch.ones(()), format="mxfp4"), "x is a scalar"),
    (lambda: quantize_mx(torch.ones(2, 32, dtype=torch.int32), format="mxfp4"), "x is torch.int32; expected a float"),
    (lambda: quantize_mx(torch.ones(2, 32), format="fp4"), "format is 'fp4'; expected one of mxfp4, mxfp8"),
    (lambda: dequantize_mx(*quantize(torch.ones(2, 64)), format="mxfp6"), "format is 'mxfp6'"),
    (lambda: dequantize_mx(*quantize(torch.ones(2, 64)), format="mxfp8"),
     r"scales is \[2, 2\]; expected \[2, 1\], a byte for 32 columns of codes; they look padded or swizzled"),
    (lambda: dequantize_mx(zeros(2, 12), zeros(2, 1), format="mxfp4"),
     "codes hold 24 columns; expected a multiple of 32"),
    (lambda: dequantize_mx(zeros(2, 32).view(torch.float8_e4m3fn), zeros(2, 1), format="mxfp8"),
     "codes is torch.float8_e4m3fn; expected uint8; view packed dtypes as bytes"),
    (lambda: dequantize_mx(zeros(2, 32), zeros(1, 2), format="mxfp8"),
     r"scales is \[1, 2\]; expected \[2, 1\]"),
    (lambda: dequantize_mx(zeros(2, 32), torch.ones(2, 1), format="mxfp8"),
     "scales is torch.float32; expected uint8$"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_what_was_expected(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_inputs_are_left_alone() -> None:
    x = torch.randn(2, 32)
    before = x.clone()
    quantize_mx(x, format="mxfp8")
    assert torch.equal(x, before)


def test_the_library_agrees_about_what_a_scale_byte_is() -> None:
    assert [scale_value(b) for b in (0, 127, 254)] == [2.0**-127, 1.0, 2.0**127]
    assert math.isnan(scale_value(255))
