"""Products and reductions whose bits for a row do not depend on the rows beside it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

TILE = 16
"""Rows of a decode step; libraries choose their order of summation by the count of rows."""

SMALL = 64
"""Rows up to which a product goes tile by tile; beyond, as in prefill, one product serves all rows."""


def tiled(x: Tensor) -> Tensor:
    """X with rows of zeros up to a tile of 16."""
    return functional.pad(x, (0, 0) * (x.ndim - 1) + (0, TILE - len(x))) if len(x) < TILE else x


def rows_product(x: Tensor, weight: Tensor) -> Tensor:
    """X · weightᵀ in fp32, with the same bits for a row in any batch of up to 64 rows.

    Shapes: x [T, H], weight [O, H], any float dtype → [T, O] fp32.
    """
    x, weight = x.float(), weight.float().t()
    if len(x) > SMALL:
        return x @ weight
    padded = functional.pad(x, (0, 0, 0, -len(x) % TILE))
    tiles = [tile @ weight for tile in padded.split(TILE)]
    return torch.cat(tiles)[: len(x)] if tiles else x.new_zeros(0, weight.shape[1])
