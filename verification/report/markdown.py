"""The tolerance report as Markdown: whether it may land, why not, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verification.records import Record
from verification.report.summary import BAD, Margin, Row, margins, rows, verdicts


def render(
    records: list[Record], complaints: Iterable[str] = (), *, interrupted: bool = False, planned: int | None = None
) -> str:
    """The whole report."""
    return "\n".join(_report(records, list(complaints), interrupted, planned)) + "\n"


def _report(records: list[Record], complaints: list[str], interrupted: bool, planned: int | None) -> Iterator[str]:
    bad = [r for r in records if r.verdict in BAD]
    yield "# Tolerance report"
    yield ""
    yield _headline(records, bad, complaints, interrupted, planned)
    yield ""
    yield from (f"- {complaint}" for complaint in complaints)
    yield from _where(records)
    yield from _overview(records)
    if bad:
        yield from _failures(bad)
    yield from _table(rows(records))
    yield from _margins(margins(records))
    yield from _unsupported(records)
    yield from _method(records)


def _headline(
    records: list[Record], bad: list[Record], complaints: list[str], interrupted: bool, planned: int | None
) -> str:
    counts = ", ".join(
        f"{n} {v}"
        for v in ("passed", "failed", "error", "waived", "unsupported")
        if (n := sum(r.verdict == v for r in records))
    )
    if interrupted:
        return f"**INTERRUPTED: no verdict.** {len(records)} of {planned} checks done: {counts}."
    executed = [r for r in records if r.verdict != "unsupported"]
    if bad or complaints:
        first = f" First: {bad[0].kind} in `{bad[0].check}`." if bad else f" {complaints[0]}"
        return f"**MAY NOT LAND.** {counts}.{first}"
    if not executed:
        return f"**NOTHING RAN: no verdict.** {counts or 'no records'}."
    return f"**MAY LAND.** {counts}."


def _where(records: list[Record]) -> Iterator[str]:
    places = {
        (r.target, r.claim, r.environment.device, r.environment.architecture, r.environment.torch, r.environment.triton)
        for r in records
        if r.environment
    }
    for target, claim, device, architecture, torch, triton in sorted(places):
        yield f"- Target `{target}` ({claim}): {device}, {architecture}, torch {torch}, triton {triton}"
    commits, suites = sorted({r.commit for r in records}), sorted({r.suite for r in records})
    yield f"- Commit {', '.join(commits) or 'unknown'}; suites {', '.join(suites)}"
    yield ""


def _failures(bad: list[Record]) -> Iterator[str]:
    """The worst of each operator, implementation and kind, with the command that repeats it."""
    yield "## Failures"
    yield ""
    alike: dict[tuple[str, ...], list[Record]] = {}
    for record in bad:
        key = (record.operator, record.implementation, record.target, record.kind or record.verdict)
        alike.setdefault(key, []).append(record)
    for (*_, kind), records in alike.items():
        record = max(records, key=_badness)
        more = f" (the worst of {len(records)})" if len(records) > 1 else ""
        yield f"### {kind}{more}: `{record.check}`"
        yield ""
        yield from (f"- {_plain(finding)}" for finding in record.findings)
        yield ""
        yield "```sh"
        yield record.command
        yield "```"
        yield ""


def _plain(text: str) -> str:
    """A candidate's words as text: on one line, with no Markdown of their own."""
    text = " ".join(text.split()).replace("`", "'").replace("](", "] (")
    return text.replace("*", "\\*").replace("<", "&lt;")


def _badness(record: Record) -> float:
    return max((o.ratio for o in record.outputs), default=0.0)


def _overview(records: list[Record]) -> Iterator[str]:
    yield "| operator | implementation | variant | verdict |"
    yield "|---|---|---|---|"
    for key in dict.fromkeys((r.operator, r.implementation, r.target, r.variant) for r in records):
        mine = [r for r in records if (r.operator, r.implementation, r.target, r.variant) == key]
        yield f"| {key[0]} | {key[1]}@{key[2]} | {key[3]} | {verdicts(mine)} |"
    yield ""


COLUMNS = (
    "operator", "case group", "implementation", "verdict", "output", "worst error", "its budget", "error ÷ budget",
    "ulps", "bias ÷ limit", "variant", "worst case",
)  # fmt: skip


def _table(table: list[Row]) -> Iterator[str]:
    yield "## Operators by case group"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---|---|---|---|---|---:|---:|---:|---:|---:|---|---|"
    for row in table:
        place = f"{row.operator} | {row.group} | {row.implementation}@{row.target}"
        yield f"| {place} | {verdicts(row.records)} | {_numbers(row)} | {row.variant} | `{row.shown.case}` |"
    yield ""
    yield "To repeat a case: `parity verify --case CASE --implementation NAME --target TARGET`."
    yield ""


def _numbers(row: Row) -> str:
    if row.worst is None:
        return " | ".join(["–"] * 6)
    _, output = row.worst
    leanings = [o.bias_ratio for _, o in row.numbers if o.bias_ratio is not None]
    bias = f"{max(leanings):.2f}" if leanings else "–"
    error = f"{output.worst_error:.3g} | {output.worst_budget:.3g} | {output.ratio:.3f}"
    return f"{row.output} | {error} | {output.worst_ulps:.2g} | {bias}"


def _margins(table: list[Margin]) -> Iterator[str]:
    yield "## Room: budget ÷ largest error"
    yield ""
    yield "| output | dtype | implementation | least room | ulps there | bit-equal to the exact result rounded once |"
    yield "|---|---|---|---:|---:|---:|"
    for m in table:
        equal = sum(m.bit_equal) / len(m.bit_equal)
        output = f"{m.operator}.{m.output}"
        yield f"| {output} | {m.dtype} | {m.implementation}@{m.target} | {m.told} | {m.ulps:.3g} | {equal:.2%} |"
    yield ""
    yield "A room of 1.00 is an output that is only rounded: its budget is half an ulp, and all of it is used."
    yield ""


def _unsupported(records: list[Record]) -> Iterator[str]:
    refused: dict[tuple[str, str], int] = {}
    for r in records:
        if r.verdict in ("unsupported", "waived"):
            key = (f"{r.operator} {r.implementation}@{r.target}", r.waiver or _plain("; ".join(r.findings)))
            refused[key] = refused.get(key, 0) + 1
    if refused:
        yield "## Not judged"
        yield ""
        yield from (f"- {count} × {what}: {why}" for (what, why), count in sorted(refused.items()))
        yield ""


def _method(records: list[Record]) -> Iterator[str]:
    budgets = {(b.formula, b.false_alarm) for r in records if (b := r.budget)}
    for formula, rate in sorted(budgets):
        yield (
            f"Budgets: {formula}; stated false-alarm rate {rate:g} a comparison. No output of a kernel "
            "under test has a part in them."
        )
