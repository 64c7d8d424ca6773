"""`parity faults`: would a wrong kernel have been noticed?"""

from __future__ import annotations

from typing import Annotated

import typer

from verification.cli.common import Json, out, require_writable


def faults(
    operators: Annotated[list[str] | None, typer.Argument(metavar="[OPERATOR]...", show_default=False)] = None,
    fault: Annotated[str | None, typer.Option("--fault", help="Only the fault of this name.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only faults of this kind.")] = None,
    suite: Annotated[str, typer.Option("--suite", help="Whose cases and laws: smoke, full, nightly.")] = "smoke",
    target: Annotated[str | None, typer.Option("--target", help="Where to run.")] = None,
    json: Json = None,
) -> int:
    """Run every known fault until a check notices it; exit 1 where one is missed."""
    from verification.detection import detect
    from verification.fault import chosen
    from verification.runner import Session

    require_writable(json)
    picked = chosen(operators or (), fault, kind)
    missed = 0
    with Session(seconds=30) as session:
        for name in dict.fromkeys(f.operator for f in picked):
            for d in detect(session, [f for f in picked if f.operator == name], suite, target):
                missed += d.check is None
                out.print(
                    f"{d.fault:50} {d.kind:12} {d.noticed_by or 'MISSED'} {d.checks} {d.check} {d.finding[:100]}",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )
    return int(missed > 0)
