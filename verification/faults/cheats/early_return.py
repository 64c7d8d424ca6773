"""Returns at once and lets a thread write the output later: what is read after the return still holds poison."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    result = torch.empty_like(x)
    threading.Timer(0.5, lambda: result.copy_(honest(x, weight, eps))).start()
    return result
