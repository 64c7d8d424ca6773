from __future__ import annotations

import torch
from torch import Tensor

from fused.boundary import implements


@implements("situ", name="eager", batch_invariant=True)
def situ(gate_up: Tensor, beta: float, linear_beta: float | None = None) -> Tensor:
    """SiTU in fp32, rounded once. Shapes: gate_up [T, 2F] → y [T, F]."""
    gate, up = gate_up.float().chunk(2, dim=1)
    return bounded_product(gate, up, beta, linear_beta).to(gate_up.dtype)


def bounded_product(gate: Tensor, up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
    """The same on fp32 gates and ups, unrounded."""
    gated = beta * torch.tanh(gate / beta) * torch.sigmoid(gate)
    return gated * (up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta))


def bounded_product_exponential(gate_up: Tensor, beta: float, linear_beta: float | None = None) -> Tensor:
    """The form of kernels that have an exponential and no hyperbolic tangent; tanh(+0) is −0 in it."""
    gate, up = gate_up.float().chunk(2, dim=1)
    gated = beta * tangent(gate / beta) / (1 + torch.exp2(gate * -LOG2_E))
    return (gated * (up if linear_beta is None else linear_beta * tangent(up / linear_beta))).to(gate_up.dtype)


implements("situ", name="eager_exponential", batch_invariant=True)(bounded_product_exponential)

LOG2_E = 1.4426950408889634


def tangent(x: Tensor) -> Tensor:
    """tanh(x) = ±(1 − e) ÷ (1 + e), e = 2^(−2·|x|·log2 e)."""
    e = torch.exp2(x.abs() * (-2 * LOG2_E))
    size = (1 - e) / (1 + e)
    return torch.where(x > 0, size, -size)
