"""What a table of instructions consists of, and how a row of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

RESULTS, SOURCES = "de", "abcf"
"""Names in the statements."""


class Source(NamedTuple):
    """A source of a row: its name in the statements, its type, and its place among the written ones."""

    name: str
    kind: str
    implied: bool
    position: int


@dataclass(frozen=True)
class Row:
    """One opcode: its operands' types, and its effect as C statements or the name of a C function.

    `results` and `sources` name types of types.py. A source in parentheses is implied (the old value
    of the result, vcc, scc) and not written in the assembly.
    """

    name: str
    family: str
    results: tuple[str, ...]
    sources: tuple[str, ...]
    code: str
    form: str = "plain"
    extra: tuple[int, ...] = ()
    saturated: str | None = None
    """The statements of the same opcode with its integer clamp."""

    @property
    def written_sources(self) -> tuple[str, ...]:
        """Types of the sources that the assembly spells out."""
        return tuple(kind for kind in self.sources if not kind.startswith("("))

    @property
    def named_sources(self) -> list[Source]:
        """The sources as the statements see them."""
        found, written = [], 0
        for name, kind in zip(SOURCES, self.sources, strict=False):
            implied = kind.startswith("(")
            found.append(Source(name, kind.strip("()"), implied, written))
            written += not implied
        return found


def rows(family: str, text: str, form: str = "plain") -> tuple[Row, ...]:
    """Read lines `name | results | sources | statements [## statements with clamp]`.

    Results are `d` and `e` in the statements, sources `a`, `b`, `c`, `f`.
    """
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, results, sources, code = (part.strip() for part in line.split(" | ", 3))
        code, _, clamped = (part.strip() for part in code.partition(" ## "))
        written, read = (tuple(kinds.replace("-", "").split()) for kinds in (results, sources))
        found.append(Row(name, family, written, read, code, form, saturated=clamped or None))
    return tuple(found)
