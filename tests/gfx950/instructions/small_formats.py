"""Numbers of 8 and 4 bits: every code by its definition, the nearest by search."""

from __future__ import annotations

import math
from fractions import Fraction

from .formats import drawn, encoded

SMALL = {"fp8": (4, 3, 7), "bf8": (5, 2, 15), "fp4": (2, 1, 1)}


def small_number(name, code):
    """The number that a code stands for; e4m3 has one NaN and no infinity, e5m2 both, e2m1 neither."""
    exponents, fractions, bias = SMALL[name]
    sign = -1.0 if code >> exponents + fractions & 1 else 1.0
    power, rest = code >> fractions & (1 << exponents) - 1, code & (1 << fractions) - 1
    if name == "bf8" and power == 31:
        return math.nan if rest else sign * math.inf
    if name == "fp8" and power == 15 and rest == 7:
        return math.nan
    lead = 1 if power else 0
    return sign * (lead + rest / 2**fractions) * 2.0 ** (max(power, 1) - bias)


def positive_codes(name):
    exponents, fractions, _ = SMALL[name]
    every = [(small_number(name, code), code) for code in range(1 << exponents + fractions)]
    return [(Fraction(x), code) for x, code in every if math.isfinite(x)]


POSITIVE = {name: positive_codes(name) for name in SMALL}
TOP = {"fp8": 0x7F, "bf8": 0x7C, "fp4": 0x7}


def nearest_small(name, x):
    """The code nearest to x, ties to even codes; past the largest NaN, infinity, or the largest. None: a NaN."""
    exponents, fractions, _ = SMALL[name]
    width = exponents + fractions
    if isinstance(x, float) and math.isnan(x):
        return None
    sign = (x < 0 or (isinstance(x, float) and math.copysign(1, x) < 0)) << width
    if isinstance(x, float) and math.isinf(x):
        return None if name == "fp8" else sign | TOP[name]
    x = abs(Fraction(x))
    largest, last = POSITIVE[name][-1]
    step = largest - POSITIVE[name][-2][0]
    if x > largest + step / 2 or (x == largest + step / 2 and last & 1):
        return None if name == "fp8" else sign | TOP[name]
    _, _, code = min((abs(x - y), code & 1, code) for y, code in POSITIVE[name])
    return sign | code


def is_small_nan(name, code):
    return math.isnan(small_number(name, code))


def fits(name, got, wanted):
    return is_small_nan(name, got) if wanted is None else got == wanted


def near(generator, name, wide):
    """Bits of a number at, near or between two codes of the small format, or any."""
    x, _ = generator.choice(POSITIVE[name])
    y, _ = generator.choice(POSITIVE[name])
    chosen = generator.random()
    value = x if chosen < 0.3 else (x + y) / 2 if chosen < 0.6 else x * Fraction(generator.randint(900, 1100), 1000)
    bits = encoded(wide, value if generator.random() < 0.5 else -value)
    return bits if chosen < 0.9 else drawn(wide, generator)
