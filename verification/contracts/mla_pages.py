"""Paged caches for the contracts of latent attention: who owns which page, and what the rest holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

from verification.inputs import Inputs, far_apart

NOWHERE = (-1, 2**31 - 1, -(2**31), 7_654_321)
"""Page ids that lie outside every pool of a case."""

LENGTHS: dict[str, Callable[[int], tuple[int, ...]]] = {
    "equal": lambda longest: (longest,),
    "mixed": lambda longest: (longest, 1, 0, longest // 2 + 1, longest - 1, 7),
    "edges": lambda longest: (63, 64, 65, 1, 127, 128, 129, 0, 2),
    "short": lambda longest: (1, 2, 3, 4, 5, 6, 7),
    "one_long": lambda longest: (longest, 3, 0, 1),
    "none": lambda longest: (0,),
}
"""Lengths of a batch by name, repeated over its rows."""


def lengths_of(name: str, longest: int, rows: int) -> list[int]:
    """The lengths of `rows` sequences."""
    return list(islice(cycle(LENGTHS[name](longest)), rows))


def page_table(inputs: Inputs, kind: str, used: list[int], spare: int) -> tuple[Tensor, int]:
    """Page ids [T, P] in int32, and the size of the pool; what lies past a row's pages is out of range.

    shuffled: pages in random order; in_order; shared: each row reads the first pages of one run;
    invalid: the second row's first page lies outside the pool.
    """
    columns = max([1, *used]) + spare
    pool = (max([0, *used]) if kind == "shared" else sum(used)) + 3
    order = torch.arange(pool) if kind == "in_order" else inputs.permutations("pages", 1, pool)[0]
    nowhere = torch.tensor(list(islice(cycle(NOWHERE), len(used) * columns)), dtype=torch.int64)
    table, start = nowhere.view(len(used), columns), 0
    for row, count in enumerate(used):
        table[row, :count] = order[start : start + count]
        start += 0 if kind == "shared" else count
    if kind == "invalid":
        table[1, 0] = pool + 2
    return table.to(torch.int32), pool


def logical_positions(table: Tensor, lengths: list[int], pool: int, size: int) -> Tensor:
    """Position in its sequence of each row [pool, page size] of the pages; −1 where no sequence has one."""
    positions = torch.full((pool, size), -1, dtype=torch.int64)
    for ids, length in zip(table.tolist(), lengths, strict=True):
        for column in range(-(-length // size)):
            if 0 <= ids[column] < pool:
                here = torch.arange(column * size, min((column + 1) * size, length))
                positions[ids[column], : len(here)] = here
    return positions


def apart(pages: Tensor, layout: str) -> Tensor:
    """The same pages under other strides; what lies between them is NaN."""
    if layout == "contiguous":
        return pages
    count, size, width = pages.shape
    row, page = (width + 8, size * (width + 8)) if layout == "row_padded" else (width, size * width + 40)
    if layout == "far":
        return far_apart(pages)
    storage = torch.full((count * page + 3,), torch.nan, dtype=pages.dtype)
    offset = 3 if layout == "offset" else 0
    return storage.as_strided((count, size, width), (page, row, 1), offset).copy_(pages)


PAGE_LAYOUTS = ("contiguous", "row_padded", "page_padded", "offset", "far")


def scale_of(parameters: dict[str, Any]) -> float:
    """1 ÷ √(width of a head's query and key)."""
    return 1.0 / math.sqrt(parameters["qk_width"])
