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
