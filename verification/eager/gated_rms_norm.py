from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fused.boundary import implements


@implements("gated_rms_norm", name="eager", batch_invariant=True)
def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Norm, weight and sigmoid gate in fp32, rounded once.

    Shapes: x, gate [T, N, V], weight [V] → y [T, N, V] in x's dtype.
    """
    return normed(x.float(), gate, weight, eps).to(x.dtype)


def normed(x: Tensor, gate: Tensor | None, weight: Tensor | None, eps: float) -> Tensor:
    """The same on fp32 rows, unrounded; without a weight the rows themselves."""
    if weight is None:
        return x
    y = functional.rms_norm(x, (x.shape[-1],), eps=eps) * weight.float()
    return y if gate is None else y * torch.sigmoid(gate.float())
