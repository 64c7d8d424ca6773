"""A kernel ready to run, from its listing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from verification.gfx950 import operands
from verification.gfx950.assembly import AssemblyError, Line, Listing
from verification.gfx950.build import handler_numbers
from verification.gfx950.encoding import control, lds, matrix, memory, vector
from verification.gfx950.encoding.entry import Entry, Kernel
from verification.gfx950.encoding.lanes import SUFFIXES
from verification.gfx950.encoding.layout import INSTRUCTION
from verification.gfx950.instructions import instructions
from verification.gfx950.operands import OperandError

FORMS: dict[str, Callable[[Entry], None]] = {
    **vector.FORMS, **memory.FORMS, **lds.FORMS, **matrix.FORMS, **control.FORMS,
}  # fmt: skip
"""How the operands and modifiers of a row's form are read."""


@dataclass
class Program:
    """A kernel ready to run: code, the lane tables it refers to, its listing, its register count."""

    code: Any
    lanes: Any
    listing: Listing
    vgprs: int
    accumulators: int
    """Where the accumulation registers begin."""
    _known: tuple[Any, Any, int, int] = (None, None, 0, 0)

    @property
    def addresses(self) -> tuple[int, int]:
        """Where code and lane tables are in memory; asking numpy costs as much as a short launch."""
        if self._known[0] is not self.code or self._known[1] is not self.lanes:
            self._known = (self.code, self.lanes, self.code.ctypes.data, self.lanes.ctypes.data)
        return self._known[2:]


def encode(listing: Listing) -> Program:
    """Encode every instruction; raises AssemblyError that names the line and what is not known."""
    code = np.zeros(len(listing.lines), INSTRUCTION)
    kernel = Kernel(listing)
    for index, line in enumerate(listing.lines):
        try:
            _encode(kernel, line, code[index])
        except (OperandError, KeyError, IndexError, ValueError) as error:
            what = f"unknown {error}" if isinstance(error, KeyError) else str(error)
            raise AssemblyError(f"line {line.number}: {what} in {line.text!r}") from error
    return Program(code, kernel.lane_rows(), listing, *_place_accumulators(code))


def _encode(kernel: Kernel, line: Line, out: Any) -> None:
    name, read_suffix = _opcode(line.opcode)
    row = instructions()[name]
    entry = Entry(kernel, row, line, dict(line.modifiers), out)
    out["handler"] = _handler(entry)
    out["write_mask"] = (1 << 64) - 1
    out["extra"][: len(row.extra)] = row.extra
    FORMS[row.form](entry)
    if read_suffix:
        read_suffix(entry)
    if entry.rest:
        raise OperandError(f"modifier {', '.join(entry.rest)} of {line.opcode} is not known")


def _opcode(spelt: str) -> tuple[str, Callable[[Entry], None] | None]:
    """An opcode of the tables, and what reads more for the suffix behind it."""
    if spelt in instructions():
        return spelt, None
    for suffix, read in SUFFIXES.items():
        if spelt.endswith(suffix) and spelt.removesuffix(suffix) in instructions():
            return spelt.removesuffix(suffix), read
    raise OperandError(f"unknown opcode {spelt}")


def _handler(entry: Entry) -> int:
    """The number of the C function; an integer clamp has one of its own."""
    row = entry.row
    if "clamp" not in entry.rest or row.form not in ("plain", "packed") or vector.clamps_float(row):
        return handler_numbers()[row.name]
    if row.saturated is None:
        raise OperandError(f"{row.name} has no integer clamp here")
    del entry.rest["clamp"]
    return handler_numbers()[f"{row.name}.clamp"]


def _place_accumulators(code: Any) -> tuple[int, int]:
    """Put the accumulation registers right behind the others; the count of all, and of the others."""
    sides = [code["result"].reshape(-1), code["source"].reshape(-1)]
    used, accumulated = 1, 0
    for side in sides:
        vector_registers = side[side["where"] == operands.IN_VGPR]
        last = vector_registers["reg"].astype(int) + np.maximum(vector_registers["width"], 1)
        plain = vector_registers["reg"] < operands.ACCUMULATORS
        used = max(used, int(last[plain].max(initial=0)))
        accumulated = max(accumulated, int(last[~plain].max(initial=0)) - operands.ACCUMULATORS)
    for name in ("result", "source"):
        moved = (code[name]["where"] == operands.IN_VGPR) & (code[name]["reg"] >= operands.ACCUMULATORS)
        code[name]["reg"] = np.where(moved, code[name]["reg"] - operands.ACCUMULATORS + used, code[name]["reg"])
    return used + max(accumulated, 0), used
