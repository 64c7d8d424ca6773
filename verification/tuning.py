"""Triton autotuners: each of their configurations by name, chosen alone, or all tried from a cold cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def configurations(module: ModuleType) -> tuple[str, ...]:
    """`kernel(BLOCK=64,num_warps=4,num_stages=2)` for each configuration of each autotuned kernel of the module."""
    return tuple(f"{name}({_spelt(config)})" for name, tuner in _autotuners(module).items() for config in tuner.configs)


@contextmanager
def chosen(module: ModuleType, configuration: str | None) -> Iterator[None]:
    """Inside, the named configuration is the kernel's only one; every autotuner starts with a cold cache."""
    tuners = _autotuners(module)
    for tuner in tuners.values():
        tuner.cache.clear()
    name = (configuration or "").partition("(")[0]
    if name not in tuners:
        yield
        return
    tuner = tuners[name]
    every = tuner.configs
    tuner.configs = [config for config in every if f"{name}({_spelt(config)})" == configuration]
    try:
        yield
    finally:
        tuner.configs = every


def _spelt(config: Any) -> str:
    words = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ",".join(f"{name}={value}" for name, value in words.items())


def _autotuners(module: ModuleType) -> dict[str, Any]:
    """The module's own autotuners by the name that they go by there, within heuristics too."""
    if "triton" not in sys.modules:  # a module without Triton has no kernel to tune
        return {}
    from triton.runtime.autotuner import Autotuner

    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        while value is not None and not isinstance(value, Autotuner):
            value = getattr(value, "fn", None) if type(value).__module__.startswith("triton") else None
        if value is not None and value not in found.values():
            found[name] = value
    return found
