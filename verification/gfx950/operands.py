"""The operands of the assembly: registers, constants, sign modifiers."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

IN_VGPR, IN_SGPR, CONSTANT, NOTHING = range(4)
NEG, ABS, SEXT, FLUSH, CROSS = 1, 2, 4, 8, 16

NAMED = {"vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1), "exec": (126, 2), "exec_lo": (126, 1),
         "exec_hi": (127, 1), "m0": (124, 1), "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1),
         "flat_scratch_hi": (103, 1)}  # fmt: skip
REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])$")
ACCUMULATORS = 256
"""Where the accumulation registers begin in the numbering of the encoded operands."""


class OperandError(ValueError):
    """An operand that is not known, or not what its instruction takes."""


@dataclass(frozen=True)
class Operand:
    """Where a value is: registers (count 32-bit words), or constant bits."""

    where: int
    register: int = 0
    words: int = 1
    value: int = 0
    modifiers: int = 0
    float_text: str = ""


def parse(text: str) -> Operand:
    """Read an operand with its sign modifiers: `-v1`, `|s2|`, `neg(0)`, `abs(v3)`, `sext(v4)`."""
    modifiers = 0
    for _ in range(4):
        if text.startswith("-") and not _number(text):
            text, modifiers = text[1:], modifiers | NEG
        elif text.startswith("|") and text.endswith("|"):
            text, modifiers = text[1:-1], modifiers | ABS
        elif match := re.fullmatch(r"(neg|abs|sext)\((.*)\)", text):
            text, modifiers = match.group(2), modifiers | {"neg": NEG, "abs": ABS, "sext": SEXT}[match.group(1)]
        else:
            break
    if match := REGISTER.fullmatch(text):
        file, one, first, last = match.groups()
        start = int(one if one is not None else first)
        words = 1 if one is not None else int(last) - start + 1
        base = ACCUMULATORS if file == "a" else 0
        return Operand(IN_SGPR if file == "s" else IN_VGPR, start + base, words, modifiers=modifiers)
    if text in NAMED:
        return Operand(IN_SGPR, *NAMED[text], modifiers=modifiers)
    if text == "off":
        return Operand(NOTHING, words=0)
    number = _number(text)
    if number is None:
        raise OperandError(f"unknown operand {text!r}")
    if isinstance(number, float):
        return Operand(CONSTANT, words=0, modifiers=modifiers, float_text=text)
    return Operand(CONSTANT, words=0, value=number, modifiers=modifiers)


def _number(text: str) -> int | float | None:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text) if re.fullmatch(r"-?\d*\.\d+(e[+-]?\d+)?", text) else None
    except ValueError:
        return None


def constant_bits(operand: Operand, spelt: str, words: int) -> int:
    """Bits of a constant as an instruction of that type reads it.

    An inline float is a number as wide as the type: fp64 for any type of 64 bits, fp16 and bf16 for
    operands of these formats (in the low half of a pair), else fp32. 0.15915494 is 1/2π. An integer is
    sign-extended, and a 32-bit literal for fp64 is its upper half.
    """
    if operand.float_text:
        number = float(operand.float_text)
        if spelt == "f16":
            return int(struct.unpack("<H", struct.pack("<e", number))[0])
        if spelt in ("f64", "u64"):
            return int(struct.unpack("<Q", struct.pack("<d", number))[0])
        single = int(struct.unpack("<I", struct.pack("<f", number))[0])
        return single >> 16 if spelt == "bf16" else single
    value = operand.value
    if spelt == "f64" and not -16 <= value <= 64:
        return (value & 0xFFFFFFFF) << 32
    return value & (0xFFFFFFFFFFFFFFFF if words >= 2 else 0xFFFFFFFF)
