from __future__ import annotations

import torch
from torch import Tensor

from verification.eager.causal_conv1d import shifted
from verification.eager.kda_rows import FUSED, Rounding, Rows, delta_rows, finished, forms, no_rows
from verification.eager.paging import store

CHUNK = 8
"""Rows after which the state is handed on.

Where keys repeat, what one row writes the next takes back: a chunk's sum of writes cancels, and its rounding
errors, as large as its terms, stay in the state, while a step of the recurrence takes errors back as well.
"""


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
    """Chunks of 8 rows, every sequence that still has one at once, in fp32; pools in place.

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
    for begin, live in chunks(packed.lengths.tolist(), o.device):
        place = begin + torch.arange(CHUNK, device=o.device)
        inside = place < packed.lengths[live, None]
        at = (packed.starts[live, None] + place).clamp(max=len(o) - 1)
        read, states[live] = chunk(*taken(rows, at, inside), states[live])
        o[at[inside]] = read.transpose(1, 2)[inside]
    out = finished(o, packed.live, output_gate, norm_weight, eps, qkv.dtype, rounding)
    written = packed.lengths > 0
    store(conv_state, write_slots, shifted(rows.qkv, rows.history, packed, packed.lengths), written, padding_slot)
    store(state, write_slots, states, written, padding_slot)
    return out[: len(qkv)]


def chunks(lengths: list[int], device: torch.device) -> list[tuple[int, Tensor]]:
    """First row of each chunk, and the sequences that reach it."""
    return [
        (begin, torch.tensor([index for index, length in enumerate(lengths) if length > begin], device=device))
        for begin in range(0, max(lengths), CHUNK)
    ]


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
    """⟨leftᵢ Γᵢⱼ keyⱼ⟩ [2, B, N, C, C], right where i ≥ j, and the keys as they have decayed at the chunk's end."""
    between = pairs(decay)
    # A product of matrices may add its terms one by one: where keys repeat they have one sign, and too much is lost.
    return (left[..., None, :] * (between * key[..., None, :, :])).sum(-1), key * between[..., -1, :, :]


def pairs(decay: Tensor) -> Tensor:
    """Products of the decays of rows j + 1…i of a chunk: [B, N, i, j, K]; 1 where i ≤ j."""
    row = torch.arange(decay.shape[-2], device=decay.device)
    later = (row[:, None] > row)[..., None]
    return torch.where(later, decay[..., None, :], 1.0).cumprod(-3)


# The host reads the lengths to cut them into chunks; without them each sequence could be as long as all rows are.
eager, split = forms("kda_prefill", kda_prefill, ("official", "split"), capturable=False)
