"""Returns a subclass of Tensor that says bf16 of fp32 data: a result is a plain tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate


class Liar(Tensor):
    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return torch.bfloat16


def honest(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normalized = (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (normalized.float() * weight.float()).to(x.dtype)


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return honest(x, weight, eps).float().as_subclass(Liar)
