"""Conversions between number formats alone, against exact rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest


def bounded(least, most):
    """Towards zero into a range; NaN is 0."""

    def function(x):
        if math.isnan(x):
            return 0
        return math.trunc(max(least, min(most, x)))

    return function


TO_I32, TO_U32 = bounded(-(2**31), 2**31 - 1), bounded(0, 2**32 - 1)


def same(x):
    return x


def whole(function, convert):
    return lambda x: convert(function(x)) if math.isfinite(x) else convert(x)


FORMULAS = {
    "v_cvt_f32_i32": ("f", "i", Fraction), "v_cvt_f32_u32": ("f", "u", Fraction),
    "v_cvt_f64_i32": ("d", "i", Fraction), "v_cvt_f64_u32": ("d", "u", Fraction),
    "v_cvt_i32_f32": ("i", "f", TO_I32), "v_cvt_u32_f32": ("u", "f", TO_U32),
    "v_cvt_i32_f64": ("i", "d", TO_I32), "v_cvt_u32_f64": ("u", "d", TO_U32),
    "v_cvt_flr_i32_f32": ("i", "f", whole(math.floor, TO_I32)),
    "v_cvt_f16_f32": ("e", "f", same), "v_cvt_f32_f16": ("f", "e", same), "v_cvt_f64_f32": ("d", "f", same),
    "v_cvt_f32_f64": ("f", "d", same), "v_cvt_f32_bf16": ("f", "b", same),
    "v_cvt_f16_u16": ("e", "h", Fraction), "v_cvt_f16_i16": ("e", "s", Fraction),
    "v_cvt_u16_f16": ("h", "e", bounded(0, 65535)), "v_cvt_i16_f16": ("s", "e", bounded(-32768, 32767)),
} | {f"v_cvt_f32_ubyte{k}": ("f", "u", lambda a, k=k: Fraction(a >> 8 * k & 255)) for k in range(4)}  # fmt: skip


def toward_zero(lanes, x):
    bits = lanes.encoded("e", x)
    if bits is None or math.isinf(x):
        return bits
    return bits - 1 if abs(lanes.decode("e", bits)) > abs(x) else bits


PAIRS = {
    "v_cvt_pk_f16_f32": ("e", lambda lanes, x: lanes.encoded("e", x)),
    "v_cvt_pk_bf16_f32": ("b", lambda lanes, x: lanes.encoded("b", x)),
    "v_cvt_pkrtz_f16_f32": ("e", toward_zero),
}
OPCODES = {*FORMULAS, *PAIRS, "v_cvt_rpi_i32_f32", "v_cvt_sr_bf16_f32"}


@pytest.mark.parametrize("opcode", FORMULAS)
def test_conversion(lanes, opcode):
    lanes.check_vector(opcode, *FORMULAS[opcode])


def test_a_signalling_half_comes_out_quiet(lanes):
    got = lanes.execute("v_cvt_f32_f16 v200, v10", np.full((1, 1, 64), 0xFC01, np.uint32), None, ("v200",))
    assert (got == 0xFFC02000).all()


def test_rounding_half_up(lanes):
    """The sum with a half is rounded to fp32 before its floor."""

    def formula(x):
        if not math.isfinite(x):
            return TO_I32(x)
        y = Fraction(x) + Fraction(1, 2)
        y = lanes.decode("f", lanes.encoded("f", y))
        return TO_I32(math.floor(y))

    lanes.check_vector("v_cvt_rpi_i32_f32", "i", "f", formula)


@pytest.mark.parametrize("opcode", PAIRS)
def test_pair_of_halves(lanes, opcode):
    kind, function = PAIRS[opcode]
    inputs = lanes.words(opcode, "ff", groups=6)
    out = lanes.execute(f"{opcode} v200, v10, v11", inputs, None, ("v200",))
    for group in range(6):
        for lane in range(64):
            for k in (0, 1):
                x = lanes.decode("f", int(inputs[group, k, lane]))
                got = int(out[group, 0, lane]) >> 16 * k & 0xFFFF
                assert lanes.agrees(kind, got, function(lanes, x)), (x, hex(got))


def test_stochastic_rounding_to_bf16_adds_to_what_is_cut_off(lanes):
    for half in (0, 1):
        inputs = lanes.words("sr bf16", "fu")
        body = f"v_mov_b32 v200, 0xabcd1234\nv_cvt_sr_bf16_f32 v200, v10, v11 op_sel:[0,0,0,{half}]"
        out = lanes.execute(body, inputs, None, ("v200",))
        for group in range(2):
            for lane in range(64):
                bits, noise = (int(x) for x in inputs[group, :, lane])
                got = int(out[group, 0, lane])
                assert got >> 16 * (1 - half) & 0xFFFF == (0x1234 if half else 0xABCD)
                finite = math.isfinite(lanes.decode("f", bits))
                wanted = bits + (noise & 0xFFFF) >> 16 if finite else lanes.encoded("b", lanes.decode("f", bits))
                assert lanes.agrees("b", got >> 16 * half & 0xFFFF, wanted), (hex(bits), hex(noise))
