from __future__ import annotations

import torch
from torch import Tensor

from fused.boundary import implements
from verification.eager.rms_norm import official_norm
from verification.eager.tiles import tiled


@implements("attention_residual", name="eager", batch_invariant=True)
def attention_residual(
    prefix: Tensor,
    delta: Tensor | None,
    blocks: Tensor,
    score_weight: Tensor,
    output_norm_weight: Tensor | None = None,
    *,
    num_blocks: int,
    eps: float,
    output_eps: float,
    block_write_index: int = -1,
) -> Tensor:
    """Delta add and block write in place, then the softmax mix of snapshots and prefix, in fp32.

    Shapes: prefix, delta [T, H], blocks [T, capacity, H], score_weight [H] → hidden [T, H].
    """
    if delta is not None:
        prefix.add_(delta)
    if block_write_index >= 0:
        blocks[:, block_write_index] = prefix
    candidates = tiled(torch.cat([blocks[:, :num_blocks], prefix[:, None]], dim=1)).float()
    inverse_rms = torch.rsqrt(candidates.square().mean(-1) + eps)
    score = inverse_rms * (candidates * score_weight).sum(-1)
    mix = (torch.softmax(score, dim=-1)[..., None] * candidates).sum(1).to(prefix.dtype)
    return official_norm(mix[: len(prefix)], output_norm_weight, output_eps)
