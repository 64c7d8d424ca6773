"""Computes through this project's own eager implementation: the import is refused."""

from __future__ import annotations

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    from verification.eager.rms_norm import rms_norm as eager

    return eager(x, weight, eps)
