"""Wrong latent attention fails, with the kind of verdict that tells what is wrong with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verification.operator import find_operator, implementations
from verification.plan import Candidate, Check
from verification.targets import targets
from verification.variants import identify

DECODE = "mla_decode/rows=6,heads=3,latent=40,position=12,qk_width=20,page=16,longest=70/bf16/normal/0"
MERGE = "merge_attention_states/rows=9,heads=3,width=20/bf16/{}/0"
CACHE = "mla_qkv_norm_cache/rows=9,query=96,latent=40,position=12,page=16,slots=some_skipped/bf16/{}/0"
SPOILED = "mla_prefill/rows=9,heads=3,latent=40,position=12,qk_width=20/bf16/nonfinite/0"
PREFILL = "mla_prefill/rows={},heads=3,latent=40,position=12,qk_width=20/bf16/normal/0"
REDUCE = "mla_reduce_project_gate/rows=6,heads=3,latent=40,value=20/bf16/normal/0"

RIGHT = (
    (DECODE, "right_decode"),
    (MERGE.format("mixed"), "right_merge"),
    (MERGE.format("indicator"), "right_merge"),
    (CACHE.format("near_eps"), "right_cache"),
    (PREFILL.format("9+12"), "right_prefill"),
    (PREFILL.format("9,keys=20"), "right_prefill"),
    (REDUCE, "right_reduce"),
    (SPOILED, "right_prefill"),
    # Over as many keys as rows it is right, and its rows before the NaN are numbers.
    (SPOILED, "top_left_causal"),
)

WRONG = (
    (DECODE, "base_two_lse", "budget"),
    (DECODE, "nan_at_length_zero", "special_value"),
    (DECODE, "last_key_dropped", "budget"),
    (DECODE, "whole_last_page", "special_value"),
    (DECODE, "mean_over_splits", "budget"),
    (DECODE, "position_left_out", "budget"),
    (DECODE, "scale_of_nope", "budget"),
    (DECODE, "query_in_eight_bits", "budget"),
    (DECODE, "pages_in_order", "special_value"),
    (MERGE.format("normal"), "base_two_weights", "budget"),
    (MERGE.format("indicator"), "base_two_weights", "budget"),
    (MERGE.format("empty_both"), "zero_over_zero", "special_value"),
    (MERGE.format("empty_a"), "reads_the_dead_side", "special_value"),
    (MERGE.format("normal"), "lse_is_the_larger", "budget"),
    (CACHE.format("normal"), "norm_over_the_position", "structure"),
    (CACHE.format("normal"), "minus_one_is_the_last_slot", "structure"),
    (CACHE.format("normal"), "cache_not_normed", "budget"),
    (CACHE.format("normal"), "next_slot_cleared", "structure"),
    (CACHE.format("near_eps"), "eps_left_out", "budget"),
    (PREFILL.format("9+12"), "not_causal", "budget"),
    (PREFILL.format("9,keys=20"), "top_left_causal", "budget"),
    (PREFILL.format("9+12"), "one_sequence", "budget"),
    (SPOILED, "keys_cleared_of_nan", "special_value"),
    (REDUCE, "gate_without_sigmoid", "budget"),
    (REDUCE, "gate_on_the_wrong_heads", "budget"),
    (REDUCE, "first_split_alone", "budget"),
    (REDUCE, "weight_transposed", "budget"),
    (REDUCE, "eight_bit_latent", "budget"),
)


@pytest.mark.parametrize(("case", "name", "kind"), WRONG)
def test_wrong_attention_fails_with_its_kind_of_verdict(judge, case, name, kind):
    record = judge("wrong_mla.py", name, case)
    assert (record.verdict, record.kind) == ("failed", kind), record.findings


@pytest.mark.parametrize(("case", "name"), RIGHT)
def test_the_right_attention_behind_the_controls_passes(judge, case, name):
    record = judge("wrong_mla.py", name, case)
    assert record.verdict == "passed", record.findings


@pytest.mark.parametrize(
    ("case", "name", "law"),
    [
        (PREFILL.format("9+12"), "not_causal", "causality"),
        (PREFILL.format("9+12"), "one_sequence", "sequence_isolation"),
        (PREFILL.format("9+12"), "one_sequence", "last_row_is_decode"),
        (PREFILL.format("9"), "top_left_causal", "later_chunk"),
        (DECODE, "mean_over_splits", "split_whole"),
        (DECODE, "whole_last_page", "past_the_length"),
        (DECODE, "pages_in_order", "page_permutation"),
        (MERGE.format("normal"), "base_two_weights", "associative"),
        (MERGE.format("empty_a"), "reads_the_dead_side", "identity"),
        (MERGE.format("normal"), "lse_is_the_larger", "commutative"),
        (CACHE.format("normal"), "eps_left_out", "eps_is_read"),
        (CACHE.format("normal"), "minus_one_is_the_last_slot", "skipped_rows"),
        (REDUCE, "first_split_alone", "empty_splits"),
        (REDUCE, "first_split_alone", "split_permutation"),
        (REDUCE, "gate_without_sigmoid", "half_gate"),
    ],
)
def test_laws_see_it_without_a_reference(judge, case, name, law):
    operator = find_operator(case.partition("/")[0])
    record = judge("wrong_mla.py", name, case, law=next(one for one in operator.laws if one.name == law))
    assert (record.verdict, record.kind) == ("failed", "law"), record.findings


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        (one.operator, one.name)
        for one in implementations().values()
        if one.operator in ("mla_decode", "mla_qkv_norm_cache", "mla_reduce_project_gate") and "eager" in one.name
    ],
)
def test_the_variant_of_an_implementation_is_told_by_its_bits(session, operator, name):
    declared = implementations()[operator, name]
    unknown = Candidate(replace(declared, variant="official"), "builtin")
    contract = find_operator(operator)
    checks = [
        Check(case, group.name, group.suite, contract, unknown, targets()["cpu"])
        for group, case in contract.cases("smoke")
    ]
    table = identify(session, checks[1::2])
    assert table[0].variant.name == declared.variant
