"""Two recorded runs by case id: verdicts that changed, outputs beyond their budgets, what only one has."""

from __future__ import annotations

import gzip

import pytest

from verification import cli
from verification.records import BudgetRecord, OutputRecord, Record, RecordFile, read_records
from verification.report.differences import compare_runs


def output(ratio):
    return OutputRecord(
        output="y", dtype="bf16", elements=6, largest_error=1.0, ratio=ratio, worst_index=[0], worst_error=ratio,
        worst_budget=1.0, worst_ulps=1.0, largest_ulps=1.0, bit_equal=0.5, row_ratio=0.1, bias=0.0, bias_ratio=None,
        median_budget_ulps=2.0,
    )  # fmt: skip


def record(rows, ratio=0.5, verdict="passed", target="gfx950"):
    case = f"toy/rows={rows}/bf16/normal/0"
    return Record(
        check=f"{case}:mine@{target}", case=case, group="sizes", suite="smoke", operator="toy", implementation="mine",
        variant="official", target=target, claim="somewhere", verdict=verdict, outputs=[output(ratio)],
        budget=BudgetRecord(formula="f", runs=16, factor=6.4, false_alarm=1e-6), commit="c0ffee", command="parity",
        seconds=0.5, date="2026-01-01",
    )  # fmt: skip


def test_checks_are_matched_by_case_and_the_widest_gap_is_named():
    found = compare_runs(
        [record(1), record(2, 0.25), record(3)], [record(2, 0.75, target="cuda"), record(1, target="cuda")]
    )
    assert (found.both, found.only, found.changed, found.beyond) == (2, (1, 0), [], 0)
    (row,) = found.outputs
    assert (row.checks, row.equal, row.ratios, row.widest) == (2, 1, (0.5, 0.75), 0.5)
    assert row.where == "toy/rows=2/bf16/normal/0"


@pytest.mark.parametrize(("other", "code"), [(record(1, 0.9), 0), (record(1, 1.5, "failed"), 1), (record(1, 1.5), 1),
                                             (record(1, float("nan")), 1), (record(2), 2)])  # fmt: skip
def test_a_changed_verdict_or_an_error_beyond_its_budget_exits_1(tmp_path, other, code):
    for name, one in (("a", record(1)), ("b", other)):
        (tmp_path / name).mkdir()
        RecordFile(tmp_path / name / "records.jsonl").append(one)
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json", str(tmp_path / "d.json")])
    assert (ended.value.code or 0) == code
    assert (tmp_path / "d.json").exists() == (code != 2)


def test_a_gzip_file_of_records_is_read_and_a_broken_one_refused(tmp_path):
    packed = gzip.compress((record(1).model_dump_json() + "\n").encode())
    whole, cut = tmp_path / "whole.jsonl.gz", tmp_path / "cut.jsonl.gz"
    whole.write_bytes(packed)
    cut.write_bytes(packed[:40])
    assert len(read_records(whole)) == 1
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "diff", str(whole), str(cut)])
    assert ended.value.code == 2
