"""For each check a fault that passes every other: with the check it fails, without it it passes."""

from __future__ import annotations

import inspect

import pytest

from reference.numerics import ROUNDED
from verification import comparison, runner
from verification.budget import derive
from verification.comparison import Observed, compare
from verification.operator import find_operator, parse_case

NORM = "rms_norm/rows=4,hidden=256/bf16/normal/0"

FAULTS = {
    "returns_fp32": ("_dtype", NORM, "structure"),
    "returns_one_row_for_all": ("_shape", "rms_norm/rows=4,hidden=256/bf16/constant/0", "structure"),
    "changes_its_input": ("_inputs_unchanged", NORM, "guard"),
    "leaves_out_rows_with_nan": ("_written", "rms_norm/rows=4,hidden=256/bf16/nonfinite/0", "guard"),
    "writes_past_its_end": ("_zones_intact", NORM, "guard"),
    "empty_sequences_have_mass_one": (
        "_special_values",
        "mla_decode/rows=3,heads=3,latent=40,position=12,qk_width=20,page=16,longest=70/bf16/normal/0",
        "special_value",
    ),
    "overlooks_the_best": ("_structure", "route/rows=5,experts=60,top_k=6,bias=none/fp32/normal/0", "structure"),
    "counts_from_one": ("_equal_bits", "greedy_sample/rows=3,vocab=1000/fp32/normal/0", "structure"),
    "one_element_off": ("_elements_within", "rms_norm/rows=4/bf16/normal/0", "budget"),
    "leaves_out_the_last_element": ("_rows_within", "rms_norm/rows=3,hidden=200/bf16/normal/0", "budget"),
    "truncates_the_lower_of_each_pair": ("_unbiased", NORM, "bias"),
}  # fmt: skip
"""By fault: the one check that sees it, the case, and the kind of failure."""

ALONE = {"_count", "_device"}
"""Shown by tests of their own: no run on one device could pass without them."""

ORDER = {"_interface", "_numeric_findings"}
"""They look at nothing: they say which check comes before which."""


def nothing(*_):
    return iter(())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_by_one_check_and_passes_without_it(judge, monkeypatch, fault):
    check, case, kind = FAULTS[fault]
    record = judge("unnoticed.py", fault, case)
    assert (record.verdict, record.kind) == ("failed", kind), record.findings
    monkeypatch.setattr(comparison, check, nothing)
    record = judge("unnoticed.py", fault, case)
    assert record.verdict == "passed", record.findings


def test_a_result_of_the_call_before_fails_by_the_second_call_and_passes_without_it(judge, monkeypatch):
    record = judge("unnoticed.py", "gives_the_previous_result", NORM)
    assert (record.verdict, record.kind) == ("failed", "determinism"), record.findings
    monkeypatch.setattr(runner._Running, "_further_modes", lambda self: [])
    assert judge("unnoticed.py", "gives_the_previous_result", NORM).verdict == "passed"


def test_a_result_that_is_kept_for_good_fails_by_what_was_kept_and_passes_without_it(judge, monkeypatch):
    name = "gives_its_first_result_for_good"
    record = judge("unnoticed.py", name, "rms_norm/rows=9,hidden=1000/bf16/normal/0")
    assert (record.verdict, record.kind) == ("failed", "determinism"), record.findings
    monkeypatch.setattr(runner._Running, "_kept", lambda self, *_: [])
    # Of another shape: what was kept of the first has been overwritten.
    assert judge("unnoticed.py", name, "rms_norm/rows=10,hidden=1000/bf16/normal/0").verdict == "passed"


LAWFUL = {
    "sums_large_batches_in_another_order": ("batch_invariance", "rms_norm/rows=9,hidden=1000/fp32/normal/0"),
}


@pytest.mark.parametrize("fault", LAWFUL)
def test_a_fault_that_passes_every_comparison_breaks_a_law(judge, fault):
    name, case = LAWFUL[fault]
    law = next(law for law in find_operator("rms_norm").laws if law.name == name)
    assert judge("unnoticed.py", fault, case).verdict == "passed"
    record = judge("unnoticed.py", fault, case, law=law)
    assert (record.verdict, record.kind) == ("failed", "law"), record.findings


def right_norm():
    operator = find_operator("rms_norm")
    arguments = operator.arguments(parse_case(NORM))
    y = operator.evaluate(arguments, numerics=ROUNDED)["y"]
    return operator, arguments, Observed([y], ["cpu"], ["bf16"], {}), derive(operator, arguments)


def test_a_result_left_on_the_host_fails_by_its_device_and_passes_without_that_check(monkeypatch):
    (finding,) = compare(*right_norm(), "cuda").findings
    assert (finding.check, finding.message) == ("structure", "y is on cpu; expected cuda")
    monkeypatch.setattr(comparison, "_device", nothing)
    assert compare(*right_norm(), "cuda").held


def test_a_result_too_many_fails_by_the_count_and_without_it_there_is_no_verdict(monkeypatch):
    operator, arguments, observed, golden = right_norm()
    for seen in (observed.results, observed.devices, observed.dtypes):
        seen.append(seen[0])
    (finding,) = compare(operator, arguments, observed, golden, "cpu").findings
    assert (finding.check, finding.message) == ("structure", "returned 2 tensors; expected 1: y")
    monkeypatch.setattr(comparison, "_count", nothing)
    with pytest.raises(ValueError, match="zip"):
        compare(operator, arguments, observed, golden, "cpu")


def test_every_check_of_the_comparison_is_shown_to_be_needed():
    checks = {
        name
        for name, function in inspect.getmembers(comparison, inspect.isfunction)
        if function.__module__ == comparison.__name__ and function.__annotations__.get("return") == "Iterator[Finding]"
    }
    assert checks - ORDER == {check for check, _, _ in FAULTS.values()} | ALONE
