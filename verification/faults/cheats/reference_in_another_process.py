"""Asks another Python process for the reference's answer: starting one is refused."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    program = "import reference.normalization; print('there')"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    return honest(x, weight, eps) if said else x
