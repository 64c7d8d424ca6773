"""What every command shares: options, the console, files of results."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from verification.campaign import Outcome
    from verification.records import Record
    from verification.runner import Session

USAGE, MISSING, INTERRUPTED = 2, 3, 130

out = Console(width=None if sys.stdout.isatty() else 140)


class UsageError(ValueError):
    """Words on the command line that do not fit together."""


Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON too.")]
CandidateFile = Annotated[
    Path | None,
    typer.Option(
        "--candidate",
        metavar="FILE.py",
        help="A kernel of yours, in one file. It is code, and it runs (in a child process).",
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option("--target", help="Where to run: cpu, interpreter, gfx950, cuda, hip. Default: the best one here."),
]
ImplementationName = Annotated[str | None, typer.Option("--implementation", help="Only this implementation.")]
Seconds = Annotated[float | None, typer.Option("--timeout", min=0.1, help="Seconds that one call may take.")]
Memory = Annotated[float | None, typer.Option("--memory", min=0.1, help="GiB that a child may use.")]


def require_writable(path: Path | None) -> None:
    """Refuse a result file that cannot be written before anything runs."""
    from verification.campaign import UnwritableError

    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError(f"--json {path} cannot be written: {error.strerror or error}") from None
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UnwritableError(f"--json {path} cannot be written")


def open_session(seconds: float | None, memory: float | None) -> Session:
    """A session with the waiver ledger and the limits that were asked for."""
    from verification.runner import Session
    from verification.waivers import Waivers

    return Session(Waivers.read(), seconds, None if memory is None else int(memory * 2**30))


def declared(session: Session, candidate: Path | None, borrows: bool = False) -> Any:
    """What a candidate file declares; exit 1 where it cannot be imported, UsageError where there is none."""
    from verification.runner import Problem

    if candidate is None:
        return ()
    if not candidate.is_file():
        raise UsageError(f"--candidate {candidate}: there is no such file")
    try:
        return session.declared(candidate.resolve(), borrows)
    except Problem as problem:
        out.print(f"[red]error ({problem.kind})[/red]: {problem}", highlight=False, markup=True)
        raise typer.Exit(1) from None


def show(outcome: Outcome) -> None:
    """The outcome as a table, then the first failures with what repeats them."""
    from verification.report.summary import margins

    table = Table(
        "operator", "implementation", "passed", "failed", "error", "waived", "unsupported", "budget ÷ largest error"
    )
    room = margins(outcome.records)
    for key in dict.fromkeys((r.operator, r.implementation, r.target) for r in outcome.records):
        mine = [r for r in outcome.records if (r.operator, r.implementation, r.target) == key]
        counts = [sum(r.verdict == v for r in mine) for v in ("passed", "failed", "error", "waived", "unsupported")]
        least = [f"{m.output} {m.dtype} {m.told}" for m in room if (m.operator, m.implementation, m.target) == key]
        style = "red" if counts[1] or counts[2] else None
        table.add_row(key[0], f"{key[1]}@{key[2]}", *map(str, counts), ", ".join(least) or "–", style=style)
    out.print(table)
    for record in [r for r in outcome.records if r.verdict in ("failed", "error")][:10]:
        out.print(f"[red]{record.verdict}[/red] ({record.kind}) {record.check}", highlight=False)
        print_findings(record)
    for complaint in outcome.complaints:
        out.print(f"[red]{complaint}[/red]", highlight=False)
    if outcome.interrupted:
        out.print(f"interrupted: {len(outcome.records)} of {outcome.planned} checks are done; --resume DIR goes on")


def print_findings(record: Record) -> None:
    """What is wrong, and the command that repeats it."""
    for finding in record.findings:
        out.print(f"  {finding}", highlight=False, markup=False)
    out.print(f"  repeat: {record.command}", highlight=False, markup=False, soft_wrap=True)


def write_report(folder: Path, outcome: Outcome) -> None:
    """Write report.md into the folder."""
    from verification.records import write_whole
    from verification.report.markdown import render

    write_whole(
        folder / "report.md",
        render(outcome.records, outcome.complaints, interrupted=outcome.interrupted, planned=outcome.planned),
    )
    out.print(f"report: {folder / 'report.md'}", highlight=False)


def write_records(path: Path | None, command: str, records: list[Record], code: int, **more: Any) -> None:
    """Write a run's summary as JSON where a file was asked for."""
    from verification.records import write_summary

    if path is not None:
        write_summary(path, command, records, code, **more)


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write JSON, whole or not at all, where a file was asked for."""
    import json

    from verification.records import write_whole

    if path is not None:
        write_whole(path, json.dumps(content, indent=1) + "\n")
