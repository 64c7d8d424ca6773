"""What `parity gfx950 run` and `parity gfx950 diff` show."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table

from verification.cli.common import declared, out, write_json

if TYPE_CHECKING:
    from verification.kernel_differences import LaunchDifference, OutputDifference
    from verification.kernel_runs import KernelRun, Side
    from verification.plan import Check


def show_runs(
    kernel: str,
    implementation: str | None,
    candidate: Path | None,
    configuration: str | None,
    side: Side,
    listing: Path | None,
    json: Path | None,
) -> int:
    """Run the kernel's checks and show each; exit 1 where one does not hold."""
    from verification import kernel_runs
    from verification.plan import Selection

    table = Table(Column("case", overflow="fold", min_width=40), "implementation", "kernel", "grid", "waves",
                  "wave-instr.", "VGPR", "spills", "LDS", "verdict")  # fmt: skip
    rows: list[dict[str, Any]] = []
    with kernel_runs.opened(side) as runner:
        selection = Selection(implementation=implementation, configuration=configuration,
                              candidates=declared(runner.session, candidate))  # fmt: skip
        for check in kernel_runs.checks(kernel, selection):
            got = runner.attempt(check)
            rows.append(_run_row(check, got))
            _add_launches(table, check, got, rows[-1]["findings"])
            if isinstance(got, kernel_runs.KernelRun):
                _write_listings(listing, check.id, got)
    out.print(table)
    for row in rows:
        for finding in row["findings"]:
            out.print(f"[red]{row['check']}[/red]: {finding}", highlight=False, soft_wrap=True)
    code = int(any(row["findings"] for row in rows))
    write_json(json, {"command": "gfx950 run", "exit_code": code, "checks": rows})
    return code


def _run_row(check: Check, got: KernelRun | str) -> dict[str, Any]:
    row = {"check": check.id, "findings": _wrong(got), "launches": []}
    if isinstance(got, str):
        return row | {"refused": got}
    launches = [{k: v for k, v in asdict(launch).items() if k != "lines"} for launch in got.launches]
    return row | {"launches": launches, "triton": got.triton}


def _add_launches(table: Table, check: Check, got: KernelRun | str, findings: list[str]) -> None:
    names = (check.case.id.partition("/")[2], check.candidate.declared.name)
    verdict = "[red]does not hold[/red]" if findings else "unsupported" if isinstance(got, str) else "holds"
    launches = [] if isinstance(got, str) else got.launches
    if not launches:
        table.add_row(*names, "no launch", *[""] * 6, verdict)
    for launch in launches:
        r = launch.resources
        numbers = (r.vgprs, r.vgpr_spills + r.sgpr_spills, r.lds_bytes)
        grid = "×".join(map(str, launch.grid))
        table.add_row(
            *names, launch.kernel, grid, str(launch.waves), f"{launch.executed:,}", *map(str, numbers), verdict
        )
        names = ("", "")


def show_differences(
    kernel: str,
    implementation: str | None,
    configuration: str | None,
    before: Side,
    after: Side,
    listing: Path | None,
    json: Path | None,
) -> int:
    """Run the kernel's checks on both sides and show where they differ; exit 1 where a side does not hold."""
    from verification import kernel_runs
    from verification.plan import Selection

    rows: list[dict[str, Any]] = []
    selection = Selection(implementation=implementation, configuration=configuration)
    with kernel_runs.opened(before) as first, kernel_runs.opened(after) as second:
        for check in kernel_runs.checks(kernel, selection):
            got = first.attempt(check), second.attempt(check)
            rows.append(_show_difference(check, before.name, after.name, *got))
            for side, one in zip("ab", got, strict=True):
                if isinstance(one, kernel_runs.KernelRun):
                    _write_listings(listing, f"{side}-{check.id}", one)
    same = sum(row["same"] for row in rows)
    out.print(f"{before.name} → {after.name}: {len(rows)} checks, {same} with the same code, resources and bits")
    code = int(any(row["findings"] for row in rows))
    write_json(json, {"command": "gfx950 diff", "exit_code": code, "before": before.name, "after": after.name,
                      "checks": rows})  # fmt: skip
    return code


def _show_difference(check: Check, before: str, after: str, a: KernelRun | str, b: KernelRun | str) -> dict[str, Any]:
    findings = [f"{side}: {text}" for side, one in ((before, a), (after, b)) for text in _wrong(one)]
    row: dict[str, Any] = {"check": check.id, "findings": findings, "launches": [], "outputs": [],
                           "same": isinstance(a, str) and a == b}  # fmt: skip
    if not (isinstance(a, str) or isinstance(b, str)):
        row |= _compared(check, a, b)
    if row["same"] and not findings:
        return row
    out.print(f"[bold]{check.id}[/bold]", highlight=False)
    for text in [*(f"[red]{text}[/red]" for text in findings), *row.pop("told", [])]:
        out.print(f"  {text}", highlight=False, soft_wrap=True)
    return row


def _compared(check: Check, a: KernelRun, b: KernelRun) -> dict[str, Any]:
    from verification.kernel_differences import launch_differences, output_differences

    told = [f"triton {a.triton} → {b.triton}"] if a.triton != b.triton else []
    outputs = output_differences(check.operator, a, b)
    same = not any(one.changed for one in outputs)
    try:
        launches = launch_differences(a, b)
    except ValueError as error:
        launches, same, told = [], False, [*told, str(error)]
    told += [*map(_told_launch, launches), *map(_told_output, outputs)]
    return {"launches": [asdict(one) for one in launches], "outputs": [asdict(one) for one in outputs], "told": told,
            "same": same and not any(one.changed for one in launches)}  # fmt: skip


def _wrong(one: KernelRun | str) -> list[str]:
    if isinstance(one, str):
        return [] if one.startswith("unsupported") else [one]
    return one.findings


def _told_launch(launch: LaunchDifference) -> str:
    changed = {name: pair for name, pair in launch.numbers.items() if pair[0] != pair[1]}
    numbers = ", ".join(f"{name.replace('_', ' ')} {x} → {y}" for name, (x, y) in changed.items())
    code = f"{launch.removed} instructions out, {launch.added} in" if launch.patch else "the same code"
    moved = sorted(launch.opcodes.items(), key=lambda item: -abs(item[1]))[:12]
    opcodes = f" ({', '.join(f'{name} {count:+d}' for name, count in moved)})" if moved else ""
    return f"{launch.kernel}: {code}{opcodes}; {numbers or 'the same resources'}"


def _told_output(output: OutputDifference) -> str:
    if not output.changed:
        return f"{output.output}: the same bits"
    return (f"{output.output}: {output.changed} of {output.elements} elements have other bits; the largest change "
            f"is {output.largest:.3g}, {output.ulps:.3g} ulps at most, at {list(output.where)}")  # fmt: skip


def _write_listings(folder: Path | None, name: str, run: KernelRun) -> None:
    from verification.records import write_whole

    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for number, launch in enumerate(run.launches):
        path = folder / f"{name.replace('/', '_')}.{number}.{launch.kernel}.s"
        write_whole(path, launch.text())
        out.print(f"  listing: {path}", highlight=False, soft_wrap=True)
