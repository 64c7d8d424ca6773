"""The gated delta rule, token by token, and what it takes of each row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.numerics import Numerics
from reference.sequences import Sequence

KEY_EPS = 1e-6
"""Added to the sum of squares under the root that normalises queries and keys."""

GATE_TILE = 16
"""Rows of one product of the low-rank gate, so that a row has the same bits alone and in a batch."""


class DeltaRows(NamedTuple):
    """Query, key, decay [T, N, K], value [T, N, V], beta [T, N], in float64."""

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor


def log_decay(
    raw_gate: Tensor, A_log: Tensor, dt_bias: Tensor, lower_bound: float | None, numerics: Numerics
) -> Tensor:
    """lower_bound · sigmoid(exp(A_log) · (raw_gate + dt_bias)), or −exp(A_log) · softplus(raw_gate + dt_bias)."""
    gate = numerics.computed("biased_gate", raw_gate + numerics.load(dt_bias))
    rate = numerics.apply("rate", torch.exp, numerics.load(A_log))[:, None]
    if lower_bound is None:
        return numerics.computed("log_decay", -rate * _softplus(gate, numerics))
    share = numerics.apply("decay_sigmoid", torch.sigmoid, numerics.computed("scaled_gate", rate * gate))
    return numerics.computed("log_decay", lower_bound * share)


def _softplus(x: Tensor, numerics: Numerics) -> Tensor:
    """max(x, 0) + log(1 + e^−|x|), of which an implementation may round the sum before it takes the logarithm."""
    mass = numerics.apply("softplus_mass", torch.exp, -x.abs())
    rounding = numerics.computed("softplus_sum", 1 + mass) - (1 + mass)
    logarithm = numerics.apply("softplus_log", torch.log1p, mass + rounding)
    return numerics.computed("softplus", x.clamp(min=0) + logarithm)


def low_rank_gate(f_a: Tensor, f_b_weight: Tensor, numerics: Numerics) -> Tensor:
    """f_a · f_b_weightᵀ, rounded at the point `raw_gate`: [T, NK]."""
    weight = numerics.load(f_b_weight).t()
    tiles = [
        numerics.at(f"rows {index}").matmul("raw_gate", _filled(numerics.load(tile)), weight)[: len(tile)]
        for index, tile in enumerate(f_a.split(GATE_TILE))
    ]
    return numerics.round("raw_gate", torch.cat(tiles), f_a.dtype, apart=True)


def _filled(tile: Tensor) -> Tensor:
    return torch.cat([tile, tile.new_zeros(GATE_TILE - len(tile), tile.shape[1])])


def delta_rows(
    mixed: Tensor, decay: Tensor, beta_logits: Tensor, scale: float, width: int, numerics: Numerics
) -> DeltaRows:
    """The rows from the convolved q | k | v [T, 2NK + NV], the logarithm of the decay, and beta's logits."""
    rows, heads, depth = decay.shape
    query, key, value = mixed.split([heads * depth, heads * depth, heads * width], dim=1)
    return DeltaRows(
        numerics.computed("query", _normalized("query", query.view(rows, heads, depth), numerics) * scale),
        _normalized("key", key.view(rows, heads, depth), numerics),
        value.view(rows, heads, width),
        numerics.apply("decay", torch.exp, decay),
        numerics.apply("beta", torch.sigmoid, numerics.load(beta_logits)),
    )


def _normalized(name: str, x: Tensor, numerics: Numerics) -> Tensor:
    """Rows x · rsqrt(Σx² + 1e-6)."""
    square = numerics.computed(f"{name}_above_eps", numerics.sum(f"{name}_squares", x.square(), -1) + KEY_EPS)
    inverse = numerics.apply(f"{name}_inverse", torch.rsqrt, square)
    return numerics.computed(f"{name}_normalized", x * inverse[..., None])


def recurrence(rows: DeltaRows, states: Tensor, sequences: list[Sequence], numerics: Numerics) -> tuple[Tensor, Tensor]:
    """Every row's o [T, N, V], zeros where no sequence is, and the states [sequences, N, V, K] at their ends."""
    o = torch.zeros_like(rows.value)
    for step in range(max((s.length for s in sequences), default=0)):
        live = torch.tensor([i for i, s in enumerate(sequences) if s.length > step], device=o.device)
        at = torch.tensor([s.start + step for s in sequences if s.length > step], device=o.device)
        read, stepped = delta_step(DeltaRows(*(x[at] for x in rows)), states[live], numerics.at(f"step {step}"))
        o, states = o.index_copy(0, at, read), states.index_copy(0, live, stepped)
    return numerics.note("o", o), states


def delta_step(rows: DeltaRows, state: Tensor, numerics: Numerics) -> tuple[Tensor, Tensor]:
    """S ← S·diag(decay); S ← S + β·(v − S·k)·kᵀ; o = S·q: o and S after one row of each sequence."""
    decayed = numerics.computed("decayed", state * rows.decay[:, :, None])
    prediction = numerics.matmul("prediction", decayed, rows.key[..., None])[..., 0]
    innovation = numerics.computed("innovation", rows.value - prediction)
    delta = numerics.computed("delta", rows.beta[..., None] * innovation)
    outer = numerics.computed("outer", delta[..., None] * rows.key[:, :, None])
    updated = numerics.computed("updated", decayed + outer)
    return numerics.matmul("read", updated, rows.query[..., None])[..., 0], updated
