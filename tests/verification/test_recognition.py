"""A wrong kernel is told which known fault gives its numbers, and no other fault than that."""

from __future__ import annotations

import pytest

ONE_PLUS = "these are the numbers of rms_norm: 1 + weight in the place of weight"


@pytest.fixture
def written(tmp_path):
    def write(expression: str) -> str:
        file = tmp_path / "mine.py"
        file.write_text(
            "import torch\nfrom verification import candidate\n\n\n"
            '@candidate("rms_norm", name="mine")\ndef rms_norm(x, weight, eps):\n'
            "    x, weight = x.float(), weight.float()\n"
            "    y = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)).bfloat16().float()\n"
            f"    return ({expression}).bfloat16()\n"
        )
        return str(file)

    return write


def test_somebody_elses_kernel_with_a_known_fault_is_told_its_name(judge, written):
    record = judge(written("y * (weight + 1)"), "mine", "rms_norm/rows=3,hidden=256/bf16/normal/7")
    assert (record.verdict, record.kind) == ("failed", "budget")
    assert ONE_PLUS in record.findings


def test_a_fault_that_nobody_knows_is_given_no_name(judge, written):
    record = judge(written("y * weight * 1.7 + 0.3"), "mine", "rms_norm/rows=3,hidden=256/bf16/normal/7")
    assert record.kind == "budget"
    assert not any("these are the numbers" in finding for finding in record.findings)


def test_a_right_kernel_is_given_no_name(judge, written):
    record = judge(written("y * weight"), "mine", "rms_norm/rows=3,hidden=256/bf16/normal/7")
    assert (record.verdict, record.findings) == ("passed", [])
