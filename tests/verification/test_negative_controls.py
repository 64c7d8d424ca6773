"""A wrong kernel of every operator fails, with the kind of verdict that tells what is wrong with it."""

from __future__ import annotations

import pytest

from verification.plan import Selection, build

CASES = {
    "rms_norm": "rms_norm/rows=5,hidden=256/bf16/normal/0",
    "route": "route/rows=5,experts=60,top_k=6/fp32/normal/0",
    "moe_sorting": "moe_sorting/rows=5,experts=24,top_k=4/fp32/distinct/0",
    "route_sort": "route_sort/rows=5,experts=24,top_k=4/fp32/normal/0",
    "attention_residual": "attention_residual/rows=5,hidden=256,blocks=3/bf16/normal/0",
}

NUMBERS = ("rms_norm", "attention_residual")
CHOICES = ("route", "moe_sorting", "route_sort")

EXPECTED = {
    "zeros": dict.fromkeys(NUMBERS, "budget") | dict.fromkeys(CHOICES, "structure"),
    "nan": dict.fromkeys((*NUMBERS, "route", "route_sort"), "special_value") | {"moe_sorting": "structure"},
    "its_inputs": dict.fromkeys(NUMBERS, "budget") | dict.fromkeys(CHOICES, "structure"),
    "previous_output": dict.fromkeys(CASES, "determinism"),
    "one_element": dict.fromkeys((*NUMBERS, "route"), "budget") | dict.fromkeys(CHOICES[1:], "structure"),
    "one_row": dict.fromkeys((*NUMBERS, "route"), "budget") | {"route_sort": "structure"},
    "swapped_experts": dict.fromkeys(CHOICES, "structure"),
    "past_its_end": dict.fromkeys(CASES, "guard"),
    "changes_an_input": dict.fromkeys(CASES, "guard"),
    "half_written": dict.fromkeys(CASES, "guard"),
    "leaning": {"rms_norm": "budget", "attention_residual": "bias"},
}  # fmt: skip


@pytest.mark.parametrize(("operator", "control"), [(o, c) for c, kinds in EXPECTED.items() for o in kinds])
def test_wrong_kernel_fails_with_its_kind_of_verdict(judge, operator, control):
    record = judge("wrong.py", control, CASES[operator])
    assert (record.verdict, record.kind) == ("failed", EXPECTED[control][operator]), record.findings


@pytest.mark.parametrize("operator", CASES)
def test_the_right_kernel_behind_the_controls_passes(session, operator):
    """Without this, a harness that fails everything would pass the tests above."""
    check = build(Selection(case=CASES[operator], implementation="eager", target="cpu", law="none"))[0]
    assert session.run(check).verdict == "passed"
