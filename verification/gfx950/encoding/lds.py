"""LDS, and the exchanges between lanes that go through its hardware."""

from __future__ import annotations

from collections.abc import Sequence

from verification.gfx950 import cross
from verification.gfx950.encoding.entry import Entry
from verification.gfx950.operands import Operand

BYTES, FIRST_OFFSET, ELEMENTS = 0, 4, 6
"""Places in `extra`."""
STRIDE = 64
"""Elements that an offset of the `st64` forms counts."""


def _place(entry: Entry, address: Operand, data: Sequence[Operand] = (), elements: int = 1) -> None:
    """The address, the data behind it, and the offset of each element in bytes."""
    entry.source(0, address, "u32", register_only=True)
    for k, operand in enumerate(data):
        entry.source(3 + k, operand, entry.row.sources[1 + k])
    extra = entry.out["extra"]
    scale = int(extra[BYTES]) * (STRIDE if "st64" in entry.row.name else 1) if elements == 2 else 1
    for k, name in enumerate(("offset0", "offset1") if elements == 2 else ("offset",)):
        extra[FIRST_OFFSET + k] = entry.number(name) * scale
    extra[ELEMENTS] = elements


def _operands(entry: Entry) -> list[Operand]:
    """The operands behind the result, which is put."""
    parsed = entry.parsed(len(entry.row.results) + len(entry.row.sources))
    if entry.row.results:
        entry.result(parsed.pop(0), entry.row.results[0])
    return parsed


def _one(entry: Entry) -> None:
    address, *data = _operands(entry)
    _place(entry, address, data)


def _two(entry: Entry) -> None:
    address, *data = _operands(entry)
    _place(entry, address, data, elements=2)


def _atomic(entry: Entry) -> None:
    _one(entry)
    entry.out["returns"] = bool(entry.row.results)


def _load_data(entry: Entry) -> None:
    _one(entry)
    entry.out["extra"][BYTES] = 4


def _swizzle(entry: Entry) -> None:
    entry.place(entry.row.results, entry.row.sources)
    entry.out["extra"][BYTES] = 4
    entry.out["lanes"] = entry.kernel.row_of(cross.swizzle_lanes(entry.rest.pop("offset", "0")))


FORMS = {
    "lds_load": _one, "lds_store": _one, "lds_load2": _two, "lds_store2": _two, "lds_atomic": _atomic,
    "lds_load_data": _load_data, "swizzle": _swizzle,
}  # fmt: skip
