"""Tensors as byte ranges, and what to call an address in a message."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reach:
    """The bytes that a view can reach, from its first element to its last."""

    name: str
    start: int
    end: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    item: int

    def index(self, address: int) -> str:
        """The element nearest to an address, as `[i, j]`, and what is left of it."""
        offset = (address - self.start) // self.item
        order = sorted(range(len(self.shape)), key=lambda d: -self.stride[d])
        found = dict.fromkeys(range(len(self.shape)), 0)
        for dimension in order:
            if self.stride[dimension] > 0:
                last = dimension == order[-1]
                found[dimension] = offset // self.stride[dimension]
                if not last:
                    offset -= found[dimension] * self.stride[dimension]
        return str([found[d] for d in range(len(self.shape))])


def reach_of(name: str, tensor: Tensor) -> Reach | None:
    """The reach of a dense tensor; None where it has no bytes."""
    if tensor.numel() == 0 or tensor.layout != torch.strided or tensor.is_meta:
        return None
    item = tensor.element_size()
    extent = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return Reach(name, start, start + (extent + 1) * item, tuple(tensor.shape), tuple(tensor.stride()), item)


def merged(reaches: Iterable[Reach]) -> list[tuple[int, int]]:
    """Sorted, disjoint byte ranges that cover the reaches."""
    ranges: list[list[int]] = []
    for start, end in sorted((reach.start, reach.end) for reach in reaches):
        if ranges and start <= ranges[-1][1]:
            ranges[-1][1] = max(ranges[-1][1], end)
        else:
            ranges.append([start, end])
    return [(start, end) for start, end in ranges]


def live_tensor_at(address: int, nbytes: int) -> Reach | None:
    """A live tensor of this process that holds these bytes: what a table of pointers may lead to."""
    kinds = _with_subclasses(Tensor)
    for generation in range(3):  # the youngest objects first: most such tensors were made just before the launch
        for thing in gc.get_objects(generation):
            if type(thing) in kinds and thing.device.type == "cpu":
                reach = reach_of("a tensor reached through a pointer", thing)
                if reach and reach.start <= address and address + nbytes <= reach.end:
                    return reach
    return None


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, kind.__subclasses__()))
