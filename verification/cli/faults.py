"""`parity faults`: would a wrong kernel have been noticed?"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from verification.cli.common import Json, UsageError, open_session, out, require_writable, write_json

if TYPE_CHECKING:
    from verification.detection import Detection
    from verification.power import Job, Power


def faults(
    operators: Annotated[list[str] | None, typer.Argument(metavar="[OPERATOR]...", show_default=False)] = None,
    operator: Annotated[str | None, typer.Option("--operator", help="Only this operator.")] = None,
    fault: Annotated[str | None, typer.Option("--fault", help="Only the fault of this name.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only faults of this kind.")] = None,
    suite: Annotated[str, typer.Option("--suite", help="Whose cases and laws: smoke, full, nightly.")] = "smoke",
    target: Annotated[str | None, typer.Option("--target", help="Where to run; default: the best one here.")] = None,
    sample: Annotated[int | None, typer.Option("--sample", min=1, help="So many faults, drawn by the seed.")] = None,
    right: Annotated[
        int, typer.Option("--right", min=-1, help="Cases an operator for right implementations; -1 for all.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample, and of the right ones' cases.")] = 0,
    case: Annotated[str | None, typer.Option("--case", help="Try the fault on this case alone.")] = None,
    law: Annotated[str | None, typer.Option("--law", help="With --case: by this law.")] = None,
    candidate_fault: Annotated[
        Path | None, typer.Option("--candidate-fault", metavar="FILE.py", help="A faulty kernel of yours.")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="How many at once.")] = os.cpu_count() or 1,
    remember: Annotated[bool, typer.Option("--remember", help="Note what noticed each, to try that first.")] = False,
    json: Json = None,
) -> int:
    """Run every known fault until a check notices it, and right implementations that none may.

    Exit 1 where a fault is missed, cannot be run, or a right implementation raises an alarm.
    """
    from verification import power as measuring
    from verification.fault import chosen

    require_writable(json)
    if candidate_fault is not None:
        return _yours(candidate_fault, suite, target, json)
    picked = chosen([*(operators or ()), *([operator] if operator else ())], fault, kind)
    if case is not None:
        return _one(picked, case, law, target)
    picked = measuring.sampled(picked, sample, seed)
    work = measuring.jobs(picked, suite, target, None if right < 0 else right, seed)
    power = measuring.measure(work, min(processes, len(work)), _said(len(work)))
    show(power)
    if remember and not power.interrupted:
        measuring.remember(power)
    code = 130 if power.interrupted else int(not power.held)
    write_json(json, _content(power, code))
    return code


def _said(total: int) -> Any:
    import sys
    import time

    started = time.monotonic()
    count = 0

    def advance(job: Job) -> None:
        nonlocal count
        count += 1
        line = f"{count} of {total} operators, {time.monotonic() - started:.0f} s: {job.operator}"
        print(line, file=sys.stderr, flush=True)

    return advance


def _one(picked: list[Any], case: str, law: str | None, target: str | None) -> int:
    """One fault on one case, with everything that the check finds."""
    from verification.detection import attempt, told, trials
    from verification.operator import find_operator, parse_case

    parsed = parse_case(case)
    tried = [trial for trial in trials(picked, target) if trial.fault.operator == parsed.operator]
    if not tried:
        raise UsageError(f"--case {case}: none of the faults asked for is of {parsed.operator}, or no target runs it")
    with open_session(None, None) as session:
        for trial in tried:
            attempt(session, find_operator(parsed.operator), trial, parsed, law)
    for trial in tried:
        _print(told(trial))
    return int(any(told(trial).noticed_by is None for trial in tried))


def _yours(file: Path, suite: str, target: str | None, json: Path | None) -> int:
    """A candidate file that is expected to fail."""
    from verification.cli.common import declared
    from verification.detection import Trial, detect
    from verification.fault import yours
    from verification.plan import place
    from verification.power import Power

    power = Power()
    with open_session(None, None) as session:
        for candidate in declared(session, file, borrows=True):
            placed = place(candidate, target)
            if placed is not None:
                power.detections += detect(session, [Trial(yours(candidate.declared, file), candidate, placed)], suite)
    for detection in power.detections:
        _print(detection)
    if not power.detections:
        raise UsageError(f"--candidate-fault {file}: nothing that it declares runs on {target or 'a target here'}")
    write_json(json, _content(power, int(not power.held)))
    return int(not power.held)


def _print(detection: Detection) -> None:
    verdict = "broken" if detection.broken else "MISSED" if detection.missed else f"noticed by {detection.noticed_by}"
    out.print(f"{detection.fault} ({detection.kind}: {detection.says}): {verdict}", highlight=False, markup=False)
    for line in (detection.broken, detection.finding, detection.command and f"repeat: {detection.command}"):
        if line:
            out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def show(power: Power) -> None:
    """Kind × operator, what noticed them first, then whatever is wrong."""
    kinds = list(dict.fromkeys(d.kind for d in sorted(power.detections, key=lambda d: d.kind)))
    table = Table("operator", *(kind[:6] for kind in kinds), "all", "right", "alarms")
    for operator in sorted(power.comparisons):
        mine = [d for d in power.detections if d.operator == operator]
        alarms = sum(a.operator == operator for a in power.alarms)
        cells = [_share([d for d in mine if d.kind == kind]) for kind in kinds]
        bad = alarms or any(d.noticed_by is None for d in mine)
        table.add_row(operator, *cells, _share(mine), str(power.comparisons[operator]), str(alarms),
                      style="red" if bad else None)  # fmt: skip
    total = [_share([d for d in power.detections if d.kind == kind]) for kind in kinds]
    table.add_section()
    table.add_row("all", *total, _share(power.detections), str(sum(power.comparisons.values())), str(len(power.alarms)))
    out.print(table)
    by = Counter(_check_name(d) for d in power.detections if d.noticed_by)
    out.print("noticed first by " + ", ".join(f"{name} {count}" for name, count in by.most_common()), highlight=False)
    for detection in [*power.missed, *power.broken]:
        _print(detection)
    for alarm in power.alarms:
        where = f"{alarm.case}, variant {alarm.variant}"
        out.print(f"false alarm: {alarm.implementation} on {where}: {alarm.finding}", highlight=False, markup=False)
    for operator, defect in power.defects.items():
        out.print(f"{operator} could not be measured:\n{defect}", highlight=False, markup=False)
    if power.interrupted:
        out.print(f"interrupted: {len(power.comparisons)} of {power.planned} operators are done")


def _share(detections: list[Detection]) -> str:
    noticed = sum(d.noticed_by is not None for d in detections)
    if not detections:
        return ""
    return str(noticed) if noticed == len(detections) else f"{noticed}/{len(detections)}"


def _check_name(detection: Detection) -> str:
    return (detection.noticed_by or "").partition(" ")[0]


def _content(power: Power, code: int) -> dict[str, Any]:
    return {
        "command": "faults", "exit_code": code, "faults": len(power.detections),
        "noticed": sum(d.noticed_by is not None for d in power.detections),
        "missed": [d.fault for d in power.missed], "broken": [d.fault for d in power.broken],
        "defects": power.defects, "right_comparisons": power.comparisons, "alarms": [asdict(a) for a in power.alarms],
        "detections": [asdict(d) for d in power.detections],
    }  # fmt: skip
