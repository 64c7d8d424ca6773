"""The report says first whether a kernel may land, then why not, and how to repeat it."""

from __future__ import annotations

import pytest

from verification.records import BudgetRecord, Environment, OutputRecord, Record
from verification.report.markdown import render
from verification.report.summary import margins, rows, verdicts

CASE = "toy/rows=1/bf16/normal/0"


def output(ratio=0.5, name="y", **changes):
    return OutputRecord(**{
        "output": name, "dtype": "bf16", "elements": 6, "largest_error": 1.0, "ratio": ratio, "worst_index": [0],
        "worst_error": ratio * 0.25, "worst_budget": 0.25, "worst_ulps": 8 * ratio, "largest_ulps": 8 * ratio,
        "bit_equal": 0.75, "row_ratio": 0.1, "bias": 0.0, "bias_ratio": None, "median_budget_ulps": 2.0,
    } | changes)  # fmt: skip


def record(verdict="passed", case=CASE, **changes):
    implementation = changes.get("implementation", "mine")
    check = f"{case}:{implementation}@cpu"
    return Record(**{
        "check": check, "case": case, "group": "sizes", "suite": "smoke", "operator": "toy",
        "implementation": implementation, "variant": "official", "target": "cpu", "claim": "plain torch",
        "verdict": verdict, "kind": "budget" if verdict == "failed" else None, "commit": "c0ffee",
        "findings": ["y: off at [2, 3]"] if verdict == "failed" else [], "outputs": [output()],
        "environment": Environment(
            device="Some CPU", architecture="x86", python="3.11", torch="2.11", triton="3.6", tf32=False,
            float32_matmul_precision="highest",
        ),
        "budget": BudgetRecord(formula="z·σ + ½ulp", runs=16, factor=6.4, false_alarm=1e-6),
        "command": f"parity verify --case {case}", "seconds": 0.5, "date": "2026-01-01",
    } | changes)  # fmt: skip


def headline(text):
    lines = text.splitlines()
    assert lines[0] == "# Tolerance report"
    return lines[2]


def told_on_one_line(text, *words):
    return any(all(word in line for word in words) for line in text.splitlines())


REFUSED = record("unsupported", findings=["rows of 3 elements only"], outputs=[], budget=None)
WAIVED = record("waived", kind="budget", waiver="known")


@pytest.mark.parametrize(("records", "complaints", "said"), [
    ([record(), record()], [], "**MAY LAND.** 2 passed."),
    ([record(), REFUSED], [], "**MAY LAND.** 1 passed, 1 unsupported."),
    ([record(), WAIVED], [], "**MAY LAND.** 1 passed, 1 waived."),
    ([record(), record("failed")], [], f"**MAY NOT LAND.** 1 passed, 1 failed. First: budget in `{CASE}:mine@cpu`."),
    ([record("error", kind="crash")], [], f"**MAY NOT LAND.** 1 error. First: crash in `{CASE}:mine@cpu`."),
    ([record()], ["only 1 check ran"], "**MAY NOT LAND.** 1 passed. only 1 check ran"),
    ([REFUSED], [], "**NOTHING RAN: no verdict.** 1 unsupported."),
    ([], [], "**NOTHING RAN: no verdict.** no records."),
])  # fmt: skip
def test_the_headline_is_the_verdict(records, complaints, said):
    assert headline(render(records, complaints, planned=len(records))) == said


@pytest.mark.parametrize("records", [[record()], [record(), record("failed")]])
def test_an_interrupted_run_has_no_verdict_whatever_it_found(records):
    said = headline(render(records, interrupted=True, planned=9))
    assert said.startswith(f"**INTERRUPTED: no verdict.** {len(records)} of 9 checks done: 1 passed")
    assert "LAND" not in said


def test_complaints_are_listed():
    text = render([record()], ["the floor is 3", "a waiver expired"])
    assert "- the floor is 3\n- a waiver expired\n" in text


def test_where_it_ran_and_what_may_be_claimed_is_said():
    text = render([record()])
    assert told_on_one_line(text, "`cpu`", "plain torch", "Some CPU", "x86", "torch 2.11", "triton 3.6")
    assert told_on_one_line(text, "c0ffee", "smoke")
    assert told_on_one_line(text, "z·σ + ½ulp", "1e-06")


def test_a_failure_is_shown_with_its_findings_and_its_command():
    text = render([record(), record("failed")])
    assert f"`{CASE}:mine@cpu`" in text
    assert "- y: off at [2, 3]\n" in text
    assert f"```sh\nparity verify --case {CASE}\n```" in text


def test_of_failures_alike_the_worst_is_shown_and_every_kind_has_its_turn():
    near, far = (
        record("failed", f"toy/rows={rows}/bf16/normal/0", outputs=[output(ratio)])
        for rows, ratio in ((2, 1.5), (3, 40))
    )
    crash = record("error", "toy/rows=4/bf16/normal/0", kind="crash", outputs=[], findings=["signal SIGSEGV"])
    other = record("failed", "toy/rows=5/bf16/normal/0", implementation="other")
    text = render([near, far, crash, other])
    for shown in (far, crash, other):
        assert shown.command in text
    assert near.command not in text
    assert told_on_one_line(text, "budget", "the worst of 2", far.check)


def test_a_row_shows_its_worst_case_with_error_budget_ratio_and_ulps():
    worst = record(case="toy/rows=7/bf16/normal/0", outputs=[output(0.8, bias_ratio=0.4)])
    text = render([record(), worst, record()])
    row = ("toy", "sizes", "mine@cpu", "3 passed", "0.2 | 0.25 | 0.800", "6.4", "0.40", "official", f"`{worst.case}`")
    assert told_on_one_line(text, *row)


def test_a_failed_row_shows_the_failed_case_rather_than_the_widest():
    failed = record("failed", "toy/rows=9/bf16/normal/0", outputs=[output(0.1)])
    text = render([record(outputs=[output(0.9)]), failed])
    assert told_on_one_line(text, "1 of 2 failed: budget", f"`{failed.case}`")


def test_the_unsupported_are_counted_with_their_reasons():
    more = record("unsupported", implementation="other", findings=["no fp16"], outputs=[])
    text = render([record(), REFUSED, REFUSED, more, WAIVED])
    assert "- 2 × toy mine@cpu: rows of 3 elements only\n" in text
    assert "- 1 × toy other@cpu: no fp16\n" in text
    assert "- 1 × toy mine@cpu: known\n" in text


def test_where_everything_was_judged_nothing_is_said_to_be_not():
    assert "Not judged" not in render([record()])
    assert "Failures" not in render([record()])


def test_verdicts_are_counted_and_failures_lead():
    assert verdicts([record(), record(), REFUSED]) == "2 passed, 1 unsupported"
    mixed = [record(), record("failed"), record("error", kind="crash")]
    assert "2 of 3 failed: budget, crash" in verdicts(mixed)


def test_rows_part_by_group_implementation_target_variant_and_output():
    records = [
        record(), record(group="others"), record(implementation="other"), record(target="hip"), record(variant="once"),
        record(outputs=[output(), output(name="z")]), record(law="row_isolation", outputs=[]),
    ]  # fmt: skip
    table = rows(records)
    assert len(table) == 7
    assert sum(len(row.records) for row in table) == len(records) + 1
    assert table[-1].implementation == "other"
    assert [row.group for row in table if row.implementation == "mine" and row.target == "cpu"][-1] == "laws"


@pytest.mark.parametrize(("ratios", "least", "told"), [((0.5, 0.25), 2.0, "2.00"), ((0.0, 0.0), None, "exact")])
def test_a_margin_is_the_least_room_of_all_cases(ratios, least, told):
    (margin,) = margins([record(outputs=[output(ratio)]) for ratio in ratios])
    assert (margin.least, margin.told) == (least, told)
    assert margin.ulps == 8 * max(ratios)
    assert margin.bit_equal == [0.75, 0.75]


def test_margins_part_by_output_and_dtype():
    table = margins([record(outputs=[output(), output(name="z")]), record(outputs=[output(dtype="fp16")])])
    assert sorted((m.output, m.dtype) for m in table) == [("y", "bf16"), ("y", "fp16"), ("z", "bf16")]


def test_a_candidates_words_cannot_forge_a_headline():
    told = record("failed").model_copy(update={"findings": ["x\n\n# Tolerance report\n\n**MAY LAND.** 9 passed."]})
    text = render([told])
    assert text.count("# Tolerance report\n") == 1
    assert "\n**MAY LAND.**" not in text
