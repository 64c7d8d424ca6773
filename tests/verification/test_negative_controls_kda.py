"""Wrong KDA kernels fail, with the kind of verdict that tells what is wrong; laws catch what numbers need not."""

from __future__ import annotations

import pytest

from verification.eager.kda_rows import eager_name
from verification.operator import find_operator
from verification.plan import Selection, build
from verification.variants import identify

SMALL = "heads=2,key=16,value=24"
SQUARE = "heads=2,key=16,value=16"

FAILURES = [
    ("kda_decode", "rounded_beta", f"lengths=1x3,{SMALL}/bf16/normal", "budget"),
    ("kda_decode", "clamped_softplus", f"lengths=1x3,{SMALL}/bf16/normal", "budget"),
    ("kda_decode", "floored_norm", f"lengths=1x3,{SMALL}/bf16/tiny", "budget"),
    ("kda_decode", "oldest_last", f"lengths=1x3,{SMALL}/bf16/normal", "budget"),
    ("kda_decode", "transposed_state", f"lengths=1x3,{SQUARE}/bf16/normal", "budget"),
    ("kda_decode", "read_before_update", f"lengths=1x3,{SMALL}/bf16/normal", "budget"),
    ("kda_decode", "decay_after", f"lengths=1x3,{SMALL}/bf16/normal", "budget"),
    ("kda_decode", "unwritten_padding", f"lengths=1x4,{SMALL},padding=invalid,past=2/bf16/normal", "guard"),
    ("kda_decode", "reads_what_it_writes", f"lengths=1x3,{SMALL}/bf16/normal", "special_value"),
    ("kda_decode", "last_slot_for_padding", f"lengths=1x4,{SMALL},padding=invalid/bf16/normal", "special_value"),
    ("kda_decode", "writes_the_null_slot", f"lengths=1x4,{SMALL},padding=null/bf16/normal", "special_value"),
    ("kda_prefill", "writes_the_null_slot", f"lengths=5-2-3-4,{SMALL},padding=null/bf16/normal", "special_value"),
    ("causal_conv1d", "writes_the_null_slot", "lengths=3-2-1-4,channels=32,padding=null/bf16/normal", "structure"),
    ("kda_prefill", "rounded_beta", f"lengths=5-2,{SMALL}/bf16/normal", "budget"),
    ("kda_prefill", "floored_norm", f"lengths=5-2,{SMALL}/bf16/tiny", "budget"),
    ("kda_prefill", "accumulated_logarithms", f"lengths=64,{SMALL},output=plain/bf16/bounds", "budget"),
    ("kda_prefill", "coarse_system", f"lengths=34,{SMALL}/bf16/parallel", "budget"),
    ("kda_prefill", "chunks_from_zero", f"lengths=66,{SMALL}/bf16/parallel", "budget"),
    ("kda_prefill", "looks_ahead", f"lengths=5-2,{SMALL}/bf16/normal", "budget"),
    ("kda_prefill", "always_continues", f"lengths=5-2,{SMALL},initial=mixed/bf16/normal", "special_value"),
    ("kda_verify", "transposed_state", f"lengths=3-2,{SQUARE}/bf16/normal", "budget"),
    ("kda_verify", "unwritten_padding", f"lengths=3-2,{SMALL},padding=invalid/bf16/normal", "guard"),
    ("kda_verify", "writes_its_pool", f"lengths=3-2,{SMALL}/bf16/normal", "guard"),
    ("kda_commit", "all_rows", f"lengths=4-4,{SMALL}/bf16/normal", "structure"),
    ("kda_commit", "one_row_more", f"lengths=4-4,{SMALL}/bf16/normal", "structure"),
    ("kda_commit", "nothing_for_none", f"lengths=4-4,{SMALL},kept=none/bf16/normal", "special_value"),
    ("causal_conv1d", "oldest_last", "lengths=3-2,channels=32/bf16/normal", "budget"),
    ("causal_conv1d", "always_continues", "lengths=3-2,channels=32,initial=mixed/bf16/normal", "special_value"),
    ("causal_conv1d", "writes_what_it_reads", "lengths=3-2,channels=32/bf16/normal", "structure"),
]


@pytest.mark.parametrize(("operator", "control", "case", "kind"), FAILURES)
def test_wrong_kernel_fails_with_its_kind_of_verdict(judge, operator, control, case, kind):
    record = judge("wrong_kda.py", control, f"{operator}/{case}/0")
    assert (record.verdict, record.kind) == ("failed", kind), record.findings


@pytest.mark.parametrize(
    ("control", "case"),
    [
        ("chunks_of_32", f"lengths=1-0-15-16-17-63-64-65,{SMALL},initial=mixed/bf16/normal/100"),
        ("serial_scores", "lengths=136-8,heads=2,initial=mixed/bf16/parallel/8"),
    ],
)
def test_where_keys_repeat_a_long_sum_loses_the_state(judge, session, control, case):
    record = judge("wrong_kda.py", control, f"kda_prefill/{case}")
    assert (record.verdict, record.kind) == ("failed", "budget"), record.findings
    check = build(Selection(case=f"kda_prefill/{case}", implementation="eager", target="cpu", law="none"))[0]
    assert session.run(check).verdict == "passed"


@pytest.mark.parametrize(("operator", "case"), sorted({(operator, case) for operator, _, case, _ in FAILURES}))
def test_the_right_kernel_passes_where_the_wrong_ones_fail(session, operator, case):
    check = build(Selection(case=f"{operator}/{case}/0", implementation="eager", target="cpu", law="none"))[0]
    assert session.run(check).verdict == "passed"


BROKEN = [
    ("kda_prefill", "looks_ahead", "causality"),
    ("kda_prefill", "chunks_from_zero", "split_is_whole"),
    ("kda_prefill", "always_continues", "parameter_sensitivity"),
    ("kda_commit", "all_rows", "rejected_rows"),
    ("kda_commit", "all_rows", "parameter_sensitivity"),
    ("kda_commit", "nothing_for_none", "commit_is_stepping"),
    ("kda_decode", "last_slot_for_padding", "padding_invariance"),
    ("kda_decode", "shared_mean", "batch_invariance"),
    ("kda_decode", "shared_mean", "sequence_isolation"),
    ("kda_decode", "slot_as_scale", "slot_renaming"),
    ("kda_decode", "clears_first", "own_page"),
    ("causal_conv1d", "writes_what_it_reads", "split_is_whole"),
]


@pytest.mark.parametrize(("operator", "control", "law"), BROKEN)
def test_a_wrong_kernel_breaks_a_law(judge, operator, control, law):
    wanted = find_operator(operator)
    broken = next(one for one in wanted.laws if one.name == law)
    record = judge("wrong_kda.py", control, wanted.law_cases[0], law=broken)
    assert (record.verdict, record.kind) == ("failed", "law"), record.findings


@pytest.mark.parametrize("name", ["causal_conv1d", "kda_commit", "kda_decode", "kda_gate", "kda_prefill", "kda_verify"])
def test_every_option_is_taken_by_a_case_of_the_laws(name):
    operator = find_operator(name)
    given = [operator.arguments(case) for case in operator.law_cases]
    assert not [option for option in given[0] if all(arguments[option] is None for arguments in given)]


@pytest.mark.parametrize("variant", ["official", "conv_rounded", "output_rounded", "split", "gate_unrounded"])
def test_the_roundings_of_each_form_are_told_by_its_bits(session, variant):
    selection = Selection(
        case="kda_decode/lengths=1x16,heads=2,key=16,value=24,rank=16/bf16/normal/0",
        implementation=eager_name(variant), target="cpu", law="none",
    )  # fmt: skip
    assert identify(session, build(selection))[0].variant.name == variant
