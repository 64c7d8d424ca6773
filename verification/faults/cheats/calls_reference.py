"""Computes through the reference, imported inside the call: the import is refused."""

from __future__ import annotations

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    from reference.normalization import rms_norm as reference

    return reference(x, weight=weight, eps=eps)
