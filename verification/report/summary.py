"""Records reduced to rows: operator × case group × implementation, and margins by dtype."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from verification.records import OutputRecord, Record

BAD = ("failed", "error")
LAWS = "laws"


def verdicts(records: Iterable[Record]) -> str:
    """Counts by verdict; where something failed, of how many and in which ways."""
    records = list(records)
    bad = [r for r in records if r.verdict in BAD]
    if bad:
        kinds = ", ".join(sorted({r.kind or r.verdict for r in bad}))
        return f"**{len(bad)} of {len(records)} failed: {kinds}**"
    counts = {v: sum(r.verdict == v for r in records) for v in ("passed", "waived", "unsupported")}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


@dataclass
class Row:
    """One output of an operator, group and implementation on one target."""

    operator: str
    group: str
    implementation: str
    target: str
    variant: str
    output: str
    records: list[Record] = field(default_factory=list)

    @property
    def numbers(self) -> list[tuple[Record, OutputRecord]]:
        """The row's output in each record that has it."""
        return [(r, o) for r in self.records for o in r.outputs if o.output == self.output]

    @property
    def worst(self) -> tuple[Record, OutputRecord] | None:
        """The record and output with the largest error ÷ budget."""
        return max(self.numbers, key=lambda pair: pair[1].ratio, default=None)

    @property
    def shown(self) -> Record:
        """The record to repeat: a failed one, else the one nearest its budget."""
        bad = [r for r in self.records if r.verdict in BAD]
        return bad[0] if bad else self.worst[0] if self.worst else self.records[0]


def rows(records: Iterable[Record]) -> list[Row]:
    """Rows in order of operator, implementation and group; laws are one group, at the end."""
    table: dict[tuple[str, ...], Row] = {}
    for r in records:
        for output in [o.output for o in r.outputs] or [""]:
            key = (r.operator, LAWS if r.law else r.group, r.implementation, r.target, r.variant, output)
            table.setdefault(key, Row(*key)).records.append(r)
    return sorted(table.values(), key=lambda row: (row.operator, row.implementation, row.target, row.group == LAWS))


@dataclass
class Margin:
    """How much room an implementation leaves: budget ÷ largest error."""

    operator: str
    output: str
    dtype: str
    implementation: str
    target: str
    ratios: list[float] = field(default_factory=list)
    bit_equal: list[float] = field(default_factory=list)
    ulps: float = 0.0

    @property
    def least(self) -> float | None:
        """Budget ÷ largest error where it is least; None where every result is exact."""
        worst = max(self.ratios)
        return 1 / worst if worst else None

    @property
    def told(self) -> str:
        """The room in words."""
        return "exact" if self.least is None else f"{self.least:.2f}"


def margins(records: Iterable[Record]) -> list[Margin]:
    """One line an operator's output, dtype, implementation and target."""
    table: dict[tuple[str, ...], Margin] = {}
    for r in records:
        for o in r.outputs:
            key = (r.operator, o.output, o.dtype, r.implementation, r.target)
            margin = table.setdefault(key, Margin(*key))
            if o.ratio >= max(margin.ratios, default=0.0):
                margin.ulps = o.worst_ulps
            margin.ratios.append(o.ratio)
            margin.bit_equal.append(o.bit_equal)
    return sorted(table.values(), key=lambda m: (m.operator, m.implementation, m.target, m.output))
