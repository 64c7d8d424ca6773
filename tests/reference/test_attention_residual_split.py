from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.attention_residual import attention_residual
from reference.attention_residual_split import (
    Partials,
    attention_residual_combine,
    attention_residual_partial,
    projection_attention_residual,
)
from reference.numerics import EXACT, ROUNDED, Variant, rounded

AGREEMENT = 1e-12
"""Difference of two float64 formulations, relative to the largest magnitude of the row."""

EPS, OUTPUT_EPS = 1e-6, 2e-6


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def snapshots(seed: int, rows: int, capacity: int, width: int) -> Tensor:
    return normal(seed, rows, capacity, width).bfloat16()


def scorers(seed: int, count: int, width: int, scale: float = 2.0) -> Tensor:
    return (normal(seed, count, width) * scale / width**0.5).float()


def partial(blocks: Tensor, weights: Tensor, num_blocks: int, **options: Any) -> Partials:
    return attention_residual_partial(
        blocks, weights, num_blocks=num_blocks, **({"eps": EPS, "numerics": EXACT} | options)
    )


def of_scorer(partials: Partials, scorer: int) -> Partials:
    return Partials(*(part[scorer] for part in partials))


def combine(prefix: Tensor, state: Partials, weight: Tensor, gain: Tensor | None, **options: Any) -> Tensor:
    options = {"eps": EPS, "output_eps": OUTPUT_EPS, "numerics": EXACT} | options
    return attention_residual_combine(prefix, *state, weight, gain, **options)


def assert_agree(got: Tensor, wanted: Tensor) -> None:
    scale = wanted.abs().amax(-1, keepdim=True)
    assert torch.all((got - wanted).abs() <= AGREEMENT * scale)


def to_bfloat16(value: float) -> float:
    """Ties to even by the integer rounding of the language; normal range only."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, 8)), exponent - 8)


def inverse_root(row: list[float], eps: float) -> float:
    return 1 / math.sqrt(math.fsum(x * x for x in row) / len(row) + eps)


def score_by_loops(row: list[float], weight: list[float]) -> float:
    return inverse_root(row, EPS) * math.fsum(x * w for x, w in zip(row, weight, strict=True))


def partial_by_loops(blocks: list[list[float]], weight: list[float]) -> tuple[float, float, list[float]]:
    """One row and scorer, block after block with a running maximum, as a sweep over memory has it."""
    maximum, total, accumulator = -math.inf, 0.0, [0.0] * len(weight)
    for block in blocks:
        score = score_by_loops(block, weight)
        largest = max(maximum, score)
        kept, mass = math.exp(maximum - largest), math.exp(score - largest)
        total = total * kept + mass
        accumulator = [a * kept + mass * x for a, x in zip(accumulator, block, strict=True)]
        maximum = largest
    return maximum, total, accumulator


def mix_by_loops(candidates: list[list[float]], weight: list[float]) -> list[float]:
    scores = [score_by_loops(row, weight) for row in candidates]
    masses = [math.exp(score - max(scores)) for score in scores]
    columns = zip(*candidates, strict=True)
    return [math.fsum(m * x for m, x in zip(masses, c, strict=True)) / math.fsum(masses) for c in columns]


SIZES = [(1, 1, 1, 1, 1), (3, 5, 3, 2, 7), (2, 2, 0, 2, 33), (5, 4, 4, 3, 17), (1, 12, 11, 2, 65), (1, 8, 8, 2, 7168)]


@pytest.mark.parametrize(("rows", "capacity", "num_blocks", "count", "width"), SIZES)
def test_partials_agree_with_a_running_maximum(
    rows: int, capacity: int, num_blocks: int, count: int, width: int
) -> None:
    blocks, weights = snapshots(1, rows, capacity, width), scorers(2, count, width)
    got = partial(blocks, weights, num_blocks)
    assert got.maximum.shape == got.sum.shape == (count, rows)
    assert got.accumulator.shape == (count, rows, width)
    for scorer in range(count):
        for row in range(rows):
            candidates = blocks[row, :num_blocks].double().tolist()
            maximum, total, accumulator = partial_by_loops(candidates, weights[scorer].double().tolist())
            assert got.maximum[scorer, row].item() == pytest.approx(maximum, rel=AGREEMENT, abs=AGREEMENT)
            assert got.sum[scorer, row].item() == pytest.approx(total, rel=AGREEMENT, abs=0)
            assert_agree(got.accumulator[scorer, row], torch.tensor(accumulator, dtype=torch.float64))


@pytest.mark.parametrize(("rows", "capacity", "num_blocks", "count", "width"), SIZES)
@pytest.mark.parametrize("normed", [True, False])
def test_partial_and_combine_are_the_whole(
    rows: int, capacity: int, num_blocks: int, count: int, width: int, normed: bool
) -> None:
    blocks, weights, prefix = snapshots(3, rows, capacity, width), scorers(4, count, width), normal(5, rows, width)
    prefix, gain = prefix.bfloat16(), (1 + normal(6, width) / 10).bfloat16() if normed else None
    partials = partial(blocks, weights, num_blocks)
    for scorer in range(count):
        whole = attention_residual(
            prefix, None, blocks, weights[scorer], gain,
            num_blocks=num_blocks, eps=EPS, output_eps=OUTPUT_EPS, numerics=EXACT,
        )  # fmt: skip
        assert_agree(combine(prefix, of_scorer(partials, scorer), weights[scorer], gain), whole.hidden)


def merged(a: Partials, b: Partials) -> Partials:
    """By logarithms, otherwise than by scaling masses."""
    logs = [p.maximum + p.sum.log() for p in (a, b)]
    whole = torch.logaddexp(*logs)
    means = [p.accumulator / p.sum.clamp(min=1.0)[..., None] for p in (a, b)]
    weighted = [(log - whole).exp()[..., None] * mean for log, mean in zip(logs, means, strict=True)]
    return Partials(whole, torch.ones_like(whole), weighted[0] + weighted[1])


@pytest.mark.parametrize("cut", range(6))
def test_the_partials_of_any_split_merge_into_the_whole(cut: int) -> None:
    blocks, weights = snapshots(7, 3, 5, 33), scorers(8, 2, 33, 6.0)
    whole = partial(blocks, weights, 5)
    got = merged(partial(blocks[:, :cut], weights, cut), partial(blocks[:, cut:], weights, 5 - cut))
    assert_agree(got.maximum, whole.maximum + whole.sum.log())
    assert_agree(got.accumulator, whole.accumulator / whole.sum[..., None])


def test_combine_rounds_where_the_variant_says() -> None:
    blocks, weight, prefix = snapshots(9, 4, 3, 65), scorers(10, 1, 65)[0], normal(11, 4, 65).bfloat16()
    gain = (1 + normal(12, 65) / 10).bfloat16()
    choices = [((), ()), ((), ("mix",)), ((), ("mix", "output_normalized")), (("score_weight",), ())]
    for adds, drops in choices:
        points = {"mix", "output_normalized", "hidden"} - set(drops) | set(adds)
        numerics = rounded(Variant("test", "", adds=frozenset(adds), drops=frozenset(drops)))
        state = of_scorer(partial(blocks, weight[None], 3, numerics=numerics), 0)
        got = combine(prefix, state, weight, gain, numerics=numerics)
        assert got.dtype == torch.bfloat16

        def stored(point: str, values: list[float], points: set[str] = points) -> list[float]:
            return [to_bfloat16(value) for value in values] if point in points else values

        scorer = stored("score_weight", weight.double().tolist())
        for row in range(4):
            candidates = [*blocks[row].double().tolist(), prefix[row].double().tolist()]
            mix = stored("mix", mix_by_loops(candidates, scorer))
            normalized = stored("output_normalized", [x * inverse_root(mix, OUTPUT_EPS) for x in mix])
            weighted = [x * w for x, w in zip(normalized, gain.double().tolist(), strict=True)]
            assert got[row].double().tolist() == stored("hidden", weighted)


def test_the_scorer_is_rounded_only_where_the_variant_says() -> None:
    blocks, weights = snapshots(13, 3, 4, 33), scorers(14, 2, 33)
    numerics = rounded(Variant("test", "", adds=frozenset({"score_weight"})))
    got = partial(blocks, weights, 4, numerics=numerics)
    wanted = partial(blocks, weights.bfloat16().float(), 4, numerics=ROUNDED)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert not torch.equal(got.maximum, partial(blocks, weights, 4, numerics=ROUNDED).maximum)


@pytest.mark.parametrize("capacity", [0, 3])
def test_no_block_gives_minus_infinity_and_zeros(capacity: int) -> None:
    blocks = torch.full((2, capacity, 5), torch.nan, dtype=torch.bfloat16)
    for numerics in (EXACT, ROUNDED):
        got = partial(blocks, scorers(15, 3, 5), 0, numerics=numerics)
        assert torch.equal(got.maximum.double(), torch.full((3, 2), -torch.inf, dtype=torch.float64))
        assert torch.equal(got.sum.double(), torch.zeros(3, 2, dtype=torch.float64))
        assert torch.equal(got.accumulator.double(), torch.zeros(3, 2, 5, dtype=torch.float64))


@pytest.mark.parametrize("garbage", [0.0, math.nan, math.inf, -3.0])
def test_a_partial_of_no_block_leaves_the_prefix_alone(garbage: float) -> None:
    prefix = normal(16, 3, 9).bfloat16()
    state = Partials(torch.full((3,), -torch.inf), torch.zeros(3), torch.full((3, 9), garbage))
    assert torch.equal(combine(prefix, state, scorers(17, 1, 9)[0], None), prefix.double())
    assert torch.equal(combine(prefix, state, scorers(17, 1, 9)[0], None, numerics=ROUNDED), prefix)


def test_only_the_empty_rows_are_ignored() -> None:
    blocks, weight, prefix = snapshots(18, 2, 3, 9), scorers(19, 1, 9)[0], normal(20, 2, 9).bfloat16()
    state = of_scorer(partial(blocks, weight[None], 3, numerics=ROUNDED), 0)
    usual = combine(prefix, state, weight, None)
    state.maximum[0], state.sum[0], state.accumulator[0] = -torch.inf, 0.0, torch.nan
    got = combine(prefix, state, weight, None)
    assert torch.equal(got[0], prefix[0].double())
    assert torch.equal(got[1], usual[1])


@pytest.mark.parametrize("distance", [1e3, -1e3])
def test_scores_far_apart_pick_one_side_without_overflow(distance: float) -> None:
    prefix, accumulator = normal(21, 2, 9).bfloat16(), normal(22, 2, 9).float()
    state = Partials(torch.full((2,), distance), torch.full((2,), 4.0), accumulator)
    got = combine(prefix, state, scorers(23, 1, 9)[0], None)
    assert torch.equal(got, accumulator.double() / 4 if distance > 0 else prefix.double())


def test_huge_scores_have_finite_partials() -> None:
    got = partial(snapshots(24, 3, 8, 64), scorers(25, 2, 64, 1e4), 8)
    assert torch.isfinite(got.maximum).all()
    assert torch.all(got.maximum.abs().amax(-1) > 1e3)
    assert torch.all((got.sum >= 1) & (got.sum <= 8))


def test_unused_blocks_and_storage_order_do_not_matter() -> None:
    blocks, weights = snapshots(26, 3, 6, 9), scorers(27, 2, 9)
    expected = partial(blocks, weights, 2, numerics=ROUNDED)
    blocks[:, 2:] = torch.nan
    for stored in (blocks, blocks.transpose(0, 1).contiguous().transpose(0, 1)):
        got = partial(stored, weights, 2, numerics=ROUNDED)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_a_nan_block_spoils_its_row_alone() -> None:
    blocks, weights = snapshots(28, 3, 4, 9), scorers(29, 2, 9)
    expected = partial(blocks, weights, 4, numerics=ROUNDED)
    blocks[1, 2, 3] = torch.nan
    got = partial(blocks, weights, 4, numerics=ROUNDED)
    for part, wanted in zip(got, expected, strict=True):
        assert part[:, 1].isnan().all()
        assert torch.equal(part[:, [0, 2]], wanted[:, [0, 2]])


def test_the_projection_agrees_with_loops_and_the_partials_are_those_of_the_sweep() -> None:
    x, weight = normal(30, 3, 33).bfloat16(), normal(31, 5, 33).bfloat16()
    blocks, weights = snapshots(32, 3, 4, 33), scorers(33, 2, 33)
    got = projection_attention_residual(x, weight, blocks, weights, num_blocks=3, eps=EPS, numerics=EXACT)
    wanted = [
        [math.fsum(a * b for a, b in zip(row, column, strict=True)) for column in weight.double().tolist()]
        for row in x.double().tolist()
    ]
    assert_agree(got.projection, torch.tensor(wanted, dtype=torch.float64))
    assert all(torch.equal(a, b) for a, b in zip(got[1:], partial(blocks, weights, 3), strict=True))
    stored = projection_attention_residual(x, weight, blocks, weights, num_blocks=3, eps=EPS, numerics=ROUNDED)
    assert stored.projection.double().tolist() == [[to_bfloat16(value) for value in row] for row in wanted]


def test_no_rows_give_no_rows() -> None:
    blocks, weights = snapshots(34, 0, 3, 7), scorers(35, 2, 7)
    state = partial(blocks, weights, 2, numerics=ROUNDED)
    assert (state.maximum.shape, state.accumulator.shape) == ((2, 0), (2, 0, 7))
    empty = torch.zeros(0, 7, dtype=torch.bfloat16)
    assert combine(empty, of_scorer(state, 0), weights[0], None, numerics=ROUNDED).shape == (0, 7)


def test_partial_and_combine_are_differentiable() -> None:
    tensors = [normal(36, 2, 3, 4), normal(37, 1, 4), normal(38, 2, 4), normal(39, 4)]

    def hidden(blocks: Tensor, weights: Tensor, prefix: Tensor, gain: Tensor) -> Tensor:
        return combine(prefix, of_scorer(partial(blocks, weights, 3), 0), weights[0], gain)

    assert torch.autograd.gradcheck(hidden, tuple(x.requires_grad_() for x in tensors))


PARTIAL = {"blocks": torch.ones(2, 3, 4), "score_weights": torch.ones(2, 4), "num_blocks": 2, "eps": EPS}
PROJECTION = PARTIAL | {"x": torch.ones(2, 4), "weight": torch.ones(5, 4)}
COMBINE = {
    "prefix": torch.ones(2, 4), "maximum": torch.ones(2), "sum": torch.ones(2), "accumulator": torch.ones(2, 4),
    "score_weight": torch.ones(4), "output_norm_weight": torch.ones(4), "eps": EPS, "output_eps": OUTPUT_EPS,
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "usual", "change", "message"),
    [
        (attention_residual_partial, PARTIAL, {"blocks": torch.ones(2, 4)}, r"blocks is \[2, 4\]; expected \[T, cap"),
        (attention_residual_partial, PARTIAL, {"score_weights": torch.ones(4)}, r"\[4\]; .* one scorer is score_weig"),
        (attention_residual_partial, PARTIAL, {"score_weights": torch.ones(2, 3)}, r"\[2, 3\]; expected \[S, H\] = \["),
        (attention_residual_partial, PARTIAL, {"num_blocks": 4}, "num_blocks is 4; expected 0…3, the capacity"),
        (attention_residual_partial, PARTIAL, {"num_blocks": -1}, "num_blocks is -1; expected 0…3"),
        (projection_attention_residual, PROJECTION, {"x": torch.ones(3, 4)}, r"x is \[3, 4\]; .* block-major"),
        (projection_attention_residual, PROJECTION, {"x": torch.ones(2, 5)}, r"x is \[2, 5\]; expected \[T, H\] = \[2"),
        (projection_attention_residual, PROJECTION, {"weight": torch.ones(4, 5)}, r"\[4, 5\]; .* looks transposed"),
        (projection_attention_residual, PROJECTION, {"weight": torch.ones(4)}, r"weight is \[4\]; expected \[O, H\]"),
        (attention_residual_combine, COMBINE, {"prefix": torch.ones(4)}, r"prefix is \[4\]; expected \[T, H\]"),
        (attention_residual_combine, COMBINE, {"maximum": torch.ones(2, 2)}, "without the S axis"),
        (attention_residual_combine, COMBINE, {"maximum": torch.ones(3)}, r"maximum is \[3\]; expected \[T\] = \[2\]"),
        (attention_residual_combine, COMBINE, {"sum": torch.ones(3)}, r"sum is \[3\]; expected \[T\] = \[2\]"),
        (attention_residual_combine, COMBINE, {"accumulator": torch.ones(2, 3)}, r"accumulator is \[2, 3\]; expected"),
        (attention_residual_combine, COMBINE, {"score_weight": torch.ones(3)}, r"score_weight is \[3\]; expected \[H"),
        (attention_residual_combine, COMBINE, {"output_norm_weight": torch.ones(5)}, r"output_norm_weight is \[5\]"),
        (attention_residual_combine, COMBINE, {"sum": torch.zeros(2)}, r"rows \[0, 1\] have a maximum of −Inf or a s"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(
    function: Any, usual: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    function(**usual)
    with pytest.raises(ValueError, match=f"{function.__name__}: .*{message}"):
        function(**usual | change)
