"""Packed instructions alone: every choice of halves, signs and clamp."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from .exact import fused, larger, largest, plus, propagating, smaller, smallest, times


def mad(a, b, c):
    return a * b + c


HALVES = {
    "v_pk_add_f16": ("e", "ee", plus), "v_pk_mul_f16": ("e", "ee", times), "v_pk_fma_f16": ("e", "eee", fused),
    "v_pk_min_f16": ("e", "ee", smaller), "v_pk_max_f16": ("e", "ee", larger),
    "v_pk_minimum3_f16": ("e", "eee", propagating(smallest)), "v_pk_maximum3_f16": ("e", "eee", propagating(largest)),
    "v_pk_add_u16": ("h", "hh", operator.add), "v_pk_sub_u16": ("h", "hh", operator.sub),
    "v_pk_min_u16": ("h", "hh", min), "v_pk_max_u16": ("h", "hh", max), "v_pk_mad_u16": ("h", "hhh", mad),
    "v_pk_add_i16": ("s", "ss", operator.add), "v_pk_sub_i16": ("s", "ss", operator.sub),
    "v_pk_min_i16": ("s", "ss", min), "v_pk_max_i16": ("s", "ss", max), "v_pk_mad_i16": ("s", "sss", mad),
    "v_pk_mul_lo_u16": ("h", "hh", operator.mul), "v_pk_lshlrev_b16": ("h", "hh", lambda a, b: b << a % 16),
    "v_pk_lshrrev_b16": ("h", "hh", lambda a, b: b >> a % 16),
    "v_pk_ashrrev_i16": ("s", "hs", lambda a, b: b >> a % 16),
}  # fmt: skip
SINGLES = {"v_pk_add_f32": ("ff", plus), "v_pk_mul_f32": ("ff", times), "v_pk_fma_f32": ("fff", fused)}


OPCODES = {*HALVES, *SINGLES, "v_pk_mov_b32"}


def drawn(lanes, seed, kinds, width):
    """Per source, lane and half, the bits and the number."""
    generator = lanes.generator_for(seed)
    bits = np.array([[[lanes.drawn(kind, generator) for _ in range(64)] for _ in "lh"] for kind in kinds], np.uint64)
    numbers = [[[lanes.decode(kind, int(x)) for x in half] for half in bits[k]] for k, kind in enumerate(kinds)]
    if width == 16:
        return (bits[:, 0] | bits[:, 1] << np.uint64(16)).astype(np.uint32)[None], numbers
    return bits.reshape(1, -1, 64).astype(np.uint32), numbers


def listed(x, count):
    return "[" + ",".join(str(x >> k & 1) for k in range(count)) + "]"


@pytest.mark.parametrize(("low", "high"), [(0, 7), (0, 0), (7, 7), (5, 2), (1, 6)])
@pytest.mark.parametrize("opcode", HALVES)
def test_halves(lanes, opcode, low, high):
    result, kinds, formula = HALVES[opcode]
    inputs, numbers = drawn(lanes, f"{opcode}{low}{high}", kinds, 16)
    count = len(kinds)
    sources = ", ".join(f"v{10 + k}" for k in range(count))
    body = f"{opcode} v200, {sources} op_sel:{listed(low, count)} op_sel_hi:{listed(high, count)}"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane in range(64):
        for half, chosen in enumerate((low, high)):
            given = [numbers[k][chosen >> k & 1][lane] for k in range(count)]
            wanted = lanes.encoded(result, formula(*given))
            assert lanes.agrees(result, got[lane] >> 16 * half & 0xFFFF, wanted), (half, given, hex(got[lane]))


def test_signs_of_halves(lanes):
    inputs, numbers = drawn(lanes, "signs", "eee", 16)
    body = "v_pk_fma_f16 v200, v10, v11, v12 neg_lo:[1,0,1] neg_hi:[0,1,1]"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane in range(64):
        for half, signs in enumerate(((-1, 1, -1), (1, -1, -1))):
            given = [math.copysign(1, sign) * numbers[k][half][lane] for k, sign in enumerate(signs)]
            assert lanes.agrees("e", got[lane] >> 16 * half & 0xFFFF, lanes.encoded("e", fused(*given))), given


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("opcode", ["v_pk_min_f16", "v_pk_max_f16"])
def test_signalling_nan_is_not_passed_over(lanes, opcode, half):
    one, signalling = 0x3C003C00, 0x3C003C00 ^ (0x3C00 ^ 0x7C01) << 16 * half
    inputs = np.array([[[signalling] * 64, [one] * 64]], np.uint32)
    for sources in ("v10, v11", "v11, v10"):
        got = int(lanes.execute(f"{opcode} v200, {sources}", inputs, None, ("v200",))[0, 0, 0])
        assert got == signalling | 1 << 9 + 16 * half


def test_clamp_of_halves(lanes):
    for opcode, kinds, formula, least, most in (
        ("v_pk_add_f16", "ee", plus, 0.0, 1.0), ("v_pk_add_u16", "hh", operator.add, 0, 65535),
        ("v_pk_sub_u16", "hh", operator.sub, 0, 65535), ("v_pk_add_i16", "ss", operator.add, -32768, 32767),
        ("v_pk_sub_i16", "ss", operator.sub, -32768, 32767),
    ):  # fmt: skip
        inputs, numbers = drawn(lanes, opcode + "clamp", kinds, 16)
        got = lanes.execute(f"{opcode} v200, v10, v11 clamp", inputs, None, ("v200",))[0, 0].tolist()
        for lane in range(64):
            for half in (0, 1):
                x = formula(numbers[0][half][lane], numbers[1][half][lane])
                x = least if x != x else max(least, min(most, x)) or 0.0
                assert got[lane] >> 16 * half & 0xFFFF == lanes.encoded(kinds[0], x), (opcode, x)


@pytest.mark.parametrize(("low", "high"), [(0, 7), (0, 0), (7, 7), (5, 2)])
@pytest.mark.parametrize("opcode", SINGLES)
def test_singles(lanes, opcode, low, high):
    kinds, formula = SINGLES[opcode]
    inputs, numbers = drawn(lanes, f"{opcode}{low}{high}", kinds, 32)
    count = len(kinds)
    sources = ", ".join(f"v[{10 + 2 * k}:{11 + 2 * k}]" for k in range(count))
    body = f"{opcode} v[200:201], {sources} op_sel:{listed(low, count)} op_sel_hi:{listed(high, count)} neg_lo:[1,0,0]"
    body = body.replace("neg_lo:[1,0,0]", f"neg_lo:{listed(1, count)}")
    got = lanes.execute(body, inputs, None, ("v200", "v201"))[0].tolist()
    for lane in range(64):
        for half, chosen in enumerate((low, high)):
            given = [numbers[k][chosen >> k & 1][lane] for k in range(count)]
            given[0] = given[0] if half else -given[0]
            assert lanes.agrees("f", got[half][lane], lanes.encoded("f", formula(*given))), (half, given)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_moving_a_pair(lanes, first, second):
    inputs, _ = drawn(lanes, "move", "uu", 32)
    body = f"v_pk_mov_b32 v[200:201], v[10:11], v[12:13] op_sel:[{first},{second}]"
    got = lanes.execute(body, inputs, None, ("v200", "v201"))
    assert got.tolist() == inputs[:, [first, 2 + second]].tolist()
