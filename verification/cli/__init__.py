"""The program `parity`."""

from __future__ import annotations

import os
import sys

import typer

from verification.cli import bench, gfx950, overview, reports
from verification.cli.common import INTERRUPTED, MISSING, USAGE, UsageError
from verification.cli.faults import faults
from verification.cli.verify import shrink, verify
from verification.installation import intruder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Is the fused kernel the same function as the reference, within an error that we can defend?",
)
app.command("list")(overview.list_all)
app.command()(verify)
app.command()(shrink)
app.command()(faults)
app.command()(overview.doctor)
app.add_typer(reports.app, name="report")
app.add_typer(gfx950.app, name="gfx950")
app.add_typer(bench.app, name="bench")


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
    from verification.kernel_runs import BadSideError
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
        BadSideError,
        OSError,
    )
    return USAGE if isinstance(error, refused) else None
