"""The provenance file of budgets: what was derived for each operator, dtype and variant, and what was seen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from verification.budget import FALSE_ALARM, FORMULA, RUNS
from verification.records import Record, now, write_whole

FILE = Path(__file__).with_name("budget_provenance.json")

WIDER = 1.02
"""A median budget that grows by more than this is a widening."""


class WideningError(ValueError):
    """The new budgets are wider than the recorded ones and no reason was given."""


def derived(records: Iterable[Record], reason: str | None) -> dict[str, Any]:
    """The file's content: per operator, output, dtype and variant the budgets and the largest errors."""
    rows: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.law is not None:
            continue
        for output in record.outputs:
            key = f"{record.operator}.{output.output} {output.dtype} {record.variant}"
            row = rows.setdefault(
                key, {"cases": set(), "budgets": [], "largest_error_over_budget": {}, "targets": set(), "factors": []}
            )
            row["cases"].add(record.case)
            row["targets"].add(record.target)
            row["budgets"].append(output.median_budget_ulps)
            row["factors"].append(record.budget.factor if record.budget else 0.0)
            seen = row["largest_error_over_budget"]
            name = f"{record.implementation}@{record.target}"
            seen[name] = max(seen.get(name, 0.0), output.ratio)
    return {
        "formula": FORMULA, "runs": RUNS, "false_alarm": FALSE_ALARM, "date": now()[:10], "reason": reason,
        "budgets": {
            key: {
                "median_budget_ulps": round(median(row["budgets"]), 4),
                "largest_factor": round(max(row["factors"]), 3),
                "cases": len(row["cases"]),
                "targets": sorted(row["targets"]),
                "largest_error_over_budget": {
                    name: round(ratio, 4) for name, ratio in sorted(row["largest_error_over_budget"].items())
                },
            }
            for key, row in sorted(rows.items())
        },
    }  # fmt: skip


def rewrite(records: Iterable[Record], reason: str | None, path: Path = FILE) -> dict[str, Any]:
    """Write what was derived into the file; WideningError without a reason where a median budget grew."""
    content = derived(records, reason)
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))
        wider = widened(old, content)
        if wider and not reason:
            raise WideningError("budgets would widen without --reason: " + "; ".join(wider))
        content["budgets"] = old["budgets"] | content["budgets"]  # what was not derived now stays
    write_whole(path, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return content


def widened(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """A clause a budget whose median grew."""
    return [
        f"{key} from {before['median_budget_ulps']} to {after['median_budget_ulps']} ulps"
        for key, after in new["budgets"].items()
        if (before := old["budgets"].get(key)) and after["median_budget_ulps"] > WIDER * before["median_budget_ulps"]
    ]
