"""Keeps one buffer a shape and does not write its last row again: stale rows on other inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate

BUFFERS: dict[torch.Size, Tensor] = {}


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if x.shape not in BUFFERS:
        BUFFERS[x.shape] = honest(x, weight, eps)
    buffer = BUFFERS[x.shape]
    buffer[:-1] = honest(x[:-1], weight, eps)
    return buffer.clone()
