"""The gfx950 executor: kernels compiled for gfx950 by Triton's AMD backend, instructions executed on the CPU."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from verification.targets import Target
from verification.targets.cpu import HIDDEN_GPUS

_active: list[Any] = []


def activate() -> None:
    """Make the executor the device of every Triton launch of this process, for good.

    PARITY_GFX950_MODELS chooses among the models of the hardware, as `transcendental=one_ulp,matrix=chained`.
    """
    from verification.gfx950 import executor
    from verification.gfx950.models import models_from

    context = executor(models_from(os.environ.get("PARITY_GFX950_MODELS", "")))
    context.__enter__()
    _active.append(context)


def _missing() -> str | None:
    if not importlib.util.find_spec("triton"):
        return "triton is not installed"
    from verification.gfx950.build import compiler

    return None if compiler() else "no C compiler: install gcc or clang, or `pip install ziglang`"


GFX950 = Target(
    name="gfx950",
    device="cpu",
    describes="gfx950 executor: compiled instructions executed on a CPU, not hardware",
    missing=_missing,
    runs=("fused", "candidate"),
    environment={
        **HIDDEN_GPUS, "TRITON_INTERPRET": "0", "PARITY_CHILD_SETUP": f"{__name__}:activate",
        "PARITY_ARCHITECTURE": "gfx950 (executed on a CPU)",
    },
    seconds=300.0,
    rank=3,
)  # fmt: skip

TARGETS = (GFX950,)
