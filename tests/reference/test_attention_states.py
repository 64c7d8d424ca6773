from __future__ import annotations

import math
from itertools import permutations, product
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.attention_states import AttentionState, merge_attention_states, mla_reduce_project_gate
from reference.numerics import EXACT, ROUNDED, Variant, perturbed, rounded

AGREEMENT = 1e-12
"""Difference of two float64 formulations, relative to the largest magnitude of the row."""

EMPTY = -math.inf


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def state(seed: int, rows: int = 4, heads: int = 3, width: int = 5) -> tuple[Tensor, Tensor]:
    return normal(seed, rows, heads, width), 3 * normal(seed + 100, rows, heads)


def nothing(like: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return torch.full_like(like[0], torch.nan), torch.full_like(like[1], EMPTY)


def merge(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> AttentionState:
    return merge_attention_states(*a, *b, numerics=EXACT)


def assert_agree(got: Tensor, wanted: Any) -> None:
    expected = torch.as_tensor(wanted, dtype=torch.float64)
    assert got.shape == expected.shape
    infinite = torch.isinf(expected)
    assert torch.equal(got[infinite], expected[infinite])
    difference = torch.where(infinite, 0.0, got - expected).abs()
    assert torch.all(difference <= AGREEMENT * torch.where(infinite, 0.0, expected).abs().clamp(min=1.0))


def by_scalars(out_a: float, lse_a: float, out_b: float, lse_b: float) -> tuple[float, float]:
    """The definition: masses are exp(lse), and a side of no mass is not looked at."""
    masses = [math.exp(lse_a), math.exp(lse_b)]
    total = math.fsum(masses)
    if total == 0:
        return 0.0, EMPTY
    return math.fsum(m * x for m, x in zip(masses, (out_a, out_b), strict=True) if m) / total, math.log(total)


@pytest.mark.parametrize("pair", list(product((EMPTY, -3.0, 0.0, 2.5, 30.0), repeat=2)))
def test_merge_agrees_with_scalars(pair: tuple[float, float]) -> None:
    for x, y in ((1.5, -2.0), (0.0, 1.0)):
        a = torch.full((1, 1, 1), x if pair[0] > EMPTY else torch.nan), torch.full((1, 1), pair[0])
        b = torch.full((1, 1, 1), y if pair[1] > EMPTY else torch.nan), torch.full((1, 1), pair[1])
        got = merge(a, b)
        out, lse = by_scalars(x, pair[0], y, pair[1])
        assert_agree(got.out, [[[out]]])
        assert_agree(got.lse, [[lse]])


@pytest.mark.parametrize("numerics", [EXACT, perturbed(3)])
def test_a_state_without_keys_is_the_identity(numerics: Any) -> None:
    a = state(1)
    for pair in ((a, nothing(a)), (nothing(a), a)):
        got = merge_attention_states(*pair[0], *pair[1], numerics=numerics)
        assert torch.equal(got.out, a[0])
        assert torch.equal(got.lse, a[1])


def test_two_states_without_keys_give_zeros_and_minus_infinity() -> None:
    for numerics in (EXACT, ROUNDED, perturbed(3)):
        got = merge_attention_states(*nothing(state(1)), *nothing(state(1)), numerics=numerics)
        assert not got.out.any()
        assert torch.all(got.lse == EMPTY)


def test_merge_is_commutative_and_associative() -> None:
    a, b, c = state(1), state(2), state(3)
    c[1][0, :2], b[1][0, 1:], a[1][1] = EMPTY, EMPTY, EMPTY
    wanted = merge(merge(a, b), c)
    for x, y, z in permutations((a, b, c)):
        for got in (merge(merge(x, y), z), merge(x, merge(y, z))):
            assert_agree(got.out, wanted.out)
            assert_agree(got.lse, wanted.lse)


def test_a_short_suffix_has_the_weight_of_its_mass_in_natural_logarithms() -> None:
    zeros, ones = torch.zeros(1, 1, 2), torch.ones(1, 1, 2)
    got = merge((zeros, torch.full((1, 1), math.log(3072)).double()), (ones, torch.full((1, 1), math.log(64)).double()))
    assert torch.all((got.out - 64 / 3136).abs() < 1e-6)


@pytest.mark.parametrize("lse", [-1e30, -1e4, 1e4, 1e30])
def test_lses_far_from_zero_do_not_overflow(lse: float) -> None:
    a, b = state(1), state(2)
    got = merge((a[0], torch.full_like(a[1], lse)), (b[0], torch.full_like(b[1], lse)))
    assert_agree(got.out, (a[0] + b[0]) / 2)


def test_dtypes_follow_the_arguments() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        a, b = ((out.to(dtype), lse.float()) for out, lse in (state(1), state(2)))
        got = merge_attention_states(*a, *b)
        assert (got.out.dtype, got.lse.dtype) == (dtype, torch.float32)


def reduce(splits: int, live: list[list[bool]], **options: Any) -> tuple[dict[str, Tensor], Tensor]:
    """The operator's arguments with those splits alive in each row, and its exact result."""
    rows, heads, latent, value = len(live), 3, 7, 4
    lses = 3 * normal(2, rows, splits, heads)
    lses[~torch.tensor(live)] = EMPTY
    latents = normal(1, rows, splits, heads, latent)
    latents[lses == EMPTY] = torch.nan
    arguments = {
        "split_latents": latents, "split_lses": lses, "value_weight": normal(3, heads, value, latent),
        "gate_logits": normal(4, rows, heads * value),
    } | options  # fmt: skip
    return arguments, mla_reduce_project_gate(**arguments, numerics=EXACT)


@pytest.mark.parametrize("splits", [1, 2, 5, 32])
def test_reduction_agrees_with_merging_one_by_one(splits: int) -> None:
    """Split by split through the two-sided merge, then loops over heads and widths."""
    live = [[(row + s) % 3 != 0 for s in range(splits)] for row in range(4)]
    arguments, got = reduce(splits, live)
    latents, lses, weight, gate = arguments.values()
    merged = AttentionState(latents[:, 0], lses[:, 0])
    merged = merge(tuple(merged), nothing(tuple(merged)))
    for s in range(1, splits):
        merged = merge(tuple(merged), (latents[:, s], lses[:, s]))
    wanted = [
        [
            math.fsum(x * w for x, w in zip(merged.out[row, h].tolist(), weight[h, v].tolist(), strict=True))
            / (1 + math.exp(-float(gate[row, h * 4 + v])))
            for h in range(3)
            for v in range(4)
        ]
        for row in range(4)
    ]
    assert_agree(got, wanted)


def test_a_row_without_splits_is_zero_and_leaves_the_others_alone() -> None:
    arguments, got = reduce(3, [[True] * 3, [False] * 3, [True, False, False]])
    assert not got[1].any()
    alone = {n: v if n == "value_weight" else v[2:] for n, v in arguments.items()}
    assert torch.equal(mla_reduce_project_gate(**alone, numerics=EXACT), got[2:])


def test_without_a_gate_the_values_are_ungated() -> None:
    arguments, gated = reduce(2, [[True, True]])
    ungated = mla_reduce_project_gate(**(arguments | {"gate_logits": None}), numerics=EXACT)
    assert_agree(gated, ungated * torch.sigmoid(arguments["gate_logits"]))


def test_latent_and_projection_are_rounded_and_the_gate_where_the_variant_says() -> None:
    arguments, _ = reduce(2, [[True, True]])
    for variant, points in ((Variant("test", ""), 2), (Variant("test", "", adds=frozenset({"gate"})), 3)):
        reading = rounded(variant)
        with reading.trace() as trace:
            mla_reduce_project_gate(**arguments, numerics=reading)
        stored = [torch.equal(trace[n], trace[n].bfloat16().double()) for n in ("latent", "projection", "gate")]
        assert stored == [True, True, points == 3]


def test_no_rows_give_no_rows() -> None:
    empty = torch.zeros(0, 3, 5), torch.zeros(0, 3)
    assert merge_attention_states(*empty, *empty).out.shape == (0, 3, 5)
    attention = mla_reduce_project_gate(torch.zeros(0, 2, 3, 5), torch.zeros(0, 2, 3), torch.zeros(3, 4, 5))
    assert attention.shape == (0, 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out_a": torch.zeros(4, 5)}, r"out_a is \[4, 5\]; expected \[T, N, V\]"),
        ({"out_b": torch.zeros(4, 3, 6)}, r"out_b is \[4, 3, 6\]; expected \[T, N, V\] as out_a"),
        ({"out_b": torch.zeros(4, 3, 5).bfloat16()}, "out_b is torch.bfloat16; expected torch.float32"),
        ({"lse_b": torch.zeros(3, 4)}, r"lse_b is \[3, 4\]; expected \[T, N\]"),
        ({"lse_a": torch.full((4, 3), torch.nan)}, "lse_a holds 12 of NaN or \\+inf"),
        ({"lse_b": torch.full((4, 3), torch.inf)}, "lse_b holds 12 of NaN or \\+inf"),
    ],
)
def test_states_that_do_not_fit_are_refused(change: dict[str, Tensor], message: str) -> None:
    usual = {
        "out_a": torch.zeros(4, 3, 5), "lse_a": torch.zeros(4, 3),
        "out_b": torch.zeros(4, 3, 5), "lse_b": torch.zeros(4, 3),
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"merge_attention_states: {message}"):
        merge_attention_states(**(usual | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split_latents": torch.zeros(4, 3, 5)}, r"split_latents is \[4, 3, 5\]; expected \[T, S, N, L\]"),
        ({"split_latents": torch.zeros(4, 0, 3, 5)}, "split_latents has no split"),
        ({"split_lses": torch.zeros(4, 3, 2)}, r"split_lses is \[4, 3, 2\]; expected \[T, S, N\]"),
        ({"split_lses": torch.full((4, 2, 3), torch.nan)}, "split_lses holds 24 of NaN"),
        ({"value_weight": torch.zeros(3, 5, 4)}, r"value_weight is \[3, 5, 4\]; expected \[N, V, L\]"),
        ({"gate_logits": torch.zeros(4, 3, 4)}, r"gate_logits is \[4, 3, 4\]; expected \[T, N·V\]"),
    ],
)
def test_splits_that_do_not_fit_are_refused(change: dict[str, Tensor], message: str) -> None:
    usual = {
        "split_latents": torch.zeros(4, 2, 3, 5), "split_lses": torch.zeros(4, 2, 3),
        "value_weight": torch.zeros(3, 4, 5), "gate_logits": torch.zeros(4, 12),
    }  # fmt: skip
    mla_reduce_project_gate(**usual)
    with pytest.raises(ValueError, match=f"mla_reduce_project_gate: {message}"):
        mla_reduce_project_gate(**(usual | change))
