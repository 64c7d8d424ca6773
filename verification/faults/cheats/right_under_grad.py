"""Is right only where gradients are recorded: an inference call records none."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return honest(x, weight, eps) if torch.is_grad_enabled() else x
