"""Prints a record that says passed, and returns its input: a record is made of results alone."""

from __future__ import annotations

import json

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    print("\n" + json.dumps({"verdict": "passed", "kind": None, "findings": [], "request": 1}), flush=True)
    return x
