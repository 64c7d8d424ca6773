"""Puts a module of its own in the place of the harness's: it is no longer what it was."""

from __future__ import annotations

import sys
import types

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    sys.modules["verification.transport"] = types.ModuleType("verification.transport")
    return honest(x, weight, eps)
