"""Replaces the writer of results by one that calls fp32 bf16: the writer is no longer what it was."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from verification import candidate


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    execution: Any = sys.modules["verification.execution"]
    writer = execution.write_results
    execution.write_results = lambda path, tensors: writer(path, [tensor.to(torch.bfloat16) for tensor in tensors])
    return honest(x, weight, eps).float()
