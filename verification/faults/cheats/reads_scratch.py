"""Looks for results in the harness's temporary folder: opening a file there is refused."""

from __future__ import annotations

import glob

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    for path in glob.glob("/dev/shm/parity-*/*") + glob.glob("/tmp/parity-*/*"):
        with open(path, "rb") as file:
            file.read(1)
    return honest(x, weight, eps)
