"""Guarded memory: every allocation of an implementation is poisoned and red-zoned.

Poison is NaN for floats (with a payload that tells it from a computed NaN), the least value for
signed integers, 255 for bytes; payload and zones are carved from one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from verification.transport import ZONE, zone_byte

POISON_BITS: dict[torch.dtype, tuple[torch.dtype, int]] = {
    torch.bfloat16: (torch.int16, 0x7FE5),
    torch.float16: (torch.int16, 0x7EE5),
    torch.float32: (torch.int32, 0x7FE5A5E5),
    torch.float64: (torch.int64, 0x7FF5A5A5A5A5A5E5),
}


def fill_poison(x: Tensor) -> Tensor:
    """Fill x (dense) with its dtype's poison."""
    if x.dtype in POISON_BITS:
        bits, pattern = POISON_BITS[x.dtype]
        x.view(bits).fill_(pattern)
    elif x.dtype == torch.bool:
        x.fill_(True)
    elif x.is_floating_point():
        x.view(torch.uint8).fill_(0x7F)
    elif x.dtype.is_signed:
        x.fill_(torch.iinfo(x.dtype).min)
    else:
        x.fill_(255)
    return x


def poisoned(x: Tensor) -> Tensor:
    """Mask of the elements that still hold their dtype's poison, by bits."""
    if x.dtype in POISON_BITS:
        bits, pattern = POISON_BITS[x.dtype]
        return x.contiguous().view(bits) == pattern
    if x.dtype.is_signed and not x.is_floating_point():
        return x == torch.iinfo(x.dtype).min
    return torch.zeros_like(x, dtype=torch.bool)


@dataclass
class Allocation:
    """A buffer that holds a payload between two zones."""

    buffer: Tensor
    nbytes: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    zone: int
    """The byte that its zones hold."""

    def damage(self) -> str | None:
        """What was written outside the payload, or None."""
        before = int((self.buffer[:ZONE] != self.zone).sum())
        after = int((self.buffer[ZONE + self.nbytes :] != self.zone).sum())
        if not before and not after:
            return None
        return (
            f"{before} bytes before and {after} bytes after an allocation {list(self.shape)} {self.dtype} were written"
        )


aten = torch.ops.aten
EMPTY = {
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten.empty_permuted.default,
}
FILLED = {aten.zeros.default, aten.ones.default, aten.full.default, aten.zeros_like.default, aten.ones_like.default,
          aten.full_like.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default}  # fmt: skip


IDLE = {aten.clone, aten.copy_, aten._to_copy, aten.detach, aten.equal, aten.eq, aten.all, aten._local_scalar_dense}
"""What a call may do that only finds and hands out an earlier result."""


class AllocationGuard(TorchDispatchMode):
    """While active, serves `empty`- and `full`-like allocations from guarded, poisoned buffers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocations: list[Allocation] = []
        self.operations = 0
        """Operations that compute something: neither views nor allocations, copies, comparisons of all elements."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Serve allocations; everything else runs as it is."""
        kwargs = kwargs or {}
        if func in EMPTY:
            return self._serve(func(*args, **kwargs))
        if func in FILLED:
            plain = func(*args, **kwargs)
            return self._serve(plain).copy_(plain)
        if not func.is_view and func.overloadpacket not in IDLE:
            self.operations += 1
        return func(*args, **kwargs)

    def _serve(self, like: Tensor) -> Tensor:
        # An allocation for the runtime's own use (pinned, quantised, meta) is left alone.
        if like.numel() == 0 or like.device.type == "meta" or like.layout != torch.strided or like.is_complex():
            return like
        extent = 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
        nbytes = extent * like.element_size()
        zone = zone_byte()
        buffer = torch.full((ZONE + nbytes + ZONE + (-nbytes) % 16,), zone, dtype=torch.uint8, device=like.device)
        flat = fill_poison(buffer[ZONE : ZONE + nbytes].view(like.dtype))
        self.allocations.append(Allocation(buffer, nbytes, tuple(like.shape), like.dtype, zone))
        return flat.as_strided(like.shape, like.stride(), flat.storage_offset())

    def damages(self) -> list[str]:
        """What was written outside each allocation so far."""
        return [text for allocation in self.allocations if (text := allocation.damage())]
