"""Writes past its input the byte that red zones hold: each run draws another."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    ctypes.memset(x.data_ptr() + x.nbytes, 0xA5, 64)
    return honest(x, weight, eps)
