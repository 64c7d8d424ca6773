from __future__ import annotations

import pytest

CONTROLS = {
    "nan_is_largest": "greedy_sample/rows=10,vocab=1025/fp32/nonfinite/0",
    "nan_as_minus_infinity": "greedy_sample/rows=10,vocab=1025/fp32/nonfinite/0",
    "last_of_equals": "greedy_sample/rows=9,vocab=5000/fp32/few_values/0",
    "in_bf16": "greedy_sample/rows=9,vocab=5000/fp32/close/0",
    "zeros_apart": "greedy_sample/rows=9,vocab=5000/fp32/signed_zeros/0",
    "no_tail": "greedy_sample/rows=3,vocab=1025/fp32/at_the_end/0",
    "counts_every_agreement": "greedy_verify/batch=64/int32/normal/0",
    "no_bonus": "greedy_verify/batch=6,drafts=1/int32/all_accepted/0",
    "commits_the_draft": "greedy_verify/batch=6/int32/last_rejected/0",
    "aligned_one_late": "greedy_verify/batch=6/int32/all_accepted/0",
}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_wrong_choice_fails_by_structure(judge, name):
    record = judge("wrong_sampling.py", name, CONTROLS[name])
    assert (record.verdict, record.kind) == ("failed", "structure"), record.findings
