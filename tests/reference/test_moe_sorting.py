from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from reference.moe_sorting import MoeSorting, moe_sorting, route_sort, sorted_capacity
from reference.numerics import EXACT, ROUNDED
from reference.routing import route

PACKING = 16777216


def by_buckets(
    ids: list[list[int]],
    weights: list[list[float]],
    experts: int,
    block: int,
    mask: list[int] | None,
    rows: int | None,
) -> tuple[list[int], list[float], list[int], list[int]]:
    """Valid entries only: sorted ids and weights, the experts of the blocks, the two counts."""
    top_k = len(ids[0])
    buckets: dict[int, list[tuple[int, int]]] = {}
    for token in range(len(ids) if rows is None else rows):
        for slot in range(top_k):
            buckets.setdefault(ids[token][slot], []).append((token, slot))
    packed, carried, owners, local = [], [], [], 0
    for expert in range(experts):
        if mask is not None and not mask[expert]:
            continue
        pairs = buckets.get(expert, [])
        while len(pairs) % block:
            pairs = [*pairs, (len(ids), top_k)]
        packed += [slot * PACKING + token for token, slot in pairs]
        carried += [weights[t][s] if s < top_k else 0.0 for t, s in pairs]
        owners += [local] * (len(pairs) // block)
        local += 1
    return packed, carried, owners, [len(packed), len(ids) if rows is None else rows]


def assert_agrees(
    ids: list[list[int]],
    *,
    experts: int,
    block: int,
    mask: list[int] | None = None,
    rows: int | None = None,
) -> MoeSorting:
    generator = random.Random(len(ids))
    weights = [[generator.random() for _ in row] for row in ids]
    got = moe_sorting(
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(weights, dtype=torch.float64),
        num_experts=experts,
        block_size=block,
        expert_mask=None if mask is None else torch.tensor(mask, dtype=torch.int32),
        num_local_tokens=None if rows is None else torch.tensor([rows], dtype=torch.int32),
        numerics=EXACT,
    )
    packed, carried, owners, counts = by_buckets(ids, weights, experts, block, mask, rows)
    assert got.num_valid_ids.tolist() == counts
    capacity = len(ids) * len(ids[0]) + experts * block - len(ids[0])
    blocks = (capacity + block - 1) // block
    rest = capacity - len(packed)
    padding = len(ids[0]) * PACKING + len(ids)
    assert got.sorted_ids.tolist() == packed + [padding] * rest
    assert got.sorted_weights.tolist() == carried + [0.0] * rest
    assert got.sorted_expert_ids.tolist() == owners + [-1] * (blocks - len(owners))
    return got


def distinct_ids(generator: random.Random, rows: int, top_k: int, experts: int) -> list[list[int]]:
    return [generator.sample(range(experts), top_k) for _ in range(rows)]


def sort(ids: Tensor, **options: Any) -> MoeSorting:
    return moe_sorting(ids, torch.ones(ids.shape), **options)


@pytest.mark.parametrize(
    ("rows", "top_k", "experts", "block"),
    [
        (1, 1, 1, 1),
        (1, 3, 3, 2),
        (5, 2, 7, 3),
        (33, 4, 60, 8),
        (9, 3, 160, 5),
        (7, 8, 513, 32),
        (3, 5, 1025, 4),
        (1, 16, 896, 32),
        (17, 16, 896, 32),
    ],
)
def test_agrees_with_buckets(rows: int, top_k: int, experts: int, block: int) -> None:
    generator = random.Random(rows * experts)
    ids = distinct_ids(generator, rows, top_k, experts)
    assert_agrees(ids, experts=experts, block=block)
    mask = [generator.randint(0, 1) for _ in range(experts)]
    assert_agrees(ids, experts=experts, block=block, mask=mask)
    assert_agrees(ids, experts=experts, block=block, mask=mask, rows=rows // 2)


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_buckets_on_repeated_and_invalid_ids(seed: int) -> None:
    generator = random.Random(seed)
    experts = generator.randint(4, 12)
    values = [-1, experts, experts + 5, -(2**31), 2**31 - 1, *range(experts)]
    rows, top_k = generator.randint(1, 9), generator.randint(1, 4)
    ids = [[generator.choice(values) for _ in range(top_k)] for _ in range(rows)]
    mask = [generator.randint(0, 1) for _ in range(experts)]
    assert_agrees(
        ids,
        experts=experts,
        block=generator.randint(1, 5),
        mask=generator.choice((None, mask)),
        rows=generator.choice((None, generator.randint(0, rows))),
    )


def test_every_token_count_up_to_128_is_right_for_every_expert() -> None:
    generator = random.Random(0)
    for rows in range(1, 129):
        assert_agrees(distinct_ids(generator, rows, 2, 8), experts=8, block=4)


def test_an_expert_past_1024_is_counted() -> None:
    got = assert_agrees([[1030, 1024, 3]], experts=1031, block=2)
    assert got.sorted_expert_ids[:3].tolist() == [3, 1024, 1030]


def test_one_row_of_k3_takes_one_block_an_expert() -> None:
    ids = list(range(3, 899, 56))
    got = assert_agrees([ids[::-1]], experts=896, block=32)
    assert got.num_valid_ids.tolist() == [512, 1]
    assert got.sorted_expert_ids[:16].tolist() == ids
    assert got.sorted_ids[:512:32].tolist() == [slot << 24 for slot in range(15, -1, -1)]
    assert set(got.sorted_ids[1:32].tolist()) == {16 << 24 | 1}
    assert len(got.sorted_ids) == 28672


def test_all_ids_minus_one_leave_no_valid_block() -> None:
    got = assert_agrees([[-1, -1]] * 5, experts=4, block=8)
    assert got.num_valid_ids.tolist() == [0, 5]


def test_ids_out_of_range_are_skipped() -> None:
    got = assert_agrees([[-1, 4], [9, 2], [-7, 2]], experts=4, block=2)
    assert got.sorted_ids[:2].tolist() == [1 << 24 | 1, 1 << 24 | 2]
    assert got.num_valid_ids.tolist() == [2, 3]


def test_an_expert_twice_in_a_row_keeps_both_slots() -> None:
    row = [121, 62, 117, 62, 32, 13]
    got = assert_agrees([row], experts=128, block=4)
    run = got.sorted_ids[8:12].tolist()
    assert run[:2] == [1 << 24, 3 << 24]
    assert got.sorted_expert_ids[2].item() == 62


@pytest.mark.parametrize("expert", [0, 3, 5])
def test_one_expert_may_take_everything(expert: int) -> None:
    got = assert_agrees([[expert] * 4] * 4, experts=6, block=4)
    assert got.num_valid_ids.tolist() == [16, 4]
    assert got.sorted_expert_ids[:4].tolist() == [expert] * 4
    expected = [slot << 24 | token for token in range(4) for slot in range(4)]
    assert got.sorted_ids[:16].tolist() == expected


def test_an_expert_without_tokens_takes_no_block() -> None:
    got = assert_agrees([[1, 3]] * 3, experts=5, block=2)
    assert got.sorted_expert_ids[:4].tolist() == [1, 1, 3, 3]


def test_a_full_block_gets_no_padding() -> None:
    got = assert_agrees([[0], [0], [0], [0]], experts=2, block=4)
    assert got.num_valid_ids.tolist() == [4, 4]
    assert got.sorted_ids[:4].tolist() == [0, 1, 2, 3]


def test_experts_are_numbered_among_the_unmasked() -> None:
    got = assert_agrees([[0, 1], [3, 4]], experts=5, block=1, mask=[0, 1, 0, 1, 1])
    assert got.sorted_expert_ids[:3].tolist() == [0, 1, 2]
    assert got.sorted_ids[:3].tolist() == [1 << 24, 1, 1 << 24 | 1]


def test_an_unmasked_expert_without_tokens_still_has_a_number() -> None:
    got = assert_agrees([[4]], experts=5, block=1, mask=[1, 1, 0, 0, 1])
    assert got.sorted_expert_ids[0].item() == 2


def test_a_mask_of_zeros_leaves_nothing() -> None:
    got = assert_agrees([[0, 1]], experts=2, block=4, mask=[0, 0])
    assert got.num_valid_ids.tolist() == [0, 1]


def test_the_parts_of_a_split_mask_hold_each_pair_once() -> None:
    generator = random.Random(3)
    ids = distinct_ids(generator, 11, 4, 12)
    seen = []
    for rank in range(3):
        mask = [int(expert // 4 == rank) for expert in range(12)]
        got = assert_agrees(ids, experts=12, block=4, mask=mask)
        valid = got.sorted_ids[: got.num_valid_ids[0]].tolist()
        seen += [packed for packed in valid if packed != 4 << 24 | 11]
    assert sorted(seen) == sorted(s << 24 | t for t in range(11) for s in range(4))


@pytest.mark.parametrize("rows", range(6))
def test_rows_from_the_local_count_on_are_skipped_and_the_padding_is_static(rows: int) -> None:
    got = assert_agrees([[0, 1]] * 5, experts=2, block=4, rows=rows)
    assert got.num_valid_ids[1].item() == rows
    assert got.sorted_ids[-1].item() == 2 << 24 | 5


def test_the_first_expert_may_be_empty() -> None:
    ids = [[1, 2]] * 3 + [[1, 3]] * 2
    got = assert_agrees(ids, experts=4, block=8)
    assert got.num_valid_ids.tolist() == [24, 5]


def test_the_largest_slot_packs_without_a_sign() -> None:
    got = assert_agrees([list(range(127))], experts=127, block=1)
    assert got.sorted_ids[:127].tolist() == [slot << 24 for slot in range(127)]
    assert (got.sorted_ids >= 0).all()


@pytest.mark.parametrize("mask", [None, torch.tensor([1, 0, 1])])
def test_no_rows_leave_no_valid_block(mask: Tensor | None) -> None:
    ids = torch.empty(0, 2, dtype=torch.int32)
    got = sort(ids, num_experts=3, block_size=4, expert_mask=mask)
    assert got.num_valid_ids.tolist() == [0, 0]
    assert got.sorted_ids.tolist() == [2 << 24] * 10
    assert got.sorted_expert_ids.tolist() == [-1] * 3


@pytest.mark.parametrize(
    ("rows", "top_k", "experts", "block", "slots", "blocks"),
    [(1, 16, 896, 32, 28672, 896), (2, 3, 4, 5, 23, 5), (0, 2, 3, 4, 10, 3), (0, 8, 1, 1, 0, 0)],
)
def test_capacity_is_that_of_the_sorter(
    rows: int, top_k: int, experts: int, block: int, slots: int, blocks: int
) -> None:
    assert sorted_capacity(rows, top_k, experts, block) == (slots, blocks)


def test_the_capacity_is_enough_for_the_worst_distribution() -> None:
    """Every expert one past a whole number of blocks leaves the least room."""
    for experts, top_k, block in ((3, 3, 4), (5, 2, 3), (4, 1, 7)):
        pairs = [expert for expert in range(experts) for _ in range(1 + block * top_k)]
        pairs += [-1] * (-len(pairs) % top_k)
        ids = [pairs[start : start + top_k] for start in range(0, len(pairs), top_k)]
        assert_agrees(ids, experts=experts, block=block)


def test_the_buffer_comes_back_zeroed_whatever_it_held() -> None:
    ids = torch.tensor([[0, 1]], dtype=torch.int32)
    buffer = torch.full((1, 6), torch.nan, dtype=torch.bfloat16)
    got = sort(ids, num_experts=2, block_size=2, output_buffer=buffer)
    assert torch.equal(got.output_buffer, torch.zeros(1, 6, dtype=torch.bfloat16))
    assert buffer.isnan().all()
    assert sort(ids, num_experts=2, block_size=2).output_buffer is None


@pytest.mark.parametrize(("numerics", "dtype"), [(EXACT, torch.float64), (ROUNDED, torch.float32)])
def test_metadata_is_int32_and_weights_fp32_when_rounding(numerics: Any, dtype: torch.dtype) -> None:
    ids = torch.tensor([[1, 0]], dtype=torch.int32)
    weights = torch.tensor([[0.1, 0.7]])
    got = moe_sorting(ids, weights, num_experts=2, block_size=1, numerics=numerics)
    for metadata in (got.sorted_ids, got.sorted_expert_ids, got.num_valid_ids):
        assert metadata.dtype == torch.int32
    assert got.sorted_weights.dtype == dtype
    assert torch.equal(got.sorted_weights.float(), weights[0, [1, 0]])


def test_inputs_are_left_alone() -> None:
    ids = torch.tensor([[1, -1], [0, 5]], dtype=torch.int32)
    mask = torch.tensor([1, 0])
    before = ids.clone(), mask.clone()
    sort(ids, num_experts=2, block_size=2, expert_mask=mask)
    assert torch.equal(ids, before[0])
    assert torch.equal(mask, before[1])


def test_route_sort_sorts_what_route_chose() -> None:
    logits = torch.randn(6, 24, generator=torch.Generator().manual_seed(4))
    bias = torch.linspace(-0.2, 0.2, 24)
    options = {"top_k": 4, "num_groups": 4, "top_groups": 2, "scaling_factor": 2.5}
    mask = torch.tensor([0, 1] * 12)
    rows = torch.tensor([5], dtype=torch.int32)
    routing = route(logits, bias, **options)
    sorting = moe_sorting(*routing, num_experts=24, block_size=3, expert_mask=mask, num_local_tokens=rows)
    both = route_sort(logits, bias, block_size=3, expert_mask=mask, num_local_tokens=rows, **options)
    for got, wanted in zip(both[:6], [*routing, *sorting[:4]], strict=True):
        assert torch.equal(got, wanted)
    assert both.output_buffer is None


def test_route_sort_breaks_a_tie_at_the_cut_and_sorts_physical_ids() -> None:
    logits = torch.full((1, 896), -3.0)
    equal = list(range(5, 5 + 18 * 40, 40))
    logits[0, equal] = 2.0
    physical = torch.arange(895, -1, -1)
    buffer = torch.ones(1, 3)
    got = route_sort(
        logits, torch.zeros(896), top_k=16, block_size=32, logical_to_physical=physical,
        output_buffer=buffer,
    )  # fmt: skip
    assert got.expert_ids[0].tolist() == [895 - expert for expert in equal[:16]]
    assert got.sorted_expert_ids[:16].tolist() == sorted(got.expert_ids[0].tolist())
    assert got.sorted_ids[:512:32].tolist() == [slot << 24 for slot in range(15, -1, -1)]
    assert got.sorted_weights[:512:32].tolist() == [1 / 16] * 16
    assert got.num_valid_ids.tolist() == [512, 1]
    assert got.output_buffer.tolist() == [[0.0, 0.0, 0.0]]


def test_route_sort_of_garbage_sorts_the_first_ids() -> None:
    got = route_sort(torch.full((2, 6), torch.nan), top_k=2, block_size=2)
    assert got.sorted_expert_ids[:2].tolist() == [0, 1]
    assert got.sorted_ids[:4].tolist() == [0, 1, 1 << 24, 1 << 24 | 1]
    assert got.sorted_weights[:4].tolist() == [0.0] * 4


def test_route_sort_weighs_and_sorts_given_experts() -> None:
    chosen = torch.tensor([[2, 0]], dtype=torch.int32)
    got = route_sort(torch.zeros(1, 3), top_k=2, block_size=1, chosen=chosen)
    assert got.sorted_expert_ids[:2].tolist() == [0, 2]
    assert got.sorted_ids[:2].tolist() == [1 << 24, 0]


@pytest.mark.parametrize("shape", [(1 << 24, 1), (1, 128), (1 << 24, 128)])
def test_ids_that_do_not_pack_are_refused(shape: tuple[int, int]) -> None:
    ids = torch.zeros(1, 1, dtype=torch.int32).expand(shape)
    message = f"moe_sorting: {shape[0]} rows × {shape[1]} slots do not pack"
    with pytest.raises(ValueError, match=message):
        moe_sorting(ids, torch.ones(1, 1).expand(shape), num_experts=1, block_size=1)


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (6,), (3, 2, 1)])
def test_weights_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    ids = torch.zeros(3, 2, dtype=torch.int32)
    message = r"moe_sorting: expert_weights is \[.*\]; expected \[T, k\] = \[3, 2\]"
    with pytest.raises(ValueError, match=message):
        moe_sorting(ids, torch.ones(shape), num_experts=2, block_size=2)


def test_route_sort_refuses_what_its_parts_refuse() -> None:
    with pytest.raises(ValueError, match="route: top_k is 4; 1 groups of 3 hold 3"):
        route_sort(torch.zeros(1, 3), top_k=4, block_size=2)
    with pytest.raises(ValueError, match="moe_sorting: 1 rows × 128 slots do not pack"):
        route_sort(torch.zeros(1, 130), top_k=128, block_size=2)
