"""Integer and bitwise vector instructions alone, against Python integers, with clamp, DPP and SDWA."""

from __future__ import annotations

import operator

import numpy as np
import pytest

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def signed(x, bits=32):
    x &= (1 << bits) - 1
    return x - (x >> bits - 1 << bits)


def low24(x):
    return x & 0xFFFFFF


def signed24(x):
    return signed(x, 24)


def signed_field(a, offset, width):
    offset, width = offset % 32, width % 32
    return signed(a >> offset, width) if width else 0


def median(*x):
    return sorted(x)[1]


def bounded(least, most):
    return lambda x: max(least, min(most, x))


def byte_of(a, b, selector):
    every = (a << 32 | b).to_bytes(8, "little")
    if selector <= 7:
        return every[selector]
    if selector <= 11:
        return 0xFF * (every[2 * (selector - 8) + 1] >> 7)
    return 0 if selector == 12 else 0xFF


def permuted(a, b, c):
    return int.from_bytes(bytes(byte_of(a, b, selector) for selector in c.to_bytes(4, "little")), "little")


def highest(x):
    return 32 - x.bit_length() if x else -1


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
    "v_bfrev_b32": ("u", "u", lambda a: int(f"{a:032b}"[::-1], 2)),
    "v_bcnt_u32_b32": ("u", "uu", lambda a, b: a.bit_count() + b),
    "v_ffbh_u32": ("u", "u", highest),
    "v_ffbh_i32": ("u", "i", lambda a: highest(~a if a < 0 else a)),
    "v_ffbl_b32": ("u", "u", lambda a: (a & -a).bit_length() - 1 if a else -1),
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


def bytes_of_shifted(least, most):
    cut = bounded(least, most)
    return lambda a, b, c: cut(a >> c % 32) % 256 + (cut(b >> c % 32) % 256 << 8)


HALF_RESULTS = {
    "v_ashr_pk_i8_i32": bytes_of_shifted(-128, 127),
    "v_ashr_pk_u8_i32": bytes_of_shifted(0, 255),
}
RELATIONS = {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ne": operator.ne,
             "ge": operator.ge}  # fmt: skip
KINDS = {"i32": "i", "u32": "u", "i64": "I", "u64": "U", "i16": "s", "u16": "h"}
COMPARISONS = [(f"{name}_{kind}", letter, function) for name, function in RELATIONS.items()
               for kind, letter in KINDS.items()]  # fmt: skip


def test_a_wrong_formula_is_noticed(lanes):
    with pytest.raises(AssertionError, match="v_add_u32"):
        lanes.check_vector("v_add_u32", "u", "uu", lambda a, b: a + b + (a == 5))


OPCODES = {
    *FORMULAS,
    *HALF_RESULTS,
    *(f"{form}_{name}" for name, _, _ in COMPARISONS for form in ("v_cmp", "v_cmpx")),
    "v_cvt_pk_i16_i32", "v_perm_b32", "v_bitop3_b32", "v_bitop3_b16", "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32",
    "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32",
}  # fmt: skip


@pytest.mark.parametrize("opcode", FORMULAS)
def test_result(lanes, opcode):
    lanes.check_vector(opcode, *FORMULAS[opcode])


def test_top_bit_of_the_signed_multiply_add(lanes):
    lanes.check_vector("v_mad_i64_i32", "Im", "iiI", lambda a, b, c: (a * b + c, a * b + c < 0))


def close(generator, bits):
    """Make half of the pairs nearly equal, so that equality and order are both met."""
    if generator.random() < 0.5:
        bits[1] = max(bits[0] + generator.randint(-1, 1), 0)
    return bits


@pytest.mark.parametrize(("name", "letter", "relation"), COMPARISONS)
def test_comparison(lanes, name, letter, relation):
    lanes.check_vector(f"v_cmp_{name}", "m", 2 * letter, relation, values=_fitting(letter))


def _fitting(letter):
    width = {"i": 32, "u": 32, "I": 64, "U": 64, "s": 16, "h": 16}[letter]

    def values(generator, bits):
        return [one & (1 << width) - 1 for one in close(generator, bits)]

    return values


@pytest.mark.parametrize(("name", "letter", "relation"), COMPARISONS)
def test_comparison_that_also_writes_exec(lanes, name, letter, relation):
    generator = lanes.generator_for(name)
    inputs = np.zeros((1, 4, 64), np.uint32)
    wanted, before = 0, generator.getrandbits(64)
    for lane in range(64):
        bits = _fitting(letter)(generator, [lanes.drawn(letter, generator) for _ in range(2)])
        inputs[0, :, lane] = bits[0] & M32, bits[0] >> 32, bits[1] & M32, bits[1] >> 32
        wanted |= int(relation(*(lanes.decode(letter, one) for one in bits))) << lane
    registers = ("v[10:11]", "v[12:13]") if letter in "IU" else ("v10", "v12")
    body = f"s_mov_b32 exec_lo, {before & M32:#x}\ns_mov_b32 exec_hi, {before >> 32:#x}\n"
    body += f"v_cmpx_{name} s[50:51], {registers[0]}, {registers[1]}"
    low, high, exec_low, exec_high = lanes.execute(body, inputs, None, ("s50", "s51", "s92", "s93"))[0, :, 0].tolist()
    assert low | high << 32 == wanted & before
    assert exec_low | exec_high << 32 == wanted & before


@pytest.mark.parametrize("opcode", HALF_RESULTS)
@pytest.mark.parametrize("half", [0, 1])
def test_packed_bytes_keep_the_other_half(lanes, opcode, half):
    inputs, values = integers(lanes, opcode, "iiu")
    body = f"v_mov_b32 v200, 0xabcd1234\n{opcode} v200, v10, v11, v12 op_sel:[0,0,0,{half}]"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane, given in enumerate(values):
        x = HALF_RESULTS[opcode](*given)
        assert got[lane] == (x << 16 | 0x1234 if half else 0xABCD0000 | x), given


def integers(lanes, seed, kinds):
    generator = lanes.generator_for(seed)
    bits = [[lanes.drawn(kind, generator) for kind in kinds] for _ in range(64)]
    values = [[lanes.decode(kind, one) for kind, one in zip(kinds, row, strict=True)] for row in bits]
    return np.array(bits, np.uint32).T[None], values


def test_packed_conversion_to_i16(lanes):
    cut = bounded(-32768, 32767)
    lanes.check_vector("v_cvt_pk_i16_i32", "u", "ii", lambda a, b: cut(a) % 65536 + (cut(b) % 65536 << 16))


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
    inputs, values = integers(lanes, "mbcnt", "uu")
    body = "v_mbcnt_lo_u32_b32 v200, v10, v11\nv_mbcnt_hi_u32_b32 v201, v10, v11"
    low, high = lanes.execute(body, inputs, None, ("v200", "v201"))[0].tolist()
    for lane, (a, b) in enumerate(values):
        below = (1 << lane) - 1
        assert low[lane] == (b + (a & below).bit_count()) & M32
        assert high[lane] == (b + (a << 32 & below).bit_count()) & M32


def test_accumulation_registers_hold_what_is_written(lanes):
    inputs, values = integers(lanes, "accumulators", "u")
    body = """v_accvgpr_write_b32 a3, v10
        v_accvgpr_mov_b32 a7, a3
        v_accvgpr_write_b32 a3, 5
        v_accvgpr_read_b32 v200, a7
        v_accvgpr_read_b32 v201, a3"""
    got = lanes.execute(body, inputs, None, ("v200", "v201"))[0].tolist()
    assert got == [[a for (a,) in values], [5] * 64]


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


@pytest.mark.parametrize("sources", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("result", [0, 1])
def test_halves_chosen_by_op_sel(lanes, sources, result):
    inputs, values = integers(lanes, "op_sel", "uu")
    first, second = sources
    body = f"v_mov_b32 v200, 0xabcd1234\nv_add_u16_e64 v200, v10, v11 op_sel:[{first},{second},{result}]"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane, (a, b) in enumerate(values):
        x = (a >> 16 * first) + (b >> 16 * second) & 0xFFFF
        assert got[lane] == (x << 16 | 0x1234) if result else got[lane] & 0xFFFF == x, (lane, hex(a), hex(b))


def test_constants_and_scalars_are_the_same_in_every_lane(lanes):
    inputs, values = integers(lanes, "constants", "u")
    scalars = np.full((1, 16), 0x12345678, np.uint32)
    body = """v_add_u32 v200, s32, v10
        v_add_u32 v201, -16, v10
        v_add_u32 v202, 64, v10
        v_xor_b32 v203, 0xdeadbeef, v10
        v_lshlrev_b64 v[204:205], 3, s[32:33]"""
    got = lanes.execute(body, inputs, scalars, tuple(f"v{200 + k}" for k in range(6)))[0].tolist()
    wide = 0x1234567812345678 << 3 & M64
    for lane, (a,) in enumerate(values):
        wanted = [a + 0x12345678, a - 16, a + 64, a ^ 0xDEADBEEF, wide, wide >> 32]
        assert [row[lane] for row in got] == [x & M32 for x in wanted]


def test_lanes_that_are_off_keep_their_result(lanes):
    inputs, values = integers(lanes, "partial", "uu")
    mask = 0x80000001F00F1234
    body = f"""v_mov_b32 v200, 77
        s_mov_b32 exec_lo, {mask & M32:#x}
        s_mov_b32 exec_hi, {mask >> 32:#x}
        v_add_co_u32 v200, s[50:51], v10, v11"""
    got, low, high = lanes.execute(body, inputs, None, ("v200", "s50", "s51"))[0].tolist()
    carries = sum(int(a + b > M32) << lane for lane, (a, b) in enumerate(values))
    assert low[0] | high[0] << 32 == carries & mask
    assert got == [(a + b) & M32 if mask >> lane & 1 else 77 for lane, (a, b) in enumerate(values)]


# ── DPP ─────────────────────────────────────────────────────────────────────


def shifted(by):
    return lambda lane: lane + by if 0 <= lane % 16 + by <= 15 else None


DPP = {
    "quad_perm:[3,1,0,2]": lambda lane: lane // 4 * 4 + (3, 1, 0, 2)[lane % 4],
    "quad_perm:[1,1,1,1]": lambda lane: lane // 4 * 4 + 1,
    "row_shl:1": shifted(1), "row_shl:15": shifted(15), "row_shr:1": shifted(-1), "row_shr:7": shifted(-7),
    "row_ror:1": lambda lane: lane // 16 * 16 + (lane + 15) % 16,
    "row_ror:12": lambda lane: lane // 16 * 16 + (lane + 4) % 16,
    "row_mirror": lambda lane: lane ^ 15, "row_half_mirror": lambda lane: lane ^ 7,
    "row_bcast:15": lambda lane: lane // 16 * 16 - 1 if lane >= 16 else None,
    "row_bcast:31": lambda lane: 31 if lane >= 32 else None,
    "row_newbcast:5": lambda lane: lane // 16 * 16 + 5,
    "wave_shl:1": lambda lane: lane + 1 if lane < 63 else None,
    "wave_shr:1": lambda lane: lane - 1 if lane else None,
    "wave_rol:1": lambda lane: (lane + 1) % 64, "wave_ror:1": lambda lane: (lane - 1) % 64,
}  # fmt: skip


@pytest.mark.parametrize("control", DPP)
@pytest.mark.parametrize(("rows", "banks"), [(15, 15), (10, 15), (15, 6), (5, 9)])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("mask", [M64, 0xF0F7FFFF8EEE7331])
def test_lanes_read_by_dpp(lanes, control, rows, banks, zero, mask):
    """A lane with nothing to read keeps its result, or reads 0 with bound_ctrl."""
    inputs, values = integers(lanes, control, "uuu")
    body = f"""v_mov_b32 v200, v12
        s_mov_b32 exec_lo, {mask & M32:#x}
        s_mov_b32 exec_hi, {mask >> 32:#x}
        v_sub_u32_dpp v200, v10, v11 {control} row_mask:{rows:#x} bank_mask:{banks:#x}{" bound_ctrl:0" * zero}"""
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane, (_, b, old) in enumerate(values):
        source = DPP[control](lane)
        readable = source is not None and mask >> source & 1
        on = mask >> lane & 1 and rows >> lane // 16 & 1 and banks >> lane % 16 // 4 & 1
        wanted = old if not on or not (readable or zero) else (values[source][0] if readable else 0) - b
        assert got[lane] == wanted & M32, (lane, source)


# ── SDWA ────────────────────────────────────────────────────────────────────

PARTS = {"DWORD": (0, 32), "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16),
         "WORD_1": (16, 16)}  # fmt: skip


def part(x, name):
    shift, width = PARTS[name]
    return x >> shift & (1 << width) - 1


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", ["DWORD", "BYTE_3", "WORD_1"])
@pytest.mark.parametrize("extended", [False, True])
def test_parts_read_by_sdwa(lanes, first, second, extended):
    inputs, values = integers(lanes, first + second, "uu")
    source = "sext(v10)" if extended else "v10"
    selects = f"dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{first} src1_sel:{second}"
    got = lanes.execute(f"v_add_u32_sdwa v200, {source}, v11 {selects}", inputs, None, ("v200",))[0, 0].tolist()
    for lane, (a, b) in enumerate(values):
        x = part(a, first)
        x = signed(x, PARTS[first][1]) if extended else x
        assert got[lane] == (x + part(b, second)) & M32


@pytest.mark.parametrize("where", PARTS)
@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
def test_part_written_by_sdwa(lanes, where, unused):
    inputs, values = integers(lanes, where + unused, "uuu")
    selects = f"dst_sel:{where} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    body = f"v_mov_b32 v200, v12\nv_xor_b32_sdwa v200, v10, v11 {selects}"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    shift, width = PARTS[where]
    field = (1 << width) - 1 << shift
    for lane, (a, b, old) in enumerate(values):
        x = (a ^ b) << shift & field
        if unused == "UNUSED_SEXT" and x >> shift + width - 1 & 1:
            x |= M32 - ((1 << shift + width) - 1)
        assert got[lane] == (x | old & ~field if unused == "UNUSED_PRESERVE" else x)
