"""Signs, clamp and multipliers of floating-point instructions, and the mode of denormals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from .exact import BITS, LETTER, TINY, bare, fused, larger, plus, times

SIGNS = {"-{}": lambda x: -x, "|{}|": abs, "-|{}|": lambda x: -abs(x)}


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("shape", SIGNS)
def test_sign_modifiers_of_sources(lanes, kind, shape):
    x, sign = LETTER[kind], SIGNS[shape]
    lanes.check_vector(f"v_fma_{kind}", x, 3 * x, lambda *given: fused(*map(sign, given)), shape=shape)
    lanes.check_vector(f"v_max_{kind}", x, 2 * x, lambda *given: larger(*map(sign, given)), shape=shape)


def test_sign_modifiers_of_what_dpp_reads(lanes):
    generator = lanes.generator_for("dpp signs")
    inputs = np.array([[[lanes.drawn("f", generator) for _ in range(64)] for _ in "ab"]], np.uint32)
    body = "v_add_f32_dpp v200, -|v10|, |v11| row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane in range(64):
        a = lanes.decode("f", int(inputs[0, 0, lane - 1])) if lane % 16 else 0.0
        b = lanes.decode("f", int(inputs[0, 1, lane]))
        assert lanes.agrees("f", got[lane], lanes.encoded("f", plus(-abs(a), abs(b)))), lane


def test_sign_modifiers_of_what_sdwa_reads(lanes):
    generator = lanes.generator_for("sdwa signs")
    inputs = np.array([[[lanes.drawn("e", generator) << 16 for _ in range(64)] for _ in "ab"]], np.uint32)
    selects = "dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:WORD_1"
    body = f"v_mul_f16_sdwa v200, -|v10|, -v11 {selects}"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane in range(64):
        a, b = (lanes.decode("e", int(inputs[0, k, lane]) >> 16) for k in (0, 1))
        assert got[lane] & 0xFFFF == 0
        assert lanes.agrees("e", got[lane] >> 16, lanes.encoded("e", times(-abs(a), -b))), lane


def test_sign_modifiers_of_a_selection(lanes):
    lanes.check_vector("v_cndmask_b32", "f", "ffm", lambda a, b, c: -abs(b if c else a) if bare(b if c else a) else ...,
                       shape="-|{}|")  # fmt: skip


@pytest.mark.parametrize("kind", BITS)
def test_clamp_to_zero_and_one(lanes, kind):
    x = LETTER[kind]

    def formula(a, b):
        y = plus(a, b)
        return max(0.0, min(1.0, y)) if bare(y) and y > 0 else 0.0

    lanes.check_vector(f"v_add_{kind}", x, 2 * x, formula, modifiers="clamp")


@pytest.mark.parametrize(("modifier", "factor"), [("mul:2", 2), ("mul:4", 4), ("div:2", Fraction(1, 2))])
@pytest.mark.parametrize("kind", BITS)
def test_output_is_multiplied(lanes, kind, modifier, factor):
    x = LETTER[kind]

    def moderate(generator, bits):
        return [lanes.encoded(x, generator.uniform(-4, 4) * 2.0 ** generator.randint(-3, 3)) for _ in bits]

    def formula(a, b):
        y = plus(a, b)
        return y * factor if isinstance(y, Fraction) else y

    lanes.check_vector(f"v_add_{kind}", x, 2 * x, formula, modifiers=modifier, values=moderate)


def test_denormals_are_flushed_where_the_kernel_says_so(lanes):
    def flushed(x):
        return math.copysign(0.0, x) if abs(x) < TINY["f"] else x

    def formula(a, b):
        y = plus(flushed(a), flushed(b))
        return flushed(y) if isinstance(y, float) else y if abs(y) >= TINY["f"] else math.copysign(0.0, y)

    lanes.check_vector("v_add_f32", "f", "ff", formula, denormals=0)
    lanes.check_vector("v_add_f16", "e", "ee", plus, denormals=0)
    lanes.check_vector("v_add_f64", "d", "dd", plus, denormals=0)
