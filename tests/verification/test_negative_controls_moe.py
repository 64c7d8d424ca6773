"""Wrong quantisers, activations and experts fail, with the kind of verdict that tells what is wrong with them."""

from __future__ import annotations

import pytest

from verification.plan import Selection, build

MOE = "moe_experts/latent=96,inter=64,experts=8,local=8,top_k=2"
SHARD = "moe_experts/rows=5,latent=96,inter=64,experts=8,local=4,offset=3,top_k=4"

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
    ("gates_and_ups_exchanged", f"{MOE},values=constant/bf16/distinct/0", "budget"),
    ("layout_ignored", f"{MOE},w13=interleaved,values=constant/bf16/distinct/0", "budget"),
    ("ids_not_localised", f"{SHARD}/bf16/repeated/0", "budget"),
    ("next_experts_scales", f"{MOE},values=coordinates/bf16/distinct/0", "budget"),
    ("next_groups_scales", f"{MOE},values=coordinates/bf16/distinct/0", "budget"),
    ("activations_not_quantised", f"{MOE},activation=mxfp8/bf16/distinct/0", "budget"),
    ("activations_not_quantised", f"{MOE},activation=mxfp4/bf16/distinct/0", "budget"),
    ("second_quantisation_dropped", f"{MOE},activation=mxfp8/bf16/distinct/0", "budget"),
    ("second_quantisation_dropped", f"{MOE},activation=mxfp4/bf16/distinct/0", "budget"),
    ("floor_of_scale", f"{MOE},activation=mxfp8/bf16/distinct/0", "budget"),
    ("floor_of_scale", f"{MOE},activation=mxfp4/bf16/distinct/0", "budget"),
    ("betas_exchanged", f"{MOE}/bf16/distinct/0", "budget"),
    ("last_block_dropped", f"{MOE}/bf16/distinct/0", "budget"),
    ("high_nibble_of_w2_first", f"{MOE}/bf16/distinct/0", "budget"),
    ("duplicates_once", f"{SHARD}/bf16/repeated/0", "budget"),
    ("weight_of_first_slot", f"{MOE}/bf16/distinct/0", "budget"),
    ("padding_is_a_pair", f"{SHARD},routing=sorted/bf16/repeated/0", "budget"),
    ("unwritten_without_local_expert", f"{SHARD}/bf16/remote_rows/0", "guard"),
]


@pytest.mark.parametrize(("control", "case", "kind"), EXPECTED)
def test_wrong_kernel_fails_with_its_kind_of_verdict(judge, control, case, kind):
    record = judge("wrong_moe.py", control, case)
    assert (record.verdict, record.kind) == ("failed", kind), record.findings


@pytest.mark.parametrize("format", ["mxfp8", "mxfp4"])
@pytest.mark.parametrize("seed", range(3))
def test_activations_quantised_before_any_rounding_are_right_too(judge, format, seed):
    record = judge("wrong_moe.py", "quantised_in_fp32", f"{MOE},activation={format}/bf16/distinct/{seed}")
    assert record.verdict == "passed", record.findings


@pytest.mark.parametrize("case", sorted({case for _, case, _ in EXPECTED}))
def test_the_right_kernel_behind_the_controls_passes(session, case):
    check = build(Selection(case=case, implementation="eager", target="cpu", law="none"))[0]
    assert session.run(check).verdict == "passed"
