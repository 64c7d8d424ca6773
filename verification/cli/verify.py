"""`parity verify` and `parity shrink`."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from verification.cli.common import (
    USAGE,
    CandidateFile,
    ImplementationName,
    Json,
    Memory,
    Seconds,
    TargetName,
    UsageError,
    declared,
    open_session,
    out,
    print_findings,
    require_writable,
    show,
    write_records,
    write_report,
)

if TYPE_CHECKING:
    from verification.plan import Check
    from verification.records import Record
    from verification.runner import Session


def verify(
    operators: Annotated[list[str] | None, typer.Argument(help="Only these operators.")] = None,
    target: TargetName = None,
    implementation: ImplementationName = None,
    candidate: CandidateFile = None,
    suite: Annotated[str, typer.Option(help="smoke, full or nightly.")] = "smoke",
    seed: Annotated[int | None, typer.Option(min=0, help="Replace the seed of every case.")] = None,
    case: Annotated[str | None, typer.Option(metavar="ID", help="Only this case, listed or not.")] = None,
    law: Annotated[str | None, typer.Option(help="Only this law; `none` for numbers alone.")] = None,
    configuration: Annotated[str | None, typer.Option(help="Force one tuning configuration.")] = None,
    require_target: Annotated[str | None, typer.Option(help="Exit 3 unless this target is here.")] = None,
    identify_variant: Annotated[
        bool, typer.Option("--identify-variant", help="Say which contract variant each implementation follows.")
    ] = False,
    derive_budgets: Annotated[
        bool, typer.Option("--derive-budgets", help="Rewrite the provenance file of budgets.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why budgets may widen.")] = None,
    shard: Annotated[str | None, typer.Option(metavar="i/n", help="Every n-th check, from the i-th.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the run recorded there.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="DIR", help="Write records.jsonl and report.md there.")] = None,
    timeout: Seconds = None,
    memory: Memory = None,
    json: Json = None,
) -> None:
    """Check implementations against the reference: numbers, structure, memory, laws."""
    from verification import campaign, plan

    require_writable(json)
    started = time.monotonic()
    if require_target:
        plan.usable(require_target)
    if resume and not (resume / campaign.RECORDS).exists():
        raise UsageError(f"--resume {resume}: there is no {campaign.RECORDS} in it")
    folder = resume or report
    file = campaign.prepared_folder(folder, resume=resume is not None)
    with open_session(timeout, memory) as session:
        selection = plan.Selection(
            tuple(operators or ()),
            suite,
            target,
            implementation,
            declared(session, candidate),
            case,
            seed,
            law,
            configuration,
        )
        checks = plan.shard(plan.build(selection), shard)
        if identify_variant:
            _identify(session, checks)
            return
        done = campaign.already_done(resume, checks) if resume else []
        outcome = campaign.run(checks, session, selection, file=file, done=done, whole=shard is None)
    show(outcome)
    if folder:
        write_report(folder, outcome)
    code = outcome.exit_code
    if derive_budgets and code == 0:
        _derive(outcome.records, reason)
    write_records(json, "verify", outcome.records, code, planned=outcome.planned, complaints=outcome.complaints,
                  seconds=round(time.monotonic() - started, 1), peak_mebibytes=_peak_mebibytes())  # fmt: skip
    raise typer.Exit(code)


def shrink(
    case: Annotated[str, typer.Argument(help="The id of a case that fails.")],
    implementation: ImplementationName = None,
    target: TargetName = None,
    candidate: CandidateFile = None,
    law: Annotated[str | None, typer.Option(help="The law that fails; otherwise its numbers.")] = None,
    timeout: Seconds = None,
    memory: Memory = None,
    json: Json = None,
) -> None:
    """Find the smallest case that still fails in the same way."""
    from verification import plan
    from verification.shrinking import shrink as shrunk

    with open_session(timeout, memory) as session:
        selection = plan.Selection(
            target=target,
            implementation=implementation,
            candidates=declared(session, candidate),
            case=case,
            law=law or "none",
        )
        for check in plan.build(selection):
            record = session.run(check)
            if record.verdict in ("failed", "error"):
                break
        else:
            out.print(f"{case} does not fail: there is nothing to shrink")
            raise typer.Exit(USAGE)
        smallest, record, trials = shrunk(session, check, record)
    out.print(f"[bold]{smallest.case.id}[/bold] still fails after {trials} trials: {record.kind}", highlight=False)
    print_findings(record)
    write_records(json, "shrink", [record], 0, trials=trials)


def _peak_mebibytes() -> dict[str, float]:
    """The most memory that this process, and the largest child, held at once."""
    peaks = {"parent": resource.RUSAGE_SELF, "largest_child": resource.RUSAGE_CHILDREN}
    return {name: round(resource.getrusage(who).ru_maxrss / 1024, 1) for name, who in peaks.items()}


def _identify(session: Session, checks: list[Check]) -> None:
    from verification.runner import Problem
    from verification.variants import identify

    by_implementation: dict[tuple[str, str, str], list[Check]] = {}
    for check in checks:
        key = (check.operator.name, check.candidate.declared.name, check.target.name)
        by_implementation.setdefault(key, []).append(check)
    for (operator, name, target), mine in by_implementation.items():
        try:
            table = identify(session, mine)
        except Problem as problem:
            out.print(f"{operator} {name}@{target}: {problem.kind}: {problem}", highlight=False, markup=False)
            raise typer.Exit(1) from None
        shown = Table(
            "variant",
            "cases failed",
            "bit-equal",
            "what it is",
            title=f"{operator}: {name}@{target} declares {mine[0].candidate.declared.variant}",
        )
        for row in table:
            shown.add_row(row.variant.name, f"{row.failed} of {row.cases}", f"{row.share:.2%}", row.variant.description)
        out.print(shown)


def _derive(records: list[Record], reason: str | None) -> None:
    from verification.provenance import FILE, WideningError, rewrite

    try:
        rewrite(records, reason)
    except WideningError as error:
        raise UsageError(str(error)) from None
    out.print(f"wrote {FILE.name}")
