"""A whole run of checks: progress, records as they come, resumption, interruption, exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from verification.plan import Check, Selection
from verification.records import Record, RecordFile, read_records
from verification.runner import Session, current_hash

HELD, FAILED, USAGE, MISSING, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes of every command."""

RECORDS = "records.jsonl"
FLOORS = Path(__file__).with_name("floors.json")
SECONDS_BETWEEN_LINES = 15


class UnwritableError(OSError):
    """A folder for results cannot be written."""


@dataclass
class Outcome:
    """What a run came to."""

    records: list[Record] = field(default_factory=list)
    planned: int = 0
    interrupted: bool = False
    complaints: list[str] = field(default_factory=list)
    """What fails the run beside its records: the floor, the waiver ledger."""

    @property
    def exit_code(self) -> int:
        """The exit code that tells it."""
        if self.interrupted:
            return INTERRUPTED
        if self.complaints or any(r.verdict in ("failed", "error") for r in self.records):
            return FAILED
        if self.records and all(r.verdict == "unsupported" for r in self.records):
            return MISSING
        return HELD


def prepared_folder(folder: Path | None, *, resume: bool) -> RecordFile | None:
    """The record file of a folder, new unless resuming; UnwritableError before anything runs."""
    if folder is None:
        return None
    path = folder / RECORDS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            path.unlink(missing_ok=True)
        path.touch()
    except OSError as error:
        raise UnwritableError(f"{folder} cannot be written: {error.strerror or error}") from None
    return RecordFile(path)


def already_done(folder: Path, checks: Iterable[Check]) -> list[Record]:
    """Records of an earlier run that still speak of the code as it is now."""
    hashes = {check.id: current_hash(check) for check in checks}
    kept = {
        r.check: r for r in read_records(folder / RECORDS) if r.check in hashes and r.source_hash == hashes[r.check]
    }
    return list(kept.values())


def run(
    checks: list[Check],
    session: Session,
    selection: Selection,
    *,
    file: RecordFile | None = None,
    done: Iterable[Record] = (),
    whole: bool = True,
) -> Outcome:
    """Every check in order; ctrl-C ends it with what was done."""
    outcome = Outcome(records=[session.waivers.applied(record) for record in done], planned=len(checks))
    if file is not None and outcome.records:
        file.replace(outcome.records)
    finished = {record.check for record in outcome.records}
    remaining = [check for check in checks if check.id not in finished]
    try:
        with _progress(len(remaining)) as advance:
            for check in remaining:
                advance(check.id)
                record = session.run(check)
                if file is not None:
                    file.append(record)
                outcome.records.append(record)
    except KeyboardInterrupt:
        outcome.interrupted = True
        return outcome
    unfiltered = whole and selection.whole
    outcome.complaints = session.waivers.complaints(whole=unfiltered)
    if unfiltered:
        outcome.complaints += below_floor(selection.suite, outcome.records)
    return outcome


def executed(records: Iterable[Record]) -> dict[str, int]:
    """Checks that ran, by target."""
    counts: dict[str, int] = {}
    for record in records:
        counts[record.target] = counts.get(record.target, 0) + (record.verdict != "unsupported")
    return counts


@cache
def floors() -> dict[str, dict[str, int]]:
    """Least checks that a whole suite executes, by suite and target."""
    loaded: dict[str, dict[str, int]] = json.loads(FLOORS.read_text())
    return loaded


def below_floor(suite: str, records: Iterable[Record]) -> list[str]:
    """A complaint a target on which fewer checks ran than the suite promises."""
    wanted = floors().get(suite, {})
    return [
        f"only {count} checks of suite {suite} ran on {target}; the floor in floors.json is {wanted[target]}"
        for target, count in executed(records).items()
        if count < wanted.get(target, 0)
    ]


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Something that shows each check's id as it starts: a bar on a terminal, now and then a line elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total, completed=-1)
            yield lambda text: bar.update(task, advance=1, description=text)
        return
    started = said = time.monotonic()
    count = 0

    def advance(text: str) -> None:
        nonlocal count, said
        count += 1
        if time.monotonic() - said > SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            print(f"{count} of {total} checks, {said - started:.0f} s: {text}", file=sys.stderr, flush=True)

    yield advance
