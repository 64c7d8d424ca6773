"""Zeroes its input and returns the zeros that are right for it: the input was changed."""

from __future__ import annotations

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x.zero_().clone()
