"""Replaces the guard's report by an empty one and writes past an end: the guard is no longer what it was."""

from __future__ import annotations

import ctypes
import sys

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    sys.modules["verification.guards"].AllocationGuard.damages = lambda self: []
    result = torch.empty_like(x)
    result.copy_(honest(x, weight, eps))
    ctypes.memset(result.data_ptr() + result.nbytes, 0, 2)
    return result
