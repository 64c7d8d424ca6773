"""An autotuned rms_norm: the configuration that costs most, which the tuner never chooses, drops the last element."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification import candidate

CONFIGURATIONS = [
    triton.Config({"BLOCK": 1024, "DROPPED": 0}, num_warps=4),
    triton.Config({"BLOCK": 2048, "DROPPED": 0}, num_warps=8),
    triton.Config({"BLOCK": 8192, "DROPPED": 1}, num_warps=4),
]


@triton.autotune(CONFIGURATIONS, key=["width"])
@triton.jit
def normalize(x, weight, y, width, eps, BLOCK: tl.constexpr, DROPPED: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=column < width - DROPPED, other=0.0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    normalized = (value * inverse).to(tl.bfloat16).to(tl.float32)
    gain = tl.load(weight + column, mask=inside)
    tl.store(y + row * width + column, (normalized * gain).to(tl.bfloat16), mask=inside)


@candidate("rms_norm", name="tuned")
def tuned(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = torch.empty_like(x)
    normalize[(len(x),)](x, weight, y, x.shape[1], eps)
    return y
