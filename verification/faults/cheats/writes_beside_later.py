"""Writes past the end of its output in every call but the first: memory is judged after each call."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from verification import candidate

CALLS: list[int] = []


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    result = torch.empty_like(x)
    result.copy_(honest(x, weight, eps))
    if CALLS:
        ctypes.memset(result.data_ptr() + result.nbytes, 0, 2)
    CALLS.append(1)
    return result
