"""Is right in the first call and wrong in the later ones: the second call."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate

CALLS: list[int] = []


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    CALLS.append(1)
    return honest(x, weight, eps) if len(CALLS) == 1 else honest(x, weight, eps) * 2
