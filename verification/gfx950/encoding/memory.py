"""Global, flat, scratch and buffer memory, and scalar loads."""

from __future__ import annotations

from verification.gfx950 import operands
from verification.gfx950.encoding.entry import Entry
from verification.gfx950.operands import IN_SGPR, OperandError, parse

CACHE_HINTS = frozenset({"sc0", "sc1", "nt", "glc", "slc", "dlc"})


def drop_hints(entry: Entry) -> None:
    """Take the hints to caches, which are coherent here."""
    for hint in CACHE_HINTS & entry.rest.keys():
        del entry.rest[hint]


# ── global and flat ─────────────────────────────────────────────────────────


def _texts(entry: Entry, count: int) -> list[str]:
    """The operands of a global instruction; a flat one is written without the base."""
    flat = entry.row.form.startswith("flat")
    return [*entry.texts(count - 1), "off"] if flat else entry.texts(count)


def _address(entry: Entry, address: str, base: str) -> None:
    scalar = parse(base)
    entry.source(1, scalar, "s64")
    entry.source(0, parse(address), "u32" if scalar.where == IN_SGPR else "u64", register_only=True)
    entry.out["immediate"] = entry.number("offset")
    drop_hints(entry)


def _global_load(entry: Entry) -> None:
    result, address, base = _texts(entry, 3)
    entry.result(parse(result), entry.row.results[0])
    _address(entry, address, base)


def _global_store(entry: Entry) -> None:
    address, data, base = _texts(entry, 3)
    entry.source(3, parse(data), entry.row.sources[0])
    _address(entry, address, base)


def _global_load_lds(entry: Entry) -> None:
    _address(entry, *_texts(entry, 2))


def _global_atomic(entry: Entry) -> None:
    returns = "sc0" in entry.rest
    *result, address, data, base = _texts(entry, 3 + returns)
    if returns:
        entry.result(parse(result[0]), entry.row.results[0])
        entry.out["returns"] = 1
    entry.source(3, parse(data), entry.row.sources[0])
    _address(entry, address, base)


# ── scratch ─────────────────────────────────────────────────────────────────


def _scratch(entry: Entry, address: str, base: str) -> None:
    entry.source(0, parse(address), "u32")
    entry.source(1, parse(base), "s32")
    entry.out["immediate"] = entry.number("offset")
    drop_hints(entry)


def _scratch_load(entry: Entry) -> None:
    result, address, base = entry.texts(3)
    entry.result(parse(result), entry.row.results[0])
    _scratch(entry, address, base)


def _scratch_store(entry: Entry) -> None:
    address, data, base = entry.texts(3)
    entry.source(3, parse(data), entry.row.sources[0])
    _scratch(entry, address, base)


# ── buffers ─────────────────────────────────────────────────────────────────


def _buffer(entry: Entry, vector: str, resource: str, scalar: str) -> None:
    parsed, source = parse(resource), entry.out["source"]
    if parsed.where != IN_SGPR or parsed.words != 4:
        raise OperandError("the resource of a buffer instruction is four scalar registers")
    if "offen" in entry.rest:
        del entry.rest["offen"]
        entry.source(0, parse(vector), "u32")
    elif vector != "off":
        raise OperandError("a buffer offset without offen")
    else:
        source[0]["where"] = operands.CONSTANT
    source[1]["where"], source[1]["reg"] = IN_SGPR, parsed.register
    entry.source(2, parse(scalar), "s32")
    entry.out["immediate"] = entry.number("offset")
    drop_hints(entry)


def _buffer_load(entry: Entry) -> None:
    if "lds" in entry.rest:
        del entry.rest["lds"]
        entry.out["extra"][3] = 1
        _buffer(entry, *entry.texts(3))
        return
    result, *rest = entry.texts(4)
    entry.result(parse(result), entry.row.results[0])
    _buffer(entry, *rest)


def _buffer_store(entry: Entry) -> None:
    data, *rest = entry.texts(4)
    entry.source(3, parse(data), entry.row.sources[0])
    _buffer(entry, *rest)


def _buffer_atomic(entry: Entry) -> None:
    data, *rest = entry.texts(4)
    entry.source(3, parse(data), entry.row.sources[0])
    if "sc0" in entry.rest:
        entry.result(parse(data), entry.row.sources[0])
        entry.out["returns"] = 1
    _buffer(entry, *rest)


# ── scalar loads ────────────────────────────────────────────────────────────


def _scalar_load(entry: Entry) -> None:
    result, base, offset = entry.parsed(3)
    entry.result(result, entry.row.results[0])
    entry.source(0, base, "s64")
    entry.source(1, offset, "s32")
    entry.out["immediate"] = entry.number("offset")
    drop_hints(entry)


FORMS = {
    "global_load": _global_load, "global_store": _global_store, "global_atomic": _global_atomic,
    "global_load_lds": _global_load_lds, "flat_load": _global_load, "flat_store": _global_store,
    "flat_atomic": _global_atomic, "scratch_load": _scratch_load, "scratch_store": _scratch_store,
    "buffer_load": _buffer_load, "buffer_store": _buffer_store, "buffer_atomic": _buffer_atomic,
    "scalar_load": _scalar_load,
}  # fmt: skip
