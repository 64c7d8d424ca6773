"""`parity report …`: reports of recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verification.cli.common import Json, UsageError, write_records, write_report

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
