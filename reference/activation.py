from __future__ import annotations

import torch
from torch import Tensor

from reference.checks import require
from reference.numerics import ROUNDED, Numerics


def situ(gate_up: Tensor, *, beta: float, linear_beta: float | None = None, numerics: Numerics = ROUNDED) -> Tensor:
    """Bounded gated activation: both sides saturate smoothly.

    y = beta · tanh(gate ÷ beta) · sigmoid(gate) · linear_beta · tanh(up ÷ linear_beta), computed in
    fp32 and rounded once; without linear_beta the last factor is up itself.

    Shapes: gate_up [T, 2F] bf16, the gates first → y [T, F] in its dtype. Raises ValueError for an odd
    width and betas that are not positive. Source: Kimi-K3's SiTU (4 and 25 there).
    """
    require(gate_up.ndim == 2, "situ", f"gate_up is {list(gate_up.shape)}; expected [T, 2F]")
    require(gate_up.shape[1] % 2 == 0, "situ", f"gate_up has {gate_up.shape[1]} columns; expected F gates, then F ups")
    check_betas("situ", beta, linear_beta)
    gate, up = numerics.load(gate_up).chunk(2, dim=1)
    return numerics.output("y", bounded_product(gate, up, beta, linear_beta, numerics), gate_up.dtype)


def bounded_product(gate: Tensor, up: Tensor, beta: float, linear_beta: float | None, numerics: Numerics) -> Tensor:
    """The same on float64 gates and ups, before the last rounding."""
    bounded = bounded_by(beta, gate, numerics, "gate")
    gated = numerics.computed("gated", bounded * numerics.apply("sigmoid", torch.sigmoid, gate))
    linear = up if linear_beta is None else bounded_by(linear_beta, up, numerics, "up")
    return numerics.computed("activation", gated * linear)


def bounded_by(beta: float, x: Tensor, numerics: Numerics, name: str) -> Tensor:
    """X held within ±beta by beta · tanh(x ÷ beta).

    Kernels without a hyperbolic tangent form it as (1 − e) ÷ (1 + e) or 2 · sigmoid − 1, that is
    from terms of size one: near 0 its error is of that size.
    """
    ratio = numerics.divide(f"{name}_ratio", x, torch.as_tensor(beta, dtype=x.dtype, device=x.device))
    tangent = numerics.apply(f"{name}_tanh", torch.tanh, ratio, formed_at=1.0)
    return numerics.computed(f"{name}_bounded", beta * tangent)


def check_betas(operator: str, beta: float, linear_beta: float | None) -> None:
    """Raise ValueError unless the bounds are positive numbers."""
    require(beta > 0, operator, f"beta is {beta}; expected a positive number, 4.0 in Kimi-K3")
    require(
        linear_beta is None or linear_beta > 0,
        operator,
        f"linear_beta is {linear_beta}; expected a positive number, 25.0 in Kimi-K3, or None for no bound",
    )
