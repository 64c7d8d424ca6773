"""`parity report …`: reports of recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from verification.cli.common import Json, UsageError, out, require_writable, write_json, write_records, write_report

if TYPE_CHECKING:
    from verification.records import Record

app = typer.Typer(no_args_is_help=True, help="Reports of recorded runs.")


@app.command("render")
def render_report(
    folder: Annotated[Path, typer.Argument(help="A folder that holds records.jsonl.")], json: Json = None
) -> None:
    """Write report.md anew from the records of a folder."""
    from verification.campaign import RECORDS, Outcome
    from verification.records import read_records

    if not (folder / RECORDS).exists():
        raise UsageError(f"{folder}: there is no {RECORDS} in it")
    records = read_records(folder / RECORDS)
    write_report(folder, Outcome(records, planned=len(records)))
    write_records(json, "report render", records, 0)


@app.command("diff")
def diff(
    before: Annotated[Path, typer.Argument(help="A report folder, or a .jsonl or .jsonl.gz file of records.")],
    after: Annotated[Path, typer.Argument(help="Another one; its target may be another.")],
    json: Json = None,
) -> int:
    """Compare two recorded runs by case id: verdicts that changed, and each output's errors in its budgets.

    Exit 1 where a verdict differs or an output is beyond its budget.
    """
    from dataclasses import asdict

    from verification.report.differences import compare_runs

    found = compare_runs(_recorded(before), _recorded(after))
    if not found.both:
        raise UsageError(f"{before} and {after} have no check in common")
    table = Table(
        "output", "implementation", "checks", "same figures", "error ÷ budget", "bit-equal to exact", "widest gap"
    )
    for row in found.outputs:
        shares = " → ".join(f"{total / row.checks:.2%}" for total in row.bit_equal)
        ratios = " → ".join(f"{ratio:.3f}" for ratio in row.ratios)
        name, counts = f"{row.operator}.{row.output}", (str(row.checks), str(row.equal))
        table.add_row(name, row.implementation, *counts, ratios, shares, f"{row.widest:.3f}")
    out.print(table)
    for a, b in found.changed:
        out.print(f"[red]{a.check}: {a.verdict} → {b.verdict}[/red]", highlight=False, soft_wrap=True)
    out.print(f"{found.both} checks in both, {found.only[0]} and {found.only[1]} in one alone; {len(found.changed)} "
              f"verdicts differ, {found.beyond} outputs beyond their budgets", highlight=False)  # fmt: skip
    code = int(bool(found.changed or found.beyond))
    write_json(json, {
        "command": "report diff", "exit_code": code, "checks": found.both, "only": found.only, "beyond": found.beyond,
        "changed": [(a.check, a.verdict, b.verdict) for a, b in found.changed],
        "outputs": [asdict(row) for row in found.outputs],
    })  # fmt: skip
    return code


def _recorded(path: Path) -> list[Record]:
    from verification.campaign import RECORDS
    from verification.records import read_records

    file = path / RECORDS if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"{path}: there are no records")
    return read_records(file)


@app.command("contracts")
def write_contracts(
    folder: Annotated[Path, typer.Argument(help="Where the pages go, such as docs/contracts.")], json: Json = None
) -> None:
    """Write one page an operator: equation, shapes, rounding points, variants, special values, laws, cases."""
    from verification.campaign import UnwritableError
    from verification.records import write_whole
    from verification.report.contracts import pages

    require_writable(json)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError(f"{folder} cannot be written: {error.strerror or error}") from None
    written = pages()
    for name, text in written.items():
        write_whole(folder / name, text)
    out.print(f"{len(written)} pages in {folder}", highlight=False)
    write_json(json, {"command": "report contracts", "exit_code": 0, "pages": sorted(written)})
