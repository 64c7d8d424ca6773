"""Kimi Delta Attention: the fused operators over paged states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.convolution import shifted_in
from reference.delta_rule import DeltaRows, log_decay, recurrence
from reference.kda_call import KdaCall, starting_states, stored_states
from reference.kda_checks import check_capacities, check_gate
from reference.numerics import ROUNDED, Numerics
from reference.sequences import read_sequences, require_index


def kda_gate(
    raw_gate: Tensor, A_log: Tensor, dt_bias: Tensor, *, lower_bound: float | None, numerics: Numerics = ROUNDED
) -> Tensor:
    """Logarithm of each channel's decay.

    log_decay = lower_bound · sigmoid(exp(A_log) · (raw_gate + dt_bias)), or without a bound
    −exp(A_log) · softplus(raw_gate + dt_bias).

    Shapes: raw_gate [T, N, K] bf16, A_log [N] fp32, dt_bias [N, K] fp32 → log_decay [T, N, K] fp32.
    Raises ValueError for shapes that do not fit and for a bound that is not negative.
    Source: Kimi-K3 (bounded) and Kimi-Linear (softplus).
    """
    check_gate("kda_gate", A_log, dt_bias, lower_bound)
    require_shape("kda_gate", "raw_gate", raw_gate, (None, *dt_bias.shape), "[T, N, K]")
    logarithm = log_decay(numerics.load(raw_gate), A_log, dt_bias, lower_bound, numerics)
    return numerics.output("log_decay", logarithm, torch.float32)


class KdaResult(NamedTuple):
    """The output rows, and the new values of the pools."""

    out: Tensor
    conv_state: Tensor
    state: Tensor


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
    numerics: Numerics = ROUNDED,
) -> KdaResult:
    """One token of each sequence through convolution, decay gate, delta rule and gated norm.

    The equations of `kda_prefill`, for sequences of one row, or of none where they pad a batch.

    Shapes: as `kda_prefill` → out [T, N, V], conv_state, state.
    Raises ValueError for longer sequences and for what `kda_prefill` refuses.
    Source: Kimi-K3's KDA layer in decode.
    """
    call = KdaCall(
        "kda_decode", qkv, conv_weight, conv_state, raw_gate, f_a, f_b_weight, A_log, dt_bias, lower_bound,
        beta_logits, state, read_slots, padding_slot, cu_seqlens, scale, output_gate, norm_weight, eps, numerics,
    )  # fmt: skip
    longest = int(cu_seqlens.diff().max()) if len(cu_seqlens) > 1 else 0
    require(longest <= 1, "kda_decode", f"a sequence has {longest} rows; expected 0 or 1, more go to kda_prefill")
    return advance(call, write_slots, None)


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
    numerics: Numerics = ROUNDED,
) -> KdaResult:
    """Packed sequences through convolution, decay gate, delta rule and gated norm, continued from their slots.

    q, k, v = silu(conv(qkv)), q and k normalised, q · scale; S ← S·diag(decay);
    S ← S + β·(v − S·k)·kᵀ; o = S·q; out = o · rsqrt(mean(o²) + eps) · norm_weight · sigmoid(output_gate).
    Points: `conv_output` (off), `raw_gate` (f_a · f_b_weightᵀ), `output` (o before the norm, off).
    Padding gives zeros and touches nothing, and a write slot outside the pool is written nothing.

    Shapes: qkv [T, C] bf16, C = 2NK + NV; conv_weight [C, 4]; conv_state [slots, C, 3] bf16; A_log [N],
    dt_bias [N, K] fp32; beta_logits [T, N]; state [slots, N, V, K] fp32; read_slots, write_slots [B],
    cu_seqlens [B + 1] int32 or int64; raw_gate [T, N, K], or f_a [T, R] and f_b_weight [NK, R];
    has_initial_state [B] bool; output_gate [T, N, V]; norm_weight [V] → out [T, N, V], conv_state, state.
    Raises ValueError for shapes, boundaries and slots that do not fit. Source: Kimi-K3's KDA layer.
    """
    call = KdaCall(
        "kda_prefill", qkv, conv_weight, conv_state, raw_gate, f_a, f_b_weight, A_log, dt_bias, lower_bound,
        beta_logits, state, read_slots, padding_slot, cu_seqlens, scale, output_gate, norm_weight, eps, numerics,
    )  # fmt: skip
    return advance(call, write_slots, has_initial_state)


def advance(call: KdaCall, write_slots: Tensor, has_initial_state: Tensor | None) -> KdaResult:
    """Every row of every sequence, and the pools as they are after the last ones."""
    sequences = call.sequences(write_slots, has_initial_state)
    o, states = recurrence(
        call.rows(sequences), starting_states(call.state, sequences, call.numerics), sequences, call.numerics
    )
    pool = stored_states(call.state, states, sequences, call.numerics)
    return KdaResult(call.out(o, sequences), shifted_in(call.qkv, call.conv_state, sequences), pool)


@dataclass(frozen=True)
class KdaPayload:
    """A verified window: its raw rows, what the delta rule takes of them, and where its sequences lie."""

    qkv: Tensor
    rows: DeltaRows
    cu_seqlens: Tensor
    padding_slot: int


class KdaWindow(NamedTuple):
    """The output rows of a verified window, and what commits it."""

    out: Tensor
    payload: KdaPayload


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
    numerics: Numerics = ROUNDED,
) -> KdaWindow:
    """The rows of a window of draft tokens as `kda_prefill` gives them, and no pool changed.

    Shapes: as `kda_prefill` → out [T, N, V], and a payload for `kda_commit`.
    Raises ValueError for what `kda_prefill` refuses. Source: replay of verified windows.
    """
    call = KdaCall(
        "kda_verify", qkv, conv_weight, conv_state, raw_gate, f_a, f_b_weight, A_log, dt_bias, lower_bound,
        beta_logits, state, read_slots, padding_slot, cu_seqlens, scale, output_gate, norm_weight, eps, numerics,
    )  # fmt: skip
    sequences = call.sequences(None, None)
    rows = call.rows(sequences)
    o, _ = recurrence(rows, starting_states(state, sequences, numerics), sequences, numerics)
    return KdaWindow(call.out(o, sequences), KdaPayload(qkv, rows, cu_seqlens, padding_slot))


class KdaPools(NamedTuple):
    """The new values of the pools."""

    conv_state: Tensor
    state: Tensor


def kda_commit(
    payload: KdaPayload,
    commit_rows: Tensor,
    read_slots: Tensor,
    write_slots: Tensor,
    conv_state: Tensor,
    state: Tensor,
    *,
    numerics: Numerics = ROUNDED,
) -> KdaPools:
    """Step each sequence's read slot over the first rows of its window, into its write slot.

    commit_rows is clamped to the window; 0 copies the page. A padding sequence is left alone.

    Shapes: commit_rows, read_slots, write_slots [B] int32 or int64; conv_state [slots, C, 3], state
    [slots, N, V, K] → conv_state, state. Raises ValueError for shapes and slots that do not fit.
    Source: replay of verified windows.
    """
    name = "kda_commit"
    check_capacities(name, conv_state, state)
    require_index(name, "commit_rows", commit_rows)
    require_shape(name, "commit_rows", commit_rows, (len(read_slots),), "[B]")
    windows = read_sequences(
        name, len(payload.qkv), len(state), payload.cu_seqlens, read_slots, write_slots, payload.padding_slot
    )
    sequences = [s.cut(int(commit_rows[s.index])) for s in windows]
    _, states = recurrence(payload.rows, starting_states(state, sequences, numerics), sequences, numerics)
    return KdaPools(shifted_in(payload.qkv, conv_state, sequences), stored_states(state, states, sequences, numerics))
