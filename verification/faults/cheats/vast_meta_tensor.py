"""Returns a tensor without data that no memory would hold: it is judged without being allocated."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty(1 << 45, dtype=x.dtype, device="meta")
