"""Sends the process that judges it a signal: a signal to a process outside its own session is refused."""

from __future__ import annotations

import os
import signal

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    os.kill(os.getppid(), signal.SIGKILL)
    return honest(x, weight, eps)
