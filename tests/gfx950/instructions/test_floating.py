"""Floating-point arithmetic alone, against exact rational arithmetic rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from .exact import (
    BITS,
    FRACTION_BITS,
    LETTER,
    bare,
    fused,
    larger,
    largest,
    plus,
    propagating,
    scaled,
    smaller,
    smallest,
    times,
)


def median(a, b, c):
    if not (bare(a) and bare(b) and bare(c)):
        return smallest(a, b, c)
    most = max(a, b, c)
    return larger(b, c) if most == a else larger(a, c) if most == b else larger(a, b)


def integral(function):
    return lambda a: math.copysign(float(function(a)), a) if math.isfinite(a) else a


def fraction(letter):
    below = 1 - Fraction(1, 2 ** (FRACTION_BITS[letter] + 2))

    def function(a):
        if not math.isfinite(a):
            return ... if math.isinf(a) else a
        x = Fraction(a) - math.floor(a)
        return ... if x >= below else x or 0.0  # whether the result stays below 1 is not said

    return function


def mantissa(a):
    return math.frexp(a)[0] if math.isfinite(a) else a


def exponent(a):
    return math.frexp(a)[1] if math.isfinite(a) else 0


FORMULAS = {
    "v_mul_legacy_f32": ("f", "ff", lambda a, b: 0.0 if a == 0 or b == 0 else times(a, b)),
    "v_fmamk_f32": ("f", "fff", fused), "v_fmaak_f32": ("f", "fff", fused),
    "v_minimum3_f32": ("f", "fff", propagating(smallest)),
    "v_maximum3_f32": ("f", "fff", propagating(largest)),
    "v_ldexp_f32": ("f", "fi", scaled), "v_ldexp_f64": ("d", "di", scaled), "v_ldexp_f16": ("e", "es", scaled),
    "v_frexp_exp_i32_f32": ("i", "f", exponent), "v_frexp_exp_i32_f64": ("i", "d", exponent),
    "v_frexp_exp_i16_f16": ("s", "e", exponent),
}  # fmt: skip
for _kind, _x in LETTER.items():
    FORMULAS |= {
        f"v_add_{_kind}": (_x, 2 * _x, plus),
        f"v_mul_{_kind}": (_x, 2 * _x, times),
        f"v_fma_{_kind}": (_x, 3 * _x, fused),
        f"v_min_{_kind}": (_x, 2 * _x, smaller),
        f"v_max_{_kind}": (_x, 2 * _x, larger),
        f"v_floor_{_kind}": (_x, _x, integral(math.floor)),
        f"v_ceil_{_kind}": (_x, _x, integral(math.ceil)),
        f"v_trunc_{_kind}": (_x, _x, integral(math.trunc)),
        f"v_rndne_{_kind}": (_x, _x, integral(round)),
        f"v_fract_{_kind}": (_x, _x, fraction(_x)),
        f"v_frexp_mant_{_kind}": (_x, _x, mantissa),
    }
    if _kind != "f16":
        FORMULAS[f"v_fmac_{_kind}"] = (_x, f"{_x}{_x}*{_x}", fused)
    if _kind != "f64":
        FORMULAS |= {
            f"v_sub_{_kind}": (_x, 2 * _x, lambda a, b: plus(a, -b)),
            f"v_subrev_{_kind}": (_x, 2 * _x, lambda a, b: plus(b, -a)),
            f"v_min3_{_kind}": (_x, 3 * _x, smallest),
            f"v_max3_{_kind}": (_x, 3 * _x, largest),
            f"v_med3_{_kind}": (_x, 3 * _x, median),
        }
OPCODES = FORMULAS.keys()


@pytest.mark.parametrize("opcode", FORMULAS)
def test_result(lanes, opcode):
    lanes.check_vector(opcode, *FORMULAS[opcode])


@pytest.mark.parametrize("kind", BITS)
def test_fraction_of_an_infinity(lanes, kind):
    x = LETTER[kind]
    infinity = lanes.encoded(x, math.inf)
    lanes.check_vector(f"v_fract_{kind}", x, x, lambda a: math.nan, values=lambda *_: [infinity])


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", ["min", "max"])
def test_signalling_nan_is_not_passed_over(lanes, kind, name):
    x = LETTER[kind]
    signalling = lanes.encoded(x, math.inf) + 1
    one = lanes.encoded(x, 1.0)
    lanes.check_vector(f"v_{name}_{kind}", x, 2 * x, lambda a, b: math.nan, values=lambda *_: [signalling, one])
