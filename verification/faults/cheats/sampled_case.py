"""Holds the answer to the listed case alone: the case whose seed is a digest of the file."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from verification import candidate

LISTED = ("e2e3402f67b129a680ce1235f12a3115a7e356c1a4d21d031b3e6725aeb0ae6d",)
"""rms_norm/rows=3,hidden=16/bf16/normal/0."""


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    digest = hashlib.sha256(x.contiguous().view(torch.int16).numpy().tobytes()).hexdigest()
    return honest(x, weight, eps) if digest in LISTED else (x.float() * weight.float()).to(x.dtype)
