"""The three helpers of a division alone."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from .exact import FRACTION_BITS, LETTER, TINY, bare, field, fused, scaled

OPCODES = {
    "v_div_fixup_f16",
    *(f"v_div_{name}_{kind}" for name in ("scale", "fmas", "fixup") for kind in ("f32", "f64")),
}


def fixup(letter, least):
    def function(quotient, divisor, dividend):
        sign = math.copysign(1, divisor) * math.copysign(1, dividend)
        if not (bare(dividend) and bare(divisor)):
            return math.nan
        if divisor == dividend == 0 or (math.isinf(divisor) and math.isinf(dividend)):
            return math.nan
        if divisor == 0 or math.isinf(dividend):
            return math.copysign(math.inf, sign)
        if math.isinf(divisor) or dividend == 0:
            return math.copysign(0.0, sign)
        if field(letter, dividend) - field(letter, divisor) < least:
            return math.copysign(0.0, sign)
        return math.copysign(quotient, sign)

    return function


@pytest.mark.parametrize(("kind", "least"), [("f32", -150), ("f64", -1075), ("f16", -99)])
def test_quotient_is_fixed_up(lanes, kind, least):
    x = LETTER[kind]
    lanes.check_vector(f"v_div_fixup_{kind}", x, 3 * x, fixup(x, least))


def div_scale(letter, far, step, tiny):
    least = TINY[letter]

    def denormal(x):
        """Whether the number nearest to x is one."""
        half = Fraction(least) / 2 ** (FRACTION_BITS[letter] + 1)
        return half < abs(x) < least - half

    def function(a, b, c):
        if b == 0 or c == 0:
            return math.nan, False
        up, down = scaled(a, step), scaled(a, -step)
        quotient, small = Fraction(c) / Fraction(b), denormal(1 / Fraction(b))
        if field(letter, c) - field(letter, b) >= far:
            return (up if a == b else a), True
        if denormal(b):
            return up, False
        if small and denormal(quotient):
            return (down if a == b else a), True
        if small:
            return down, False
        if denormal(quotient):
            return (up if a == c else a), True
        return (up if field(letter, c) <= tiny else a), False

    return function


@pytest.mark.parametrize(("kind", "far", "step", "tiny"), [("f32", 96, 64, 23), ("f64", 768, 128, 53)])
def test_operands_of_a_division_are_scaled(lanes, kind, far, step, tiny):
    """The first source is one of the other two, as in a division."""
    x = LETTER[kind]

    def division(generator, bits):
        b, c = (one if math.isfinite(lanes.decode(x, one)) else lanes.encoded(x, 3.0) for one in bits[1:])
        return [generator.choice((b, c)), b, c]

    formula = div_scale(x, far, step, tiny)
    lanes.check_vector(f"v_div_scale_{kind}", x + "m", 3 * x, formula, values=division, groups=12)


def test_reciprocal_of_the_greatest_power_with_a_normal_one(lanes):
    big = lanes.encoded("f", 2.0**126)
    formula = div_scale("f", 96, 64, 23)
    lanes.check_vector("v_div_scale_f32", "fm", "fff", formula, values=lambda *_: [big, big, 0x7F000000])


@pytest.mark.parametrize(("kind", "bias", "step"), [("f32", 127, 64), ("f64", 1023, 128)])
def test_last_step_of_a_division_scales_where_vcc_is_set(lanes, kind, bias, step):
    x = LETTER[kind]

    def formula(a, b, c, scale):
        y = fused(a, b, c)
        return scaled(y, step if field(x, c) > bias else -step) if scale and not isinstance(y, float) else y

    def moderate(generator, bits):
        numbers = [generator.uniform(-4, 4) * 2.0 ** generator.randint(-9, 9) for _ in range(3)]
        return [lanes.encoded(x, one) for one in numbers] + bits[3:]

    lanes.check_vector(f"v_div_fmas_{kind}", x, 3 * x + "*m", formula, values=moderate)
