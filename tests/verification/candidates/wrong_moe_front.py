"""Router projection, pre-route and tail with one thing wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from verification import candidate
from verification.eager.moe_front import latent_moe_tail as right_tail
from verification.eager.moe_front import moe_preroute as right_preroute
from verification.eager.moe_front import router_logits as right_logits

Preroute = tuple[Tensor, Tensor]


@candidate("router_logits", name="logits_in_bf16")
def logits_in_bf16(x: Tensor, weight: Tensor) -> Tensor:
    return right_logits(x, weight).bfloat16().float()


@candidate("router_logits", name="bf16_accumulator")
def bf16_accumulator(x: Tensor, weight: Tensor) -> Tensor:
    total = torch.zeros(len(x), len(weight), dtype=torch.bfloat16)
    for part, other in zip(x.split(64, 1), weight.split(64, 1), strict=True):
        total = (total.float() + part.float() @ other.float().t()).bfloat16()
    return total.float()


@candidate("router_logits", name="no_tail_of_k")
def no_tail_of_k(x: Tensor, weight: Tensor) -> Tensor:
    kept = x.shape[1] // 64 * 64
    return right_logits(x[:, :kept], weight[:, :kept])


@candidate("router_logits", name="flat_for_few_experts")
def flat_for_few_experts(x: Tensor, weight: Tensor) -> Tensor:
    logits = right_logits(x, weight)
    return logits if len(weight) > 20 else logits.flatten()


@candidate("moe_preroute", name="up_before_gate")
def up_before_gate(x, latent_weight, gate_up_weight, down_weight, *, beta, linear_beta=None) -> Preroute:
    swapped = torch.cat(gate_up_weight.chunk(2)[::-1])
    return right_preroute(x, latent_weight, swapped, down_weight, beta=beta, linear_beta=linear_beta)


@candidate("moe_preroute", name="no_bound_on_up")
def no_bound_on_up(x, latent_weight, gate_up_weight, down_weight, *, beta, linear_beta=None) -> Preroute:
    return right_preroute(x, latent_weight, gate_up_weight, down_weight, beta=beta, linear_beta=None)


@candidate("latent_moe_tail", name="no_norm")
def no_norm(routed, shared, prefix, norm_weight, up_weight, *, eps) -> Tensor:
    out = (routed.float() @ up_weight.float().t()).bfloat16() + shared
    return out if prefix is None else prefix + out


@candidate("latent_moe_tail", name="eps_forgotten")
def eps_forgotten(routed, shared, prefix, norm_weight, up_weight, *, eps) -> Tensor:
    return right_tail(routed, shared, prefix, norm_weight, up_weight, eps=1e-12)


@candidate("latent_moe_tail", name="prefix_forgotten")
def prefix_forgotten(routed, shared, prefix, norm_weight, up_weight, *, eps) -> Tensor:
    return right_tail(routed, shared, None, norm_weight, up_weight, eps=eps)


@candidate("router_logits", name="dense_weight_assumed")
def dense_weight_assumed(x: Tensor, weight: Tensor) -> Tensor:
    """A kernel that is given a pointer and takes rows to lie one after another."""
    return right_logits(x, weight.as_strided(weight.shape, (weight.shape[1], 1)))


@candidate("moe_preroute", name="shared_bias")
def shared_bias(x, latent_weight, gate_up_weight, down_weight, *, beta, linear_beta=None) -> Preroute:
    """Right as a whole, and too much on each of several ranks."""
    latent, shared = right_preroute(x, latent_weight, gate_up_weight, down_weight, beta=beta, linear_beta=linear_beta)
    return latent, shared + (down_weight.shape[1] < 40) * 0.25


@candidate("latent_moe_tail", name="no_eps_where_all_is_zero")
def no_eps_where_all_is_zero(routed, shared, prefix, norm_weight, up_weight, *, eps) -> Tensor:
    """0 · rsqrt(0): NaN."""
    nothing = (routed == 0).all(1, keepdim=True)
    return right_tail(routed.masked_fill(nothing, torch.nan), shared, prefix, norm_weight, up_weight, eps=eps)


@candidate("latent_moe_tail", name="floor_of_shared")
def floor_of_shared(routed, shared, prefix, norm_weight, up_weight, *, eps) -> Tensor:
    """A scale of its own: what is large is cut off."""
    return right_tail(routed, shared.clamp(-4, 4), prefix, norm_weight, up_weight, eps=eps)
