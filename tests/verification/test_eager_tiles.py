from __future__ import annotations

import pytest
import torch

from verification.eager.tiles import SMALL, TILE, rows_product, tiled


@pytest.mark.parametrize("rows", [0, 1, 2, TILE - 1, TILE, TILE + 1, 33, SMALL])
def test_a_row_of_a_product_has_the_same_bits_alone_and_in_a_batch(rows):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows, 300, generator=generator).bfloat16()
    weight = torch.randn(50, 300, generator=generator).bfloat16()
    whole = rows_product(x, weight)
    assert whole.shape == (rows, 50)
    assert whole.dtype == torch.float32
    for row in range(rows):
        assert torch.equal(rows_product(x[row : row + 1], weight)[0], whole[row])
    torch.testing.assert_close(whole, x.float() @ weight.float().t())


def test_more_rows_go_as_one_product():
    x, weight = torch.ones(SMALL + 1, 8), torch.ones(3, 8)
    assert torch.equal(rows_product(x, weight), x @ weight.t())


def test_short_batches_are_filled_with_rows_of_zeros():
    assert tiled(torch.ones(3, 2, 5)).sum() == 30
    assert tiled(torch.ones(3, 2, 5)).shape == (TILE, 2, 5)
    assert tiled(torch.ones(17, 5)).shape == (17, 5)
