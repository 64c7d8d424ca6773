"""The transcendental units alone: within one unit in the last place, exact at the ends."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from .exact import LETTER, TINY, bare


def guarded(function, zero=math.nan, infinity=math.nan, negative=math.nan, flush=True):
    """A function of positive numbers with its values at the ends; fp32 denormals are zeros."""

    def wrapped(a):
        if flush and abs(a) < TINY["f"]:
            a = math.copysign(0.0, a)
        if not bare(a):
            return a
        if a == 0:
            return math.copysign(zero, a) if zero != -math.inf else zero
        if a == math.inf:
            return infinity
        if a < 0:
            return negative(a) if callable(negative) else negative
        x = function(a)
        return 0.0 if flush and abs(x) < TINY["f"] else x

    return wrapped


def reciprocal(a):
    if a == -math.inf:
        return -0.0
    return 1 / Fraction(a)


def power(a):
    if a == -math.inf or a < -2000:
        return 0.0
    return 2.0**a if a < 1000 else math.inf


def flushed_negative(function):
    def wrapped(a):
        x = function(a)
        return math.copysign(0.0, x) if abs(x) < TINY["f"] else x

    return wrapped


def root(a):
    return math.sqrt(a)


def turns(function, zeros):
    """Sine or cosine of turns; multiples of a quarter turn are exact."""

    def wrapped(a):
        if not math.isfinite(a):
            return math.nan
        a = math.copysign(0.0, a) if abs(a) < TINY["f"] else a
        part = Fraction(a) % 1
        if a and part in zeros:
            return ...
        return function(2 * math.pi * float(part if part <= Fraction(1, 2) else part - 1)) if a else function(a)

    return wrapped


def units(flush):
    tidy = flushed_negative if flush else lambda function: function
    return {
        "rcp": guarded(reciprocal, math.inf, 0.0, tidy(reciprocal), flush),
        "rsq": guarded(lambda a: 1 / math.sqrt(a), math.inf, 0.0, flush=flush),
        "sqrt": guarded(root, 0.0, math.inf, flush=flush),
        "exp": lambda a: guarded(power, 1.0, math.inf, tidy(power), flush)(a) if a else 1.0,
        "log": guarded(math.log2, -math.inf, math.inf, flush=flush),
    }


SINGLE, HALF = units(True), units(False)
CIRCULAR = {"sin": turns(math.sin, (0, Fraction(1, 2))), "cos": turns(math.cos, (Fraction(1, 4), Fraction(3, 4)))}
OPCODES = {
    *(f"v_{unit}_{kind}" for unit in [*SINGLE, *CIRCULAR] for kind in ("f32", "f16")),
    *(f"v_{unit}_f64" for unit in ("rcp", "rsq", "sqrt")),
    "v_rcp_iflag_f32",
}


def one(x):
    """exp of ±0 and of a flushed denormal is +1."""
    return 1.0 if abs(x) < TINY["f"] else SINGLE["exp"](x)


@pytest.mark.parametrize("unit", SINGLE)
def test_transcendental_unit(lanes, unit):
    lanes.check_vector(f"v_{unit}_f32", "f", "f", one if unit == "exp" else SINGLE[unit], ulp=1)


def test_reciprocal_that_flags(lanes):
    lanes.check_vector("v_rcp_iflag_f32", "f", "f", SINGLE["rcp"], ulp=1)


@pytest.mark.parametrize("unit", HALF)
def test_transcendental_unit_of_halves(lanes, unit):
    lanes.check_vector(f"v_{unit}_f16", "e", "e", HALF[unit], ulp=1)


@pytest.mark.parametrize("unit", CIRCULAR)
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_sine_and_cosine_of_turns(lanes, unit, kind):
    x = LETTER[kind]

    def inside(generator, bits):
        number = lanes.decode(x, bits[0])
        return bits if not abs(number) > 256 else [lanes.encoded(x, generator.uniform(-256, 256))]

    lanes.check_vector(f"v_{unit}_{kind}", x, x, CIRCULAR[unit], ulp=1, values=inside)


@pytest.mark.parametrize(("unit", "turn"), [("sin", 1.0), ("sin", 128.5), ("cos", 0.25), ("cos", 99.75)])
def test_zeros_of_sine_and_cosine(lanes, unit, turn):
    bits = lanes.encoded("f", turn)
    lanes.check_vector(f"v_{unit}_f32", "f", "f", lambda a: 0.0, values=lambda *_: [bits])


@pytest.mark.parametrize("unit", ["rcp", "rsq", "sqrt"])
def test_unit_of_doubles(lanes, unit):
    lanes.check_vector(f"v_{unit}_f64", "d", "d", HALF[unit], ulp=1)
