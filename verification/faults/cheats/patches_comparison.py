"""Replaces the comparison by one that finds nothing: its own process has none to replace."""

from __future__ import annotations

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    from verification import comparison

    comparison.compare = lambda *_: comparison.Comparison()
    return x
