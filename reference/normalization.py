from __future__ import annotations

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics


def rms_norm(x: Tensor, weight: Tensor, *, eps: float, numerics: Numerics = ROUNDED) -> Tensor:
    """Scale each row to unit root mean square, then by a weight.

    y = bf16(x · rsqrt(mean(x²) + eps)) · weight, the inner rounding being the point `normalized`
    (official: two roundings; production kernels have one).

    Shapes: x [T, H] bf16, weight [H] bf16 or fp32 → y [T, H] in x's dtype.
    Raises ValueError where the weight does not fit. Source: KimiRMSNorm.
    """
    require_shape("rms_norm", "weight", weight, (x.shape[-1],), "[H]")
    y = normalize(numerics.load(x), weight, eps, x.dtype, numerics)
    return numerics.output("y", y, x.dtype)


def normalize(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype, numerics: Numerics, name: str = "") -> Tensor:
    """The same on float64 values, before the last rounding; `name` prefixes the named points."""
    mean_square = numerics.sum(f"{name}square_sum", x.square(), -1, keepdim=True) / x.shape[-1]
    inverse = numerics.apply(f"{name}inverse_rms", torch.rsqrt, mean_square + eps)
    normalized = numerics.computed(f"{name}scaled", x * inverse)
    normalized = numerics.round(f"{name}normalized", normalized, dtype)
    return numerics.computed(f"{name}weighted", normalized * numerics.load(weight))


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, *, eps: float, numerics: Numerics = ROUNDED) -> Tensor:
    """Scale each head to unit root mean square, by a weight that heads share, and by a sigmoid gate.

    y = x · rsqrt(mean(x²) + eps) · weight · sigmoid(gate), in fp32 with one rounding.

    Shapes: x, gate [T, N, V] bf16, weight [V] bf16 or fp32 → y [T, N, V] in x's dtype.
    Raises ValueError for shapes that do not fit. Source: the gated norm of Kimi Delta Attention.
    """
    name = "gated_rms_norm"
    require(x.ndim == 3, name, f"x is {list(x.shape)}; expected [T, N, V]")
    require_shape(name, "gate", gate, tuple(x.shape), "[T, N, V]")
    require_shape(name, "weight", weight, (x.shape[-1],), "[V]")
    return numerics.output("y", normalize_gated(numerics.load(x), gate, weight, eps, numerics), x.dtype)


def normalize_gated(
    x: Tensor, gate: Tensor | None, weight: Tensor, eps: float, numerics: Numerics, name: str = ""
) -> Tensor:
    """The same on float64 values, before the rounding; without a gate a plain RMSNorm with one rounding."""
    mean_square = numerics.sum(f"{name}square_sum", x.square(), -1, keepdim=True) / x.shape[-1]
    inverse = numerics.apply(
        f"{name}inverse_rms", torch.rsqrt, numerics.computed(f"{name}above_eps", mean_square + eps)
    )
    scaled = numerics.computed(f"{name}scaled", x * inverse)
    weighted = numerics.computed(f"{name}weighted", scaled * numerics.load(weight))
    if gate is None:
        return weighted
    return numerics.computed(
        f"{name}gated", weighted * numerics.apply(f"{name}gate_sigmoid", torch.sigmoid, numerics.load(gate))
    )
