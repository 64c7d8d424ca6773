"""One instruction on its way into the array, and what the instructions of a kernel share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verification.gfx950 import operands
from verification.gfx950.assembly import AssemblyError, Line, Listing
from verification.gfx950.instructions.rows import Row
from verification.gfx950.instructions.types import Kind, kind_of
from verification.gfx950.operands import Operand, OperandError


class Kernel:
    """Labels, the declared float mode, and the rows of source lanes that DPP and swizzles refer to."""

    def __init__(self, listing: Listing) -> None:
        self.labels = listing.labels
        self._rows: dict[tuple[int, ...], int] = {}
        denormals = listing.directives.get("float_denorm_mode_32", 3)
        rounding = {listing.directives.get(f"float_round_mode_{bits}", 0) for bits in ("32", "16_64")}
        if denormals not in (0, 3) or listing.directives.get("float_denorm_mode_16_64", 3) != 3 or rounding != {0}:
            raise AssemblyError(
                f"float modes of {listing.name} are not modelled: denorm_mode_32 {denormals}, round modes {rounding}"
            )
        self.flush = denormals == 0

    def row_of(self, lanes: list[int]) -> int:
        """The number of a row of source lanes."""
        return self._rows.setdefault(tuple(lanes), len(self._rows))

    def lane_rows(self) -> Any:
        """Every row so far, int8 [rows, 64]."""
        return np.array(list(self._rows) or [(0,) * 64], dtype=np.int8)


@dataclass
class Entry:
    """An instruction: its row of the tables, its line, the modifiers not read yet, the record to fill."""

    kernel: Kernel
    row: Row
    line: Line
    rest: dict[str, str]
    out: Any

    def texts(self, count: int) -> list[str]:
        """The operands as written; raises OperandError if there are not that many."""
        if len(self.line.operands) != count:
            raise OperandError(f"{len(self.line.operands)} operands where {count} are expected")
        return list(self.line.operands)

    def parsed(self, count: int) -> list[Operand]:
        """The operands as read; raises OperandError."""
        return [operands.parse(text) for text in self.texts(count)]

    def place(self, results: Sequence[str], sources: Sequence[str]) -> list[Operand]:
        """Put all operands in their order, results first; raises OperandError."""
        parsed = self.parsed(len(results) + len(sources))
        for k, kind in enumerate(results):
            self.result(parsed[k], kind, k)
        for k, kind in enumerate(sources):
            self.source(k, parsed[len(results) + k], kind)
        return parsed

    def result(self, operand: Operand, kind_name: str, k: int = 0) -> None:
        """Put a result, which is a register; raises OperandError."""
        self._put(self.out["result"][k], operand, kind_name, register_only=True)

    def source(self, k: int, operand: Operand, kind_name: str, *, register_only: bool = False) -> None:
        """Put a source; raises OperandError."""
        self._put(self.out["source"][k], operand, kind_name, register_only=register_only)

    def _put(self, slot: Any, operand: Operand, kind_name: str, *, register_only: bool) -> None:
        kind = kind_of(kind_name)
        if operand.where == operands.CONSTANT:
            if register_only or kind_name[0] == "v":
                raise OperandError(f"a constant where {kind_name} registers are expected")
            slot["where"], slot["value"] = operands.CONSTANT, _constant(operand, kind_name, kind)
            return
        _check(operand, kind_name, kind)
        slot["where"], slot["reg"], slot["width"] = operand.where, operand.register, min(operand.words, 255)
        slot["modifiers"] = operand.modifiers | (operands.FLUSH if self.kernel.flush and kind_name == "f32" else 0)

    def number(self, name: str, default: int = 0) -> int:
        """Take a modifier that is a number."""
        return int(self.rest.pop(name, str(default)), 0)

    def bits(self, name: str) -> list[int]:
        """Take a modifier that is a list of bits; empty without it."""
        text = self.rest.pop(name, "").strip("[]")
        return [int(part) for part in text.split(",")] if text else []

    def mask(self, name: str, default: int = 0) -> int:
        """Take a list of bits as a number, the first bit lowest."""
        return sum(bit << k for k, bit in enumerate(self.bits(name))) if name in self.rest else default


def _constant(operand: Operand, kind_name: str, kind: Kind) -> int:
    value = operands.constant_bits(operand, kind.constant, kind.words)
    if kind_name == "k16":  # printed as 16 bits, read as signed
        value = ((value & 0xFFFF) ^ 0x8000) - 0x8000 & 0xFFFFFFFF
    if operand.modifiers & operands.ABS:
        value &= ~kind.sign
    return value ^ kind.sign if operand.modifiers & operands.NEG else value


def _check(operand: Operand, kind_name: str, kind: Kind) -> None:
    """Whether registers are what a type takes; raises OperandError."""
    if operand.where != operands.NOTHING and operand.words != kind.words:
        raise OperandError(f"{operand.words} registers where {kind_name} takes {kind.words}")
    if operand.where == operands.IN_SGPR and kind_name[0] in "vcd":
        raise OperandError(f"a scalar register where {kind_name} is expected")
    if operand.where == operands.IN_VGPR and kind_name in ("s32", "s64", "mask", "maskx"):
        raise OperandError(f"a vector register where {kind_name} is expected")
    if operand.modifiers & (operands.NEG | operands.ABS) and not kind.sign:
        raise OperandError(f"a sign modifier on a source of type {kind_name}")
