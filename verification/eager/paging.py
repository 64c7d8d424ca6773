"""Packed rows and paged states without a host round trip: who owns a row, and writes that padding does not make."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Packing(NamedTuple):
    """Which rows are whose: per row its sequence and its place in it, per sequence its bounds and slots."""

    owner: Tensor
    """Sequence of each row [T], clamped: `live` says where it is meant."""
    place: Tensor
    live: Tensor
    """Rows [T] of sequences that are no padding."""
    starts: Tensor
    lengths: Tensor
    """Rows a sequence, 0 where it is padding."""
    read: Tensor
    """Slots [B], clamped into the pool."""


def packing(rows: int, cu_seqlens: Tensor, read_slots: Tensor, slots: int, padding_slot: int) -> Packing:
    """The packing of this many rows; a sequence whose read slot is no slot of the pool is padding."""
    bounds, read = cu_seqlens.long(), read_slots.long()
    valid = (read >= 0) & (read < slots) & (read != padding_slot)
    starts, lengths = bounds[:-1], torch.where(valid, bounds[1:] - bounds[:-1], 0)
    row = torch.arange(rows, device=bounds.device)
    owner = torch.searchsorted(bounds[1:].contiguous(), row, right=True)
    inside = owner < len(read)
    owner = owner.clamp(max=len(read) - 1)
    place = row - starts[owner]
    return Packing(owner, place, inside & valid[owner], starts, lengths, read.clamp(0, slots - 1))


def store(pool: Tensor, slots: Tensor, values: Tensor, written: Tensor, padding_slot: int) -> None:
    """pool[slots] = values where `written` and the slot is one of the pool; nothing else is touched.

    Sequences that write nothing repeat what one of the others writes, so that no shape depends on data.

    Shapes: pool [slots, …], slots [B], values [B, …], written [B] bool.
    """
    slots = slots.long()
    written = written & (slots >= 0) & (slots < len(pool)) & (slots != padding_slot)
    chosen = torch.where(written, torch.arange(len(slots), device=slots.device), written.int().argmax())
    target = slots[chosen].clamp(0, len(pool) - 1)
    pool[target] = torch.where(written.any(), values[chosen].to(pool.dtype), pool[target])
