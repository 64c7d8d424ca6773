from __future__ import annotations

import torch
from torch import Tensor

from fused.boundary import implements
from verification.eager.rms_norm import rms_norm, rms_norm_once
from verification.eager.situ import situ
from verification.eager.tiles import rows_product

BF16 = torch.bfloat16


@implements("router_logits", name="eager", batch_invariant=True)
def router_logits(x: Tensor, weight: Tensor) -> Tensor:
    """One product in fp32: bf16 operands are exact there.

    Shapes: x [T, H], weight [E, H] → logits [T, E] fp32.
    """
    return rows_product(x, weight)


@implements("router_logits", name="eager_bf16", variant="bf16", batch_invariant=True)
def router_logits_bf16(x: Tensor, weight: Tensor) -> Tensor:
    """The same as a bf16 linear layer gives it, widened again."""
    return rows_product(x, weight).to(BF16).float()


@implements("moe_preroute", name="eager", batch_invariant=True)
def moe_preroute(
    x: Tensor, latent_weight: Tensor, gate_up_weight: Tensor, down_weight: Tensor, *, beta: float,
    linear_beta: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Two projections of x, SiTU, and the shared expert's down projection.

    Shapes: x [T, H], latent_weight [L, H], gate_up_weight [2F, H], down_weight [H, F] → latent [T, L],
    shared [T, H].
    """
    gate_up = rows_product(x, gate_up_weight).to(x.dtype)
    activated = situ(gate_up, beta=beta, linear_beta=linear_beta)
    return rows_product(x, latent_weight).to(x.dtype), rows_product(activated, down_weight).to(x.dtype)


@implements("latent_moe_tail", name="eager", batch_invariant=True)
def latent_moe_tail(
    routed: Tensor, shared: Tensor, prefix: Tensor | None, norm_weight: Tensor, up_weight: Tensor, *, eps: float
) -> Tensor:
    """Official form: two roundings in the norm, one after the projection and after each add.

    Shapes: routed [T, L], shared, prefix [T, H], norm_weight [L], up_weight [H, L] → hidden [T, H].
    """
    up = rows_product(rms_norm(routed, norm_weight, eps), up_weight).to(BF16)
    out = up + shared
    return out if prefix is None else prefix + out


@implements("latent_moe_tail", name="eager_one_rounding", variant="one_rounding", batch_invariant=True)
def latent_moe_tail_one_rounding(
    routed: Tensor, shared: Tensor, prefix: Tensor | None, norm_weight: Tensor, up_weight: Tensor, *, eps: float
) -> Tensor:
    """The same with a production norm, which rounds once."""
    out = rows_product(rms_norm_once(routed, norm_weight, eps), up_weight).to(BF16) + shared
    return out if prefix is None else prefix + out


@implements("latent_moe_tail", name="eager_fp32_sum", variant="fp32_sum", batch_invariant=True)
def latent_moe_tail_fp32_sum(
    routed: Tensor, shared: Tensor, prefix: Tensor | None, norm_weight: Tensor, up_weight: Tensor, *, eps: float
) -> Tensor:
    """The form of fused kernels: one rounding in the norm, and one of the sum of three bf16 terms."""
    up = rows_product(rms_norm_once(routed, norm_weight, eps), up_weight).to(BF16).float()
    total = up if prefix is None else up + prefix.float()
    return (total + shared.float()).to(shared.dtype)
