"""Moves, logic, shifts and bit fields of the vector unit alone, against Python integers."""

from __future__ import annotations

import operator

import pytest

from .whole import M32, highest, lowest, reverse, signed


def signed_field(a, offset, width):
    offset, width = offset % 32, width % 32
    return signed(a >> offset, width) if width else 0


def byte_of(a, b, selector):
    every = (a << 32 | b).to_bytes(8, "little")
    if selector <= 7:
        return every[selector]
    if selector <= 11:
        return 0xFF * (every[2 * (selector - 8) + 1] >> 7)
    return 0 if selector == 12 else 0xFF


def permuted(a, b, c):
    return int.from_bytes(bytes(byte_of(a, b, selector) for selector in c.to_bytes(4, "little")), "little")


FORMULAS = {
    "v_mov_b32": ("u", "u", lambda a: a),
    "v_mov_b64": ("U", "U", lambda a: a),
    "v_not_b32": ("u", "u", operator.invert),
    "v_and_b32": ("u", "uu", operator.and_),
    "v_or_b32": ("u", "uu", operator.or_),
    "v_xor_b32": ("u", "uu", operator.xor),
    "v_xnor_b32": ("u", "uu", lambda a, b: ~(a ^ b)),
    "v_and_or_b32": ("u", "uuu", lambda a, b, c: a & b | c),
    "v_or3_b32": ("u", "uuu", lambda a, b, c: a | b | c),
    "v_bfe_u32": ("u", "uuu", lambda a, b, c: a >> b % 32 & 2 ** (c % 32) - 1),
    "v_bfe_i32": ("i", "iuu", signed_field),
    "v_bfi_b32": ("u", "uuu", lambda a, b, c: a & b | ~a & c),
    "v_bfm_b32": ("u", "uu", lambda a, b: (2 ** (a % 32) - 1) << b % 32),
    "v_bfrev_b32": ("u", "u", reverse),
    "v_bcnt_u32_b32": ("u", "uu", lambda a, b: a.bit_count() + b),
    "v_ffbh_u32": ("u", "u", highest),
    "v_ffbh_i32": ("u", "i", lambda a: highest(~a if a < 0 else a)),
    "v_ffbl_b32": ("u", "u", lowest),
    "v_alignbit_b32": ("u", "uuu", lambda a, b, c: (a << 32 | b) >> c % 32),
    "v_alignbyte_b32": ("u", "uuu", lambda a, b, c: (a << 32 | b) >> 8 * (c % 4)),
    "v_lshlrev_b32": ("u", "uu", lambda a, b: b << a % 32),
    "v_lshrrev_b32": ("u", "uu", lambda a, b: b >> a % 32),
    "v_ashrrev_i32": ("i", "ui", lambda a, b: b >> a % 32),
    "v_lshlrev_b64": ("U", "uU", lambda a, b: b << a % 64),
    "v_lshrrev_b64": ("U", "uU", lambda a, b: b >> a % 64),
    "v_ashrrev_i64": ("I", "uI", lambda a, b: b >> a % 64),
    "v_lshlrev_b16": ("h", "hh", lambda a, b: b << a % 16),
    "v_lshrrev_b16": ("h", "hh", lambda a, b: b >> a % 16),
    "v_ashrrev_i16": ("s", "hs", lambda a, b: b >> a % 16),
    "v_lshl_add_u32": ("u", "uuu", lambda a, b, c: (a << b % 32) + c),
    "v_add_lshl_u32": ("u", "uuu", lambda a, b, c: a + b << c % 32),
    "v_lshl_or_b32": ("u", "uuu", lambda a, b, c: a << b % 32 | c),
    "v_lshl_add_u64": ("U", "UuU", lambda a, b, c: (a << b % 8) + c),
    "v_xad_u32": ("u", "uuu", lambda a, b, c: (a ^ b) + c),
    "v_cndmask_b32": ("u", "uum", lambda a, b, c: b if c else a),
    "v_prng_b32": ("u", "u", lambda a: a << 1 ^ (197 if a >> 31 else 0)),
}
OPCODES = {
    *FORMULAS,
    "v_perm_b32", "v_bitop3_b32", "v_bitop3_b16", "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32", "v_accvgpr_read_b32",
    "v_accvgpr_write_b32", "v_accvgpr_mov_b32",
}  # fmt: skip


@pytest.mark.parametrize("opcode", FORMULAS)
def test_result(lanes, opcode):
    lanes.check_vector(opcode, *FORMULAS[opcode])


def test_byte_permutation(lanes):
    def selectors(generator, bits):
        bits[2] = int.from_bytes(bytes(generator.randrange(16) for _ in range(4)), "little")
        return bits

    lanes.check_vector("v_perm_b32", "u", "uuu", permuted, values=selectors)


@pytest.mark.parametrize("table", [0x00, 0x01, 0x80, 0x96, 0xE8, 0xCA, 0x17, 0xFE, 0x3C])
@pytest.mark.parametrize(("opcode", "kind", "bits"), [("v_bitop3_b32", "u", 32), ("v_bitop3_b16", "h", 16)])
def test_any_function_of_three_bits(lanes, opcode, kind, bits, table):
    def formula(a, b, c):
        chosen = ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1) for k in range(bits))
        return sum((table >> one & 1) << k for k, one in enumerate(chosen))

    lanes.check_vector(opcode, kind, 3 * kind, formula, modifiers=f"bitop3:{table:#x}", groups=1)


def test_counting_the_lanes_below(lanes):
    inputs, values = lanes.integers("mbcnt", "uu")
    body = "v_mbcnt_lo_u32_b32 v200, v10, v11\nv_mbcnt_hi_u32_b32 v201, v10, v11"
    low, high = lanes.execute(body, inputs, None, ("v200", "v201"))[0].tolist()
    for lane, (a, b) in enumerate(values):
        below = (1 << lane) - 1
        assert low[lane] == (b + (a & below).bit_count()) & M32
        assert high[lane] == (b + (a << 32 & below).bit_count()) & M32


def test_accumulation_registers_hold_what_is_written(lanes):
    inputs, values = lanes.integers("accumulators", "u")
    body = """v_accvgpr_write_b32 a3, v10
        v_accvgpr_mov_b32 a7, a3
        v_accvgpr_write_b32 a3, 5
        v_accvgpr_read_b32 v200, a7
        v_accvgpr_read_b32 v201, a3"""
    got = lanes.execute(body, inputs, None, ("v200", "v201"))[0].tolist()
    assert got == [[a for (a,) in values], [5] * 64]
