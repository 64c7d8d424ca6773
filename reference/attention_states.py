from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics


class AttentionState(NamedTuple):
    """Attention over a set of keys: the weighted mean of their values, and ln Σ exp(score)."""

    out: Tensor
    lse: Tensor


def merge_attention_states(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, *, numerics: Numerics = ROUNDED
) -> AttentionState:
    """Join the attention over two disjoint sets of keys into the attention over both.

    m = max(lse_a, lse_b); w = exp(lse − m); out = Σ w·out ÷ Σ w; lse = m + ln Σ w.

    A side whose lse is −inf holds no key: its out is not read, whatever it is, and the other side
    comes back as it is. Two such sides give zeros and −inf.

    Shapes: out_a, out_b [T, N, V] bf16 or fp32; lse_a, lse_b [T, N] fp32, natural log → out
    [T, N, V] in out_a's dtype, lse [T, N] fp32. Raises ValueError for shapes or dtypes that differ.
    Source: the merge of attention states in vLLM and FlashInfer.
    """
    name = "merge_attention_states"
    require(out_a.ndim == 3, name, f"out_a is {list(out_a.shape)}; expected [T, N, V]")
    require_shape(name, "out_b", out_b, tuple(out_a.shape), "[T, N, V] as out_a")
    require(out_a.dtype == out_b.dtype, name, f"out_b is {out_b.dtype}; expected {out_a.dtype} as out_a")
    for side, lse in (("lse_a", lse_a), ("lse_b", lse_b)):
        require_shape(name, side, lse, tuple(out_a.shape[:2]), "[T, N]")
        require_lse(name, side, lse)
    outs = torch.stack([numerics.load(out_a), numerics.load(out_b)], 1)
    lses = torch.stack([numerics.load(lse_a), numerics.load(lse_b)], 1)
    out, lse = merge_states(outs, lses, numerics)
    return AttentionState(numerics.output("out", out, out_a.dtype), numerics.output("lse", lse, torch.float32))


def merge_states(outs: Tensor, lses: Tensor, numerics: Numerics) -> AttentionState:
    """The same over an axis of S states, outs [T, S, N, V] and lses [T, S, N], in float64 throughout.

    Where one state alone holds keys it is the result, in every reading: its weight is 1 exactly.
    """
    present = lses != -torch.inf
    outs = torch.where(present[..., None], outs, 0.0)
    largest = lses.amax(1)
    base = torch.where(largest == -torch.inf, 0.0, largest)
    distance = numerics.computed("state_distance", lses - base[:, None])
    mass = numerics.apply("state_mass", torch.exp, distance)
    total = numerics.sum("state_total", mass, 1)
    weighted = numerics.sum("state_sum", mass[..., None] * outs, 1)
    merged = numerics.divide("state_mean", weighted, torch.where(total == 0, 1.0, total)[..., None])
    lse = numerics.computed("state_lse", base + numerics.apply("state_log", torch.log, total))
    alone = present.sum(1) == 1
    out = torch.where(alone[..., None], outs.sum(1), merged)
    return AttentionState(numerics.note("merged", out), numerics.note("merged_lse", torch.where(alone, largest, lse)))


def mla_reduce_project_gate(
    split_latents: Tensor,
    split_lses: Tensor,
    value_weight: Tensor,
    gate_logits: Tensor | None = None,
    *,
    numerics: Numerics = ROUNDED,
) -> Tensor:
    """Merge the splits of a decode step, project each head's latent to its values, apply the gate.

    latent = bf16(merge of the splits), the point `latent`; y = bf16(latent · value_weightᵀ) a head,
    the point `projection`; attention = y · sigmoid(gate_logits), or y itself.

    A split whose lse is −inf is not read; a row without any gives zeros. The point `gate` (off)
    rounds the sigmoid to bf16.

    Shapes: split_latents [T, S, N, L] fp32 or bf16, split_lses [T, S, N] fp32, natural log;
    value_weight [N, V, L] bf16, gate_logits [T, N·V] bf16 → attention [T, N·V] bf16. Raises
    ValueError for shapes that do not fit. Source: Kimi-K3's gated MLA, absorbed form.
    """
    name = "mla_reduce_project_gate"
    require(split_latents.ndim == 4, name, f"split_latents is {list(split_latents.shape)}; expected [T, S, N, L]")
    rows, splits, heads, latent_width = split_latents.shape
    require(splits >= 1, name, "split_latents has no split; expected S of 1 or more in [T, S, N, L]")
    require_shape(name, "split_lses", split_lses, (rows, splits, heads), "[T, S, N]")
    require_lse(name, "split_lses", split_lses)
    require_shape(name, "value_weight", value_weight, (heads, None, latent_width), "[N, V, L]")
    width = heads * value_weight.shape[1]
    if gate_logits is not None:
        require_shape(name, "gate_logits", gate_logits, (rows, width), "[T, N·V]")
    state = merge_states(numerics.load(split_latents), numerics.load(split_lses), numerics)
    latent = numerics.round("latent", state.out, torch.bfloat16)
    weight = numerics.load(value_weight)
    projected = numerics.matmul("projected", latent.transpose(0, 1), weight.mT).transpose(0, 1)
    y = numerics.round("projection", projected.reshape(rows, width), torch.bfloat16)
    if gate_logits is not None:
        gate = numerics.apply("sigmoid", torch.sigmoid, numerics.load(gate_logits))
        gate = numerics.round("gate", gate, torch.bfloat16, default=False)
        y = numerics.computed("gated", y * gate)
    return numerics.output("attention", y, torch.bfloat16)


def require_lse(operator: str, name: str, lse: Tensor) -> None:
    """Raise ValueError for an lse that no set of keys has: NaN or +inf."""
    bad = torch.isnan(lse) | (lse == torch.inf)
    require(not bad.any(), operator, f"{name} holds {int(bad.sum())} of NaN or +inf; expected finite ones, or −inf")
