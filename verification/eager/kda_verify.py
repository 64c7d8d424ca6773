from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fused.boundary import implements
from verification.eager.causal_conv1d import histories, shifted
from verification.eager.kda_decode import delta_step
from verification.eager.kda_rows import FUSED, Rounding, Rows, delta_rows, finished, forms, no_rows
from verification.eager.paging import packing, store
from verification.eager.tiles import tiled


class Payload(NamedTuple):
    """A verified window: what the delta rule takes of its rows, and how many rows the longest sequence has."""

    rows: Rows | None
    cu_seqlens: Tensor
    padding_slot: int
    longest: int


def kda_verify(
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
    padding_slot: int = -1,
    cu_seqlens: Tensor,
    scale: float,
    output_gate: Tensor | None = None,
    norm_weight: Tensor | None = None,
    eps: float = 1e-5,
    rounding: Rounding = FUSED,
) -> tuple[Tensor, Payload]:
    """The window step by step, every sequence at once, in fp32; the pools are only read.

    Shapes: as the reference → out [T, N, V], payload.
    """
    if not len(qkv) or not len(read_slots) or not len(state):
        return no_rows(qkv, state), Payload(None, cu_seqlens, padding_slot, 0)
    rows = delta_rows(
        qkv, conv_weight, conv_state, raw_gate, f_a, f_b_weight, A_log, dt_bias, lower_bound, beta_logits,
        state, read_slots, padding_slot, cu_seqlens, scale, None, rounding,
    )  # fmt: skip
    packed = rows.packed
    longest = int(packed.lengths.max())
    states, read = tiled(state[packed.read]), []
    for step in range(longest):
        o, states = stepped(rows, states, step, packed.lengths)
        read.append(o)
    window = torch.stack(read) if read else states.new_zeros(1, *states.shape[:3])
    o = window[packed.place.clamp(0, len(window) - 1), packed.owner]
    out = finished(o, packed.live, output_gate, norm_weight, eps, qkv.dtype, rounding)
    return out[: len(qkv)], Payload(rows, cu_seqlens, padding_slot, longest)


def stepped(rows: Rows, states: Tensor, step: int, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs and the states after one more row of the sequences that are longer than `step`."""
    at = (rows.packed.starts + step).clamp(max=len(rows.qkv) - 1)
    query, key, value, decay, beta = (tiled(x[at]) for x in rows[:5])
    o, updated = delta_step(query, key, value, decay, beta, states)
    return o, torch.where(tiled(lengths > step)[:, None, None, None], updated, states)


@implements("kda_commit", name="eager", batch_invariant=True, capturable=False)
def kda_commit(
    payload: Payload, commit_rows: Tensor, read_slots: Tensor, write_slots: Tensor, conv_state: Tensor, state: Tensor
) -> None:
    """The kept rows of the window step by step, every sequence at once, in fp32; pools in place.

    Shapes: commit_rows, read_slots, write_slots [B], conv_state [slots, C, 3], state [slots, N, V, K].
    """
    rows = payload.rows
    if rows is None:
        return
    packed = packing(len(rows.qkv), payload.cu_seqlens, read_slots, len(state), payload.padding_slot)
    kept = torch.minimum(commit_rows.long().clamp(min=0), packed.lengths)
    states = tiled(state[packed.read])
    for step in range(payload.longest):
        _, states = stepped(rows, states, step, kept)
    written = packed.lengths > 0
    history = histories(conv_state, packed, None)
    store(conv_state, write_slots, shifted(rows.qkv, history, packed, kept), written, payload.padding_slot)
    store(state, write_slots, states[: len(kept)], written, payload.padding_slot)


# The host reads how long the longest window is; without that there would be a step for every row of the batch.
eager, conv_rounded = forms(
    "kda_verify", kda_verify, ("official", "conv_rounded"), batch_invariant=True, capturable=False
)


@implements("kda_commit", name="eager_conv_rounded", variant="conv_rounded", batch_invariant=True, capturable=False)
def kda_commit_conv_rounded(
    payload: Payload, commit_rows: Tensor, read_slots: Tensor, write_slots: Tensor, conv_state: Tensor, state: Tensor
) -> None:
    """The same, of a window whose convolved rows were rounded."""
    kda_commit(payload, commit_rows, read_slots, write_slots, conv_state, state)
