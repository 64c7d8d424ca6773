"""How far a right kernel may lie from the exact answer, and exact rounding to a format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Format:
    """A binary format: significand bits with the hidden one, least normal exponent, largest value."""

    precision: int
    least_exponent: int
    largest: float

    @property
    def unit(self) -> float:
        """Unit roundoff u = 2⁻ᵖ."""
        return float(2.0**-self.precision)

    @property
    def subnormal(self) -> float:
        """The least positive number."""
        return float(2.0 ** (self.least_exponent - self.precision + 1))


FORMATS = {
    torch.float32: Format(24, -126, float(np.finfo(np.float32).max)),
    torch.bfloat16: Format(8, -126, (2 - 2.0**-7) * 2.0**127),
    torch.float16: Format(11, -14, 65504.0),
    torch.float8_e4m3fn: Format(4, -6, 448.0),
    torch.float8_e5m2: Format(3, -14, 57344.0),
}
FP32 = 2.0**-24
LEAST_NORMAL = 2.0**-126


def rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """A float64 tensor rounded once to the nearest number of the format, ties to even: float64 again."""
    form = FORMATS[dtype]
    x = value.double().numpy()
    _, exponent = np.frexp(x)
    step = np.ldexp(1.0, np.maximum(exponent - 1, form.least_exponent) - form.precision + 1)
    y = np.rint(x / step) * step
    y = np.where(np.isfinite(x) & (np.abs(y) > form.largest), np.copysign(np.inf, x), y)
    return torch.from_numpy(np.where(np.isfinite(x), y, x))


def half_ulp(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounding to nearest: |y| u + half the least subnormal."""
    form = FORMATS[dtype]
    return value.double().abs() * form.unit + form.subnormal / 2


def stored(value: Tensor, error: Tensor | float, dtype: torch.dtype) -> Tensor:
    """An answer with an error, rounded: e + (|y| + e) u + half the least subnormal."""
    return error + half_ulp(value.double().abs() + error, dtype)


def ulps(value: Tensor, count: float) -> Tensor:
    """A unit of fp32 right to `count` ulps that may flush subnormals: 2 count u |y| + 2⁻¹²⁶."""
    return value.double().abs() * (2 * count * FP32) + LEAST_NORMAL


def gamma(count: int, unit: float = FP32) -> float:
    """`count` roundings one after another: n u / (1 - n u)."""
    return count * unit / (1 - count * unit)


def sum_bound(magnitudes: Tensor, count: int, unit: float = FP32) -> Tensor:
    """A sum of `count` terms in any order: γ(count - 1) Σ|t|."""
    return gamma(max(count - 1, 1), unit) * magnitudes.double()


def dot_bound(a: Tensor, b: Tensor, dtype: torch.dtype = torch.float32, unit: float = 2 * FP32) -> Tensor:
    """A matrix product over K: (K + 2) u |a|·|b| + half ulp of the output; adders may truncate, so u = 2⁻²³."""
    a, b = a.double(), b.double()
    error = gamma(a.shape[-1] + 2, unit) * (a.abs() @ b.abs()) + a.shape[-1] * LEAST_NORMAL
    return error if dtype == torch.float32 else stored(a @ b, error, dtype)
