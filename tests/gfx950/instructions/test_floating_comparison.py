"""Comparisons of floating-point numbers and their classes alone."""

from __future__ import annotations

import math
import operator

import pytest

from .exact import BITS, FRACTION_BITS, LETTER, bare
from .formats import WIDTH


def unordered(a, b):
    return not (bare(a) and bare(b))


RELATIONS = {
    "lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "u": unordered,
    "lg": lambda a, b: not unordered(a, b) and a != b, "o": lambda a, b: not unordered(a, b),
    "nge": lambda a, b: unordered(a, b) or a < b, "ngt": lambda a, b: unordered(a, b) or a <= b,
    "nle": lambda a, b: unordered(a, b) or a > b, "nlt": lambda a, b: unordered(a, b) or a >= b,
    "neq": lambda a, b: unordered(a, b) or a != b, "nlg": lambda a, b: unordered(a, b) or a == b,
}  # fmt: skip
OPCODES = {
    *(f"v_{form}_{name}_{kind}" for form in ("cmp", "cmpx") for name in RELATIONS for kind in BITS),
    "v_cmp_class_f32", "v_cmpx_class_f32", "v_cmp_class_f16", "v_cmp_class_f64",
}  # fmt: skip


def often_equal(generator, bits):
    return [bits[0], generator.choice((bits[0], bits[1], bits[1]))]


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", RELATIONS)
def test_comparison(lanes, name, kind):
    x = LETTER[kind]
    lanes.check_vector(f"v_cmp_{name}_{kind}", "m", 2 * x, RELATIONS[name], values=often_equal)


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", RELATIONS)
def test_comparison_that_also_writes_exec(lanes, name, kind):
    lanes.check_exec(f"v_cmpx_{name}_{kind}", 2 * LETTER[kind], RELATIONS[name], often_equal)


def class_of(letter, bits):
    width, fractions = WIDTH[letter], FRACTION_BITS[letter]
    top = (1 << width - 1 - fractions) - 1
    negative, power, rest = bits >> width - 1, bits >> fractions & top, bits & (1 << fractions) - 1
    if power == top and rest:
        return rest >> fractions - 1
    if power == top:
        return 2 if negative else 9
    if power:
        return 3 if negative else 8
    if rest:
        return 4 if negative else 7
    return 5 if negative else 6


INTEGERS = {"f": "u", "e": "h", "d": "U"}


@pytest.mark.parametrize(("form", "kind"), [("cmp", "f32"), ("cmp", "f16"), ("cmp", "f64"), ("cmpx", "f32")])
def test_class(lanes, kind, form):
    """Ten classes, signalling NaNs among them: the numbers are drawn and read as integers."""
    x = LETTER[kind]
    opcode, kinds = f"v_{form}_class_{kind}", INTEGERS[x] + ("h" if kind == "f16" else "u")

    def one_class(generator, bits):
        number = lanes.drawn(x, generator)
        if kind != "f16" and generator.random() < 0.2:
            number = lanes.encoded(x, math.inf) | generator.getrandbits(3) | generator.getrandbits(1) << BITS[kind] - 1
        return [number, 1 << generator.randrange(10) if generator.random() < 0.5 else generator.getrandbits(10)]

    def formula(bits, mask):
        return mask >> class_of(x, bits) & 1

    if form == "cmp":
        lanes.check_vector(opcode, "m", kinds, formula, values=one_class)
    else:
        lanes.check_exec(opcode, kinds, formula, one_class)


def test_class_of_a_signalling_half(lanes):
    lanes.check_vector("v_cmp_class_f16", "m", "hh", lambda bits, mask: mask & 1, values=lambda *_: [0x7C01, 1])
