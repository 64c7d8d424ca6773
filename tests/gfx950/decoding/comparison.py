"""Text against machine code, instruction by instruction and field by field."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

from verification.gfx950.cross import swizzle_lanes

from .instruction import Instruction
from .machine_code import decode
from .text import Alignments, written


@dataclass(frozen=True)
class Difference:
    """A field in which the two disagree: what the text says, what the code says, and the line."""

    opcode: str
    field: str
    text: object
    code: object
    line: str


RENAMED = {
    "v_accvgpr_read_b32": "v_accvgpr_read", "v_accvgpr_write_b32": "v_accvgpr_write",
    "v_fma_mix_f32": "v_mad_mix_f32", "v_fma_mixlo_f16": "v_mad_mixlo_f16", "v_fma_mixhi_f16": "v_mad_mixhi_f16",
}  # fmt: skip
"""Names in tinygrad's tables that leave out a type, or are those of an older generation."""


def split(found: list[Difference]) -> tuple[Counter[str], list[Difference]]:
    """How often each opcode has its other name, and the differences that are none of these."""
    names = [one for one in found if one.field == "opcode" and RENAMED.get(one.opcode) == one.code]
    return Counter(one.opcode for one in names), [one for one in found if one not in names]


def compare(assembly: str, code: bytes) -> tuple[list[Instruction], list[Difference]]:
    """Every instruction of the text, and each field in which the code is another."""
    ours, lines, alignments = written(assembly)
    theirs = _aligned(decode(code), alignments)
    assert len(theirs) == len(ours), f"{len(ours)} instructions in the text, {len(theirs)} in the code"
    place = {one.address: index for index, one in enumerate(theirs)}
    found = []
    for mine, other, line in zip(ours, theirs, lines, strict=True):
        for field, text, read in _fields(mine, other, place):
            if text != read:
                found.append(Difference(mine.opcode, field, text, read, line.text))
    return ours, found


def _aligned(code: list[Instruction], alignments: Alignments) -> list[Instruction]:
    """Without the `s_nop 0` that fill the way to an alignment that the text asks for."""
    kept: list[Instruction] = []
    at = 0
    while at < len(code):
        size, most = alignments.get(len(kept), (1, 0))
        gap = -code[at].address % size
        if 0 < gap <= most:
            fill = {(one.opcode, one.operands) for one in code[at : at + gap // 4]}
            assert fill == {("s_nop", ("0x0",))}, f"{fill} on the way to an alignment"
            at += gap // 4
        kept.append(code[at])
        at += 1
    return kept


def _fields(mine: Instruction, other: Instruction, place: dict[int, int]):
    yield "opcode", mine.opcode, other.opcode
    if mine.suffix:
        yield "suffix", mine.suffix, other.suffix
    if mine.target is not None or other.target is not None:
        yield "target", mine.target, place.get(other.target)
    yield "number of operands", len(mine.operands), len(other.operands)
    for k, (text, read) in enumerate(zip(mine.operands, other.operands, strict=False)):
        yield f"operand {k}", text, read
    theirs = dict(other.modifiers)
    if mine.opcode == "ds_swizzle_b32":
        theirs["lanes"] = _swizzled(theirs.pop("offset", 0))
    for name in sorted(mine.modifiers.keys() | theirs.keys()):
        yield name, mine.modifiers.get(name), theirs.get(name)


@cache
def _swizzled(offset: int) -> str:
    """The lanes that a number chooses; the text may have named the pattern instead."""
    return str(swizzle_lanes(str(offset)))
