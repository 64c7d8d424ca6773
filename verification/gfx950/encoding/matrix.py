"""Matrix instructions."""

from __future__ import annotations

from verification.gfx950.encoding.entry import Entry
from verification.gfx950.instructions.matrix import FORMATS, REGISTERS
from verification.gfx950.operands import OperandError


def _matrix(entry: Entry) -> None:
    entry.place(entry.row.results, entry.row.sources)


def _wide(entry: Entry) -> None:
    """The f8f6f4 forms: `cbsz` and `blgp` choose the formats, which say how many registers hold A and B."""
    row, out, formats = entry.row, entry.out, []
    for name in ("cbsz", "blgp"):
        code = entry.number(name)
        if code not in FORMATS:
            raise OperandError(f"{name}:{code} (a 6-bit format) is not modelled")
        formats.append(FORMATS[code])
    out["extra"][2], out["extra"][3] = formats
    registers = (f"v{32 * REGISTERS[one]}" for one in formats)
    entry.place(row.results, (*registers, *row.sources[2:]))
    if row.extra[6]:
        out["op_sel"], out["op_sel_hi"] = entry.mask("op_sel"), entry.mask("op_sel_hi")


FORMS = {"matrix": _matrix, "matrix_wide": _wide}
