"""Matrix instructions."""

from __future__ import annotations

from verification.gfx950.encoding.entry import Entry
from verification.gfx950.instructions.matrix import F32, FORMATS, wide_registers
from verification.gfx950.operands import OperandError


def _matrix(entry: Entry) -> None:
    entry.place(entry.row.results, entry.row.sources)
    cbsz, abid, blgp = (entry.number(name) for name in ("cbsz", "abid", "blgp"))
    blocks = entry.row.extra[7]
    if 1 << cbsz > blocks or abid >= 1 << cbsz or blgp > 7:
        raise OperandError(f"cbsz:{cbsz} abid:{abid} blgp:{blgp} with {blocks} blocks")
    entry.out["immediate"] = cbsz | abid << 4 | blgp << 8
    entry.out["flush"] = entry.kernel.flush and entry.row.extra[2] == F32


def _doubles(entry: Entry) -> None:
    entry.place(entry.row.results, entry.row.sources)
    entry.out["packed_neg_lo"] = entry.mask("neg")


def _sparse(entry: Entry) -> None:
    entry.place(entry.row.results, entry.row.sources)
    entry.out["immediate"] = entry.number("cbsz") | entry.number("abid") << 4


def _wide(entry: Entry) -> None:
    """The f8f6f4 forms: `cbsz` and `blgp` choose the formats, which say how many registers hold A and B."""
    row, out, formats = entry.row, entry.out, []
    for name in ("cbsz", "blgp"):
        code = entry.number(name)
        if code not in FORMATS:
            raise OperandError(f"{name}:{code} is no format")
        formats.append(FORMATS[code])
    out["extra"][2], out["extra"][3] = formats
    entry.place(row.results, (*map(wide_registers, formats), *row.sources[2:]))
    if row.extra[6]:
        out["op_sel"], out["op_sel_hi"] = entry.mask("op_sel"), entry.mask("op_sel_hi")


FORMS = {"matrix": _matrix, "matrix_doubles": _doubles, "matrix_sparse": _sparse, "matrix_wide": _wide}
