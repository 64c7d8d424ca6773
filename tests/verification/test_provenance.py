"""The provenance of budgets says what was derived and seen; it widens for a reason alone."""

from __future__ import annotations

import json

import pytest

from verification.budget import FALSE_ALARM, FORMULA, RUNS
from verification.provenance import WIDER, WideningError, derived, rewrite, widened
from verification.records import BudgetRecord, OutputRecord, Record

KEY = "toy.y bf16 official"


def record(budget_ulps=2.0, ratio=0.5, **changes):
    output = OutputRecord(
        output="y", dtype="bf16", elements=6, largest_error=0.1, ratio=ratio, worst_index=[0], worst_error=0.1,
        worst_budget=0.2, worst_ulps=1, largest_ulps=1, bit_equal=1, row_ratio=0.1, bias=0, bias_ratio=None,
        median_budget_ulps=budget_ulps,
    )  # fmt: skip
    return Record(**{
        "check": "toy//bf16/normal/0:mine@cpu", "case": "toy//bf16/normal/0", "group": "sizes", "suite": "smoke",
        "operator": "toy", "implementation": "mine", "variant": "official", "target": "cpu", "claim": "plain torch",
        "verdict": "passed", "outputs": [output], "commit": "0", "command": "parity verify", "seconds": 0.5,
        "date": "2026-01-01", "budget": BudgetRecord(formula=FORMULA, runs=RUNS, factor=6.4, false_alarm=FALSE_ALARM),
    } | changes)  # fmt: skip


def test_a_row_sums_up_the_cases_of_an_output_dtype_and_variant():
    records = [
        record(1.0), record(3.0, 0.25, case="toy/rows=1/bf16/normal/0"), record(5.0, 0.75, target="hip"),
        record(variant="one_rounding"), record(implementation="other", ratio=0.0),
    ]  # fmt: skip
    content = derived(records, "a reason")
    assert (content["formula"], content["runs"], content["false_alarm"], content["reason"]) == (
        FORMULA,
        RUNS,
        FALSE_ALARM,
        "a reason",
    )
    assert list(content["budgets"]) == [KEY, "toy.y bf16 one_rounding"]
    assert content["budgets"][KEY] == {
        "median_budget_ulps": 2.5, "largest_factor": 6.4, "cases": 2, "targets": ["cpu", "hip"],
        "largest_error_over_budget": {"mine@cpu": 0.5, "mine@hip": 0.75, "other@cpu": 0.0},
    }  # fmt: skip


def test_laws_and_records_without_numbers_have_no_part_in_it():
    assert derived([record(law="row_isolation"), record(outputs=[], budget=None)], None)["budgets"] == {}


def test_the_file_is_what_was_derived_and_may_be_written_again(tmp_path):
    path = tmp_path / "provenance.json"
    content = rewrite([record()], None, path)
    assert json.loads(path.read_text()) == content
    assert rewrite([record()], None, path)["budgets"] == content["budgets"]


@pytest.mark.parametrize("budget_ulps", [2.0, 1.0, 2.0 * WIDER])
def test_budgets_that_stay_or_shrink_need_no_reason(tmp_path, budget_ulps):
    path = tmp_path / "provenance.json"
    rewrite([record()], None, path)
    assert rewrite([record(budget_ulps)], None, path)["budgets"][KEY]["median_budget_ulps"] == round(budget_ulps, 4)


@pytest.mark.parametrize("reason", [None, ""])
def test_a_wider_budget_without_a_reason_is_refused_and_the_file_kept(tmp_path, reason):
    path = tmp_path / "provenance.json"
    rewrite([record()], None, path)
    before = path.read_text()
    with pytest.raises(WideningError, match=r"without --reason: toy\.y bf16 official from 2\.0 to 3\.0 ulps"):
        rewrite([record(3.0)], reason, path)
    assert path.read_text() == before


def test_a_wider_budget_with_a_reason_is_recorded_with_it(tmp_path):
    path = tmp_path / "provenance.json"
    rewrite([record()], None, path)
    rewrite([record(3.0)], "the mix is rounded once more", path)
    assert json.loads(path.read_text())["reason"] == "the mix is rounded once more"


def test_only_budgets_known_before_can_widen():
    old, new = derived([record()], None), derived([record(3.0), record(9.0, variant="another")], None)
    assert len(widened(old, new)) == 1
    assert widened(new, old) == []
