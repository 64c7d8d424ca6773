"""What surrounds the routed experts: the router's projection, latent and shared paths, and the tail."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.activation import bounded_product, check_betas
from reference.checks import require, require_shape
from reference.normalization import normalize
from reference.numerics import ROUNDED, Numerics


def router_logits(x: Tensor, weight: Tensor, *, numerics: Numerics = ROUNDED) -> Tensor:
    """Score every expert for each row, in fp32.

    logits = x · weightᵀ, accumulated and stored in fp32. The point `logits` (off) rounds them to
    bf16, as a linear layer of the model's dtype does: selections flip where scores are close.

    Shapes: x [T, H] bf16, weight [E, H] bf16 → logits [T, E] fp32. Raises ValueError where the
    weight does not fit. Source: Kimi-K3's router (fp32 logits).
    """
    _require_rows("router_logits", "x", x)
    require_shape("router_logits", "weight", weight, (None, x.shape[1]), "[E, H]")
    logits = numerics.matmul("product", numerics.load(x), numerics.load(weight).t())
    return numerics.output("logits", numerics.round("logits", logits, torch.bfloat16, default=False), torch.float32)


class PreRoute(NamedTuple):
    """What the routed and the shared experts start from."""

    latent: Tensor
    shared: Tensor


def moe_preroute(
    x: Tensor,
    latent_weight: Tensor,
    gate_up_weight: Tensor,
    down_weight: Tensor,
    *,
    beta: float,
    linear_beta: float | None = None,
    numerics: Numerics = ROUNDED,
) -> PreRoute:
    """Project each row into the experts' latent, and run the shared expert beside it.

    latent = bf16(x · latent_weightᵀ); shared = bf16(bf16(situ(bf16(x · gate_up_weightᵀ))) · down_weightᵀ),
    the inner roundings being the points `gate_up` and `activated`.

    Shapes: x [T, H], latent_weight [L, H], gate_up_weight [2F, H] (F gate rows, then F up rows),
    down_weight [H, F], all bf16 → latent [T, L], shared [T, H] bf16. Raises ValueError for weights that
    do not fit and betas that are not positive. Source: Kimi-K3's latent MoE.
    """
    _require_rows("moe_preroute", "x", x)
    hidden = x.shape[1]
    require_shape("moe_preroute", "latent_weight", latent_weight, (None, hidden), "[L, H]")
    require_shape("moe_preroute", "gate_up_weight", gate_up_weight, (None, hidden), "[2F, H]")
    width, odd = divmod(gate_up_weight.shape[0], 2)
    require(not odd, "moe_preroute", f"gate_up_weight has {2 * width + 1} rows; expected F gates, then F ups")
    require_shape("moe_preroute", "down_weight", down_weight, (hidden, width), "[H, F]")
    check_betas("moe_preroute", beta, linear_beta)
    values = numerics.load(x)
    latent = numerics.matmul("latent_product", values, numerics.load(latent_weight).t())
    gate_up = numerics.matmul("gate_up_product", values, numerics.load(gate_up_weight).t())
    gate, up = numerics.round("gate_up", gate_up, torch.bfloat16).chunk(2, dim=1)
    activated = bounded_product(gate, up, beta, linear_beta, numerics)
    activated = numerics.round("activated", activated, torch.bfloat16, apart=True)
    shared = numerics.matmul("down_product", activated, numerics.load(down_weight).t())
    return PreRoute(numerics.output("latent", latent, x.dtype), numerics.output("shared", shared, x.dtype))


def latent_moe_tail(
    routed: Tensor,
    shared: Tensor,
    prefix: Tensor | None,
    norm_weight: Tensor,
    up_weight: Tensor,
    *,
    eps: float,
    numerics: Numerics = ROUNDED,
) -> Tensor:
    """Norm the experts' latent, project it up, and add the shared expert and the residual.

    y = bf16(bf16(rms_norm(routed)) · up_weightᵀ); out = bf16(y + shared); hidden = bf16(prefix + out),
    or out itself without a prefix. Points: `norm_normalized` and `norm` around the norm's weight,
    `up`, and `sum` (dropped where the three terms are added in fp32 and rounded once).

    Shapes: routed [T, L], shared [T, H], prefix [T, H] bf16; norm_weight [L], up_weight [H, L] bf16 →
    hidden [T, H] bf16. Raises ValueError for shapes that do not fit. Source: Kimi-K3's latent MoE; no
    scaling factor here.
    """
    _require_rows("latent_moe_tail", "routed", routed)
    rows, latent = routed.shape
    require_shape("latent_moe_tail", "up_weight", up_weight, (None, latent), "[H, L]")
    hidden = up_weight.shape[0]
    require_shape("latent_moe_tail", "shared", shared, (rows, hidden), "[T, H]")
    require_shape("latent_moe_tail", "norm_weight", norm_weight, (latent,), "[L]")
    normed = normalize(numerics.load(routed), norm_weight, eps, routed.dtype, numerics, "norm_")
    normed = numerics.round("norm", normed, torch.bfloat16)
    up = numerics.round("up", numerics.matmul("up_product", normed, numerics.load(up_weight).t()), torch.bfloat16)
    total = numerics.computed("with_shared", up + numerics.load(shared))
    if prefix is not None:
        require_shape("latent_moe_tail", "prefix", prefix, (rows, hidden), "[T, H]")
        total = numerics.round("sum", total, torch.bfloat16)
        total = numerics.computed("with_prefix", numerics.load(prefix) + total)
    return numerics.output("hidden", total, shared.dtype)


def _require_rows(operator: str, name: str, x: Tensor) -> None:
    require(x.ndim == 2 and x.is_floating_point(), operator,
            f"{name} is {list(x.shape)} {x.dtype}; expected [rows, width] of a float dtype")  # fmt: skip
