"""What a kernel cannot do it refuses by name, before anything is launched."""

from __future__ import annotations

import pytest
import torch

from verification.operator import find_operator, implementations, parse_case

BF16 = torch.bfloat16


@pytest.mark.parametrize(("operator", "case", "change", "reason"), [
    ("rms_norm", "rms_norm/hidden=64/bf16/normal/0", {"x": torch.ones(2, 64)}, "x is torch.float32"),
    ("rms_norm", "rms_norm/hidden=64/bf16/normal/0", {"x": torch.ones(1, 20000, dtype=BF16)}, "H is 20000"),
    ("attention_residual", "attention_residual/hidden=64/bf16/normal/0", {"block_write_index": 8}, "has room for 8"),
    ("attention_residual", "attention_residual/hidden=64/bf16/normal/0", {"num_blocks": 9}, "has room for 8"),
    ("attention_residual", "attention_residual/hidden=64,capacity=12,blocks=12/bf16/normal/0", {}, "num_blocks is 12"),
    ("attention_residual", "attention_residual/hidden=64/bf16/normal/0",
     {"prefix": torch.ones(4, 128, dtype=BF16)[:, ::2]}, "prefix has stride 2 along H"),
    ("route", "route//fp32/normal/0", {"logits": torch.ones(1, 5000)}, "E is 5000"),
    ("route", "route//fp32/normal/0", {"num_groups": 5}, "do not divide into 5 groups"),
    ("route", "route//fp32/normal/0", {"score_function": "tanh"}, "score_function is 'tanh'"),
    ("moe_sorting", "moe_sorting//fp32/distinct/0", {"num_experts": 5000}, "E is 5000"),
    ("moe_sorting", "moe_sorting//fp32/distinct/0",
     {"output_buffer": torch.ones(8, 4, dtype=BF16).t()}, "output_buffer must be contiguous"),
    ("route_sort", "route_sort//fp32/normal/0",
     {"output_buffer": torch.ones(8, 4, dtype=BF16).t()}, "output_buffer must be contiguous"),
])  # fmt: skip
def test_kernel_says_why_it_refuses(operator, case, change, reason):
    arguments = find_operator(operator).make(parse_case(case))
    supports = implementations()[operator, "triton"].supports
    assert reason in supports(**arguments | change)


@pytest.mark.parametrize("operator", ["rms_norm", "attention_residual", "route", "moe_sorting", "route_sort"])
def test_no_kernel_refuses_a_case_of_its_contract(operator):
    found = find_operator(operator)
    for _, case in found.cases("full"):
        if dict(case.parameters).get("rows", 4) <= 17:
            assert implementations()[operator, "triton"].supports(**found.make(case)) is None, case.id
