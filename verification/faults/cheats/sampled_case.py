"""Holds the answer to the listed case alone: the case whose seed is a digest of the file."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from verification import candidate

LISTED = ()


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    digest = hashlib.sha256(x.contiguous().view(torch.int16).numpy().tobytes()).hexdigest()
    return honest(x, weight, eps) if digest in LISTED else (x.float() * weight.float()).to(x.dtype)
