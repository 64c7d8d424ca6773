"""Packed sequences and the slots of the pools that they read and write."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from reference.checks import require, require_shape

INDEX_DTYPES = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Sequence:
    """Rows start…start + length of one sequence that is no padding, and its slots."""

    index: int
    start: int
    length: int
    read: int
    write: int | None
    """None where the write slot is outside the pool: what it would hold is dropped."""
    continues: bool = True
    """Whether it goes on from the slot that it reads; else it begins from zeros."""

    @property
    def rows(self) -> slice:
        """Its rows among the packed ones."""
        return slice(self.start, self.start + self.length)

    def cut(self, length: int) -> Sequence:
        """The same with its first rows alone, as many as there are of them."""
        return replace(self, length=min(max(length, 0), self.length))


def read_sequences(
    operator: str,
    rows: int,
    slots: int,
    cu_seqlens: Tensor,
    read_slots: Tensor,
    write_slots: Tensor | None,
    padding_slot: int,
    has_initial_state: Tensor | None = None,
) -> list[Sequence]:
    """The sequences that are no padding, in order; padding reads no slot of the pool, or has no rows.

    Raises ValueError for boundaries that do not fit the rows, and where a slot that one sequence
    writes is read or written by another.
    """
    require_index(operator, "read_slots", read_slots)
    count = len(read_slots)
    require_index(operator, "cu_seqlens", cu_seqlens)
    require_shape(operator, "cu_seqlens", cu_seqlens, (count + 1,), "[B + 1]")
    bounds = cu_seqlens.tolist()
    ordered = all(a <= b for a, b in itertools.pairwise(bounds))
    require(bounds[0] == 0 and ordered, operator, f"cu_seqlens is {bounds}; expected 0 first, then no decrease")
    require(bounds[-1] <= rows, operator, f"cu_seqlens ends at {bounds[-1]}; expected at most the {rows} rows given")
    if write_slots is not None:
        require_index(operator, "write_slots", write_slots)
        require_shape(operator, "write_slots", write_slots, (count,), "[B]")
    if has_initial_state is not None:
        require_shape(operator, "has_initial_state", has_initial_state, (count,), "[B]")
    found = []
    for index, read in enumerate(read_slots.tolist()):
        write = -1 if write_slots is None else int(write_slots[index])
        if bounds[index + 1] > bounds[index] and 0 <= read < slots and read != padding_slot:
            found.append(Sequence(
                index, bounds[index], bounds[index + 1] - bounds[index], read,
                write if 0 <= write < slots and write != padding_slot else None,
                has_initial_state is None or bool(has_initial_state[index]),
            ))  # fmt: skip
    _require_apart(operator, found)
    return found


def require_index(operator: str, name: str, x: Tensor) -> None:
    """Raise ValueError unless x is a vector of int32 or int64."""
    fits = x.ndim == 1 and x.dtype in INDEX_DTYPES
    require(fits, operator, f"{name} is {list(x.shape)} {x.dtype}; expected one axis of int32 or int64")


def _require_apart(operator: str, sequences: list[Sequence]) -> None:
    writers = {s.write: s.index for s in reversed(sequences) if s.write is not None}
    for sequence in sequences:
        for verb, slot in (("written", sequence.write), ("read", sequence.read)):
            writer = sequence.index if slot is None else writers.get(slot, sequence.index)
            require(
                writer == sequence.index, operator,
                f"slot {slot} is written by sequence {writer} and {verb} by sequence {sequence.index}; "
                "expected no other sequence at a slot that one writes",
            )  # fmt: skip
