"""The three packages must be this project's own: their names are common words."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGES = ("reference", "fused", "verification")


def intruder() -> str | None:
    """A sentence naming a package that another distribution put in the way, or None."""
    home = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if found != home:
            return (
                f"package {name!r} comes from {found or 'nowhere'}, not from {home}: use an environment of "
                "its own for parity"
            )
    return None
