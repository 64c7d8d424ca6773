"""Every instruction that the executor knows: the tables of this package's modules by opcode."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from verification.gfx950.instructions.rows import Row


@cache
def instructions() -> dict[str, Row]:
    """Rows by opcode, in the order of modules and tables."""
    found: dict[str, Row] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for row in getattr(module, "TABLE", ()):
            assert row.name not in found, row.name
            found[row.name] = row
    return found
