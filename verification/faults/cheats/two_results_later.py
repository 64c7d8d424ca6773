"""Returns another number of tensors in every call but the first: the interface is judged after each call."""

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
    result = honest(x, weight, eps)
    return result if len(CALLS) == 1 else (result, result)  # type: ignore[return-value]
