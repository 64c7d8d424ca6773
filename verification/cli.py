"""The program `parity`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from verification.installation import intruder

if TYPE_CHECKING:
    from verification.campaign import Outcome
    from verification.plan import Check
    from verification.records import Record
    from verification.runner import Session

USAGE, MISSING, INTERRUPTED = 2, 3, 130

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Is the fused kernel the same function as the reference, within an error that we can defend?",
)
report_app = typer.Typer(no_args_is_help=True, help="Reports of recorded runs.")
app.add_typer(report_app, name="report")
gfx950_app = typer.Typer(no_args_is_help=True, help="Kernels compiled for gfx950, without the GPU.")
app.add_typer(gfx950_app, name="gfx950")
bench_app = typer.Typer(no_args_is_help=True, help="Speed, as a ratio against something in the same run.")
app.add_typer(bench_app, name="bench")
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


@app.command("list")
def list_all(json: Json = None) -> None:
    """Operators with their implementations, cases, laws and variants; targets."""
    from verification.operator import SUITES, operators
    from verification.plan import builtin
    from verification.targets import targets

    listed: dict[str, Any] = {"operators": {}, "targets": {}}
    table = Table("operator", "implementations", *[f"{suite} cases" for suite in SUITES], "laws", "variants")
    for name, operator in operators().items():
        names = [c.declared.name for c in builtin() if c.declared.operator == name]
        counts = [sum(1 for _ in operator.cases(suite)) for suite in SUITES]
        laws, variants = [law.name for law in operator.laws], [v.name for v in operator.variants]
        table.add_row(name, "\n".join(names), *map(str, counts), "\n".join(laws), "\n".join(variants))
        listed["operators"][name] = {
            "implementations": names,
            "cases": dict(zip(SUITES, counts, strict=True)),
            "laws": laws,
            "variants": variants,
        }
    out.print(table)
    places = Table("target", "here", "what it is, or why it is missing")
    for target in targets().values():
        missing = target.missing()
        places.add_row(target.name, "no" if missing else "yes", missing or target.describes)
        listed["targets"][target.name] = missing
    out.print(places)
    _write_json(json, {"command": "list", **listed})


@app.command()
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

    _require_writable(json)
    if require_target:
        plan.usable(require_target)
    if resume and not (resume / campaign.RECORDS).exists():
        raise UsageError(f"--resume {resume}: there is no {campaign.RECORDS} in it")
    folder = resume or report
    file = campaign.prepared_folder(folder, resume=resume is not None)
    with _session(timeout, memory) as session:
        selection = plan.Selection(
            tuple(operators or ()),
            suite,
            target,
            implementation,
            _declared(session, candidate),
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
    _show(outcome)
    if folder:
        _write_report(folder, outcome)
    code = outcome.exit_code
    if derive_budgets and code == 0:
        _derive(outcome.records, reason)
    _write_records(json, "verify", outcome.records, code, planned=outcome.planned, complaints=outcome.complaints)
    raise typer.Exit(code)


@app.command()
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

    with _session(timeout, memory) as session:
        selection = plan.Selection(
            target=target,
            implementation=implementation,
            candidates=_declared(session, candidate),
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
    _print_findings(record)
    _write_records(json, "shrink", [record], 0, trials=trials)


@app.command()
def doctor(json: Json = None) -> None:
    """What this machine has, what will run, what cannot, and why."""
    from verification.doctor import examine

    found = examine()
    table = Table("what", "", "says")
    for finding in found:
        table.add_row(finding.what, "[green]ok[/green]" if finding.well else "[yellow]no[/yellow]", finding.says)
    out.print(table)
    _write_json(json, {"command": "doctor", "findings": [vars(f) for f in found]})


@report_app.command("render")
def report_render(
    folder: Annotated[Path, typer.Argument(help="A folder that holds records.jsonl.")], json: Json = None
) -> None:
    """Write report.md anew from the records of a folder."""
    from verification.campaign import RECORDS, Outcome
    from verification.records import read_records

    if not (folder / RECORDS).exists():
        raise UsageError(f"{folder}: there is no {RECORDS} in it")
    records = read_records(folder / RECORDS)
    _write_report(folder, Outcome(records, planned=len(records)))
    _write_records(json, "report render", records, 0)


@gfx950_app.command("compile")
def gfx950_compile(operators: Annotated[list[str] | None, typer.Argument()] = None, json: Json = None) -> int:
    """Compile every fused kernel at every configuration for gfx950 and gfx942; judge spills, scratch, LDS, MFMA."""
    from verification.compilation import compiled
    from verification.operator import find_operator

    _require_writable(json)
    chosen = tuple(find_operator(name).name for name in operators or ())
    table = Table("implementation", "kernel", "arch", "VGPR", "AGPR", "SGPR", "spills", "scratch", "LDS", "waves",
                  "code", "MFMA")  # fmt: skip
    rows, broken = [], []
    for label, one in compiled(chosen):
        spills = one.vgpr_spills + one.sgpr_spills
        numbers = (
            one.vgprs,
            one.agprs,
            one.sgprs,
            spills,
            one.scratch_bytes,
            one.lds_bytes,
            one.occupancy,
            one.code_bytes,
        )
        table.add_row(label, one.kernel, one.architecture, *map(str, numbers), " ".join(one.matrix) or "–")
        broken += [f"{label}: {text}" for text in one.broken_limits()]
        rows.append({"implementation": label, **one.row()})
    out.print(table)
    for text in broken:
        out.print(f"[red]{text}[/red]", soft_wrap=True)
    _write_json(json, {"command": "gfx950 compile", "exit_code": int(bool(broken)), "broken": broken, "kernels": rows})
    return int(bool(broken))


@gfx950_app.command("conformance")
def gfx950_conformance(
    names: Annotated[list[str] | None, typer.Argument(help="Prefixes of program names.")] = None,
    device: Annotated[str, typer.Option(help="`executor`, or `hardware`: this machine's AMD GPU.")] = "executor",
    against: Annotated[Path | None, typer.Option(metavar="FILE", help="An earlier --json to compare with.")] = None,
    json: Json = None,
) -> int:
    """Run the conformance set here and write digests; with --against, list where two machines differ.

    On an MI350X or MI355X: `parity gfx950 conformance --device hardware --against executor.json --json hardware.json`.
    """
    from verification import protocol

    _require_writable(json)
    if against and not against.exists():
        raise UsageError(f"--against {against}: no such file")
    outcome = protocol.conform(tuple(names or ()), device)
    if not outcome.rows:
        raise UsageError(f"no conformance program begins with {', '.join(names or ())}")
    for row in outcome.rows:
        if row.findings:
            out.print(f"[red]{row.name}[/red]: {row.findings[0]}", soft_wrap=True)
    differences = protocol.differences(outcome, against) if against else []
    for text in differences:
        out.print(text, soft_wrap=True)
    out.print(f"{len(outcome.rows)} programs on {outcome.machine}; {outcome.wrong} do not hold"
                  + (f"; {len(differences)} differ from {against}" if against else ""), soft_wrap=True)  # fmt: skip
    _write_json(json, {"command": "gfx950 conformance", "exit_code": int(outcome.wrong > 0), **outcome.row()})
    return int(outcome.wrong > 0)


@gfx950_app.command("mutants")
def gfx950_mutants(
    operators: Annotated[list[str] | None, typer.Argument()] = None,
    count: Annotated[int, typer.Option(min=1, help="Mutants a kernel.")] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    json: Json = None,
) -> None:
    """Delete or change one compiled instruction at a time: how many of the mutants the comparison notices."""
    from dataclasses import asdict

    from verification.mutants import CASES, mutate, summary
    from verification.operator import pick
    from verification.records import now

    _require_writable(json)
    chosen = [pick(name, {one: one for one in CASES}, "mutated kernel") for name in operators or CASES]
    table = Table("kernel", "mutants", "noticed", "only waits", "same bits", "within budget")
    kernels = {}
    for name in chosen:
        found = mutate(name, count, seed)
        counts = summary(found)
        table.add_row(name, str(len(found)), *(str(counts[kind]) for kind in ("noticed", "order", "equal", "within")))
        kernels[name] = {"case": CASES[name], "counts": dict(counts), "mutants": [asdict(one) for one in found]}
    out.print(table)
    _write_json(json, {"command": "gfx950 mutants", "exit_code": 0, "date": now(), "seed": seed, "kernels": kernels})


@bench_app.command("executor")
def bench_executor(json: Json = None) -> None:
    """Wave-instructions a second of the gfx950 executor ÷ calls a second of a 64-lane numpy.add in the same run."""
    from verification.bench import executor_speed

    _require_writable(json)
    result = executor_speed()
    table = Table("kernel", "waves", "wave-instructions", "per second", "÷ numpy.add calls per second")
    for row in result["kernels"]:
        table.add_row(row["kernel"], str(row["waves"]), str(row["instructions"]), f"{row['per_second']:,.0f}",
                      f"{row['ratio']:.2f}")  # fmt: skip
    out.print(table)
    _write_json(json, {"command": "bench executor", "exit_code": 0, **result})


def _require_writable(path: Path | None) -> None:
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


def _session(seconds: float | None, memory: float | None) -> Session:
    from verification.runner import Session
    from verification.waivers import Waivers

    return Session(Waivers.read(), seconds, None if memory is None else int(memory * 2**30))


def _declared(session: Session, candidate: Path | None) -> Any:
    from verification.runner import Problem

    if candidate is None:
        return ()
    if not candidate.is_file():
        raise UsageError(f"--candidate {candidate}: there is no such file")
    try:
        return session.declared(candidate.resolve())
    except Problem as problem:
        out.print(f"[red]error ({problem.kind})[/red]: {problem}", highlight=False, markup=True)
        raise typer.Exit(1) from None


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


def _show(outcome: Outcome) -> None:
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
        _print_findings(record)
    for complaint in outcome.complaints:
        out.print(f"[red]{complaint}[/red]", highlight=False)
    if outcome.interrupted:
        out.print(f"interrupted: {len(outcome.records)} of {outcome.planned} checks are done; --resume DIR goes on")


def _print_findings(record: Record) -> None:
    for finding in record.findings:
        out.print(f"  {finding}", highlight=False, markup=False)
    out.print(f"  repeat: {record.command}", highlight=False, markup=False, soft_wrap=True)


def _write_report(folder: Path, outcome: Outcome) -> None:
    from verification.records import write_whole
    from verification.report.markdown import render

    write_whole(
        folder / "report.md",
        render(outcome.records, outcome.complaints, interrupted=outcome.interrupted, planned=outcome.planned),
    )
    out.print(f"report: {folder / 'report.md'}", highlight=False)


def _write_records(path: Path | None, command: str, records: list[Record], code: int, **more: Any) -> None:
    from verification.records import write_summary

    if path is not None:
        write_summary(path, command, records, code, **more)


def _write_json(path: Path | None, content: dict[str, Any]) -> None:
    import json

    from verification.records import write_whole

    if path is not None:
        write_whole(path, json.dumps(content, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Run the program; every refusal is one line and an exit code."""
    # Parent and child take turns on the same cores: threads that spin while they wait slow the other.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if complaint := intruder():
        print(f"parity: {complaint}", file=sys.stderr)
        sys.exit(USAGE)
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, prog_name="parity", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        print("parity: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away: nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if show := getattr(error, "show", None):  # the command line's own complaints
            show()
            return USAGE
        refusal = _refusal(error)
        if refusal is None:
            raise
        print(f"parity: {error}", file=sys.stderr)
        return refusal


def _refusal(error: Exception) -> int | None:
    """The exit code of an error that a user can act on; None for a defect of ours."""
    from verification.campaign import UnwritableError
    from verification.operator import InvalidCaseError, UnknownNameError
    from verification.plan import MissingTargetError
    from verification.records import BadRecordsError
    from verification.waivers import BadLedgerError

    if isinstance(error, MissingTargetError):
        return MISSING
    refused = (
        UsageError,
        UnknownNameError,
        InvalidCaseError,
        UnwritableError,
        BadRecordsError,
        BadLedgerError,
        OSError,
    )
    return USAGE if isinstance(error, refused) else None
