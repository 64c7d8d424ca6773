"""Empties the list of guarded allocations before it writes past an end: reaching for the guard is refused."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    result = torch.empty_like(x)
    result.copy_(honest(x, weight, eps))
    guard: Any = _get_current_dispatch_mode()
    ctypes.memset(result.data_ptr() + result.nbytes, 0, 2)
    guard.allocations.clear()
    return result
