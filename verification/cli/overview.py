"""`parity list` and `parity doctor`: what there is, and what runs here."""

from __future__ import annotations

from typing import Any

from rich.table import Column, Table

from verification.cli.common import Json, out, write_json


def list_all(json: Json = None) -> None:
    """Operators with their implementations, cases, laws and variants; targets."""
    from verification.operator import SUITES, operators
    from verification.plan import builtin
    from verification.targets import targets

    listed: dict[str, Any] = {"operators": {}, "targets": {}}
    lists = [Column(name, overflow="fold") for name in ("implementations", "laws", "variants")]
    table = Table(Column("operator", no_wrap=True), lists[0], *[f"{suite} cases" for suite in SUITES], *lists[1:])
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
    write_json(json, {"command": "list", **listed})


def doctor(json: Json = None) -> None:
    """What this machine has, what will run, what cannot, and why."""
    from verification.doctor import examine

    found = examine()
    table = Table("what", "", "says")
    for finding in found:
        table.add_row(finding.what, "[green]ok[/green]" if finding.well else "[yellow]no[/yellow]", finding.says)
    out.print(table)
    write_json(json, {"command": "doctor", "findings": [vars(f) for f in found]})
