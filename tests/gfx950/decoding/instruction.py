"""An instruction as both readers spell it, so that two of them can be compared field by field."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """Registers as `v7`, `s[106:107]`, `a[0:3]`, constants as the bits that are read, signs around them.

    Modifiers hold what is not the default. The operand of a branch is an address in the decoded code,
    an index of the listing in what the text says.
    """

    opcode: str
    suffix: str
    operands: tuple[str, ...]
    modifiers: dict[str, int | str]
    target: int | None = None
    address: int = 0
    size: int = 0


def register(file: str, number: int, words: int) -> str:
    return f"{file}{number}" if words == 1 else f"{file}[{number}:{number + words - 1}]"


def marked(text: str, negative: bool, absolute: bool, extended: bool) -> str:
    text = f"sext({text})" if extended else text
    text = f"|{text}|" if absolute else text
    return f"-{text}" if negative else text


def signed(value: int, bits: int) -> int:
    """A field of that many bits in two's complement."""
    return (value ^ 1 << bits - 1) - (1 << bits - 1)
