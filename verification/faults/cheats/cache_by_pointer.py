"""Returns its earlier result where the input's address repeats: the call on other inputs in the same memory."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate

ANSWERS: dict[int, Tensor] = {}


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.data_ptr() not in ANSWERS:
        ANSWERS[x.data_ptr()] = honest(x, weight, eps)
    return ANSWERS[x.data_ptr()].clone()
