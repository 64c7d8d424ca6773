from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from reference.attention_states import AttentionState, merge_attention_states, mla_reduce_project_gate
from reference.mla import mla_decode, mla_prefill
from reference.numerics import EXACT, ROUNDED, Variant, perturbed, rounded

AGREEMENT = 1e-12
"""Difference of two float64 formulations, relative to the largest magnitude of the row."""

PAGE = 4
SCALE = 20**-0.5


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Inputs(NamedTuple):
    """The tensors of one decode call, in the order of the operator's arguments."""

    q_latent: Tensor
    q_pe: Tensor
    kv_pages: Tensor
    page_table: Tensor
    seq_lens: Tensor


def inputs(seed: int, lengths: list[int], heads: int = 3, latent: int = 7, position: int = 2) -> Inputs:
    """Pages in random order, NaN wherever no key is, ids out of range past the lengths."""
    columns = max(-(-max([*lengths, 1]) // PAGE), 1) + 1
    pages = torch.full((len(lengths) * columns + 1, PAGE, latent + position), torch.nan, dtype=torch.float64)
    order = torch.randperm(len(pages), generator=torch.Generator().manual_seed(seed))
    table = torch.full((len(lengths), columns), 10**6, dtype=torch.int32)
    for row, length in enumerate(lengths):
        used = -(-length // PAGE)
        table[row, :used] = order[row * columns : row * columns + used]
        for token in range(length):
            pages[table[row, token // PAGE], token % PAGE] = normal(1000 * seed + 50 * row + token, latent + position)
    query = normal(seed, len(lengths), heads, latent + position)
    return Inputs(query[..., :latent], query[..., latent:], pages, table, torch.tensor(lengths))


def decode(tensors: Inputs, num_splits: int = 1, **options: Any) -> AttentionState:
    return mla_decode(*tensors, num_splits=num_splits, **({"softmax_scale": SCALE, "numerics": EXACT} | options))


def keys_of(tensors: Inputs, row: int) -> list[list[float]]:
    return [
        tensors.kv_pages[tensors.page_table[row, token // PAGE], token % PAGE].tolist()
        for token in range(int(tensors.seq_lens[row]))
    ]


def attention_by_loops(query: list[float], keys: list[list[float]], width: int) -> tuple[list[float], float]:
    """One query over its keys; the values are the first `width` elements of each."""
    if not keys:
        return [0.0] * width, -math.inf
    scores = [SCALE * math.fsum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    masses = [math.exp(score - max(scores)) for score in scores]
    total = math.fsum(masses)
    mean = [math.fsum(m * key[i] for m, key in zip(masses, keys, strict=True)) / total for i in range(width)]
    return mean, max(scores) + math.log(total)


def assert_agree(got: Tensor, wanted: Any) -> None:
    expected = torch.as_tensor(wanted, dtype=torch.float64)
    assert got.shape == expected.shape
    infinite = torch.isinf(expected)
    assert torch.equal(got[infinite], expected[infinite])
    difference = torch.where(infinite, 0.0, got - expected).abs()
    scale = torch.where(infinite, 0.0, expected).abs().amax(-1, keepdim=True).clamp(min=1.0)
    assert torch.all(difference <= AGREEMENT * scale)


LENGTHS = [[1], [0, 3, 4, 5], [9, 0, 17], [33]]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("num_splits", [1, 2, 7])
def test_decode_agrees_with_loops(lengths: list[int], num_splits: int) -> None:
    tensors = inputs(len(lengths), lengths)
    got = decode(tensors, num_splits)
    query = torch.cat(tensors[:2], -1).tolist()
    wanted = [[attention_by_loops(q, keys_of(tensors, row), 7) for q in query[row]] for row in range(len(lengths))]
    assert_agree(got.out, [[mean for mean, _ in row] for row in wanted])
    assert_agree(got.lse, [[lse for _, lse in row] for row in wanted])


def test_absorbed_attention_is_expanded_attention() -> None:
    """Keys and values of every head written out from the latents, as the model defines them."""
    heads, nope, latent, position, value, length = 3, 5, 7, 2, 4, 11
    q_nope, q_pe = normal(1, 1, heads, nope), normal(2, 1, heads, position)
    key_weight, value_weight = normal(3, heads, nope, latent), normal(4, heads, value, latent)
    cache, gate = normal(5, length, latent + position), normal(6, 1, heads * value)

    keys = torch.einsum("hnl,tl->thn", key_weight, cache[:, :latent])
    keys = torch.cat([keys, cache[:, None, latent:].expand(-1, heads, -1)], -1)
    values = torch.einsum("hvl,tl->thv", value_weight, cache[:, :latent])
    score = torch.einsum("hd,thd->ht", torch.cat([q_nope, q_pe], -1)[0], keys) * SCALE
    expanded = torch.einsum("ht,thv->hv", torch.softmax(score, -1), values).flatten() * torch.sigmoid(gate[0])

    pages = torch.full((3, PAGE, latent + position), torch.nan, dtype=torch.float64)
    pages.view(-1, latent + position)[:length] = cache
    absorbed = Inputs(
        torch.einsum("thn,hnl->thl", q_nope, key_weight), q_pe, pages, torch.arange(3)[None], torch.tensor([length])
    )
    for num_splits in (1, 2, 3, 8):
        state = decode(absorbed, num_splits)
        merged = mla_reduce_project_gate(state.out[:, None], state.lse[:, None], value_weight, gate, numerics=EXACT)
        assert_agree(merged, expanded[None])
        assert_agree(state.lse, torch.logsumexp(score, -1)[None])


@pytest.mark.parametrize("num_splits", range(1, 33))
def test_split_is_whole(num_splits: int) -> None:
    tensors = inputs(3, [0, 1, 5, 41, 64])
    whole, split = decode(tensors), decode(tensors, num_splits)
    assert_agree(split.out, whole.out)
    assert_agree(split.lse, whole.lse)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, 16, 17])
def test_the_parts_of_a_sequence_merge_to_the_whole(cut: int) -> None:
    """Prefix and suffix attended by two calls and merged by the operator, as chunked prefill does."""
    query, kv = normal(1, 1, 2, 6), normal(2, 17, 6)
    options = {"latent_width": 4, "softmax_scale": SCALE, "causal": False, "numerics": EXACT}
    row = torch.tensor([0, 1])

    def over(keys: Tensor) -> AttentionState:
        return mla_prefill(query, keys, row, kv_cu_seqlens=torch.tensor([0, len(keys)]), **options)

    whole, a, b = over(kv), over(kv[:cut]), over(kv[cut:])
    merged = merge_attention_states(*a, *b, numerics=EXACT)
    assert_agree(merged.out, whole.out)
    assert_agree(merged.lse, whole.lse)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("rows", "keys"), [([3, 0, 1, 5], None), ([2, 3], [6, 3]), ([4, 2], [1, 0])])
def test_prefill_agrees_with_loops(rows: list[int], keys: list[int] | None, causal: bool) -> None:
    counts = keys or rows
    query, kv = normal(1, sum(rows) + 2, 3, 9), normal(2, sum(counts) + 1, 9)
    cu, key_cu = (torch.tensor([sum(n[:i]) for i in range(len(n) + 1)]) for n in (rows, counts))
    got = mla_prefill(
        query, kv, cu, latent_width=7, softmax_scale=SCALE, causal=causal,
        kv_cu_seqlens=None if keys is None else key_cu, numerics=EXACT,
    )  # fmt: skip
    outs, lses = [[[0.0] * 7] * 3 for _ in range(len(query))], [[-math.inf] * 3 for _ in range(len(query))]
    for sequence, (count, held) in enumerate(zip(rows, counts, strict=True)):
        own = kv[key_cu[sequence] : key_cu[sequence + 1]].tolist()
        for i in range(count):
            seen = own[: max(i + held - count + 1, 0)] if causal else own
            found = [attention_by_loops(q, seen, 7) for q in query[int(cu[sequence]) + i].tolist()]
            outs[int(cu[sequence]) + i] = [mean for mean, _ in found]
            lses[int(cu[sequence]) + i] = [lse for _, lse in found]
    assert_agree(got.out, outs)
    assert_agree(got.lse, lses)


def test_the_last_row_of_a_prefill_is_a_decode_step() -> None:
    tensors = inputs(5, [13])
    kv = torch.tensor(keys_of(tensors, 0), dtype=torch.float64)
    query = torch.cat([normal(9, 12, 3, 9), torch.cat(tensors[:2], -1)])
    prefill = mla_prefill(query, kv, torch.tensor([0, 13]), latent_width=7, softmax_scale=SCALE, numerics=EXACT)
    step = decode(tensors, 3)
    assert_agree(prefill.out[-1:], step.out)
    assert_agree(prefill.lse[-1:], step.lse)


def test_what_comes_later_changes_no_earlier_row() -> None:
    query, kv, cu = normal(1, 9, 2, 6), normal(2, 9, 6), torch.tensor([0, 9])
    options = {"latent_width": 4, "softmax_scale": SCALE}
    before = mla_prefill(query.bfloat16(), kv.bfloat16(), cu, **options)
    query[5:], kv[5:] = normal(3, 4, 2, 6), normal(4, 4, 6)
    after = mla_prefill(query.bfloat16(), kv.bfloat16(), cu, **options)
    for x, y in zip(before, after, strict=True):
        assert torch.equal(x[:5], y[:5])
        assert not torch.equal(x[5:], y[5:])


def test_length_zero_gives_zeros_and_minus_infinity() -> None:
    for numerics in (EXACT, ROUNDED, perturbed(1)):
        got = decode(inputs(6, [0, 0]), 4, numerics=numerics)
        assert not got.out.any()
        assert torch.equal(got.lse, torch.full_like(got.lse, -torch.inf))


def test_one_key_is_returned_as_it_is() -> None:
    tensors = Inputs(*(x.bfloat16() if x.is_floating_point() else x for x in inputs(7, [1, 1])))
    got = decode(tensors, 3, numerics=ROUNDED)
    wanted = torch.tensor([keys_of(tensors, row)[0][:7] for row in (0, 1)])
    assert torch.equal(got.out.double(), wanted.double()[:, None].expand(2, 3, 7))


def test_equal_scores_give_the_mean_and_the_log_of_the_count() -> None:
    tensors = inputs(8, [10])
    tensors.q_latent[:], tensors.q_pe[:] = 0, 0
    got = decode(tensors, 2)
    keys = torch.tensor(keys_of(tensors, 0), dtype=torch.float64)
    assert_agree(got.out, keys[:, :7].mean(0).expand(1, 3, 7))
    assert_agree(got.lse, torch.full((1, 3), math.log(10), dtype=torch.float64))


@pytest.mark.parametrize("offset", [-1e4, -300.0, 300.0, 1e4])
def test_scores_far_from_zero_neither_overflow_nor_vanish(offset: float) -> None:
    tensors = inputs(9, [9, 5])
    tensors.q_pe[..., -1] = offset / SCALE
    tensors.kv_pages[..., -1] = torch.where(tensors.kv_pages[..., -1].isnan(), torch.nan, 1.0)
    usual = decode(tensors._replace(q_pe=tensors.q_pe * torch.tensor([1.0, 0.0])))
    got = decode(tensors, 3)
    assert torch.all((got.out - usual.out).abs() <= 1e-10)
    assert torch.all((got.lse - usual.lse - offset).abs() <= 1e-10)


def test_a_page_outside_the_pool_is_skipped() -> None:
    tensors = inputs(10, [12])
    for bad in (-1, len(tensors.kv_pages), 2**31 - 1):
        table = tensors.page_table.clone()
        table[0, 1] = bad
        got = decode(tensors._replace(page_table=table), 2)
        keys = keys_of(tensors, 0)
        wanted = [attention_by_loops(q, keys[:4] + keys[8:], 7) for q in torch.cat(tensors[:2], -1)[0].tolist()]
        assert_agree(got.out, [[mean for mean, _ in wanted]])


def test_nan_in_a_key_or_a_query_stays_in_its_row_and_head() -> None:
    tensors = inputs(11, [6, 6, 6])
    usual = decode(tensors)
    tensors.kv_pages[tensors.page_table[0, 0], 2, 1] = torch.nan
    tensors.q_latent[1, 2, 0] = torch.nan
    got = decode(tensors, 1)
    assert got.out[0].isnan().all()
    assert got.out[1, 2].isnan().all()
    assert got.lse[1, 2].isnan()
    assert torch.equal(got.out[1, :2], usual.out[1, :2])
    assert torch.equal(got.out[2], usual.out[2])


def test_partial_latents_are_rounded_where_the_variant_says() -> None:
    tensors = Inputs(*(x.bfloat16() if x.is_floating_point() else x for x in inputs(12, [40, 33])))
    variant = Variant("test", "", adds=frozenset({"partial_latent"}))
    reading = rounded(variant)
    with reading.trace() as trace:
        got = decode(tensors, 4, numerics=reading)
    stored = trace["partial_latent"]
    assert torch.equal(stored, stored.bfloat16().double())
    assert not torch.equal(got.out, decode(tensors, 4, numerics=ROUNDED).out)
    with ROUNDED.trace() as trace:
        decode(tensors, 4, numerics=ROUNDED)
    assert not torch.equal(trace["partial_latent"], trace["partial_latent"].bfloat16().double())


def test_probabilities_are_rounded_to_bf16() -> None:
    tensors = inputs(13, [9])
    with ROUNDED.trace() as trace:
        decode(tensors, numerics=ROUNDED)
    assert torch.equal(trace["probability"], trace["probability"].bfloat16().double())
    assert not torch.equal(trace["probability"], trace["share"])


def test_no_rows_and_no_heads_give_none() -> None:
    got = decode(Inputs(*(x[:0] if i != 2 else x for i, x in enumerate(inputs(14, [3])))), 3)
    assert got.out.shape == (0, 3, 7)
    assert got.lse.shape == (0, 3)
    none = mla_prefill(
        normal(1, 0, 3, 9), normal(2, 0, 9), torch.tensor([0]), latent_width=7, softmax_scale=SCALE, numerics=EXACT
    )
    assert none.out.shape == (0, 3, 7)


def test_inputs_are_left_alone() -> None:
    tensors = inputs(15, [5, 9])
    before = [x.clone() for x in tensors]
    decode(tensors, 2)
    assert all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(before, tensors, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_latent": torch.zeros(2, 7)}, r"q_latent is \[2, 7\]; expected \[T, N, L\]"),
        ({"q_pe": torch.zeros(2, 4, 2)}, r"q_pe is \[2, 4, 2\]; expected \[T, N, R\]"),
        ({"kv_pages": torch.zeros(5, PAGE, 8)}, r"kv_pages is \[5, 4, 8\]; expected \[pages, page size, L\+R\]"),
        ({"kv_pages": torch.zeros(5, PAGE, 1, 9)}, "drop the axis of one key head"),
        ({"page_table": torch.zeros(3, 2, dtype=torch.int32)}, r"page_table is \[3, 2\]; expected \[T, P\]"),
        ({"page_table": torch.zeros(2, 0, dtype=torch.int32)}, "page_table has no column"),
        ({"page_table": torch.zeros(2, 2)}, "page_table is torch.float32; expected int32 or int64"),
        ({"seq_lens": torch.tensor([1, 9])}, r"seq_lens holds \[9\]; expected 0…8, what 2 pages of 4 hold"),
        ({"seq_lens": torch.tensor([-1, 2])}, r"seq_lens holds \[-1\]; expected 0…8"),
        ({"seq_lens": torch.tensor([1, 2, 3])}, r"seq_lens is \[3\]; expected \[T\]"),
        ({"num_splits": 0}, "num_splits is 0; expected 1 or more"),
    ],
)
def test_decode_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    usual = {
        "q_latent": torch.zeros(2, 3, 7), "q_pe": torch.zeros(2, 3, 2), "kv_pages": torch.zeros(5, PAGE, 9),
        "page_table": torch.zeros(2, 2, dtype=torch.int32), "seq_lens": torch.tensor([1, 2]), "softmax_scale": 1.0,
    }  # fmt: skip
    mla_decode(**usual)
    with pytest.raises(ValueError, match=f"mla_decode: .*{message}"):
        mla_decode(**(usual | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(4, 9)}, r"query is \[4, 9\]; expected \[T, N, L\+R\]"),
        ({"kv": torch.zeros(4, 3, 9)}, "the latent form that all heads share"),
        ({"cu_seqlens": torch.tensor([1, 4])}, "lengths, not their running sum from 0"),
        ({"cu_seqlens": torch.tensor([0, 3, 2])}, r"cu_seqlens is \[0, 3, 2\]; expected offsets that rise"),
        ({"cu_seqlens": torch.tensor([0, 5])}, "expected offsets that rise from 0 to at most 4"),
        ({"cu_seqlens": torch.tensor([0.0, 4.0])}, "cu_seqlens is torch.float32; expected int32 or int64"),
        ({"kv_cu_seqlens": torch.tensor([0, 1, 2])}, r"kv_cu_seqlens is \[3\]; expected \[B\+1\] as cu_seqlens"),
        ({"latent_width": 10}, "latent_width is 10; expected 1…9"),
    ],
)
def test_prefill_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    usual = {
        "query": torch.zeros(4, 3, 9), "kv": torch.zeros(4, 9), "cu_seqlens": torch.tensor([0, 4]),
        "latent_width": 7, "softmax_scale": 1.0,
    }  # fmt: skip
    mla_prefill(**usual)
    with pytest.raises(ValueError, match=f"mla_prefill: .*{message}"):
        mla_prefill(**(usual | change))
