"""Wrong quantisers, activations and experts fail, with the kind of verdict that tells what is wrong with them."""

from __future__ import annotations

import pytest

from verification.plan import Selection, build

EXPECTED = [
    ("truncated_codes", "quantize_mx/rows=3,columns=96/bf16/normal/0", "structure"),
    ("truncated_codes", "quantize_mx/rows=3,columns=96,format=mxfp4/bf16/normal/0", "structure"),
    ("high_nibble_first", "quantize_mx/rows=3,columns=96,format=mxfp4/bf16/normal/0", "structure"),
    ("nan_is_largest", "quantize_mx/rows=10,columns=96/bf16/nonfinite/0", "structure"),
    ("no_floor", "quantize_mx/rows=9,columns=256/bf16/zero_groups/0", "structure"),
    ("neighbours_scale", "quantize_mx/rows=5,columns=1792/bf16/by_group/0", "structure"),
    ("flushed_small_scales", "dequantize_mx/rows=9,columns=1056/bf16/fp16_subnormal/0", "budget"),
    ("byte_zero_is_zero", "dequantize_mx/rows=256,columns=512/bf16/every_code/0", "budget"),
    ("scale_255_is_a_number", "dequantize_mx/rows=9,columns=1056/bf16/nan/0", "special_value"),
    ("transposed_scales", "dequantize_mx/rows=9,columns=1056/bf16/coordinates/0", "budget"),
    ("silu", "situ/width=288/bf16/saturated/0", "structure"),
    ("silu", "situ/width=288/bf16/normal/0", "budget"),
    ("swapped_betas", "situ/width=288/bf16/normal/0", "budget"),
    ("sigmoid_of_ratio", "situ/width=288/bf16/normal/0", "budget"),
    ("tangent_rounded", "situ/width=288/bf16/normal/0", "budget"),
]


@pytest.mark.parametrize(("control", "case", "kind"), EXPECTED)
def test_wrong_kernel_fails_with_its_kind_of_verdict(judge, control, case, kind):
    record = judge("wrong_moe.py", control, case)
    assert (record.verdict, record.kind) == ("failed", kind), record.findings


@pytest.mark.parametrize("case", sorted({case for _, case, _ in EXPECTED}))
def test_the_right_kernel_behind_the_controls_passes(session, case):
    check = build(Selection(case=case, implementation="eager", target="cpu", law="none"))[0]
    assert session.run(check).verdict == "passed"
