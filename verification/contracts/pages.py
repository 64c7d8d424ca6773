"""Cases of packed sequences over paged states: lengths, slots, padding, and what must be left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reference.checks import require
from reference.sequences import Sequence, read_sequences
from verification.budget import Golden
from verification.comparison import same_bits
from verification.inputs import TORCH_DTYPES, Inputs
from verification.localization import describe_failures
from verification.operator import Arguments, Finding, Outputs, pick

SLOTS = dict.fromkeys(("apart", "same", "shared", "unwritten"))
"""Pages read and written: different ones, the same, one page read by all, every other one not written."""

PADDING = dict.fromkeys(("none", "invalid", "null"))
"""Every third sequence reads no slot of the pool, or slot 0, which is then the padding slot.

Of those that read slot 0 every other one writes it, as a graph's padding does; so does a sequence that is no padding.
"""

INITIAL = {"none": None, "all": (1, 1), "fresh": (0, 0), "mixed": (1, 0)}
"""has_initial_state: not given, or these values by turns."""


@dataclass(frozen=True)
class Pages:
    """Slots of a pool: those read and written by each sequence, and those that hold NaN."""

    slots: int
    read: Tensor
    write: Tensor
    padding_slot: int
    initial: Tensor | None
    fresh: Tensor


def read_lengths(text: str) -> list[int]:
    """Rows a sequence, as in `1x4-0-65`: four of one row, one of none, one of 65; `0x0` is no sequence."""
    lengths: list[int] = []
    for part in text.split("-"):
        match = re.fullmatch(r"(\d+)(?:x(\d+))?", part)
        require(match is not None, "lengths", f"{text!r}; expected lengths like 1x4-0-65")
        assert match is not None
        lengths += [int(match[1])] * int(match[2] or 1)
    return lengths


def draw_pages(inputs: Inputs, count: int, p: dict[str, Any]) -> Pages:
    """Slots out of order. NaN is in the first and last slot, in those only written, and where a sequence begins."""
    pick(p["slots"], SLOTS, "slots")
    pick(p["padding"], PADDING, "padding")
    turns = pick(p["initial"], INITIAL, "initial")
    distinct = count if p["slots"] == "same" else 2 * count
    slots = distinct + 3
    outside = torch.tensor([-1, slots, 2**31 - 1])[torch.arange(count) % 3]
    order = 1 + inputs.permutations("slots", 1, slots - 2)[0]
    read, write = order[:count].clone(), order[distinct - count : distinct].clone()
    if p["slots"] == "shared":
        read[:] = read[:1].clone()
    elif p["slots"] == "unwritten":
        write[::2] = outside[::2]
    if p["padding"] == "invalid":
        read[1::3] = outside[1::3]
    elif p["padding"] == "null":
        read[1::3], write[1::6], write[3::6] = 0, 0, 0
    initial = None if turns is None else torch.tensor(turns)[torch.arange(count) % 2].bool()
    going_on = read if initial is None else read[initial]
    fresh = torch.ones(slots, dtype=torch.bool)
    fresh[going_on[(going_on > 0) & (going_on < slots)]] = False
    fresh[order[-1]] = False  # an idle slot with numbers, where a stray write shows
    return Pages(slots, read, write, 0 if p["padding"] == "null" else -1, initial, fresh)


def paged_arguments(pages: Pages, lengths: list[int], p: dict[str, Any]) -> Arguments:
    """Boundaries and slots as arguments."""
    index = TORCH_DTYPES[p["index"]]
    return {
        "read_slots": pages.read.to(index),
        "write_slots": pages.write.to(index),
        "padding_slot": pages.padding_slot,
        "cu_seqlens": torch.tensor([0, *lengths]).cumsum(0).to(index),
        "has_initial_state": pages.initial,
    }


def idle_rows(pages: Pages, lengths: list[int], rows: int) -> Tensor:
    """Mask [T] of the rows of padding and of no sequence."""
    padding = (pages.read < 0) | (pages.read >= pages.slots) | (pages.read == pages.padding_slot)
    owned = padding.repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
    return torch.cat([owned, torch.ones(rows - len(owned), dtype=torch.bool)])


def live_sequences(arguments: Arguments) -> list[Sequence]:
    """The sequences of these arguments that are no padding."""
    rows = next(arguments[name] for name in ("qkv", "x") if name in arguments)
    return read_sequences(
        "case", len(rows), len(arguments["conv_state"]), arguments["cu_seqlens"], arguments["read_slots"],
        arguments.get("write_slots"), arguments["padding_slot"], arguments.get("has_initial_state"),
    )  # fmt: skip


def untouched(arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    """Every slot that no sequence writes keeps its bits."""
    for name in ("conv_state", "state"):
        if name in outputs:
            different = ~same_bits(outputs[name], arguments[name])
            for sequence in live_sequences(arguments):
                if sequence.write is not None:
                    different[sequence.write] = False
            if different.any():
                yield Finding(
                    "structure",
                    f"{name}: {int(different.sum())} elements changed in slots that no sequence writes; "
                    f"{describe_failures(different)}",
                )
