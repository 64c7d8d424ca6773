from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.mla_cache import MlaNormCache, mla_qkv_norm_cache
from reference.numerics import EXACT, ROUNDED, Variant, rounded

AGREEMENT = 1e-12
"""Relative difference of two float64 formulations."""

QUERY, LATENT, POSITION, PAGES, PAGE = 9, 7, 3, 3, 4


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(slots: list[int], dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    rows = len(slots)
    pages = normal(5, PAGES, PAGE, LATENT + POSITION).to(dtype)
    pages[1, 2] = torch.nan
    return {
        "q_a": normal(1, rows, QUERY).to(dtype),
        "kv_a": normal(2, rows, LATENT + POSITION).to(dtype),
        "q_norm_weight": 1 + 0.1 * normal(3, QUERY),
        "kv_norm_weight": 1 + 0.1 * normal(4, LATENT),
        "kv_pages": pages,
        "slot_mapping": torch.tensor(slots, dtype=torch.int64),
    }


def call(arguments: dict[str, Tensor], **options: Any) -> MlaNormCache:
    return mla_qkv_norm_cache(**arguments, **({"eps": 1e-5, "numerics": EXACT} | options))


def norm_by_loops(row: list[float], weight: list[float], eps: float) -> list[float]:
    root = math.sqrt(math.fsum(x * x for x in row) / len(row) + eps)
    return [x / root * w for x, w in zip(row, weight, strict=True)]


@pytest.mark.parametrize("eps", [1e-5, 1e-6, 0.25])
def test_agrees_with_loops(eps: float) -> None:
    arguments = inputs([6, -1, 0, 11, 12, -5])
    got = call(arguments, eps=eps)
    lists = {n: v.double().tolist() for n, v in arguments.items()}
    pages = arguments["kv_pages"].double().flatten(0, 1)
    for row, slot in enumerate(arguments["slot_mapping"].tolist()):
        wanted = torch.tensor(norm_by_loops(lists["q_a"][row], lists["q_norm_weight"], eps), dtype=torch.float64)
        assert torch.all((got.normed_q_a[row] - wanted).abs() <= AGREEMENT * wanted.abs())
        if 0 <= slot < PAGES * PAGE:
            latent = norm_by_loops(lists["kv_a"][row][:LATENT], lists["kv_norm_weight"], eps)
            pages[slot] = torch.tensor(latent + lists["kv_a"][row][LATENT:], dtype=torch.float64)
    assert torch.equal(got.kv_pages.isnan().flatten(0, 1), pages.isnan())
    difference = (got.kv_pages.flatten(0, 1) - pages).nan_to_num().abs()
    assert torch.all(difference <= AGREEMENT * pages.nan_to_num().abs())


def test_the_position_part_is_copied_and_no_other_slot_changes() -> None:
    arguments = inputs([6, -1, 1])
    got = call(arguments, numerics=ROUNDED).kv_pages.flatten(0, 1)
    before = arguments["kv_pages"].flatten(0, 1)
    assert torch.equal(got[[6, 1], LATENT:], arguments["kv_a"][[0, 2], LATENT:])
    others = [slot for slot in range(PAGES * PAGE) if slot not in (6, 1)]
    assert torch.equal(got[others].nan_to_num(), before[others].nan_to_num())
    assert not torch.equal(got[[6, 1], :LATENT], arguments["kv_a"][[0, 2], :LATENT])


@pytest.mark.parametrize("slot", [-1, -2, PAGES * PAGE, 2**40, -(2**40)])
def test_a_slot_outside_the_pool_stores_nothing(slot: int) -> None:
    arguments = inputs([slot, slot])
    got = call(arguments, numerics=ROUNDED)
    assert torch.equal(got.kv_pages.nan_to_num(), arguments["kv_pages"].nan_to_num())
    assert got.normed_q_a.any()


@pytest.mark.parametrize(("scale", "differ"), [(2.0**-12, True), (1.0, False)])
def test_the_two_eps_differ_on_rows_of_low_norm(scale: float, differ: bool) -> None:
    arguments = inputs([0, 1])
    arguments["q_a"] *= scale
    arguments["kv_a"] *= scale
    production, official = (call(arguments, eps=eps, numerics=ROUNDED) for eps in (1e-5, 1e-6))
    assert torch.equal(production.normed_q_a, official.normed_q_a) != differ


def test_the_variant_of_a_fixed_eps_ignores_the_argument() -> None:
    arguments = inputs([0, 1])
    arguments["q_a"] *= 2.0**-12
    numerics = rounded(Variant("test", "", adds=frozenset({"fixed_eps"})))
    got, wanted = call(arguments, eps=1e-3, numerics=numerics), call(arguments, eps=1e-6, numerics=ROUNDED)
    assert torch.equal(got.normed_q_a, wanted.normed_q_a)
    assert torch.equal(got.kv_pages.nan_to_num(), wanted.kv_pages.nan_to_num())


@pytest.mark.parametrize("point", ["q_normalized", "kv_normalized"])
def test_each_norm_rounds_inside_where_the_variant_says(point: str) -> None:
    arguments = inputs(list(range(8)))
    once = call(arguments, numerics=rounded(Variant("test", "", drops=frozenset({point}))))
    twice = call(arguments, numerics=ROUNDED)
    same = [torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(once, twice, strict=True)]
    assert same == [point == "kv_normalized", point == "q_normalized"]


def test_inputs_are_left_alone_and_no_rows_are_legal() -> None:
    arguments = inputs([3, 4])
    before = {n: v.clone() for n, v in arguments.items()}
    call(arguments, numerics=ROUNDED)
    assert all(torch.equal(v.nan_to_num(), before[n].nan_to_num()) for n, v in arguments.items())
    assert call(inputs([])).normed_q_a.shape == (0, QUERY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_a": torch.zeros(QUERY)}, r"q_a is \[9\]; expected \[T, Q\]"),
        ({"kv_a": torch.zeros(3, 10)}, r"kv_a is \[3, 10\]; expected \[T, L\+R\]"),
        ({"q_norm_weight": torch.zeros(LATENT)}, r"q_norm_weight is \[7\]; expected \[Q\]"),
        ({"kv_norm_weight": torch.zeros(11)}, r"kv_norm_weight is \[11\]; expected \[L\] with L in 1…10"),
        ({"kv_pages": torch.zeros(PAGES, PAGE, LATENT)}, r"kv_pages is \[3, 4, 7\]; expected"),
        ({"slot_mapping": torch.tensor([0])}, r"slot_mapping is \[1\]; expected \[T\]"),
        ({"slot_mapping": torch.tensor([0.0, 1.0])}, "slot_mapping is torch.float32"),
        ({"slot_mapping": torch.tensor([5, 5])}, r"slot_mapping names slot \[5\] twice"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=f"mla_qkv_norm_cache: {message}"):
        call(inputs([0, 1]) | change)


def test_skipped_rows_may_share_a_slot() -> None:
    call(inputs([-1, -1, 2]))
