"""An inline float is a number of its operand's format and width, whatever the instruction makes of it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

ONE_WAVE = np.zeros((1, 1, 64), np.uint32)
INLINE = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0")
SPELT_16 = {"0.15915494": 0x3118} | {text: int.from_bytes(struct.pack("<e", float(text)), "little") for text in INLINE}
SPELT_32 = {"0.15915494": 0x3E22F983} | {
    text: int.from_bytes(struct.pack("<f", float(text)), "little") for text in INLINE
}
SPELT_64 = {"0.15915494309189532": 0x3FC45F306DC9C882} | {
    text: int.from_bytes(struct.pack("<d", float(text)), "little") for text in INLINE
}
SPELT_BF16 = {text: bits >> 16 for text, bits in SPELT_32.items()}


def stored(lanes, body, count=1):
    """What the body leaves in lane 0 of v200 and the registers behind it."""
    got = lanes.execute(body, ONE_WAVE, None, [f"v{200 + k}" for k in range(count)])
    return sum(int(got[0, k, 0]) << 32 * k for k in range(count))


@pytest.mark.parametrize("text", SPELT_32)
def test_of_32_bits(lanes, text):
    assert stored(lanes, f"v_mov_b32 v200, {text}") == SPELT_32[text]
    assert stored(lanes, f"s_mov_b32 s50, {text}\nv_mov_b32 v200, s50") == SPELT_32[text]


@pytest.mark.parametrize("text", SPELT_64)
@pytest.mark.parametrize("body", [
    "v_mov_b64 v[200:201], {}",
    "s_mov_b64 s[50:51], {}\nv_mov_b32 v200, s50\nv_mov_b32 v201, s51",
    "v_lshlrev_b64 v[200:201], 0, {}",
    "v_mad_u64_u32 v[200:201], s[50:51], 0, 0, {}",
    "v_fma_f64 v[200:201], 0, 0, {}",
])  # fmt: skip
def test_of_64_bits(lanes, body, text):
    assert stored(lanes, body.format(text), 2) == SPELT_64[text]


def test_of_64_bits_in_a_comparison(lanes):
    head = "v_mov_b32 v10, 0\nv_mov_b32 v11, 0x3ff00000\n"
    assert stored(lanes, head + "v_cmp_eq_u64 vcc, 1.0, v[10:11]\nv_cndmask_b32_e64 v200, 0, 1, vcc") == 1


@pytest.mark.parametrize("text", SPELT_16)
def test_of_halves(lanes, text):
    """fp16 where the instruction computes in fp16: in the low half of a pair, the high one is 0."""
    assert stored(lanes, f"v_max_f16 v200, {text}, {text}") == SPELT_16[text]
    assert stored(lanes, f"v_pk_max_f16 v200, {text}, {text}") == SPELT_16[text]
    assert stored(lanes, f"v_pk_max_f16 v200, {text}, {text} op_sel_hi:[0,0]") == SPELT_16[text] * 0x10001


@pytest.mark.parametrize("text", SPELT_32)
def test_of_pairs_of_integers(lanes, text):
    """An fp32: 1.0 is 0x3f80 in the high half and 0 in the low one."""
    assert stored(lanes, f"v_pk_add_u16 v200, 0, {text}") == SPELT_32[text]
    assert stored(lanes, f"v_pk_max_u16 v200, 0, {text} op_sel_hi:[0,0]") == (SPELT_32[text] & 0xFFFF) * 0x10001


@pytest.mark.parametrize("text", INLINE)
def test_of_a_source_that_op_sel_hi_makes_a_half(lanes, text):
    for chosen in ("", " op_sel_hi:[0,0,1]"):
        assert stored(lanes, f"v_fma_mix_f32 v200, 0, 0, {text}{chosen}") == SPELT_32[text]


@pytest.mark.parametrize("text", SPELT_16)
def test_of_dot_products(lanes, text):
    """One product: the low half of the constant with a one, the high half is 0."""
    x = float(np.uint16(SPELT_16[text]).view(np.float16))
    head = "v_mov_b32 v10, 0x3c003c00\nv_mov_b32 v200, 0\n"
    for body in (f"v_dot2_f32_f16 v200, {text}, v10, 0", f"v_dot2c_f32_f16 v200, {text}, v10"):
        assert stored(lanes, head + body) == int.from_bytes(struct.pack("<f", x), "little")
    wide = SPELT_BF16[text] << 16
    head = "v_mov_b32 v10, 0x3f803f80\nv_mov_b32 v200, 0\n"
    for body in (f"v_dot2_f32_bf16 v200, {text}, v10, 0", f"v_dot2c_f32_bf16 v200, {text}, v10"):
        assert stored(lanes, head + body) == wide


@pytest.mark.parametrize("text", SPELT_BF16)
def test_of_conversions(lanes, text):
    assert stored(lanes, f"v_cvt_f32_bf16 v200, {text}") == SPELT_BF16[text] << 16
    e4m3 = {"0.5": 0x30, "1.0": 0x38, "2.0": 0x40, "4.0": 0x48, "0.15915494": 0x22}[text.removeprefix("-")]
    wanted = e4m3 | 0x80 * text.startswith("-")
    for opcode in ("v_cvt_scalef32_pk_fp8_f16", "v_cvt_scalef32_pk_fp8_bf16"):
        assert stored(lanes, f"v_mov_b32 v200, 0\n{opcode} v200, {text}, 1.0") == wanted
