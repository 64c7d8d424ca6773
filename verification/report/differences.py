"""Two recorded runs side by side, check by check: verdicts that changed, and how far each stood from its budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from verification.records import OutputRecord, Record

Key = tuple[str, str, str | None, str | None]


def key_of(record: Record) -> Key:
    """What two runs share: case, implementation, configuration, law; the target may differ."""
    return record.case, record.implementation, record.configuration, record.law


@dataclass
class OutputRow:
    """One output of one implementation over the checks that both runs made."""

    operator: str
    implementation: str
    output: str
    checks: int = 0
    equal: int = 0
    """Checks with the same errors in every figure."""
    ratios: tuple[float, float] = (0.0, 0.0)
    """Largest error ÷ budget in each run."""
    bit_equal: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Sum over checks of the share of elements equal to the exact result rounded once."""
    widest: float = 0.0
    """The largest difference between the two runs' error ÷ budget on one check."""
    where: str = ""


@dataclass
class RunDifference:
    """What the two runs have in common, and what not."""

    both: int = 0
    only: tuple[int, int] = (0, 0)
    changed: list[tuple[Record, Record]] = field(default_factory=list)
    """Checks whose verdict is not the same."""
    outputs: list[OutputRow] = field(default_factory=list)
    beyond: int = 0
    """Outputs beyond their budget in either run."""


def compare_runs(before: Iterable[Record], after: Iterable[Record]) -> RunDifference:
    """Match by `key_of` and compare."""
    first, second = ({key_of(record): record for record in records} for records in (before, after))
    shared = [key for key in first if key in second]
    found = RunDifference(len(shared), (len(first) - len(shared), len(second) - len(shared)))
    rows: dict[tuple[str, str, str], OutputRow] = {}
    for key in shared:
        a, b = first[key], second[key]
        if a.verdict != b.verdict:
            found.changed.append((a, b))
        for one, other in _outputs(a, b):
            name = (a.operator, a.implementation, one.output)
            _add(rows.setdefault(name, OutputRow(*name)), a.case, one, other)
            found.beyond += not (one.ratio <= 1 and other.ratio <= 1)
    found.outputs = list(rows.values())
    return found


def _outputs(a: Record, b: Record) -> Iterator[tuple[OutputRecord, OutputRecord]]:
    theirs = {output.output: output for output in b.outputs}
    return ((one, theirs[one.output]) for one in a.outputs if one.output in theirs)


def _add(row: OutputRow, case: str, a: OutputRecord, b: OutputRecord) -> None:
    row.checks += 1
    row.equal += a == b
    row.ratios = (max(row.ratios[0], a.ratio), max(row.ratios[1], b.ratio))
    row.bit_equal[0] += a.bit_equal
    row.bit_equal[1] += b.bit_equal
    if abs(a.ratio - b.ratio) > row.widest:
        row.widest, row.where = abs(a.ratio - b.ratio), case
