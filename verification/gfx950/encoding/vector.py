"""Arithmetic: operands in their order, output modifiers, and which halves are read and written."""

from __future__ import annotations

from verification.gfx950 import operands
from verification.gfx950.encoding.entry import Entry
from verification.gfx950.encoding.layout import BYTE_0, PRESERVE, WORD_0, WORD_1
from verification.gfx950.instructions.rows import Row
from verification.gfx950.instructions.types import kind_of
from verification.gfx950.operands import Operand, OperandError

FLOATS = frozenset({"f32", "f16", "f64"})
HALVES = frozenset({"f16", "bf16", "u16", "i16", "power16"})
MULTIPLY = {("mul", "2"): 1, ("mul", "4"): 2, ("div", "2"): 3}
"""Output multipliers as the executor numbers them."""


def clamps_float(row: Row) -> bool:
    """Whether `clamp` is the clamp of a float result to [0, 1], not of an integer to its range."""
    return bool(row.results) and row.results[0] in FLOATS


def _plain(entry: Entry) -> None:
    row = entry.row
    parsed = entry.place(row.results, row.written_sources)
    if row.family == "scalar":
        if any(operand.where == operands.IN_VGPR for operand in parsed):
            raise OperandError("a vector register in a scalar instruction")
        return
    if row.results and row.results[0] not in ("mask", "maskx") and parsed[0].where != operands.IN_VGPR:
        raise OperandError("the result of a vector instruction is no vector register")
    _output(entry)
    if "bitop3" in entry.rest:
        entry.out["extra"][0] = entry.number("bitop3")
    _half_selects(entry)


def _function(entry: Entry) -> None:
    entry.place(entry.row.results, entry.row.sources)


def _packed(entry: Entry) -> None:
    row, out = entry.row, entry.out
    kind = "u64" if row.results[0] in ("f32", "u32") else "u32"
    result, *sources = entry.parsed(1 + len(row.sources))
    entry.result(result, kind)
    for k, source in enumerate(sources):
        _packed_source(entry, k, source, kind)
    low, high = entry.mask("op_sel"), entry.mask("op_sel_hi", (1 << len(sources)) - 1)
    if row.name == "v_pk_mov_b32":  # op_sel alone: its second bit chooses the high result from the second source
        low, high = low & 0b01, low & 0b10
    out["op_sel"], out["op_sel_hi"] = low, high
    out["packed_neg_lo"], out["packed_neg_hi"] = entry.mask("neg_lo"), entry.mask("neg_hi")
    _output(entry)


def _packed_source(entry: Entry, k: int, operand: Operand, kind: str) -> None:
    if operand.where != operands.CONSTANT:
        entry.source(k, operand, kind)
        return
    slot = entry.out["source"][k]
    slot["where"] = operands.CONSTANT
    slot["value"] = operands.constant_bits(operand, kind_of(entry.row.sources[k]).constant, 1)


def _mixed(entry: Entry) -> None:
    result, *sources = entry.parsed(1 + len(entry.row.sources))
    entry.result(result, "u32")
    entry.out["op_sel"] = entry.mask("op_sel")
    entry.out["op_sel_hi"] = halves = entry.mask("op_sel_hi")
    for k, source in enumerate(sources):
        half = source.where == operands.CONSTANT and halves >> k & 1
        entry.source(k, source, "mixed16" if half else "mixed")
    _output(entry)


def _output(entry: Entry) -> None:
    """The modifiers of a float result."""
    row, rest, out = entry.row, entry.rest, entry.out
    if not clamps_float(row) and row.form != "mixed":
        return
    out["flush"] = entry.kernel.flush and row.results[0] == "f32"
    out["clamp"] = rest.pop("clamp", None) is not None
    for name in ("mul", "div"):
        if name in rest:
            out["multiply"] = MULTIPLY[name, rest.pop(name)]


def _half_selects(entry: Entry) -> None:
    """op_sel of a plain instruction: which half or byte is read, and which is written."""
    chosen = entry.bits("op_sel")
    chosen += [0] * (4 - len(chosen))
    _result_part(entry, chosen)
    for k in range(len(entry.row.written_sources)):
        _source_part(entry, k, chosen)


def _result_part(entry: Entry, chosen: list[int]) -> None:
    row, out = entry.row, entry.out
    result = row.results[0] if row.results else ""
    last = chosen[min(len(row.written_sources), 3)]
    if result == "half16":
        out["result_select"] = WORD_0 + (chosen[3] or last)
    elif result == "byte8":
        out["result_select"] = BYTE_0 + chosen[2] + 2 * chosen[3]
    elif not last:
        return
    elif result in HALVES:
        out["result_select"] = WORD_1
    else:
        raise OperandError("op_sel of a result that is no half")
    out["result_unused"] = PRESERVE


def _source_part(entry: Entry, k: int, chosen: list[int]) -> None:
    kinds, slot = entry.row.written_sources, entry.out["source"][k]
    if kinds[k] == "word":
        slot["select"] = WORD_0 + chosen[k]
    elif kinds[k] == "byte2":
        slot["select"] = BYTE_0 + chosen[0] + 2 * chosen[1]
    elif chosen[k] and kinds[k] in HALVES:
        slot["select"] = WORD_1
    elif chosen[k] and entry.row.results[:1] not in (("half16",), ("byte8",)) and "byte2" not in kinds:
        raise OperandError(f"op_sel of a source of type {kinds[k]}")


FORMS = {"plain": _plain, "function": _function, "packed": _packed, "mixed": _mixed}
