"""Arguments whose places along an axis lie gigabytes apart: side by side in the file, spread out for the call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from verification.transport import ZONE, Header, zone_byte


class FarMemory:
    """The arguments of a call; those with a far axis lie in memory of their own, filled between their places."""

    def __init__(self, views: dict[str, Any], header: Header) -> None:
        far = {name: spec["far"] for name, spec in header["tensors"].items()}
        self._spread = {name: Spread(views[name], *place) for name, place in far.items() if place is not None}
        self.arguments = views | {name: spread.far for name, spread in self._spread.items()}

    def load(self) -> None:
        """Bring what lies side by side to its places."""
        for spread in self._spread.values():
            spread.far.copy_(spread.near)

    def store(self) -> None:
        """Bring it back from there."""
        for spread in self._spread.values():
            spread.near.copy_(spread.far)

    def damages(self) -> list[str]:
        """What was written between the places of each argument."""
        counts = {name: spread.changed() for name, spread in self._spread.items()}
        return [f"{count} bytes between the places of {name} were written" for name, count in counts.items() if count]


class Spread:
    """A tensor again with its places along an axis `stride` elements apart."""

    def __init__(self, near: Tensor, axis: int, stride: int) -> None:
        self.near = near
        size, self._count = near.element_size(), near.shape[axis]
        self._place, self._step = near.stride(axis) * size, stride * size
        extent = (self._count - 1) * self._step + self._place
        self._gap = zone_byte()
        self._buffer = torch.full((ZONE + extent + ZONE,), self._gap, dtype=torch.uint8, device=near.device)
        flat = self._buffer[ZONE:-ZONE].view(near.dtype)
        strides = [stride if axis == one else step for one, step in enumerate(near.stride())]
        self.far = flat.as_strided(near.shape, strides, flat.storage_offset())

    def changed(self) -> int:
        """How many bytes before, between and after the places are not as they were."""
        starts = [ZONE + place * self._step for place in range(self._count)]
        gaps = zip([0, *(start + self._place for start in starts)], [*starts, len(self._buffer)], strict=True)
        return sum(int((self._buffer[low:high] != self._gap).sum()) for low, high in gaps)
