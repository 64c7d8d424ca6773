"""The gfx950 executor: kernels compiled for gfx950 by Triton's AMD backend, instructions executed on the CPU."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from verification.targets import Target
from verification.targets.cpu import HIDDEN_GPUS

MODELS = "PARITY_GFX950_MODELS"
"""Environment variable that chooses among the models of the hardware, as `transcendental=one_ulp,matrix=chained`."""
LISTINGS = "PARITY_GFX950_LISTINGS"
"""Environment variable that names a folder for the listing and the resources of each launch."""
FUSED = "PARITY_FUSED"
"""Environment variable that names a folder whose `fused` package is run in place of this checkout's."""

_open = contextlib.ExitStack()
_sessions: list[Any] = []


def activate() -> None:
    """Make the executor the device of every Triton launch of this process, for good."""
    if folder := os.environ.get(FUSED):
        sys.path.insert(0, folder)
    from verification.gfx950 import executor
    from verification.gfx950.models import models_from

    _sessions.append(_open.enter_context(executor(models_from(os.environ.get(MODELS, "")))))


def observe() -> dict[str, Any]:
    """Wave-instructions of the launches since this was last asked; their listings where a folder is named."""
    from verification.gfx950.listing import write_listings

    (session,) = _sessions
    told = {"instructions": session.executed}
    if folder := os.environ.get(LISTINGS):
        write_listings(session.launches, Path(folder))
    session.launches.clear()
    return told


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
        "PARITY_CHILD_OBSERVER": f"{__name__}:observe",
        "PARITY_ARCHITECTURE": "gfx950 (executed on a CPU)",
    },
    seconds=300.0,
    rank=3,
)  # fmt: skip

TARGETS = (GFX950,)
