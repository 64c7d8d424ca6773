from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from verification.eager.causal_conv1d import shifted
from verification.eager.kda_rows import FUSED, Rounding, Rows, delta_rows, finished, forms, no_rows
from verification.eager.paging import store

CHUNK = 64
BLOCK = 16
"""Rows between which decays are multiplied out pair by pair."""


def kda_prefill(
    *,
    qkv: Tensor,
    conv_weight: Tensor,
    conv_state: Tensor,
    raw_gate: Tensor | None = None,
    f_a: Tensor | None = None,
    f_b_weight: Tensor | None = None,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float | None,
    beta_logits: Tensor,
    state: Tensor,
    read_slots: Tensor,
    write_slots: Tensor,
    padding_slot: int = -1,
    cu_seqlens: Tensor,
    has_initial_state: Tensor | None = None,
    scale: float,
    output_gate: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-5,
    rounding: Rounding = FUSED,
) -> Tensor:
    """Chunks of 64 rows, every sequence that still has one at once, in fp32; pools in place.

    Shapes: as the reference → out [T, N, V].
    """
    if not len(qkv) or not len(read_slots) or not len(state):
        return no_rows(qkv, state)
    rows = delta_rows(
        qkv, conv_weight, conv_state, raw_gate, f_a, f_b_weight, A_log, dt_bias, lower_bound, beta_logits,
        state, read_slots, padding_slot, cu_seqlens, scale, has_initial_state, rounding,
    )  # fmt: skip
    packed = rows.packed
    states = state[packed.read]
    if has_initial_state is not None:
        states = torch.where(has_initial_state[:, None, None, None], states, 0.0)
    o = torch.zeros_like(rows.value)
    for begin, width, live in chunks(packed.lengths.tolist(), o.device):
        place = begin + torch.arange(width, device=o.device)
        inside = place < packed.lengths[live, None]
        at = (packed.starts[live, None] + place).clamp(max=len(o) - 1)
        read, states[live] = chunk(*taken(rows, at, inside), states[live])
        o[at[inside]] = read.transpose(1, 2)[inside]
    out = finished(o, packed.live, output_gate, norm_weight, eps, qkv.dtype, rounding)
    written = packed.lengths > 0
    store(conv_state, write_slots, shifted(rows.qkv, rows.history, packed, packed.lengths), written, padding_slot)
    store(state, write_slots, states, written, padding_slot)
    return out[: len(qkv)]


def chunks(lengths: list[int], device: torch.device) -> list[tuple[int, int, Tensor]]:
    """First row, width in whole blocks, and the sequences that reach it, of each chunk."""
    found = []
    for begin in range(0, max(lengths), CHUNK):
        live = [index for index, length in enumerate(lengths) if length > begin]
        longest = min(max(lengths) - begin, CHUNK)
        found.append((begin, -(-longest // BLOCK) * BLOCK, torch.tensor(live, device=device)))
    return found


def taken(rows: Rows, at: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Rows [B, N, chunk, …] of a chunk; past a sequence's end keys, values and beta are 0 and decays 1."""
    mask = inside[:, None, :, None]
    query, key, value, decay = (x[at].transpose(1, 2) for x in (rows.query, rows.key, rows.value, rows.decay))
    beta = rows.beta[at].transpose(1, 2)
    query, key, value = (torch.where(mask, x, 0.0) for x in (query, key, value))
    return query, key, value, torch.where(mask, decay, 1.0), torch.where(mask[..., 0], beta, 0.0)


def chunk(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The outputs and the state after a chunk, by one unit-triangular system instead of a step a row.

    With Γᵢⱼ the decay between rows j and i: (I + β·tril(⟨kᵢ Γᵢⱼ kⱼ⟩, −1))·δ = β·(v − S·(Γᵢ₀ kᵢ));
    o = S·(Γᵢ₀ qᵢ) + tril(⟨qᵢ Γᵢⱼ kⱼ⟩)·δ; S ← S·Γ + Σ δⱼ·(Γ kⱼ)ᵀ. Decays are multiplied, never divided:
    a difference of their accumulated logarithms would lose what a strong decay before it has grown to.

    Shapes: query, key, decay [B, N, C, K], value [B, N, C, V], beta [B, N, C], state [B, N, V, K].
    """
    since = decay.cumprod(-2)
    scores, carried = weighted_scores(torch.stack([key, query]), key, decay)
    from_state = torch.stack([key, query]) * since @ state.transpose(-1, -2)
    system = beta[..., None] * scores[0].tril(-1)
    delta = torch.linalg.solve_triangular(
        system, beta[..., None] * (value - from_state[0]), upper=False, unitriangular=True
    )
    o = from_state[1] + scores[1].tril() @ delta
    return o, state * since[..., -1:, :] + delta.transpose(-1, -2) @ carried


def weighted_scores(left: Tensor, key: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """⟨leftᵢ Γᵢⱼ keyⱼ⟩ [2, B, N, C, C], right where i ≥ j, and the keys as they have decayed at the chunk's end.

    Inside a block Γ is multiplied out for each pair; between blocks it is the decay since i's block
    began times what the keys of earlier blocks have decayed to by then.
    """
    parts = [x.unflatten(-2, (-1, BLOCK)).unbind(-3) for x in (left, key, decay)]
    carried, bands = key[..., :0, :], []
    for x, k, d in zip(*parts, strict=True):
        since, rest = d.cumprod(-2), functional.pad(d[..., 1:, :], (0, 0, 0, 1), value=1.0)
        inside = torch.einsum("sbnik,bnijk,bnjk->sbnij", x, pairs(d), k)
        band = torch.cat([(x * since) @ carried.transpose(-1, -2), inside], dim=-1)
        bands.append(functional.pad(band, (0, key.shape[-2] - band.shape[-1])))
        carried = torch.cat([carried * since[..., -1:, :], k * rest.flip(-2).cumprod(-2).flip(-2)], dim=-2)
    return torch.cat(bands, dim=-2), carried


def pairs(decay: Tensor) -> Tensor:
    """Products of the decays of rows j + 1…i of a block: [B, N, i, j, K]; 1 where i ≤ j."""
    row = torch.arange(BLOCK, device=decay.device)
    later = (row[:, None] > row)[..., None]
    return torch.where(later, decay[..., None, :], 1.0).cumprod(-3)


# The host reads the lengths to cut them into chunks.
eager, split = forms("kda_prefill", kda_prefill, ("official", "split"), capturable=False)
