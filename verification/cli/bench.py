"""`parity bench …`: speed, as a ratio against something in the same run."""

from __future__ import annotations

import typer
from rich.table import Table

from verification.cli.common import Json, out, require_writable, write_json

app = typer.Typer(no_args_is_help=True, help="Speed, as a ratio against something in the same run.")


@app.command("executor")
def executor(json: Json = None) -> None:
    """Wave-instructions a second of the gfx950 executor ÷ calls a second of a 64-lane numpy.add in the same run."""
    from verification.bench import executor_speed

    require_writable(json)
    result = executor_speed()
    table = Table("kernel", "waves", "wave-instructions", "per second", "÷ numpy.add calls per second")
    for row in result["kernels"]:
        table.add_row(row["kernel"], str(row["waves"]), str(row["instructions"]), f"{row['per_second']:,.0f}",
                      f"{row['ratio']:.2f}")  # fmt: skip
    out.print(table)
    write_json(json, {"command": "bench executor", "exit_code": 0, **result})
