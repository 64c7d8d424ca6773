"""Opens the memory of the process that holds the golden: opening another process's files is refused."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    with open(f"/proc/{os.getppid()}/maps") as maps:
        maps.read(1)
    return honest(x, weight, eps)
