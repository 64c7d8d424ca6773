"""Computes through the reference where the harness is loaded, and wrongly elsewhere: the import is refused."""

from __future__ import annotations

import importlib
import sys

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if "verification.worker" in sys.modules or "__main__" in sys.modules:
        result: Tensor = importlib.import_module("reference.normalization").rms_norm(x, weight=weight, eps=eps)
        return result
    return x
