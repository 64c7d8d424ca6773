"""What our reader makes of the assembly: operands from the encoded program, modifiers from its lines."""

from __future__ import annotations

import re
from bisect import bisect

from verification.gfx950 import cross, operands
from verification.gfx950.assembly import Line, read
from verification.gfx950.encoding import encode
from verification.gfx950.encoding.lanes import SUFFIXES
from verification.gfx950.instructions import instructions
from verification.gfx950.instructions.rows import Row

from .instruction import Instruction, marked, register

SLOTS = {
    "global_load": "d01", "global_store": "031", "global_atomic": "d031", "global_load_lds": "01", "flat_load": "d0",
    "flat_store": "03", "flat_atomic": "d03", "scratch_load": "d01", "scratch_store": "031", "buffer_load": "d012",
    "buffer_store": "3012", "buffer_atomic": "3012", "scalar_load": "d01", "lds_load": "d0", "lds_load2": "d0",
    "lds_load_data": "d03", "lds_store": "034", "lds_store2": "034", "lds_atomic": "d034", "swizzle": "d0",
}  # fmt: skip
"""Where an encoded memory instruction keeps its operands, as the assembly orders them: d, or a source."""

COMPUTING = ("plain", "function", "packed", "mixed", "matrix", "matrix_wide", "result", "source")
LISTS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
DOTS = ("v_dot2_f32_f16", "v_dot2_f32_bf16")
ALIGNMENT = re.compile(r"\t\.p2align\t(\d+)(?:, , (\d+))?")


Alignments = dict[int, tuple[int, int]]
"""By the index of the instruction that follows: bytes, and the most that may be skipped for it."""


def written(assembly: str) -> tuple[list[Instruction], list[Line], Alignments]:
    """Every instruction, its line, and the alignments that the text asks for."""
    listing = read(assembly)
    program = encode(listing)
    found = []
    for line, record in zip(listing.lines, program.code, strict=True):
        row, suffix = _row_of(line.opcode)
        spelt = _special(row, line, record)
        if spelt is None:
            spelt = [_operand(slot, program.accumulators) for slot in _slots(row, line, record)]
            if row.form.startswith("buffer"):
                _buffer(spelt, line, record)
        modifiers = _modifiers(row, line)
        if row.form == "swizzle":
            modifiers["lanes"] = str(program.lanes[record["lanes"]].tolist())
        target = int(record["immediate"]) if row.form == "branch" else None
        found.append(Instruction(row.name, suffix, tuple(spelt), modifiers, target))
    return found, listing.lines, _alignments(assembly, listing.lines)


def _row_of(opcode: str) -> tuple[Row, str]:
    table = instructions()
    if opcode in table:
        return table[opcode], ""
    suffix = next(one for one in SUFFIXES if opcode.endswith(one) and opcode.removesuffix(one) in table)
    return table[opcode.removesuffix(suffix)], suffix


def _alignments(assembly: str, lines: list[Line]) -> Alignments:
    numbers = [line.number for line in lines]
    found = {}
    for number, text in enumerate(assembly.splitlines(), start=1):
        asked = ALIGNMENT.match(text)
        if asked and numbers[0] < number < numbers[-1]:
            size = 1 << int(asked.group(1))
            found[bisect(numbers, number)] = (size, int(asked.group(2) or size))
    return found


# ── operands ────────────────────────────────────────────────────────────────


def _special(row: Row, line: Line, record) -> list[str] | None:
    if row.form in ("branch", "none", "wait", "cache"):
        return []
    if row.form == "immediate":
        return [f"{int(line.operands[0], 0):#x}"]
    if row.form == "overflow_mode":
        return ["hwreg(1, 23, 1)", f"{int(record['immediate']):#x}"]  # HW_REG_MODE is register 1
    return None


def _slots(row: Row, line: Line, record) -> list:
    if row.form in COMPUTING:
        return [*record["result"][: len(row.results)], *record["source"][: len(row.written_sources)]]
    order = SLOTS[row.form]
    if not row.results or "lds" in line.modifiers or (row.form.endswith("atomic") and not record["returns"]):
        order = order.removeprefix("d")
    if row.form.startswith("lds") and len(row.sources) < 3:
        order = order.removesuffix("4")
    return [record["result"][0] if one == "d" else record["source"][int(one)] for one in order]


def _operand(slot, accumulators: int) -> str:
    where, number, words = int(slot["where"]), int(slot["reg"]), int(slot["width"])
    if where == operands.NOTHING:
        return "off"
    if where == operands.CONSTANT:
        return f"{int(slot['value']):#x}"
    file = "s" if where == operands.IN_SGPR else "a" if number >= accumulators else "v"
    signs = int(slot["modifiers"])
    return marked(register(file, number - (accumulators if file == "a" else 0), words),
                  *(bool(signs & one) for one in (operands.NEG, operands.ABS, operands.SEXT)))  # fmt: skip


def _buffer(spelt: list[str], line: Line, record) -> None:
    """The resource is four registers, whose count the encoding leaves out, and no offset is a constant there."""
    first = 0 if "lds" in line.modifiers else 1
    if "offen" not in line.modifiers:
        spelt[first] = "off"
    spelt[first + 1] = register("s", int(record["source"][1]["reg"]), 4)


# ── modifiers ───────────────────────────────────────────────────────────────


def _modifiers(row: Row, line: Line) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for name, value in line.modifiers.items():
        if name in cross.CONTROLS:
            found["dpp"] = f"{name}:{value.replace(' ', '')}" if value else name
        elif name in ("vmcnt", "lgkmcnt", "expcnt"):
            found[f"wait {name}"] = int(value) + 1
        elif name in LISTS:
            found[name] = _bits(value, row)
        elif name.endswith(("_sel", "_unused")):
            found[name] = value
        elif row.form != "swizzle":
            found[name] = int(value, 0) if value else 1
    if row.form in ("packed", "mixed") or row.name in DOTS:
        every = (1 << len(row.sources)) - 1
        found.setdefault("op_sel_hi", 0 if row.form == "mixed" else every)
    if row.form == "matrix_wide":
        found |= {name: found[name] & 3 for name in LISTS if name in found}
    kept = ("row_mask", "bank_mask")
    return {name: value for name, value in found.items() if value or name in kept}


def _bits(text: str, row: Row) -> int:
    """A list as a number; where there is one entry more than sources, it is the result's, in bit 3."""
    entries = [int(part) for part in text.strip("[]").split(",")]
    number = sum(bit << k for k, bit in enumerate(entries))
    last = len(row.written_sources)
    if row.form == "plain" and row.name not in DOTS and len(entries) == last + 1 < 4:
        number = number & ~(1 << last) | entries[last] << 3
    return number
