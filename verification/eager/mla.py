from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fused.boundary import implements
from verification.eager.attention_states import mean_of_states
from verification.eager.rms_norm import rms_norm, rms_norm_once
from verification.eager.tiles import TILE

OFFICIAL_EPS = 1e-6


@implements("mla_qkv_norm_cache", name="eager", batch_invariant=True)
def mla_qkv_norm_cache(**arguments: Any) -> Tensor:
    """Official norms, two roundings each."""
    return normed_and_stored(rms_norm, **arguments)


@implements("mla_qkv_norm_cache", name="eager_one_rounding", variant="one_rounding", batch_invariant=True)
def norm_cache_once(**arguments: Any) -> Tensor:
    """The norms of production kernels, one rounding each."""
    return normed_and_stored(rms_norm_once, **arguments)


@implements("mla_qkv_norm_cache", name="eager_fixed_eps", variant="fixed_eps", batch_invariant=True)
def norm_cache_fixed_eps(**arguments: Any) -> Tensor:
    """The official class: its norms are built without an eps and keep their default."""
    return normed_and_stored(rms_norm, **(arguments | {"eps": OFFICIAL_EPS}))


def normed_and_stored(
    norm: Callable[[Tensor, Tensor, float], Tensor],
    q_a: Tensor,
    kv_a: Tensor,
    q_norm_weight: Tensor,
    kv_norm_weight: Tensor,
    kv_pages: Tensor,
    slot_mapping: Tensor,
    eps: float,
) -> Tensor:
    """Both norms, then one indexed store of whole cache rows.

    Shapes: q_a [T, Q], kv_a [T, L+R], kv_pages [pages, page size, L+R], slot_mapping [T] → [T, Q].
    """
    latent, position = kv_a.split([len(kv_norm_weight), kv_a.shape[1] - len(kv_norm_weight)], 1)
    store_rows(kv_pages, torch.cat([norm(latent, kv_norm_weight, eps), position], 1), slot_mapping)
    return norm(q_a, q_norm_weight, eps)


def store_rows(kv_pages: Tensor, rows: Tensor, slot_mapping: Tensor) -> None:
    """Write each row at its slot, skipping slots outside the pool, without a shape that depends on data.

    A skipped row repeats the store of the first kept one, or what slot 0 holds where none is kept.
    """
    if not len(rows):
        return
    size = kv_pages.shape[1]
    kept = (slot_mapping >= 0) & (slot_mapping < kv_pages.shape[0] * size)
    source = torch.where(kept, torch.arange(len(rows), device=rows.device), kept.to(torch.int32).argmax())
    slots = torch.where(kept.any(), slot_mapping[source], 0)
    values = torch.where(kept.any(), rows[source], kv_pages[0, 0])
    kv_pages[slots // size, slots % size] = values


@implements("mla_decode", name="eager", batch_invariant=True)
def mla_decode(
    q_latent: Tensor,
    q_pe: Tensor,
    kv_pages: Tensor,
    page_table: Tensor,
    seq_lens: Tensor,
    *,
    num_splits: int = 1,
    softmax_scale: float,
) -> tuple[Tensor, Tensor]:
    """Absorbed attention of each split in fp32, bf16 probabilities, then one merge; all shapes are static.

    Shapes: q_latent [T, N, L], q_pe [T, N, R], kv_pages [pages, page size, L+R], page_table [T, P],
    seq_lens [T] → latent [T, N, L], lse [T, N].
    """
    parts = split_attention(q_latent, q_pe, kv_pages, page_table, seq_lens, num_splits, softmax_scale)
    latent, lse = mean_of_states(*parts)
    return latent[: len(q_latent)].to(q_latent.dtype), lse[: len(q_latent)]


def decode_bf16_partials(
    q_latent: Tensor,
    q_pe: Tensor,
    kv_pages: Tensor,
    page_table: Tensor,
    seq_lens: Tensor,
    *,
    num_splits: int = 1,
    softmax_scale: float,
) -> tuple[Tensor, Tensor]:
    """The same with each split's latent stored in bf16."""
    latents, lses = split_attention(q_latent, q_pe, kv_pages, page_table, seq_lens, num_splits, softmax_scale)
    latent, lse = mean_of_states(latents.to(torch.bfloat16).float(), lses)
    return latent[: len(q_latent)].to(q_latent.dtype), lse[: len(q_latent)]


implements("mla_decode", name="eager_partial_bf16", variant="partial_bf16", batch_invariant=True)(decode_bf16_partials)


def split_attention(
    q_latent: Tensor,
    q_pe: Tensor,
    kv_pages: Tensor,
    page_table: Tensor,
    seq_lens: Tensor,
    num_splits: int,
    softmax_scale: float,
) -> tuple[Tensor, Tensor]:
    """Latents [T', S, N, L] and lses [T', S, N] of the splits, fp32; T' is T up to whole tiles of 16 rows."""
    spare = -len(q_latent) % TILE
    query = functional.pad(torch.cat([q_latent, q_pe], -1), (0, 0, 0, 0, 0, spare))
    table, lengths = functional.pad(page_table, (0, 0, 0, spare)), functional.pad(seq_lens, (0, spare))
    tiles = zip(query.split(TILE), table.split(TILE), lengths.split(TILE), strict=True)
    parts = [
        tile_attention(q, kv_pages, t.long(), n.long(), num_splits, softmax_scale, q_latent.shape[-1])
        for q, t, n in tiles
        if len(q)
    ]
    latents, lses = zip(*parts, strict=True) if parts else ((), ())
    heads, width = q_latent.shape[1:]
    none = query.new_zeros(0, num_splits, heads, width, dtype=torch.float32)
    return torch.cat([none, *latents]), torch.cat([none[..., 0], *lses])


def tile_attention(
    query: Tensor,
    kv_pages: Tensor,
    page_table: Tensor,
    seq_lens: Tensor,
    num_splits: int,
    softmax_scale: float,
    latent_width: int,
) -> tuple[Tensor, Tensor]:
    """The same for one tile of rows: every row gathers as many pages a split as its table could hold."""
    columns = page_table.shape[1]
    pages, size, _ = kv_pages.shape
    per_split = (-(-seq_lens // size) + num_splits - 1) // num_splits
    step = torch.arange(-(-columns // num_splits), device=query.device)
    first = torch.arange(num_splits, device=query.device) * per_split[:, None]
    column = first[..., None] + step
    ids = page_table.gather(1, column.clamp(max=columns - 1).flatten(1)).view_as(column)
    usable = (step < per_split[:, None, None]) & (ids >= 0) & (ids < pages)
    token = column[..., None] * size + torch.arange(size, device=query.device)
    visible = (usable[..., None] & (token < seq_lens[:, None, None, None])).flatten(2)
    keys = kv_pages[torch.where(usable, ids, 0)].flatten(2, 3).float()
    keys = keys.masked_fill(~visible[..., None], 0.0)
    queries = query.float()[:, None].expand(-1, num_splits, -1, -1)
    return attention(queries, keys, visible[:, :, None], softmax_scale, latent_width)


def attention(
    query: Tensor, keys: Tensor, visible: Tensor, softmax_scale: float, latent_width: int
) -> tuple[Tensor, Tensor]:
    """Softmax attention of fp32 query [..., M, D] over the visible keys [..., W, D]; bf16 probabilities."""
    score = (query @ keys.mT * softmax_scale).masked_fill(~visible, -torch.inf)
    largest = score.amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0.0)
    mass = torch.exp(score - largest)
    total = mass.sum(-1, keepdim=True)
    weighted = mass.to(torch.bfloat16).float() @ keys[..., :latent_width]
    return weighted / total.masked_fill(total == 0, 1.0), (largest + torch.log(total)).squeeze(-1)


@implements("mla_prefill", name="eager", capturable=False)
def mla_prefill(
    query: Tensor,
    kv: Tensor,
    cu_seqlens: Tensor,
    *,
    latent_width: int,
    softmax_scale: float,
    causal: bool = True,
    kv_cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One dense attention a sequence: the offsets are read on the host, as a scheduler knows them.

    Shapes: query [T, N, L+R], kv [S, L+R], cu_seqlens, kv_cu_seqlens [B+1] → out [T, N, L], lse [T, N].
    """
    rows, heads, _ = query.shape
    out = query.new_zeros(rows, heads, latent_width)
    lse = query.new_full((rows, heads), -torch.inf, dtype=torch.float32)
    starts = cu_seqlens.tolist()
    key_starts = starts if kv_cu_seqlens is None else kv_cu_seqlens.tolist()
    for low, high, key_low, key_high in zip(starts, starts[1:], key_starts, key_starts[1:], strict=False):
        if low == high or key_low == key_high:
            continue
        keys = kv[key_low:key_high].float()
        visible = torch.ones(high - low, len(keys), dtype=torch.bool, device=query.device)
        if causal:
            visible = visible.tril(len(keys) - (high - low))
        queries = query[low:high].float().flatten(0, 1)
        latent, sums = attention(queries, keys, visible.repeat_interleave(heads, 0), softmax_scale, latent_width)
        out[low:high], lse[low:high] = latent.unflatten(0, (-1, heads)), sums.unflatten(0, (-1, heads))
    return out, lse
