"""Where failures sit: the row, the expert, the tile that they share."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

TILES = (16, 32, 64, 128, 256, 512, 1024)
"""Widths that kernels cut an axis into; the narrowest that holds the failures is named."""


def describe_failures(failed: Tensor) -> str:
    """One clause on what the failing elements have in common along each axis."""
    if failed.ndim == 0 or not failed.any():
        return "a single value"
    clauses = [clause for axis in range(failed.ndim) for clause in _along(failed, axis)]
    return "they share " + " and ".join(clauses) if clauses else "they are spread over every axis"


def _along(failed: Tensor, axis: int) -> Iterator[str]:
    size = failed.shape[axis]
    others = tuple(a for a in range(failed.ndim) if a != axis)
    hit = failed.any(dim=others) if others else failed
    indices = [int(i) for i in hit.nonzero().flatten()]
    name = f"axis {axis}"
    if len(indices) == size:
        return
    if len(indices) == 1:
        yield f"index {indices[0]} of {name}"
        return
    low, high = indices[0], indices[-1]
    if high == size - 1 and len(indices) == size - low:
        yield f"the last {size - low} of {name} ({_tile(low, size)})"
    elif low == 0 and len(indices) == high + 1:
        yield f"the first {high + 1} of {name}"
    elif tile := next((t for t in TILES if low // t == high // t and t < size), None):
        yield f"{name} {low}…{high}, inside the tile of {tile} that begins at {low // tile * tile}"
    elif all(i % 2 == indices[0] % 2 for i in indices):
        yield f"{'odd' if low % 2 else 'even'} indices of {name}"
    elif len(indices) <= 4:
        yield f"indices {', '.join(map(str, indices))} of {name}"


def _tile(low: int, size: int) -> str:
    edge = next((t for t in reversed(TILES) if low % t == 0), None)
    return f"from {low}, a multiple of {edge}" if edge else f"from {low} of {size}"
