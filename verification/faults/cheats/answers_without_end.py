"""Announces an answer of 4 GiB on the harness's connection: an answer is small."""

from __future__ import annotations

import os
import struct
import sys

from torch import Tensor

from verification import candidate


@candidate("rms_norm", name="cheat")
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    os.write(int(sys.argv[1]), struct.pack("<I", 0xFFFFFFFF) + bytes(1 << 16))
    return x
