"""What KDA's operators do before and after the delta rule, over all packed rows at once, in fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fused.boundary import implements
from verification.eager.causal_conv1d import convolved, histories
from verification.eager.gated_rms_norm import normed
from verification.eager.paging import Packing, packing
from verification.eager.tiles import rows_product, tiled

KEY_EPS = 1e-6


@dataclass(frozen=True)
class Rounding:
    """Where a form rounds to bf16: the convolved rows, the low-rank gate, o before its norm."""

    conv_output: bool = False
    raw_gate: bool = True
    output: bool = False


FUSED = Rounding()

FORMS = {
    "official": FUSED,
    "conv_rounded": Rounding(conv_output=True),
    "output_rounded": Rounding(output=True),
    "split": Rounding(conv_output=True, output=True),
    "gate_unrounded": Rounding(raw_gate=False),
}
"""Roundings by contract variant."""


class Rows(NamedTuple):
    """Query, key, decay [T, N, K], value [T, N, V], beta [T, N], fp32; where they are, and the raw rows they are of."""

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor
    packed: Packing
    history: Tensor
    qkv: Tensor


def delta_rows(
    qkv: Tensor, conv_weight: Tensor, conv_state: Tensor, raw_gate: Tensor | None, f_a: Tensor | None,
    f_b_weight: Tensor | None, A_log: Tensor, dt_bias: Tensor, lower_bound: float | None, beta_logits: Tensor,
    state: Tensor, read_slots: Tensor, padding_slot: int, cu_seqlens: Tensor, scale: float,
    has_initial_state: Tensor | None, rounding: Rounding,
) -> Rows:  # fmt: skip
    """What the delta rule takes of each row, at least a tile of them."""
    qkv = tiled(qkv)
    packed = packing(len(qkv), cu_seqlens, read_slots, len(state), padding_slot)
    history = histories(conv_state, packed, has_initial_state)
    mixed = convolved(qkv, conv_weight, history, packed)
    if rounding.conv_output:
        mixed = mixed.to(qkv.dtype).float()
    heads, depth = dt_bias.shape
    query, key, value = mixed.split([heads * depth, heads * depth, heads * state.shape[2]], dim=1)
    return Rows(
        normalized(query.unflatten(1, (heads, depth))) * scale,
        normalized(key.unflatten(1, (heads, depth))),
        value.unflatten(1, (heads, -1)),
        torch.exp(log_decay(gate_rows(raw_gate, f_a, f_b_weight, rounding).view(-1, heads, depth),
                            A_log, dt_bias, lower_bound)),
        torch.sigmoid(tiled(beta_logits).float()),
        packed, history, qkv,
    )  # fmt: skip


def gate_rows(raw_gate: Tensor | None, f_a: Tensor | None, f_b_weight: Tensor | None, rounding: Rounding) -> Tensor:
    """The gate before its bias, fp32, given or as a product of two factors."""
    if raw_gate is not None:
        return tiled(raw_gate).float()
    assert f_a is not None
    assert f_b_weight is not None
    gate = rows_product(tiled(f_a), f_b_weight)
    return gate.to(f_a.dtype).float() if rounding.raw_gate else gate


def log_decay(gate: Tensor, A_log: Tensor, dt_bias: Tensor, lower_bound: float | None) -> Tensor:
    """Logarithm of the decay [T, N, K], fp32."""
    rate, gate = torch.exp(A_log)[:, None], gate + dt_bias
    return -rate * functional.softplus(gate) if lower_bound is None else lower_bound * torch.sigmoid(rate * gate)


def normalized(x: Tensor) -> Tensor:
    """Rows of unit length, by x · rsqrt(Σx² + 1e-6)."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + KEY_EPS)


def finished(
    o: Tensor, live: Tensor, output_gate: Tensor | None, norm_weight: Tensor | None, eps: float, dtype: torch.dtype,
    rounding: Rounding,
) -> Tensor:  # fmt: skip
    """Norm and gate of the live rows, zeros elsewhere: [T, N, V]."""
    if rounding.output:
        o = o.to(dtype).float()
    out = normed(o, None if output_gate is None else tiled(output_gate), norm_weight, eps)
    return torch.where(live[:, None, None], out, 0.0).to(dtype)


def no_rows(qkv: Tensor, state: Tensor) -> Tensor:
    """The result where no row can be computed: zeros [T, N, V]."""
    return qkv.new_zeros(len(qkv), *state.shape[1:3])


def forms(operator: str, form: Callable[..., Any], variants: Iterable[str], **declared: Any) -> list[Any]:
    """The implementations of an operator under the roundings of these variants: `eager`, `eager_split`, …."""
    return [
        implements(operator, name=eager_name(variant), variant=variant, **declared)(_rounding(form, FORMS[variant]))
        for variant in variants
    ]


def eager_name(variant: str) -> str:
    """`eager` for the official variant, else followed by the variant's name."""
    return "eager" if variant == "official" else f"eager_{variant}"


def _rounding(form: Callable[..., Any], rounding: Rounding) -> Callable[..., Any]:
    @wraps(form)
    def call(**arguments: Any) -> Any:
        return form(**arguments, rounding=rounding)

    return call
