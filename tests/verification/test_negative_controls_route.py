"""A router that keeps its logits or its bias in bf16 is wrong for the official contract, and known for what it is."""

from __future__ import annotations

import pytest

from verification.operator import find_operator
from verification.plan import Selection, build
from verification.variants import identify

FILE = "bf16_routers.py"
CASES = next(group.cases for group in find_operator("route").groups if group.name == "logits and bias dtype")


@pytest.mark.parametrize("name", ["logits_bf16", "bias_bf16", "official"])
def test_the_dtype_of_logits_and_bias_is_told(candidates, session, name):
    declared = session.declared(candidates / FILE, borrows=True)
    checks = [
        check
        for case in CASES
        for check in build(Selection(case=case.id, candidates=declared, implementation=name, target="cpu", law="none"))
    ]
    first, *others = identify(session, checks)
    assert (first.variant.name, first.failed) == (name, 0)
    if name != "official":
        assert next(one for one in others if one.variant.name == "official").failed > 0


@pytest.mark.parametrize(("name", "case", "kind"), [
    ("logits_bf16", "route/rows=17/fp32/normal/0", "structure"),
    ("logits_bf16", "route/rows=17,experts=384,top_k=8,scaling=2.827,bias=large/fp32/normal/0", "budget"),
    ("bias_bf16", "route/rows=9,experts=60,top_k=6,bias=close/fp32/few_values/0", "structure"),
])  # fmt: skip
def test_a_rounded_logit_or_bias_fails_the_official_contract(judge, name, case, kind):
    record = judge(FILE, name, case)
    assert (record.verdict, record.kind) == ("failed", kind), record.findings
