"""Returns its earlier result where the input's shape repeats: the call on other inputs of the same shape."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate

ANSWERS: dict[torch.Size, Tensor] = {}


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape not in ANSWERS:
        ANSWERS[x.shape] = honest(x, weight, eps)
    return ANSWERS[x.shape].clone()
