from __future__ import annotations

import torch
from torch import Tensor

from reference.checks import require_shape
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
