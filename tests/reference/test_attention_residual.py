from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from reference.attention_residual import AttentionResidual, attention_residual
from reference.numerics import EXACT, ROUNDED, Variant, rounded
from verification.budget import derive
from verification.comparison import compare_numbers
from verification.operator import find_operator

AGREEMENT = 1e-12
"""Difference of two float64 formulations, relative to the largest magnitude of the row."""

EPS, OUTPUT_EPS = 1e-6, 2e-6


class Inputs(NamedTuple):
    """The tensors of one call, in the order of the operator's arguments."""

    prefix: Tensor
    delta: Tensor
    blocks: Tensor
    score_weight: Tensor
    output_norm_weight: Tensor


def inputs(seed: int, rows: int, capacity: int, width: int, dtype: torch.dtype = torch.bfloat16) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Inputs(
        normal(rows, width).to(dtype),
        (normal(rows, width) * 0.3).to(dtype),
        normal(rows, capacity, width).to(dtype),
        normal(width).float() / width**0.5 if dtype != torch.float64 else normal(width),
        (1 + normal(width) * 0.1).to(dtype),
    )


def call(tensors: Inputs, num_blocks: int, **options: Any) -> AttentionResidual:
    options = {"eps": EPS, "output_eps": OUTPUT_EPS, "numerics": EXACT} | options
    return attention_residual(*tensors, num_blocks=num_blocks, **options)


def to_bfloat16(value: float) -> float:
    """Ties to even by the integer rounding of the language; normal range only."""
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, 8)), exponent - 8)


def inverse_root(row: list[float], eps: float) -> float:
    return 1 / math.sqrt(math.fsum(x * x for x in row) / len(row) + eps)


def mix_by_loops(candidates: list[list[float]], weight: list[float], eps: float) -> list[float]:
    scores = []
    for row in candidates:
        dot = math.fsum(x * w for x, w in zip(row, weight, strict=True))
        scores.append(inverse_root(row, eps) * dot)
    masses = [math.exp(score - max(scores)) for score in scores]
    total = math.fsum(masses)
    columns = zip(*candidates, strict=True)
    return [math.fsum(mass * x for mass, x in zip(masses, column, strict=True)) / total for column in columns]


def row_by_loops(
    tensors: Inputs,
    row: int,
    num_blocks: int,
    *,
    rounds: frozenset[str] = frozenset(),
) -> list[float]:
    """One row of `hidden`, rounding to bf16 at the points named in `rounds`."""

    def stored(point: str, values: list[float]) -> list[float]:
        return [to_bfloat16(value) for value in values] if point in rounds else values

    prefix, delta = (x[row].double().tolist() for x in (tensors.prefix, tensors.delta))
    summed = [a + b for a, b in zip(prefix, delta, strict=True)]
    blocks = tensors.blocks[row, :num_blocks].double().tolist()
    scorer = stored("score_weight", tensors.score_weight.double().tolist())
    mix = mix_by_loops([*blocks, stored("prefix", summed)], scorer, EPS)
    mix = stored("mix", mix)
    scale = inverse_root(mix, OUTPUT_EPS)
    normalized = stored("output_normalized", [x * scale for x in mix])
    gain = tensors.output_norm_weight.double().tolist()
    return stored("hidden", [x * w for x, w in zip(normalized, gain, strict=True)])


def assert_agree(got: Tensor, wanted: list[list[float]]) -> None:
    expected = torch.tensor(wanted, dtype=torch.float64)
    scale = expected.abs().amax(-1, keepdim=True)
    assert torch.all((got - expected).abs() <= AGREEMENT * scale)


@pytest.mark.parametrize(
    ("rows", "capacity", "num_blocks", "width"),
    [(1, 1, 1, 1), (3, 5, 3, 7), (2, 2, 0, 33), (5, 4, 4, 17), (1, 12, 11, 65), (2, 8, 8, 7168)],
)
def test_agrees_with_loops(rows: int, capacity: int, num_blocks: int, width: int) -> None:
    tensors = inputs(rows + width, rows, capacity, width)
    wanted = [row_by_loops(tensors, row, num_blocks) for row in range(rows)]
    assert_agree(call(tensors, num_blocks).hidden, wanted)


@pytest.mark.parametrize(
    ("adds", "drops"),
    [
        ((), ()),
        ((), ("prefix",)),
        ((), ("mix",)),
        ((), ("mix", "output_normalized")),
        (("score_weight",), ()),
    ],
)
def test_rounds_where_the_variant_says(adds: tuple[str, ...], drops: tuple[str, ...]) -> None:
    tensors = inputs(3, 6, 4, 65)
    points = frozenset({"prefix", "mix", "output_normalized", "hidden"}) - set(drops) | set(adds)
    variant = Variant("test", "", adds=frozenset(adds), drops=frozenset(drops))
    got = call(tensors, 3, numerics=rounded(variant)).hidden
    assert got.dtype == torch.bfloat16
    wanted = [row_by_loops(tensors, row, 3, rounds=points) for row in range(6)]
    assert got.double().tolist() == wanted
    official = call(tensors, 3, numerics=ROUNDED).hidden
    assert torch.equal(got, official) == (not adds and not drops)


def test_without_an_output_norm_the_hidden_row_is_the_mix() -> None:
    tensors = inputs(4, 3, 4, 9)._replace(output_norm_weight=None)
    summed = (tensors.prefix.double() + tensors.delta.double()).tolist()
    wanted = [
        mix_by_loops([*blocks, last], tensors.score_weight.double().tolist(), EPS)
        for blocks, last in zip(tensors.blocks[:, :2].double().tolist(), summed, strict=True)
    ]
    assert_agree(call(tensors, 2).hidden, wanted)
    assert call(tensors, 2, numerics=ROUNDED).hidden.dtype == torch.bfloat16


def test_without_a_block_the_mix_is_the_prefix() -> None:
    tensors = inputs(5, 3, 2, 11)._replace(delta=None, output_norm_weight=None)
    assert torch.equal(call(tensors, 0).hidden, tensors.prefix.double())
    assert torch.equal(call(tensors, 0, numerics=ROUNDED).hidden, tensors.prefix)
    empty = tensors._replace(blocks=tensors.blocks[:, :0])
    assert torch.equal(call(empty, 0, numerics=ROUNDED).hidden, tensors.prefix)


def test_without_a_block_the_output_norm_still_applies() -> None:
    tensors = inputs(6, 2, 3, 8)
    summed = (tensors.prefix.double() + tensors.delta.double()).tolist()
    gain = tensors.output_norm_weight.double().tolist()
    wanted = [[x * inverse_root(row, OUTPUT_EPS) * w for x, w in zip(row, gain, strict=True)] for row in summed]
    assert_agree(call(tensors, 0).hidden, wanted)


def test_unused_blocks_full_of_nan_do_no_harm() -> None:
    tensors = inputs(7, 3, 6, 9)
    expected = call(tensors, 2, numerics=ROUNDED)
    tensors.blocks[:, 2:] = torch.nan
    got = call(tensors, 2, numerics=ROUNDED, block_write_index=2)
    assert torch.equal(got.hidden, expected.hidden)
    assert torch.equal(got.blocks[:, :2], tensors.blocks[:, :2])
    assert got.blocks[:, 3:].isnan().all()


def test_the_block_written_now_is_no_candidate() -> None:
    tensors = inputs(8, 3, 4, 9)
    without = call(tensors, 2, numerics=ROUNDED)
    written = call(tensors, 2, numerics=ROUNDED, block_write_index=2)
    assert torch.equal(without.hidden, written.hidden)
    assert torch.equal(without.prefix, written.prefix)


@pytest.mark.parametrize("index", range(4))
def test_the_write_index_gets_the_new_prefix_and_no_other_block_changes(index: int) -> None:
    tensors = inputs(9, 3, 4, 9)
    got = call(tensors, index, numerics=ROUNDED, block_write_index=index)
    assert torch.equal(got.blocks[:, index], got.prefix)
    others = [block for block in range(4) if block != index]
    assert torch.equal(got.blocks[:, others], tensors.blocks[:, others])
    assert got.blocks.dtype == tensors.blocks.dtype


def test_without_a_write_index_no_block_changes() -> None:
    tensors = inputs(10, 3, 4, 9)
    got = call(tensors, 2, numerics=ROUNDED)
    assert torch.equal(got.blocks, tensors.blocks)


def test_the_prefix_is_the_rounded_sum() -> None:
    tensors = inputs(11, 4, 2, 33)
    got = call(tensors, 1, numerics=ROUNDED).prefix
    summed = (tensors.prefix.double() + tensors.delta.double()).tolist()
    assert got.double().tolist() == [[to_bfloat16(x) for x in row] for row in summed]
    assert call(tensors, 1).prefix.tolist() == summed


def test_a_variant_without_the_prefix_point_still_stores_a_rounded_prefix() -> None:
    tensors = inputs(12, 4, 3, 33)
    numerics = rounded(Variant("unrounded candidate", "", drops=frozenset({"prefix"})))
    got = call(tensors, 1, numerics=numerics, block_write_index=1)
    expected = call(tensors, 1, numerics=ROUNDED, block_write_index=1)
    assert torch.equal(got.prefix, expected.prefix)
    assert torch.equal(got.blocks, expected.blocks)


def test_without_a_delta_the_prefix_keeps_its_bits() -> None:
    tensors = inputs(13, 2, 2, 6)._replace(delta=None)
    tensors.prefix[0] = torch.tensor([0.0, -0.0, 1e-40, -1e-40, 3.3e38, math.inf])
    got = call(tensors, 1, numerics=ROUNDED, block_write_index=1)
    assert torch.equal(got.prefix.view(torch.int16), tensors.prefix.view(torch.int16))
    assert torch.equal(got.blocks[:, 1].view(torch.int16), tensors.prefix.view(torch.int16))


def test_a_deferred_delta_equals_an_eager_add() -> None:
    tensors = inputs(14, 5, 3, 65)
    deferred = call(tensors, 2, numerics=ROUNDED, block_write_index=2)
    eager = tensors._replace(prefix=tensors.prefix + tensors.delta, delta=None)
    expected = call(eager, 2, numerics=ROUNDED, block_write_index=2)
    for got, wanted in zip(deferred, expected, strict=True):
        assert torch.equal(got, wanted)


def test_a_delta_of_zeros_equals_none() -> None:
    tensors = inputs(15, 3, 3, 9)
    zeros = call(tensors._replace(delta=torch.zeros_like(tensors.delta)), 2)
    none = call(tensors._replace(delta=None), 2)
    assert torch.equal(zeros.hidden, none.hidden)


def test_both_storage_orders_and_padded_rows_are_equal() -> None:
    tensors = inputs(16, 3, 5, 9)
    expected = call(tensors, 4, numerics=ROUNDED, block_write_index=4)
    block_major = tensors.blocks.transpose(0, 1).contiguous().transpose(0, 1)
    padded = torch.zeros(3, 5, 16, dtype=torch.bfloat16)
    padded[..., :9] = tensors.blocks
    for blocks in (block_major, padded[..., :9]):
        assert not blocks.is_contiguous()
        strided = tensors._replace(blocks=blocks)
        got = call(strided, 4, numerics=ROUNDED, block_write_index=4)
        for value, wanted in zip(got, expected, strict=True):
            assert torch.equal(value, wanted)


def test_inputs_are_left_alone() -> None:
    tensors = inputs(17, 3, 4, 9)
    before = [x.clone() for x in tensors]
    call(tensors, 2, numerics=ROUNDED, block_write_index=2)
    assert all(torch.equal(x, copy) for x, copy in zip(tensors, before, strict=True))


def test_the_score_eps_and_the_output_eps_are_not_swapped() -> None:
    tensors = inputs(18, 1, 1, 4)._replace(
        prefix=torch.full((1, 4), 3.0),
        delta=None,
        blocks=torch.full((1, 1, 4), 4.0),
        score_weight=torch.ones(4),
        output_norm_weight=torch.ones(4),
    )
    scores = [3 * 4 / math.sqrt(9 + 7), 4 * 4 / math.sqrt(16 + 7)]
    share = 1 / (1 + math.exp(scores[0] - scores[1]))
    mix = 3 + share
    wanted = mix / math.sqrt(mix * mix + 11)
    assert_agree(call(tensors, 1, eps=7.0, output_eps=11.0).hidden, [[wanted] * 4])


def test_a_zero_scorer_gives_the_plain_mean() -> None:
    tensors = inputs(19, 3, 3, 9)._replace(delta=None, score_weight=torch.zeros(9), output_norm_weight=None)
    rows = torch.cat([tensors.blocks, tensors.prefix[:, None]], 1).double().tolist()
    wanted = [[math.fsum(column) / 4 for column in zip(*candidates, strict=True)] for candidates in rows]
    assert_agree(call(tensors, 3).hidden, wanted)


def test_equal_candidates_mix_to_themselves() -> None:
    tensors = inputs(20, 2, 3, 9)._replace(delta=None, output_norm_weight=None)
    equal = tensors._replace(blocks=tensors.prefix[:, None].expand(2, 3, 9))
    assert torch.equal(call(equal, 3, numerics=ROUNDED).hidden, tensors.prefix)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_huge_scorer_picks_one_candidate_without_overflow(sign: float) -> None:
    tensors = inputs(21, 1, 1, 4)._replace(
        prefix=torch.full((1, 4), -2.0),
        delta=None,
        blocks=torch.full((1, 1, 4), 3.0),
        score_weight=torch.full((4,), sign * 1e30),
        output_norm_weight=None,
    )
    assert call(tensors, 1).hidden.tolist() == [[3.0 if sign > 0 else -2.0] * 4]


def test_rows_of_zeros_give_zeros() -> None:
    tensors = inputs(22, 2, 2, 5)
    zeros = Inputs(*(torch.zeros_like(x) for x in tensors[:3]), *tensors[3:])
    assert torch.equal(call(zeros, 2).hidden, torch.zeros(2, 5, dtype=torch.float64))


def test_the_order_of_blocks_does_not_matter() -> None:
    tensors = inputs(23, 3, 4, 9)
    shuffled = tensors._replace(blocks=tensors.blocks[:, [2, 0, 3, 1]])
    wanted = call(tensors, 4).hidden.tolist()
    assert_agree(call(shuffled, 4).hidden, wanted)


def test_rows_are_independent_and_a_bad_row_spoils_only_itself() -> None:
    tensors = inputs(24, 4, 3, 9)
    expected = call(tensors, 2, numerics=ROUNDED).hidden
    for row in range(4):
        part = slice(row, row + 1)
        alone = Inputs(*(x[part] for x in tensors[:3]), *tensors[3:])
        assert torch.equal(call(alone, 2, numerics=ROUNDED).hidden[0], expected[row])
    tensors.blocks[1, 0, 3] = torch.nan
    got = call(tensors, 2, numerics=ROUNDED).hidden
    assert got[1].isnan().all()
    assert torch.equal(got[[0, 2, 3]], expected[[0, 2, 3]])


@pytest.mark.parametrize("capacity", [0, 3])
def test_no_rows_give_no_rows(capacity: int) -> None:
    tensors = inputs(25, 0, capacity, 7168)
    got = call(tensors, capacity, numerics=ROUNDED)
    assert got.hidden.shape == got.prefix.shape == (0, 7168)
    assert got.blocks.shape == (0, capacity, 7168)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("num_blocks", [0, 1, 8])
def test_agrees_with_the_naive_form_of_flash_linear_attention(num_blocks: int, normed: bool) -> None:
    naive = pytest.importorskip("fla.ops.attnres.naive", reason="no fla-core with attnres; it is in the extra `peers`")
    drawn = inputs(9, 5, 8, 96)
    prefix, blocks, norm = drawn.prefix.float(), drawn.blocks.float(), drawn.output_norm_weight.float()
    query, weight = drawn.score_weight.bfloat16(), drawn.output_norm_weight.flip(0)
    arguments = {
        "prefix": prefix, "delta": None, "blocks": blocks,
        "score_weight": query.float() * weight.float(),  # exact: 8 bits times 8 bits
        "output_norm_weight": norm if normed else None,
        "num_blocks": num_blocks, "eps": EPS, "output_eps": EPS, "block_write_index": -1,
    }  # fmt: skip
    golden = derive(find_operator("attention_residual"), arguments)
    sources = [*blocks[:, :num_blocks].contiguous().unbind(1), prefix]
    got = naive.naive_attnres(
        query, [source.contiguous() for source in sources], weight, arguments["output_norm_weight"], EPS
    )
    metrics, findings = compare_numbers("hidden", got, golden.exact["hidden"], golden.budgets["hidden"])
    assert metrics is not None
    assert not findings


def test_named_intermediates_are_traced() -> None:
    tensors = inputs(26, 2, 2, 5)
    with EXACT.trace() as trace:
        got = call(tensors, 2)
    assert trace["probability"].shape == (2, 3)
    assert torch.equal(trace["hidden"], got.hidden)
    for row in trace["probability"].tolist():
        assert math.fsum(row) == pytest.approx(1.0, rel=AGREEMENT, abs=0)


def test_a_layer_walk_keeps_the_snapshots_of_its_block_starts() -> None:
    """Eight layers in blocks of three: a block's first layer stores the prefix that it met."""
    generator = random.Random(27)
    tensors = inputs(27, 2, 3, 5)
    prefix, blocks = tensors.prefix, torch.full_like(tensors.blocks, torch.nan)
    met = []
    for layer in range(8):
        starts = layer % 3 == 0
        valid = math.ceil(layer / 3)
        met += [prefix] if starts else []
        step = tensors._replace(prefix=prefix, delta=None, blocks=blocks)
        index = layer // 3 if starts else -1
        got = call(step, valid, numerics=ROUNDED, block_write_index=index)
        assert not got.hidden.isnan().any()
        blocks = got.blocks
        prefix = (got.prefix.double() * generator.uniform(0.5, 1.5)).bfloat16()
    assert torch.equal(blocks, torch.stack(met, 1))


@pytest.mark.parametrize(("num_blocks", "normed"), [(0, True), (2, True), (3, False)])
def test_the_exact_hidden_rows_are_differentiable(num_blocks: int, normed: bool) -> None:
    tensors = inputs(28, 2, 3, 4, torch.float64)
    arguments = tuple(x.requires_grad_() for x in tensors)

    def hidden(*values: Tensor) -> Tensor:
        weight = values[4] if normed else None
        return call(Inputs(*values[:4], weight), num_blocks).hidden

    assert torch.autograd.gradcheck(hidden, arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefix": torch.ones(4)}, r"prefix is \[4\]; expected \[T, H\]"),
        ({"prefix": torch.ones(1, 2, 4)}, r"prefix is \[1, 2, 4\]; expected \[T, H\]"),
        ({"delta": torch.ones(1, 4)}, r"delta is \[1, 4\]; expected \[T, H\] = \[2, 4\]"),
        ({"blocks": torch.ones(3, 3, 4)}, r"blocks is \[3, 3, 4\]; .* = \[2, any, 4\]"),
        ({"blocks": torch.ones(2, 3, 5)}, r"blocks is \[2, 3, 5\]; expected \[T, capacity, H\]"),
        ({"blocks": torch.ones(2, 4)}, r"blocks is \[2, 4\]; expected \[T, capacity, H\]"),
        ({"score_weight": torch.ones(3)}, r"score_weight is \[3\]; expected \[H\] = \[4\]"),
        ({"output_norm_weight": torch.ones(1, 4)}, r"output_norm_weight is \[1, 4\]; expected"),
        ({"num_blocks": -1}, "num_blocks is -1; expected 0…3, the capacity"),
        ({"num_blocks": 4}, "num_blocks is 4; expected 0…3, the capacity"),
        ({"block_write_index": 1}, "block_write_index is 1; expected −1 or num_blocks = 2 < 3"),
        ({"block_write_index": 3}, "block_write_index is 3; expected −1 or num_blocks = 2 < 3"),
        ({"block_write_index": -2}, "block_write_index is -2; expected −1 or num_blocks"),
        (
            {"num_blocks": 3, "block_write_index": 3},
            "block_write_index is 3; expected −1 or num_blocks = 3 < 3",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {
        "prefix": torch.ones(2, 4),
        "delta": torch.ones(2, 4),
        "blocks": torch.ones(2, 3, 4),
        "score_weight": torch.ones(4),
        "output_norm_weight": torch.ones(4),
        "num_blocks": 2,
        "eps": EPS,
        "output_eps": OUTPUT_EPS,
    }
    with pytest.raises(ValueError, match=f"attention_residual: {message}"):
        attention_residual(**(arguments | change))
