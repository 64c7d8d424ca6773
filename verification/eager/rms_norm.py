from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fused.boundary import implements


@implements("rms_norm", name="eager", batch_invariant=True)
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Official RMSNorm: normalise in fp32, round, then multiply by the weight and round.

    Shapes: x [T, H], weight [H] → y [T, H] in x's dtype.
    """
    return (normalized(x, eps) * weight.float()).to(x.dtype)


def normalized(x: Tensor, eps: float) -> Tensor:
    """X ÷ rms(x) rounded to x's dtype, held in fp32."""
    return functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype).float()


def rms_norm_once(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The form of production kernels: one rounding, after the weight."""
    return (functional.rms_norm(x.float(), (x.shape[-1],), eps=eps) * weight.float()).to(x.dtype)


implements("rms_norm", name="eager_one_rounding", variant="one_rounding", batch_invariant=True)(rms_norm_once)


def official_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """rms_norm where there is a weight, else x itself: how fused operators end."""
    return x if weight is None else (normalized(x, eps) * weight.float()).to(torch.bfloat16)
