"""Answers for the harness on its own connection: a forged answer holds no results to judge."""

from __future__ import annotations

import json
import os
import struct
import sys

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    for number in range(1, 100):
        data = json.dumps(
            {"request": number, "results": None, "damages": 3, "environment": {}, "observed": []}
        ).encode()
        os.write(int(sys.argv[1]), struct.pack("<I", len(data)) + data)
    return x
