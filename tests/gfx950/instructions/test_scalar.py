"""Scalar instructions alone, against Python integers: result, condition code and exec."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from .formats import WIDTH
from .whole import M32, M64, highest, lowest, reverse, signed


def nonzero(function, bits=32):
    def wrapped(*given):
        x = function(*given) & (1 << bits) - 1
        return x, x != 0

    return wrapped


def overflowing(function):
    def wrapped(a, b, *_):
        x = function(a, b)
        return x, not -(1 << 31) <= x < 1 << 31

    return wrapped


def carrying(function):
    def wrapped(*given):
        x = function(*given)
        return x, not 0 <= x <= M32

    return wrapped


def field(value, control, bits):
    """A bit field: offset in the low bits of the control, width in bits 16 to 22."""
    offset, width = control & bits - 1, control >> 16 & 127
    return value >> offset & (1 << width) - 1


def signed_field(value, control, bits):
    offset, width = control & bits - 1, control >> 16 & 127
    if not width:
        return 0
    width = min(width, bits - offset)
    return signed(value >> offset, width) if width else 0


def first_unlike_sign(x):
    return highest(~x if x < 0 else x)


FORMULAS = {
    "s_mov_b32": ("u", "u", lambda a: a),
    "s_mov_b64": ("U", "U", lambda a: a),
    "s_add_u32": ("u", "uu", carrying(operator.add)),
    "s_sub_u32": ("u", "uu", carrying(operator.sub)),
    "s_add_i32": ("i", "ii", overflowing(operator.add)),
    "s_sub_i32": ("i", "ii", overflowing(operator.sub)),
    "s_min_i32": ("i", "ii", lambda a, b: (min(a, b), a < b)),
    "s_min_u32": ("u", "uu", lambda a, b: (min(a, b), a < b)),
    "s_max_i32": ("i", "ii", lambda a, b: (max(a, b), a > b)),
    "s_max_u32": ("u", "uu", lambda a, b: (max(a, b), a > b)),
    "s_abs_i32": ("i", "i", nonzero(abs)),
    "s_absdiff_i32": ("u", "ii", nonzero(lambda a, b: abs(signed(a - b)))),
    "s_mul_i32": ("u", "uu", lambda a, b: a * b),
    "s_mul_hi_u32": ("u", "uu", lambda a, b: a * b >> 32),
    "s_mul_hi_i32": ("u", "ii", lambda a, b: a * b >> 32),
    "s_lshl_b32": ("u", "uu", nonzero(lambda a, b: a << b % 32)),
    "s_lshr_b32": ("u", "uu", nonzero(lambda a, b: a >> b % 32)),
    "s_ashr_i32": ("i", "iu", nonzero(lambda a, b: a >> b % 32)),
    "s_lshl_b64": ("U", "Uu", nonzero(lambda a, b: a << b % 64, 64)),
    "s_lshr_b64": ("U", "Uu", nonzero(lambda a, b: a >> b % 64, 64)),
    "s_ashr_i64": ("I", "Iu", nonzero(lambda a, b: a >> b % 64, 64)),
    "s_bfm_b32": ("u", "uu", lambda a, b: (2 ** (a % 32) - 1) << b % 32),
    "s_bfm_b64": ("U", "uu", lambda a, b: (2 ** (a % 64) - 1) << b % 64),
    "s_bfe_u32": ("u", "uu", nonzero(lambda a, b: field(a, b, 32))),
    "s_bfe_i32": ("i", "iu", nonzero(lambda a, b: signed_field(a, b, 32))),
    "s_bfe_u64": ("U", "Uu", nonzero(lambda a, b: field(a, b, 64), 64)),
    "s_bfe_i64": ("I", "Iu", nonzero(lambda a, b: signed_field(a, b, 64), 64)),
    "s_brev_b32": ("u", "u", reverse),
    "s_brev_b64": ("U", "U", lambda a: reverse(a, 64)),
    "s_bcnt0_i32_b32": ("u", "u", nonzero(lambda a: 32 - a.bit_count())),
    "s_bcnt1_i32_b32": ("u", "u", nonzero(int.bit_count)),
    "s_bcnt1_i32_b64": ("u", "U", nonzero(int.bit_count)),
    "s_ff0_i32_b32": ("u", "u", lambda a: lowest(a ^ M32)),
    "s_ff1_i32_b32": ("u", "u", lowest),
    "s_ff1_i32_b64": ("u", "U", lowest),
    "s_flbit_i32_b32": ("u", "u", highest),
    "s_flbit_i32_b64": ("u", "U", lambda a: highest(a, 64)),
    "s_flbit_i32": ("u", "i", first_unlike_sign),
    "s_sext_i32_i8": ("i", "u", lambda a: signed(a, 8)),
    "s_sext_i32_i16": ("i", "u", lambda a: signed(a, 16)),
    "s_bitset0_b32": ("u", "u*u", lambda a, b: b & ~(1 << a % 32)),
    "s_bitset1_b32": ("u", "u*u", lambda a, b: b | 1 << a % 32),
    "s_bitset0_b64": ("U", "u*U", lambda a, b: b & ~(1 << a % 64)),
    "s_bitset1_b64": ("U", "u*U", lambda a, b: b | 1 << a % 64),
    "s_pack_ll_b32_b16": ("u", "uu", lambda a, b: a % 65536 + (b % 65536 << 16)),
    "s_pack_lh_b32_b16": ("u", "uu", lambda a, b: a % 65536 + (b >> 16 << 16)),
    "s_pack_hh_b32_b16": ("u", "uu", lambda a, b: (a >> 16) + (b >> 16 << 16)),
    "s_bitcmp0_b32": ("", "uu", lambda a, b: (None, not a >> b % 32 & 1)),
    "s_bitcmp1_b32": ("", "uu", lambda a, b: (None, a >> b % 32 & 1)),
    "s_bitcmp0_b64": ("", "Uu", lambda a, b: (None, not a >> b % 64 & 1)),
    "s_bitcmp1_b64": ("", "Uu", lambda a, b: (None, a >> b % 64 & 1)),
} | {f"s_lshl{n}_add_u32": ("u", "uu", carrying(lambda a, b, n=n: (a << n) + b)) for n in (1, 2, 3, 4)}  # fmt: skip

LOGIC = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}  # fmt: skip
for _name, _function in LOGIC.items():
    FORMULAS[f"s_{_name}_b32"] = ("u", "uu", nonzero(_function))
    FORMULAS[f"s_{_name}_b64"] = ("U", "UU", nonzero(_function, 64))
FORMULAS["s_not_b32"] = ("u", "u", nonzero(operator.invert))
FORMULAS["s_not_b64"] = ("U", "U", nonzero(operator.invert, 64))
SAVING = LOGIC | {"andn1": lambda a, b: ~a & b, "orn1": lambda a, b: ~a | b}

RELATIONS = {"eq": operator.eq, "lg": operator.ne, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt,
             "le": operator.le}  # fmt: skip
for _name, _function in RELATIONS.items():
    for _kind, _letter in (("i32", "ii"), ("u32", "uu")) + ((("u64", "UU"),) if _name in ("eq", "lg") else ()):
        FORMULAS[f"s_cmp_{_name}_{_kind}"] = ("", _letter, lambda a, b, f=_function: (None, f(a, b)))

WITH_CONDITION = {
    "s_addc_u32": ("u", "uu", lambda c, a, b: (a + b + c, a + b + c > M32)),
    "s_subb_u32": ("u", "uu", lambda c, a, b: (a - b - c, a < b + c)),
    "s_cselect_b32": ("u", "uu", lambda c, a, b: (a if c else b, c)),
    "s_cselect_b64": ("U", "UU", lambda c, a, b: (a if c else b, c)),
    "s_cmov_b32": ("u", "u*u", lambda c, a, b: (a if c else b, c)),
    "s_cmov_b64": ("U", "U*U", lambda c, a, b: (a if c else b, c)),
}


def checked(lanes, opcode, result, sources, formula, with_condition=False):
    """Sixty-four waves, each with scalars of its own."""
    kinds, tied = sources.replace("*", ""), sources.find("*")
    generator, groups = lanes.generator_for(opcode), 64
    scalars = np.zeros((groups, 16), np.uint32)
    given = []
    for group in range(groups):
        bits = [lanes.drawn(kind, generator) for kind in kinds]
        condition = generator.getrandbits(1)
        given.append((condition, bits))
        scalars[group, 14] = condition
        for k, one in enumerate(bits):
            scalars[group, 2 * k : 2 * k + 2] = one & M32, one >> 32
    texts = ["s[50:51]" if result in ("U", "I") else "s50"] if result else []
    head = ["s_mov_b64 s[50:51], 0"]
    for k, kind in enumerate(kinds):
        if k == tied:
            head.append(f"s_mov_b64 s[50:51], s[{32 + 2 * k}:{33 + 2 * k}]")
        else:
            texts.append(f"s[{32 + 2 * k}:{33 + 2 * k}]" if WIDTH[kind] == 64 else f"s{32 + 2 * k}")
    head += ["s_cmp_lg_u32 s46, 0", f"{opcode} {', '.join(texts)}"]
    out = lanes.execute("\n".join(head), np.zeros((groups, 1, 64)), scalars, ("s50", "s51", "s90"))
    for group, (condition, bits) in enumerate(given):
        numbers = [lanes.decode(kind, one) for kind, one in zip(kinds, bits, strict=True)]
        wanted = formula(condition, *numbers) if with_condition else formula(*numbers)
        value, flag = wanted if isinstance(wanted, tuple) else (wanted, condition)
        got = int(out[group, 0, 0]) | (int(out[group, 1, 0]) << 32 if result in ("U", "I") else 0)
        shown = (opcode, [hex(one) for one in bits], condition)
        if result:
            assert got == value & (1 << WIDTH[result]) - 1, (*shown, hex(got), value)
        assert out[group, 2, 0] == int(bool(flag)), (*shown, "scc", flag)


@pytest.mark.parametrize("opcode", FORMULAS)
def test_result_and_condition(lanes, opcode):
    checked(lanes, opcode, *FORMULAS[opcode])


@pytest.mark.parametrize("opcode", WITH_CONDITION)
def test_instructions_that_read_the_condition(lanes, opcode):
    checked(lanes, opcode, *WITH_CONDITION[opcode], with_condition=True)


@pytest.mark.parametrize("name", SAVING)
def test_saveexec_keeps_the_old_mask_and_combines(lanes, name):
    generator = lanes.generator_for(name)
    masks = [(generator.getrandbits(64), generator.getrandbits(64)) for _ in range(20)]
    masks += [(0, 0), (0, M64), (M64, 0), (M64, M64), (1 << 63, 1 << 63)]
    scalars = np.zeros((len(masks), 16), np.uint32)
    for group, (a, before) in enumerate(masks):
        scalars[group, :4] = a & M32, a >> 32, before & M32, before >> 32
    body = f"s_mov_b64 exec, s[34:35]\ns_{name}_saveexec_b64 s[50:51], s[32:33]"
    out = lanes.execute(body, np.zeros((len(masks), 1, 64)), scalars, ("s50", "s51", "s90", "s92", "s93"))
    for group, (a, before) in enumerate(masks):
        low, high, flag, new_low, new_high = out[group, :, 0].tolist()
        wanted = SAVING[name](a, before) & M64
        assert (low | high << 32, new_low | new_high << 32, flag) == (before, wanted, int(wanted != 0)), (a, before)


IMMEDIATES = {
    "s_movk_i32": lambda c, k, old: (k, c),
    "s_cmovk_i32": lambda c, k, old: (k if c else old, c),
    "s_addk_i32": lambda c, k, old: (old + k, not -(1 << 31) <= signed(old) + k < 1 << 31),
    "s_mulk_i32": lambda c, k, old: (old * k, c),
}
IMMEDIATES |= {f"s_cmpk_{name}_i32": lambda c, k, old, f=f: (old, f(signed(old), k)) for name, f in RELATIONS.items()}
IMMEDIATES |= {f"s_cmpk_{name}_u32": lambda c, k, old, f=f: (old, f(old, k & 0xFFFF)) for name, f in RELATIONS.items()}


OPCODES = {*FORMULAS, *WITH_CONDITION, *IMMEDIATES, *(f"s_{name}_saveexec_b64" for name in SAVING)}


@pytest.mark.parametrize("opcode", IMMEDIATES)
def test_sixteen_bit_immediates(lanes, opcode):
    olds = [0, 1, 5, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFF8000, M32, 12345]
    scalars = np.zeros((2 * len(olds), 16), np.uint32)
    scalars[:, 0], scalars[:, 14] = olds + olds, [0] * len(olds) + [1] * len(olds)
    for constant in (0, 1, 5, 0x7FFF, 0x8000, 0xFFFF):
        number = constant if opcode.endswith("u32") else signed(constant, 16)
        body = f"s_mov_b32 s50, s32\ns_cmp_lg_u32 s46, 0\n{opcode} s50, {constant:#x}"
        out = lanes.execute(body, np.zeros((len(scalars), 1, 64)), scalars, ("s50", "s90"))
        for group, row in enumerate(scalars.tolist()):
            value, flag = IMMEDIATES[opcode](row[14], number, row[0])
            assert out[group, :, 0].tolist() == [value & M32, int(bool(flag))], (opcode, constant, row[0], row[14])
