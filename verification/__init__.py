"""Is it the same? The differential harness: cases, budgets, comparison, records, reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fused.boundary import candidate

__all__ = ["candidate"]


def __getattr__(name: str) -> Any:
    # Not imported at once: start-up first makes sure that `fused` is this project's.
    if name == "candidate":
        from fused.boundary import candidate

        return candidate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
