"""Floating-point formulas in exact rational arithmetic: a Fraction, or a float where that says it all."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

BITS = {"f32": 32, "f16": 16, "f64": 64}
LETTER = {"f32": "f", "f16": "e", "f64": "d"}
FRACTION_BITS = {"f": 23, "e": 10, "d": 52}
TINY = {"f": 2.0**-126, "e": 2.0**-14, "d": 2.0**-1022}


def finite(*x):
    return all(map(math.isfinite, x))


def plus(a, b):
    return (Fraction(a) + Fraction(b) if finite(a, b) else 0) or a + b


def times(a, b):
    return (Fraction(a) * Fraction(b) if finite(a, b) else 0) or a * b


def fused(a, b, c):
    if not finite(a, b):
        return a * b + c
    product = Fraction(a) * Fraction(b)
    if not finite(c):
        return c
    total = product + Fraction(c)
    if total:
        return total
    return 0.0 if product else a * b + c


def bare(x):
    return x == x


def order(x):
    return x, math.copysign(1, x)


def larger(a, b):
    return max(a, b, key=order) if bare(a) and bare(b) else b if bare(b) else a


def smaller(a, b):
    return min(a, b, key=order) if bare(a) and bare(b) else b if bare(b) else a


def largest(a, b, c):
    return larger(larger(a, b), c)


def smallest(a, b, c):
    return smaller(smaller(a, b), c)


def propagating(function):
    """Of NaN, NaN."""
    return lambda *x: function(*x) if all(map(bare, x)) else math.nan


def scaled(a, n):
    if not math.isfinite(a) or a == 0:
        return a
    return Fraction(a) * Fraction(2) ** max(-4000, min(4000, n))


def field(letter, x):
    """The exponent field of a number's bits."""
    form, bits = {"f": ("<f", "<I"), "e": ("<e", "<H"), "d": ("<d", "<Q")}[letter]
    (whole,) = struct.unpack(bits, struct.pack(form, x))
    fractions = FRACTION_BITS[letter]
    return whole >> fractions & {"f": 255, "e": 31, "d": 2047}[letter]
