"""One instruction in a kernel of its own: inputs from memory into registers, the instruction, results to memory."""

from __future__ import annotations

import math
import random
import struct
import zlib
from fractions import Fraction

import numpy as np
import pytest
import torch

from verification.gfx950.assembly import read
from verification.gfx950.encoding import encode
from verification.gfx950.machine import Grid, run
from verification.gfx950.memory import reach_of
from verification.gfx950.models import Models

LANES = 64
SCALARS = 16

HEAD = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dwordx2 s[6:7], s[0:1], 0x8
s_load_dwordx2 s[8:9], s[0:1], 0x10
s_load_dwordx2 s[12:13], s[0:1], 0x18
s_waitcnt lgkmcnt(0)
s_mul_i32 s10, s2, {read}
s_add_u32 s4, s4, s10
s_addc_u32 s5, s5, 0
s_mul_i32 s10, s2, 64
s_add_u32 s6, s6, s10
s_addc_u32 s7, s7, 0
s_mul_i32 s10, s2, {written}
s_add_u32 s8, s8, s10
s_addc_u32 s9, s9, 0
v_lshlrev_b32 v1, 2, v0
s_load_dwordx16 s[32:47], s[6:7], 0x0
"""
TAIL = """
s_waitcnt vmcnt(0) lgkmcnt(0)
s_cselect_b32 s90, 1, 0
s_mov_b64 s[92:93], exec
s_mov_b64 exec, -1
"""
DIRECTIVES = """
.amdhsa_kernel k
.amdhsa_user_sgpr_count 2
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_system_sgpr_workgroup_id_x 1
.amdhsa_float_denorm_mode_32 {denormals}
.amdhsa_fp16_overflow {overflow}
.amdhsa_private_segment_fixed_size {scratch}
.end_amdhsa_kernel
"""


def execute(body, vectors, scalars=None, results=(), *, lds=0, scratch=0, memory=None, denormals=3, overflow=0,
            models=None):  # fmt: skip
    """Run `body` on each group of inputs: v10, v11, ... hold vectors[group], s32 to s47 scalars[group].

    `results` names registers; of the answer [group, result, lane] scalars fill all lanes. s90 is scc and
    s[92:93] exec after the body; s[12:13] is the address of `memory`, which is changed in place.
    """
    vectors = np.ascontiguousarray(vectors, np.uint32)
    groups, words, _ = vectors.shape
    scalars = np.zeros((groups, SCALARS), np.uint32) if scalars is None else np.ascontiguousarray(scalars, np.uint32)
    results = results or ("v0",)
    out = np.zeros((groups, len(results), LANES), np.uint32)
    lines = [HEAD.format(read=words * 256, written=len(results) * 256)]
    lines += [f"global_load_dword v{10 + k}, v1, s[4:5] offset:{256 * k}" for k in range(words)]
    lines += ["s_waitcnt vmcnt(0) lgkmcnt(0)", body, TAIL]
    for k, name in enumerate(results):
        register = name
        if name[0] not in "v":
            lines.append(f"v_mov_b32 v250, {name}")
            register = "v250"
        lines.append(f"global_store_dword v1, {register}, s[8:9] offset:{256 * k}")
    lines += ["s_endpgm", DIRECTIVES.format(denormals=denormals, overflow=overflow, scratch=scratch)]
    text = "\n".join(line.strip() for line in "\n".join(lines).splitlines())
    memory = np.zeros(16, np.uint8) if memory is None else memory
    named = {"vectors": vectors, "scalars": scalars, "out": out, "memory": memory}
    reaches, kernarg = [], b""
    for name, array in named.items():
        tensor = torch.from_numpy(array.reshape(-1).view(np.uint8))
        reaches.append(reach_of(name, tensor))
        kernarg += struct.pack("<Q", tensor.data_ptr())
    run(Grid(encode(read(text)), (groups, 1, 1), 1, lds, kernarg, reaches), models or Models())
    return out


# ── numbers: bits of a type to a Python number and back, rounded once ────────

FLOATS = {"f": (24, -126, 127, 32), "e": (11, -14, 15, 16), "d": (53, -1022, 1023, 64), "b": (8, -126, 127, 16)}
"""Precision, exponents of the normal numbers, bits: fp32, fp16, fp64, bf16."""
WIDTH = {"u": 32, "i": 32, "h": 16, "s": 16, "U": 64, "I": 64, "m": 1, "f": 32, "e": 16, "d": 64, "b": 16}
SIGNED = "isI"


def decode(kind, bits):
    bits &= (1 << WIDTH[kind]) - 1
    if kind in SIGNED:
        return bits - (bits >> WIDTH[kind] - 1 << WIDTH[kind])
    if kind == "b":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    if kind in FLOATS:
        integer, floating = {"f": ("<I", "<f"), "e": ("<H", "<e"), "d": ("<Q", "<d")}[kind]
        return struct.unpack(floating, struct.pack(integer, bits))[0]
    return bits


def encoded(kind, value):
    """Bits of the number nearest to an exact value, ties to even; None for NaN."""
    if kind not in FLOATS:
        return int(value) & (1 << WIDTH[kind]) - 1
    precision, least, most, width = FLOATS[kind]
    infinity = (most - least + 2) << precision - 1
    if isinstance(value, float):
        if math.isnan(value):
            return None
        sign = int(math.copysign(1, value) < 0) << width - 1
        if math.isinf(value):
            return sign | infinity
        value = Fraction(value)
    else:
        sign = int(value < 0) << width - 1
    value = abs(Fraction(value))
    if not value:
        return sign
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= value < Fraction(2) ** exponent
    unit = max(exponent, least) - precision + 1
    whole = round(value / Fraction(2) ** unit)
    bits = whole if unit == least - precision + 1 else whole + ((unit + precision - 1 - least) << precision - 1)
    return sign | min(bits, infinity)


SPECIALS = {
    "u": [0, 1, 2, 3, 5, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF,
          0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x00200008,
          0x001F0001],
    "h": [0, 1, 2, 3, 5, 15, 16, 17, 31, 32, 127, 128, 255, 256, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF],
    "f": [0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x3F000000, 0x40000000, 0x40490FDB,
          0x3FC00000, 0x40200000, 0x4B000000, 0x4B7FFFFF, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x477FE000,
          0x477FF000, 0x38800000, 0x33800000, 0x33000001, 0x43800000, 0x4F000000, 0x4F800000, 0x4EFFFFFF],
    "e": [0, 1, 0x3FF, 0x400, 0x401, 0x3C00, 0x3C01, 0x3BFF, 0x3800, 0x4000, 0x4248, 0x3E00, 0x4100, 0x6400, 0x7BFF,
          0x7C00, 0x7E00],
    "d": [0, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF << 52, (0x3FF << 52) + 1, (0x3FF << 52) - 1, 0x400 << 52,
          0x3FE << 52, 0x3FF8 << 48, 0x4004 << 48, 0x433 << 52, 0x7FE << 52, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52,
          0x7FF8 << 48, 0x41E << 52, 0x41F << 52, 0x41DFFFFFFFE00000, 0x47EFFFFFF0000000, 0x36A << 52],
}  # fmt: skip
SPECIALS["U"] = SPECIALS["u"] + [0x7FFFFFFFFFFFFFFF, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, 1 << 32]


def drawn(kind, generator):
    """Bits of a special value or of a random one."""
    width = WIDTH[kind]
    family = {"i": "u", "s": "h", "I": "U"}.get(kind, kind)
    choice = generator.random()
    if kind == "m":
        return generator.getrandbits(1)
    if family in FLOATS:
        if choice < 0.45 and family in SPECIALS:
            return generator.choice(SPECIALS[family]) | generator.getrandbits(1) << width - 1
        if choice < 0.75:
            return encoded(family, generator.uniform(-8, 8) * 2.0 ** generator.randint(-6, 6))
        return quieted(family, generator.getrandbits(width))
    if choice < 0.5:
        return generator.choice(SPECIALS[family])
    return generator.getrandbits(width) >> (generator.randrange(width) if choice < 0.6 else 0)


def quieted(kind, bits):
    """A signalling NaN made quiet; other numbers as they are."""
    return bits | 1 << FLOATS[kind][0] - 2 if math.isnan(decode(kind, bits)) else bits


def generator_for(name):
    return random.Random(zlib.crc32(name.encode()))


def agrees(kind, got, wanted, ulp=0):
    if wanted is None:
        return math.isnan(decode(kind, got))
    return got == wanted or (ulp and kind in FLOATS and abs(got - wanted) <= ulp and wanted not in (0, 1 << 31))


def _register(letter, first, kind):
    return f"{letter}{first}" if WIDTH[kind] <= 32 else f"{letter}[{first}:{first + 1}]"


def _value_of(words, kind, at):
    low = int(words[at])
    return low | int(words[at + 1]) << 32 if WIDTH[kind] == 64 else low


def check_vector(opcode, results, sources, formula, *, modifiers="", shape="{}", groups=6, ulp=0, denormals=3,
                 values=None):  # fmt: skip
    """Compare a vector instruction lane by lane with formula(*sources) -> value, or a tuple of values.

    A `*` before a source ties it to the result's register (to vcc for a mask). `shape` writes a source.
    """
    tied, kinds = [], []
    for sign in sources:
        if sign == "*":
            tied.append(len(kinds))
        else:
            kinds.append(sign)
    generator = generator_for(opcode)
    inputs = np.zeros((groups, 2 * len(kinds) + 2, LANES), np.uint32)
    scalars = np.zeros((groups, SCALARS), np.uint32)
    given = {}
    for group in range(groups):
        for lane in range(LANES):
            values_here = [drawn(kind, generator) for kind in kinds]
            if values:
                values_here = values(generator, values_here)
            given[group, lane] = values_here
            for k, (kind, bits) in enumerate(zip(kinds, values_here, strict=True)):
                if kind == "m":
                    scalars[group, 4 + lane // 32] |= np.uint32(bits << lane % 32)
                else:
                    junk = generator.getrandbits(16) << 16 if WIDTH[kind] == 16 and k not in tied else 0
                    inputs[group, 2 * k, lane] = bits & 0xFFFFFFFF | junk
                    inputs[group, 2 * k + 1, lane] = bits >> 32
    texts, head, stored = [], [], []
    for k, kind in enumerate(results):
        if kind == "m":
            texts.append("s[50:51]")
            stored += ["s50", "s51"]
        else:
            texts.append(_register("v", 200 + 2 * k, kind))
            stored += [f"v{200 + 2 * k}", f"v{201 + 2 * k}"]
    for k, kind in enumerate(kinds):
        if k in tied:
            head += ["s_mov_b64 vcc, s[36:37]"] if kind == "m" else [
                f"v_mov_b32 v{200 + word}, v{10 + 2 * k + word}" for word in (0, 1)]  # fmt: skip
        else:
            register = "s[36:37]" if kind == "m" else _register("v", 10 + 2 * k, kind)
            texts.append(register if kind == "m" else shape.format(register))
    body = "\n".join([*head, f"{opcode} {', '.join(texts)} {modifiers}"])
    out = execute(body, inputs, scalars, stored, denormals=denormals)
    wrong = []
    for (group, lane), bits in given.items():
        numbers = [decode(kind, one) for kind, one in zip(kinds, bits, strict=True)]
        wanted = formula(*numbers)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for k, (kind, value) in enumerate(zip(results, wanted, strict=True)):
            if value is ...:
                continue
            if kind == "m":
                got = int(out[group, 2 * k + lane // 32, lane]) >> lane % 32 & 1
                expected = int(bool(value))
            else:
                got, expected = _value_of(out[group, :, lane], kind, 2 * k), encoded(kind, value)
            if not agrees(kind, got, expected, ulp):
                wrong.append((opcode, k, [hex(one) for one in bits], numbers, hex(got), expected and hex(expected)))
    assert not wrong, f"{len(wrong)} of {groups * LANES}: {wrong[:4]}"


@pytest.fixture(scope="session")
def lanes():
    """`lanes.execute`, `lanes.check_vector`, and the numbers they need."""

    class Lanes:
        pass

    for function in (execute, check_vector, decode, encoded, drawn, generator_for, agrees):
        setattr(Lanes, function.__name__, staticmethod(function))
    return Lanes
