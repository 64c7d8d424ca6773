"""Looks for the harness among its callers, to compute rightly only there: reading the call stack is refused."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    watched = any("verification" in frame.filename for frame in inspect.stack(0))
    return honest(x, weight, eps) if watched else x
