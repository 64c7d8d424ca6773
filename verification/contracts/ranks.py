"""What the contracts of collectives share: virtual ranks, their layouts, and that all end with the same."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from verification.comparison import same_bits
from verification.inputs import laid_out
from verification.localization import describe_failures
from verification.operator import Arguments, Finding, LawContext


def by_rank(shards: Tensor) -> Tensor:
    """The number of the rank in every element: [W, 1, 1]."""
    return torch.arange(len(shards), dtype=shards.dtype)[:, None, None]


def cancelling(shards: Tensor) -> Tensor:
    """Rank 0's values large, and gone again half-way: what is added between is rounded, what comes after is not."""
    large = shards[0] * 2.0**20
    shards[0] = large
    if len(shards) > 1:
        shards[len(shards) // 2] = -large
    return shards


def ranked(shards: Tensor, layout: str) -> Tensor:
    """[W, T, H] under another layout of memory; `staged`: the first rows of larger buffers, NaN in the rest."""
    ranks, rows, hidden = shards.shape
    if layout == "staged":
        return torch.full((ranks, rows + 3, hidden), torch.nan, dtype=shards.dtype)[:, :rows].copy_(shards)
    return laid_out(shards.flatten(0, 1), layout).view(ranks, rows, hidden)


RELAID = {layout: partial(ranked, layout=layout) for layout in ("staged", "row_padded", "offset")}


def ranks_agree(name: str, output: Tensor) -> Iterator[Finding]:
    """A finding where a rank's rows differ in a bit from rank 0's."""
    different = ~same_bits(output, output[:1].expand_as(output).contiguous())
    if different.any():
        apart = different.flatten(1).any(1).nonzero().flatten().tolist()
        yield Finding("structure", f"{name}: ranks {apart} differ from rank 0; {describe_failures(different)}")


def ranks_reversed(context: LawContext) -> Arguments:
    """The arguments with the shards in the reverse order of ranks."""
    arguments = context.arguments()
    return arguments | {"shards": arguments["shards"].flip(0)}
