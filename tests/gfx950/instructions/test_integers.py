"""Integer arithmetic of the vector unit alone, against Python integers, with its clamp."""

from __future__ import annotations

import operator

import pytest

from .whole import M32, M64, bounded, signed


def low24(x):
    return x & 0xFFFFFF


def signed24(x):
    return signed(x, 24)


def median(*x):
    return sorted(x)[1]


def bytes_of_shifted(least, most):
    cut = bounded(least, most)
    return lambda a, b, c: cut(a >> c % 32) % 256 + (cut(b >> c % 32) % 256 << 8)


FORMULAS = {
    "v_add_u32": ("u", "uu", operator.add),
    "v_sub_u32": ("u", "uu", operator.sub),
    "v_subrev_u32": ("u", "uu", lambda a, b: b - a),
    "v_add_i32": ("i", "ii", operator.add),
    "v_sub_i32": ("i", "ii", operator.sub),
    "v_add_co_u32": ("um", "uu", lambda a, b: (a + b, a + b > M32)),
    "v_sub_co_u32": ("um", "uu", lambda a, b: (a - b, a < b)),
    "v_subrev_co_u32": ("um", "uu", lambda a, b: (b - a, b < a)),
    "v_addc_co_u32": ("um", "uum", lambda a, b, c: (a + b + c, a + b + c > M32)),
    "v_subb_co_u32": ("um", "uum", lambda a, b, c: (a - b - c, a < b + c)),
    "v_subbrev_co_u32": ("um", "uum", lambda a, b, c: (b - a - c, b < a + c)),
    "v_add3_u32": ("u", "uuu", lambda a, b, c: a + b + c),
    "v_mul_lo_u32": ("u", "uu", operator.mul),
    "v_mul_hi_u32": ("u", "uu", lambda a, b: a * b >> 32),
    "v_mul_hi_i32": ("i", "ii", lambda a, b: a * b >> 32),
    "v_mul_u32_u24": ("u", "uu", lambda a, b: low24(a) * low24(b)),
    "v_mul_hi_u32_u24": ("u", "uu", lambda a, b: low24(a) * low24(b) >> 32),
    "v_mul_i32_i24": ("u", "uu", lambda a, b: signed24(a) * signed24(b)),
    "v_mul_hi_i32_i24": ("u", "uu", lambda a, b: signed24(a) * signed24(b) >> 32),
    "v_mad_u32_u24": ("u", "uuu", lambda a, b, c: low24(a) * low24(b) + c),
    "v_mad_i32_i24": ("u", "uuu", lambda a, b, c: signed24(a) * signed24(b) + c),
    "v_mad_u64_u32": ("Um", "uuU", lambda a, b, c: (a * b + c, a * b + c > M64)),
    "v_mad_i64_i32": ("Im", "iiI", lambda a, b, c: (a * b + c, ...)),
    "v_sad_u32": ("u", "uuu", lambda a, b, c: abs(a - b) + c),
    "v_add_u16": ("h", "hh", operator.add),
    "v_sub_u16": ("h", "hh", operator.sub),
    "v_subrev_u16": ("h", "hh", lambda a, b: b - a),
    "v_add_i16": ("s", "ss", operator.add),
    "v_sub_i16": ("s", "ss", operator.sub),
    "v_mul_lo_u16": ("h", "hh", operator.mul),
    "v_mad_u16": ("h", "hhh", lambda a, b, c: a * b + c),
    "v_mad_i16": ("s", "sss", lambda a, b, c: a * b + c),
    "v_mad_u32_u16": ("u", "hhu", lambda a, b, c: a * b + c),
    "v_mad_i32_i16": ("i", "ssi", lambda a, b, c: a * b + c),
    "v_cvt_pk_u16_u32": ("u", "uu", lambda a, b: min(a, 0xFFFF) + (min(b, 0xFFFF) << 16)),
}  # fmt: skip
for _kind, _letter in (("u32", "u"), ("i32", "i"), ("u16", "h"), ("i16", "s")):
    for _name, _function in (("min", min), ("max", max)):
        FORMULAS[f"v_{_name}_{_kind}"] = (_letter, 2 * _letter, _function)
        FORMULAS[f"v_{_name}3_{_kind}"] = (_letter, 3 * _letter, _function)
    FORMULAS[f"v_med3_{_kind}"] = (_letter, 3 * _letter, median)
HALF_RESULTS = {
    "v_ashr_pk_i8_i32": bytes_of_shifted(-128, 127),
    "v_ashr_pk_u8_i32": bytes_of_shifted(0, 255),
}
OPCODES = {*FORMULAS, *HALF_RESULTS, "v_cvt_pk_i16_i32"}


def test_a_wrong_formula_is_noticed(lanes):
    with pytest.raises(AssertionError, match="v_add_u32"):
        lanes.check_vector("v_add_u32", "u", "uu", lambda a, b: a + b + (a == 5))


@pytest.mark.parametrize("opcode", FORMULAS)
def test_result(lanes, opcode):
    lanes.check_vector(opcode, *FORMULAS[opcode])


def test_top_bit_of_the_signed_multiply_add(lanes):
    lanes.check_vector("v_mad_i64_i32", "Im", "iiI", lambda a, b, c: (a * b + c, a * b + c < 0))


@pytest.mark.parametrize("opcode", HALF_RESULTS)
@pytest.mark.parametrize("half", [0, 1])
def test_packed_bytes_keep_the_other_half(lanes, opcode, half):
    inputs, values = lanes.integers(opcode, "iiu")
    body = f"v_mov_b32 v200, 0xabcd1234\n{opcode} v200, v10, v11, v12 op_sel:[0,0,0,{half}]"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane, given in enumerate(values):
        x = HALF_RESULTS[opcode](*given)
        assert got[lane] == (x << 16 | 0x1234 if half else 0xABCD0000 | x), given


def test_packed_conversion_to_i16(lanes):
    cut = bounded(-32768, 32767)
    lanes.check_vector("v_cvt_pk_i16_i32", "u", "ii", lambda a, b: cut(a) % 65536 + (cut(b) % 65536 << 16))


CLAMPED = {
    "v_add_u32": ("u", operator.add, 0, M32), "v_sub_u32": ("u", operator.sub, 0, M32),
    "v_subrev_u32": ("u", lambda a, b: b - a, 0, M32),
    "v_add_i32": ("i", operator.add, -(1 << 31), (1 << 31) - 1),
    "v_sub_i32": ("i", operator.sub, -(1 << 31), (1 << 31) - 1),
    "v_add_u16": ("h", operator.add, 0, 65535), "v_sub_u16": ("h", operator.sub, 0, 65535),
    "v_subrev_u16": ("h", lambda a, b: b - a, 0, 65535),
    "v_add_i16": ("s", operator.add, -32768, 32767), "v_sub_i16": ("s", operator.sub, -32768, 32767),
}  # fmt: skip


@pytest.mark.parametrize("opcode", CLAMPED)
def test_integer_clamp(lanes, opcode):
    kind, function, least, most = CLAMPED[opcode]
    cut = bounded(least, most)
    lanes.check_vector(opcode, kind, 2 * kind, lambda a, b: cut(function(a, b)), modifiers="clamp")
