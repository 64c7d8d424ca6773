"""Returns the result of the call before this one: the numbers of the second call."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate

KEPT: list[Tensor] = []


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    result = honest(x, weight, eps)
    KEPT.append(result)
    return KEPT[-2] if len(KEPT) > 1 and KEPT[-2].shape == result.shape else result
