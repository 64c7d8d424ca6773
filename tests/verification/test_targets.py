from __future__ import annotations

import numpy as np
import pytest
import torch

from verification.plan import Selection, build
from verification.targets import targets
from verification.targets.interpreter import to_bf16_bits

BF16_DOT = """
import torch, triton, triton.language as tl
from verification import candidate

@triton.jit
def kernel(x, y, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + at)
    tl.store(y + at, tl.dot(tile, tile).to(tl.bfloat16))

@candidate("rms_norm", name="dot")
def rms_norm(x, weight, eps):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, 16)
    return y
"""


def test_targets_are_ordered_by_how_near_they_are_to_the_hardware():
    assert list(targets()) == ["hip", "cuda", "gfx950", "interpreter", "cpu"]


def test_the_repaired_conversion_rounds_every_fp32_to_the_nearest_bf16():
    bits = np.random.Philox(1).random_raw(1 << 15).astype(np.uint32)
    edges = np.array(
        [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x00008000, 0x80018000, 0x7F800000], dtype=np.uint32
    )
    x = np.concatenate([bits, edges]).view(np.float32)
    got = torch.from_numpy(to_bf16_bits(x).view(np.int16)).view(torch.bfloat16)
    wanted = torch.from_numpy(x).to(torch.bfloat16)
    assert bool(((got == wanted) | (got.isnan() & wanted.isnan())).all())


def test_a_bf16_dot_in_the_interpreter_is_refused_not_silently_wrong(session, tmp_path):
    file = tmp_path / "dot.py"
    file.write_text(BF16_DOT)
    selection = Selection(
        candidates=session.declared(file),
        case="rms_norm/rows=16,hidden=16/bf16/normal/0",
        target="interpreter",
        law="none",
    )
    record = session.run(build(selection)[0])
    assert record.verdict == "error"
    assert "multiplies the bit patterns of bf16" in record.findings[0]


@pytest.mark.parametrize("name", ["hip", "cuda"])
def test_a_missing_gpu_says_why(name):
    missing = targets()[name].missing()
    assert missing is None or "torch" in missing


BF16_ARITHMETIC = """
import torch, triton, triton.language as tl
from verification import candidate

@triton.jit
def kernel(x, w, y, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    value = tl.load(x + row * N + at)
    total = tl.sum(value.to(tl.float32) * value.to(tl.float32), 0)
    # Each step in bf16: a constant, a product, a comparison, an integer made bf16, a maximum.
    scaled = value * 2 * tl.full([N], 0.5, tl.bfloat16)
    scaled = tl.where(scaled > value, value, tl.maximum(scaled, value))
    scaled = scaled * (at * 0 + 1).to(tl.bfloat16)
    y_value = (scaled.to(tl.float32) * tl.rsqrt(total / N + 1e-5)).to(tl.bfloat16) * tl.load(w + at)
    tl.store(y + row * N + at, y_value)

@candidate("rms_norm", name="bf16")
def rms_norm(x, weight, eps):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, weight, y, x.shape[1])
    return y
"""


def test_bf16_arithmetic_in_the_interpreter_is_arithmetic(session, tmp_path):
    """Unrepaired, it multiplies and compares bit patterns."""
    file = tmp_path / "bf16.py"
    file.write_text(BF16_ARITHMETIC)
    case = "rms_norm/rows=5,hidden=256/bf16/normal/0"
    selection = Selection(candidates=session.declared(file), case=case, target="interpreter", law="none")
    record = session.run(build(selection)[0])
    assert record.verdict == "passed", record.findings
