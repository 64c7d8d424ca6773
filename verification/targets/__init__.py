"""Where a kernel runs: a real GPU, the gfx950 executor, Triton's interpreter, plain torch."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True)
class Target:
    """A place to run implementations: a device, and the environment of the child that uses it."""

    name: str
    device: str
    describes: str
    """What a record may claim about a run here."""
    missing: Callable[[], str | None]
    """Why it cannot be used on this machine, or None."""
    runs: tuple[str, ...]
    """Sources of implementations that make sense here: eager, fused, candidate."""
    environment: dict[str, str] = field(default_factory=dict)
    replays_graphs: bool = False
    seconds: float = 60.0
    """Time limit of one call."""
    memory_bytes: int = 8 << 30
    rank: int = 0
    """Which of several usable targets is the best: the highest."""


@cache
def targets() -> dict[str, Target]:
    """Every target by name, the best first: the modules of this package that define TARGETS."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    found = [target for module in modules for target in getattr(module, "TARGETS", ())]
    return {target.name: target for target in sorted(found, key=lambda t: -t.rank)}
