"""Returns noise of the right shape, dtype and scale: the numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x.dtype) * weight.to(x.dtype)
