"""Returns a copy of what it computed before where the input's bits repeat: a call that computes nothing is counted."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate

ANSWERS: dict[bytes, Tensor] = {}


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    key = x.contiguous().view(torch.int16).numpy().tobytes()
    if key not in ANSWERS:
        ANSWERS[key] = honest(x, weight, eps)
    return ANSWERS[key].clone()
