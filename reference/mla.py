from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from reference.attention_states import AttentionState, merge_states
from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics


def mla_decode(
    q_latent: Tensor,
    q_pe: Tensor,
    kv_pages: Tensor,
    page_table: Tensor,
    seq_lens: Tensor,
    *,
    num_splits: int = 1,
    softmax_scale: float,
    numerics: Numerics = ROUNDED,
) -> AttentionState:
    """Absorbed latent attention of one query row a sequence over its pages.

    k = the first seq_lens rows that the pages name; p = softmax((q_latent·k[:L] + q_pe·k[L:]) ·
    softmax_scale), rounded at the point `probability`; latent = Σ p·k[:L]; lse = ln Σ exp(score).

    With num_splits the pages are cut into runs of ⌈pages ÷ num_splits⌉, each attended by itself and
    the results merged; trailing splits may be empty. The point `partial_latent` (off) rounds the
    result of each to bf16. Length 0 gives zeros and −inf. Entries of page_table past the length are
    not read; a page outside the pool is skipped.

    Shapes: q_latent [T, N, L], q_pe [T, N, R] bf16; kv_pages [pages, page size, L+R] bf16, any
    strides; page_table [T, P], seq_lens [T] integers; softmax_scale in 1 ÷ (score before scaling) →
    latent [T, N, L] bf16, lse [T, N] fp32, natural log. Raises ValueError for shapes that do not
    fit and lengths outside 0…P·page size. Source: the absorbed form of DeepSeek-V2's MLA.
    """
    check_decode_arguments(q_latent, q_pe, kv_pages, page_table, seq_lens, num_splits)
    keys, visible = gather_splits(kv_pages, page_table.long(), seq_lens.long(), num_splits, numerics)
    query = torch.cat([numerics.load(q_latent), numerics.load(q_pe)], -1)[:, None]
    partial = attend(query, keys, visible[:, :, None], q_latent.shape[-1], softmax_scale, numerics)
    latents = numerics.round("partial_latent", partial.out, torch.bfloat16, default=False)
    state = merge_states(latents, partial.lse, numerics)
    return AttentionState(
        numerics.output("latent", state.out, q_latent.dtype), numerics.output("lse", state.lse, torch.float32)
    )


def gather_splits(
    kv_pages: Tensor, page_table: Tensor, seq_lens: Tensor, num_splits: int, numerics: Numerics
) -> tuple[Tensor, Tensor]:
    """Keys [T, S, W, L+R] of each split, zero where the mask [T, S, W] of existing ones is false."""
    pages, size, _ = kv_pages.shape
    used = -(-seq_lens // size)
    per_split = -(-used // num_splits)
    offset = torch.arange(max([1, *per_split.tolist()]))
    column = torch.arange(num_splits)[:, None] * per_split[:, None, None] + offset
    inside = (offset < per_split[:, None, None]) & (column < used[:, None, None])
    ids = page_table.gather(1, torch.where(inside, column, 0).flatten(1)).view(column.shape)
    inside &= (ids >= 0) & (ids < pages)
    token = column[..., None] * size + torch.arange(size)
    visible = inside[..., None] & (token < seq_lens[:, None, None, None])
    keys = numerics.load(kv_pages[torch.where(inside, ids, 0)])
    keys = torch.where(visible[..., None], keys, 0.0)
    return keys.flatten(2, 3), visible.flatten(2, 3)


def attend(
    query: Tensor, keys: Tensor, visible: Tensor, latent_width: int, scale: float, numerics: Numerics
) -> AttentionState:
    """Attention of query [..., M, L+R] over the visible of keys [..., W, L+R]; float64, unrounded.

    A probability is rounded as a share of the sum or, before the division, of the largest: the
    unit is the implementation's choice, and with it where the steps of bf16 lie.
    """
    dot = numerics.matmul("dot", query, keys.mT)
    score = torch.where(visible, numerics.computed("score", dot * scale), -torch.inf)
    largest = score.amax(-1, keepdim=True)
    base = torch.where(largest == -torch.inf, 0.0, largest)
    mass = numerics.apply("mass", torch.exp, numerics.computed("distance", score - base))
    total = numerics.sum("mass_sum", mass, -1, keepdim=True)
    divisor = torch.where(total == 0, 1.0, total)
    unit = numerics.between("probability_unit", torch.ones_like(divisor), divisor)
    share = numerics.divide("share", mass, divisor)
    probability = numerics.round("probability", share * unit, torch.bfloat16) / unit
    latent = numerics.matmul("latent_sum", probability, keys[..., :latent_width])
    lse = numerics.computed("partial_lse", base + numerics.apply("mass_log", torch.log, total))
    return AttentionState(latent, lse.squeeze(-1))


def mla_prefill(
    query: Tensor,
    kv: Tensor,
    cu_seqlens: Tensor,
    *,
    latent_width: int,
    softmax_scale: float,
    causal: bool = True,
    kv_cu_seqlens: Tensor | None = None,
    numerics: Numerics = ROUNDED,
) -> AttentionState:
    """Absorbed latent attention of whole sequences, packed one after the other.

    out = softmax(query · kvᵀ · softmax_scale) · kv[:, :L] within each sequence, the probabilities
    rounded at the point `probability`; lse = ln Σ exp(score).

    Query row i of a sequence of n rows over m keys sees, when causal, the keys up to i + m − n: the
    last row sees all. Without kv_cu_seqlens the keys are those of the query rows themselves. Rows
    without a key, and rows past cu_seqlens[-1], give zeros and −inf.

    Shapes: query [T, N, L+R], kv [S, L+R] bf16; cu_seqlens, kv_cu_seqlens [B+1] integers → out
    [T, N, L] bf16, lse [T, N] fp32, natural log. Raises ValueError for shapes and offsets that do
    not fit. Source: the absorbed form of DeepSeek-V2's MLA.
    """
    key_offsets = cu_seqlens if kv_cu_seqlens is None else kv_cu_seqlens
    check_prefill_arguments(query, kv, cu_seqlens, key_offsets, latent_width)
    rows, heads, _ = query.shape
    row_places, row_exists = padded_places(cu_seqlens.long())
    key_places, key_exists = padded_places(key_offsets.long())
    queries = torch.where(row_exists[..., None, None], take(numerics.load(query), row_places), 0.0)
    keys = torch.where(key_exists[..., None], take(numerics.load(kv), key_places), 0.0)
    visible = row_exists[:, :, None] & key_exists[:, None, :]
    if causal:
        last = torch.arange(row_places.shape[1]) + (key_offsets.diff() - cu_seqlens.diff())[:, None]
        visible = visible & (torch.arange(key_places.shape[1]) <= last[..., None])
    visible = visible[:, :, None].expand(-1, -1, heads, -1).flatten(1, 2)
    state = attend(queries.flatten(1, 2), keys, visible, latent_width, softmax_scale, numerics)
    out, lse = queries.new_zeros(rows, heads, latent_width), queries.new_full((rows, heads), -torch.inf)
    out[row_places[row_exists]] = state.out.unflatten(1, (-1, heads))[row_exists]
    lse[row_places[row_exists]] = state.lse.unflatten(1, (-1, heads))[row_exists]
    return AttentionState(numerics.output("out", out, query.dtype), numerics.output("lse", lse, torch.float32))


def padded_places(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Places [B, longest] of each sequence's rows in the packed axis, and the mask of those that exist."""
    lengths = offsets.diff()
    step = torch.arange(max([1, *lengths.tolist()]))
    exists = step < lengths[:, None]
    return torch.where(exists, offsets[:-1, None] + step, 0), exists


def take(x: Tensor, places: Tensor) -> Tensor:
    """X's rows at the places; zeros where x has none."""
    return functional.pad(x, (0, 0) * (x.ndim - 1) + (0, 1))[places]


def check_decode_arguments(
    q_latent: Tensor, q_pe: Tensor, kv_pages: Tensor, page_table: Tensor, seq_lens: Tensor, num_splits: int
) -> None:
    """Raise ValueError, naming the argument, for shapes, lengths and splits that do not fit."""
    name = "mla_decode"
    require(q_latent.ndim == 3, name, f"q_latent is {list(q_latent.shape)}; expected [T, N, L]")
    rows, heads, latent_width = q_latent.shape
    require_shape(name, "q_pe", q_pe, (rows, heads, None), "[T, N, R]")
    width = latent_width + q_pe.shape[-1]
    require_pages(name, kv_pages, width)
    require_shape(name, "page_table", page_table, (rows, None), "[T, P]")
    require_shape(name, "seq_lens", seq_lens, (rows,), "[T]")
    for argument, x in (("page_table", page_table), ("seq_lens", seq_lens)):
        require_integers(name, argument, x)
    require(page_table.shape[1] >= 1, name, "page_table has no column; expected P of 1 or more in [T, P]")
    room = page_table.shape[1] * kv_pages.shape[1]
    bad = (seq_lens < 0) | (seq_lens > room)
    require(
        not bad.any(), name,
        f"seq_lens holds {seq_lens[bad][:1].tolist()}; expected 0…{room}, what {page_table.shape[1]} pages of "
        f"{kv_pages.shape[1]} hold",
    )  # fmt: skip
    require(num_splits >= 1, name, f"num_splits is {num_splits}; expected 1 or more")


def require_pages(operator: str, kv_pages: Tensor, width: int) -> None:
    """Raise ValueError unless kv_pages is a pool of rows of that width."""
    turned = kv_pages.ndim == 4 and kv_pages.shape[2] == 1 and kv_pages.shape[3] == width
    hint = "; drop the axis of one key head" if turned else ""
    require(
        kv_pages.ndim == 3 and kv_pages.shape[2] == width and kv_pages.shape[0] >= 1 and kv_pages.shape[1] >= 1,
        operator,
        f"kv_pages is {list(kv_pages.shape)}; expected [pages, page size, L+R] = [1 or more, 1 or more, {width}]{hint}",
    )


def require_integers(operator: str, name: str, x: Tensor) -> None:
    """Raise ValueError unless x holds integers."""
    require(x.dtype in (torch.int32, torch.int64), operator, f"{name} is {x.dtype}; expected int32 or int64")


def check_prefill_arguments(
    query: Tensor, kv: Tensor, cu_seqlens: Tensor, kv_cu_seqlens: Tensor, latent_width: int
) -> None:
    """Raise ValueError, naming the argument, for shapes and offsets that do not fit."""
    name = "mla_prefill"
    require(query.ndim == 3, name, f"query is {list(query.shape)}; expected [T, N, L+R]")
    width = query.shape[-1]
    require(
        kv.ndim == 2 and kv.shape[1] == width, name,
        f"kv is {list(kv.shape)}; expected [S, L+R] = [any, {width}], the latent form that all heads share",
    )  # fmt: skip
    require(1 <= latent_width <= width, name, f"latent_width is {latent_width}; expected 1…{width}, query's width")
    require_offsets(name, "cu_seqlens", cu_seqlens, query.shape[0])
    require_offsets(name, "kv_cu_seqlens", kv_cu_seqlens, kv.shape[0])
    require_shape(name, "kv_cu_seqlens", kv_cu_seqlens, tuple(cu_seqlens.shape), "[B+1] as cu_seqlens")


def require_offsets(operator: str, name: str, offsets: Tensor, rows: int) -> None:
    """Raise ValueError unless the offsets rise from 0 to at most rows."""
    require(offsets.ndim == 1 and len(offsets) >= 1, operator, f"{name} is {list(offsets.shape)}; expected [B+1]")
    require_integers(operator, name, offsets)
    values = offsets.tolist()
    hint = "; these look like lengths, not their running sum from 0" if values[0] != 0 else ""
    require(
        values[0] == 0 and values == sorted(values) and values[-1] <= rows, operator,
        f"{name} is {values[:8]}; expected offsets that rise from 0 to at most {rows}{hint}",
    )  # fmt: skip
