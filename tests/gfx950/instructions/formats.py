"""Numbers: bits of a type to a Python number and back, rounded once; special and random ones.

Types by a letter: f, e, d, b are fp32, fp16, fp64, bf16; u, i, h, s, U, I unsigned and signed integers of 32, 16
and 64 bits; m is a bit of a mask.
"""

from __future__ import annotations

import math
import random
import struct
import zlib
from fractions import Fraction

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
