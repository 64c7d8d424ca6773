from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.attention_residual import attention_residual
from reference.collectives import all_reduce, all_reduce_attention_residual
from reference.numerics import EXACT, ROUNDED, Variant, perturbed, rounded

POSITIVE_ZERO = rounded(Variant("positive zero", "", adds=frozenset({"positive_zero"})))
AGREEMENT = 1e-12


def shards_of(seed: int, ranks: int, rows: int, width: int) -> Tensor:
    """Values over sixty binades, so that the order of a sum shows."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(ranks, rows, width, generator=generator)
    return (values * 2.0 ** torch.randint(-30, 30, values.shape, generator=generator)).bfloat16()


def to_single(value: float) -> float:
    """Rounded to fp32 by the packing of the language."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def to_bfloat16(value: float) -> float:
    """The upper half of an fp32 word, ties to even by integers."""
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    word += 0x7FFF + (word >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", word & 0xFFFF0000))[0]


def by_loops(terms: list[float]) -> float:
    total = terms[0]
    for term in terms[1:]:
        total = to_single(total + term)
    return to_bfloat16(total)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_agrees_bit_for_bit_with_a_loop_over_words(ranks: int) -> None:
    shards = shards_of(ranks, ranks, 3, 257)
    got = all_reduce(shards)
    terms = zip(*(shard.double().flatten().tolist() for shard in shards), strict=True)
    wanted = torch.tensor([by_loops(list(values)) for values in terms]).bfloat16().view(3, 257)
    assert got.shape == shards.shape
    assert all(torch.equal(got[rank], wanted) for rank in range(ranks))


def test_every_reading_gives_the_same_bits() -> None:
    shards = shards_of(9, 8, 2, 64)
    assert all(torch.equal(all_reduce(shards, numerics=n), all_reduce(shards)) for n in (EXACT, perturbed(3)))


def test_the_order_of_ranks_decides_the_bits() -> None:
    large, small = 2.0**30, 1.0
    orders = {order: torch.tensor(order).bfloat16()[:, None, None] for order in
              itertools.permutations((large, small, -large))}  # fmt: skip
    got = {order: all_reduce(shards)[0].item() for order, shards in orders.items()}
    assert got[large, small, -large] == got[small, large, -large] == 0.0
    assert got[large, -large, small] == small


def test_the_sum_is_rounded_once() -> None:
    """In bf16 each of 1's steps would be lost beside 256; in fp32 eight of them are not."""
    shards = torch.tensor([256.0] + [1.0] * 7).bfloat16()[:, None, None]
    assert all_reduce(shards)[0].item() == 264.0


@pytest.mark.parametrize(("terms", "usual", "positive"), [
    ((-0.0, -0.0), -0.0, 0.0), ((-0.0, 0.0), 0.0, 0.0), ((1.0, -1.0), 0.0, 0.0), ((-0.0, 2.0), 2.0, 2.0),
])  # fmt: skip
def test_the_sign_of_a_zero(terms: tuple[float, ...], usual: float, positive: float) -> None:
    shards = torch.tensor(terms).bfloat16()[:, None, None]
    for numerics, wanted in ((ROUNDED, usual), (POSITIVE_ZERO, positive)):
        got = all_reduce(shards, numerics=numerics)[0].item()
        assert (got, math.copysign(1, got)) == (wanted, math.copysign(1, wanted))


def test_special_values_are_added_as_numbers_are() -> None:
    columns = [(math.nan, 1.0), (math.inf, 1.0), (math.inf, -math.inf), (3e38, 3e38), (-3e38, -3e38), (2**-133,) * 2]
    got = all_reduce(torch.tensor(columns).bfloat16().t()[:, None])[1, 0].tolist()
    assert math.isnan(got[0])
    assert math.isnan(got[2])
    assert [got[1], got[3], got[4]] == [math.inf, math.inf, -math.inf]
    assert got[5] == 2.0**-132


def residual_case(seed: int, ranks: int, rows: int, width: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "shards": (normal(ranks, rows, width) / 3).bfloat16(),
        "residual": normal(rows, width).bfloat16().expand(ranks, rows, width).clone(),
        "maximum": normal(rows), "sum": 1 + normal(rows).abs(), "accumulator": normal(rows, width),
        "score_weight": normal(width) / width**0.5, "output_norm_weight": (1 + normal(width) / 10).bfloat16(),
        "eps": 1e-5,
    }  # fmt: skip


@pytest.mark.parametrize(("ranks", "rows", "width"), [(1, 1, 1), (2, 3, 7), (8, 2, 65), (3, 4, 1000)])
def test_all_reduce_then_add_then_the_unsplit_mix(ranks: int, rows: int, width: int) -> None:
    """Against attention_residual, of blocks whose partial this is: one block has its score, its values and mass 1."""
    case = residual_case(ranks, ranks, rows, width)
    blocks = torch.randn(rows, 1, width, generator=torch.Generator().manual_seed(1)).bfloat16()
    values = blocks[:, 0].double()
    inverse = (values.square().mean(-1) + case["eps"]).rsqrt()
    score = inverse * (values * case["score_weight"].double()).sum(-1)
    case |= {"maximum": score, "sum": torch.ones(rows, dtype=torch.float64), "accumulator": values}
    got = all_reduce_attention_residual(**case, numerics=EXACT)
    prefix = case["residual"][0] + all_reduce(case["shards"])[0]
    whole = attention_residual(
        prefix, None, blocks, case["score_weight"], case["output_norm_weight"],
        num_blocks=1, eps=case["eps"], output_eps=case["eps"], numerics=EXACT,
    ).hidden  # fmt: skip
    for rank in range(ranks):
        assert torch.equal(got.residual[rank], prefix)
        assert torch.all((got.hidden[rank] - whole).abs() <= AGREEMENT * whole.abs().amax(-1, keepdim=True))


def test_the_sum_is_rounded_before_it_is_added_to_the_prefix() -> None:
    case = residual_case(5, 2, 1, 1)
    case["shards"] = torch.tensor([1.0, 2.0**-8]).bfloat16()[:, None, None]  # 1 + half a step: rounds to 1
    case["residual"] = torch.full((2, 1, 1), 2.0**-8).bfloat16()  # a whole sum would round to 1 + 2⁻⁷
    assert all_reduce_attention_residual(**case).residual.flatten().tolist() == [1.0, 1.0]


def test_inputs_are_left_alone() -> None:
    case = residual_case(6, 4, 3, 9)
    before = {name: value.clone() for name, value in case.items() if isinstance(value, Tensor)}
    all_reduce_attention_residual(**case)
    assert all(torch.equal(case[name], value) for name, value in before.items())


def test_no_rows_give_no_rows() -> None:
    assert all_reduce(torch.zeros(8, 0, 7)).shape == (8, 0, 7)
    assert all_reduce_attention_residual(**residual_case(7, 8, 0, 7)).hidden.shape == (8, 0, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shards": torch.ones(3, 4)}, r"shards is \[3, 4\]; .* every rank's, stacked"),
        ({"shards": torch.ones(0, 3, 4)}, r"shards is \[0, 3, 4\]; expected \[W, T, H\] with W of 1 or more"),
        ({"residual": torch.ones(3, 4)}, r"residual is \[3, 4\]; .* each rank has a copy of its own"),
        ({"residual": torch.ones(2, 3, 5)}, r"residual is \[2, 3, 5\]; expected \[W, T, H\] = \[2, 3, 4\]"),
        ({"residual": torch.arange(24.0).reshape(2, 3, 4)}, r"residual of ranks \[1\] differs from rank 0's"),
        ({"maximum": torch.ones(2, 3)}, r"maximum is \[2, 3\]; expected \[T\] = \[3\]; take one scorer's"),
        ({"sum": torch.zeros(3)}, r"rows \[0, 1, 2\] have a maximum of −Inf or a sum of 0 but not both"),
        ({"accumulator": torch.ones(2, 3, 4)}, r"accumulator is \[2, 3, 4\]; expected \[T, H\] = \[3, 4\]"),
        ({"score_weight": torch.ones(3)}, r"score_weight is \[3\]; expected \[H\] = \[4\]"),
        ({"output_norm_weight": torch.ones(3)}, r"output_norm_weight is \[3\]; expected \[H\] = \[4\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    usual = residual_case(8, 2, 3, 4)
    with pytest.raises(ValueError, match=f"all_reduce_attention_residual: {message}"):
        all_reduce_attention_residual(**usual | change)
    if "shards" in change:
        with pytest.raises(ValueError, match=f"all_reduce: {message}"):
            all_reduce(change["shards"])
