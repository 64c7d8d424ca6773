"""Executes the text of the reference's file: opening it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

import verification
from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    text = (Path(verification.__file__).parent.parent / "reference" / "normalization.py").read_text()
    copied: dict[str, Any] = {"__name__": "copied"}
    exec(text, copied)
    result: Tensor = copied["rms_norm"](x, weight=weight, eps=eps)
    return result
