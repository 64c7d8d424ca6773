from __future__ import annotations

import torch
from torch import Tensor

from verification.eager.causal_conv1d import shifted
from verification.eager.kda_rows import FORMS, FUSED, Rounding, delta_rows, finished, forms, no_rows
from verification.eager.paging import store
from verification.eager.tiles import tiled


def kda_decode(
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
    scale: float,
    output_gate: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-5,
    rounding: Rounding = FUSED,
) -> Tensor:
    """One row of every sequence at once, the delta rule on a tile of 16 states, in fp32; pools in place.

    Shapes: as the reference → out [T, N, V].
    """
    if not len(qkv) or not len(read_slots) or not len(state):
        return no_rows(qkv, state)
    rows = delta_rows(
        qkv, conv_weight, conv_state, raw_gate, f_a, f_b_weight, A_log, dt_bias, lower_bound, beta_logits,
        state, read_slots, padding_slot, cu_seqlens, scale, None, rounding,
    )  # fmt: skip
    packed = rows.packed
    at = packed.starts.clamp(max=len(rows.qkv) - 1)
    query, key, value, decay, beta = (tiled(x[at]) for x in rows[:5])
    o, updated = delta_step(query, key, value, decay, beta, tiled(state[packed.read]))
    out = finished(o[packed.owner], packed.live, output_gate, norm_weight, eps, qkv.dtype, rounding)
    written = packed.lengths > 0
    store(conv_state, write_slots, shifted(rows.qkv, rows.history, packed, packed.lengths), written, padding_slot)
    store(state, write_slots, updated[: len(at)], written, padding_slot)
    return out[: len(qkv)]


def delta_step(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The output and S after S ← S·diag(decay) + δ·kᵀ, δ = β·(v − S·k); o as S·q before δ, plus δ·⟨k, q⟩.

    Shapes: query, key, decay [B, N, K], value [B, N, V], beta [B, N], state [B, N, V, K].
    """
    decayed = state * decay[:, :, None]
    prediction, prior = (decayed @ torch.stack([key, query], dim=-1)).unbind(-1)
    delta = beta[..., None] * (value - prediction)
    updated = torch.addcmul(decayed, delta[..., None], key[:, :, None])
    return prior + delta * (key * query).sum(-1, keepdim=True), updated


eager, conv_rounded, output_rounded, split, gate_unrounded = forms(
    "kda_decode", kda_decode, FORMS, batch_invariant=True
)
