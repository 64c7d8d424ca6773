"""Wrong split attention residuals and collectives fail with their kind of verdict; right variants are known by name."""

from __future__ import annotations

import pytest

from verification.plan import Selection, build
from verification.variants import identify

FILE = "wrong_partials.py"

PARTIAL = "attention_residual_partial/rows=5,hidden=256,blocks=3"
COMBINE = "attention_residual_combine/rows=5,hidden=256"
PROJECTION = "projection_attention_residual/rows=5,hidden=256,projected=48,blocks=3"
SUM = "all_reduce/ranks=4,rows=5,hidden=256"
FUSED = "all_reduce_attention_residual/ranks=4,rows=5,hidden=256"

WRONG = [
    ("base_two", f"{PARTIAL}/bf16/normal/0", "budget"),
    ("without_maximum", f"{PARTIAL},score_scale=300.0/bf16/normal/0", "special_value"),
    ("already_divided", f"{PARTIAL}/bf16/normal/0", "budget"),
    ("scorers_swapped", f"{PARTIAL}/bf16/normal/0", "budget"),
    ("reads_unused", f"{PARTIAL}/bf16/normal/0", "special_value"),
    ("one_for_none", "attention_residual_partial/rows=5,hidden=256,blocks=0/bf16/normal/0", "structure"),
    ("products_in_bf16", f"{PROJECTION}/bf16/normal/0", "budget"),
    ("swapped_eps", f"{COMBINE}/bf16/near_eps/0", "budget"),
    ("base_two_state", f"{COMBINE}/bf16/normal/0", "budget"),
    ("divided_state", f"{COMBINE}/bf16/normal/0", "budget"),
    ("forgets_the_partial", f"{COMBINE}/bf16/normal/0", "budget"),
    ("nan_times_zero", f"{COMBINE}/bf16/empty_nan/0", "special_value"),
    ("reversed_order", f"{SUM}/bf16/cancelling/0", "structure"),
    ("local_first", f"{SUM}/bf16/cancelling/0", "structure"),
    ("rounded_each_time", f"{SUM}/bf16/normal/0", "structure"),
    ("in_double", f"{SUM}/bf16/cancelling/0", "structure"),
    ("forgets_a_rank", f"{SUM}/bf16/one_rank/0", "structure"),
    ("one_for_zero", f"{SUM}/bf16/some_zeros/0", "structure"),
    ("minus_zero_kept", f"{SUM}/bf16/negative_zeros/0", "structure"),
    ("sum_kept_in_fp32", f"{FUSED}/bf16/normal/0", "budget"),
    ("first_rank_only", f"{FUSED}/bf16/normal/0", "structure"),
    ("order_of_the_sum", f"{FUSED}/bf16/cancelling/0", "budget"),
    ("without_residual", f"{FUSED}/bf16/normal/0", "budget"),
]

MIXES = ("one_rounding", "mix_unrounded", "score_weight_bf16")

RIGHT = {
    "attention_residual/rows=5,hidden=1024,blocks=3/bf16/normal/0": (*MIXES, "prefix_unrounded"),
    f"{COMBINE}/bf16/normal/0": MIXES,
    f"{FUSED}/bf16/normal/0": MIXES,
    f"{PARTIAL}/bf16/normal/0": ("score_weight_bf16",),
    f"{PROJECTION}/bf16/normal/0": ("score_weight_bf16",),
}


@pytest.mark.parametrize(("name", "case", "kind"), WRONG)
def test_wrong_kernel_fails_with_its_kind_of_verdict(judge, name, case, kind):
    record = judge(FILE, name, case)
    assert (record.verdict, record.kind) == ("failed", kind), record.findings


@pytest.mark.parametrize(("case", "name"), [(case, name) for case, names in RIGHT.items() for name in names])
def test_each_variant_passes_its_own_budgets_and_is_known_by_name(judge, candidates, session, case, name):
    assert judge(FILE, name, case).verdict == "passed"
    declared = session.declared(candidates / FILE, borrows=True)
    checks = build(Selection(case=case, candidates=declared, implementation=name, target="cpu", law="none"))
    assert identify(session, checks)[0].variant.name == name


def test_a_partial_is_compared_by_what_it_means(judge):
    record = judge(FILE, "lazy_maximum", f"{PARTIAL}/bf16/normal/0")
    assert (record.verdict, [o.output for o in record.outputs]) == ("passed", ["log_mass", "mean"])


@pytest.mark.parametrize(("name", "variant"), [("eager", "official"), ("eager_positive_zero", "positive_zero")])
def test_an_all_reduce_is_known_by_its_zeros_whose_sign_fails_neither(session, name, variant):
    case = f"{SUM}/bf16/negative_zeros/0"
    checks = build(Selection(case=case, implementation=name, target="cpu", law="none"))
    assert session.run(checks[0]).verdict == "passed"
    assert identify(session, checks)[0].variant.name == variant
