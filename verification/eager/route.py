from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor

from fused.boundary import implements

EPSILON = 1e-20


@implements("route", name="eager", batch_invariant=True)
def route(
    logits: Tensor,
    correction_bias: Tensor | None = None,
    *,
    top_k: int,
    num_groups: int = 1,
    top_groups: int = 1,
    score_function: str = "sigmoid",
    renormalize: bool = True,
    scaling_factor: float = 1.0,
    logical_to_physical: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Biased grouped top-k in fp32 by one stable sort.

    Shapes: logits [T, E], correction_bias [E] → expert_ids [T, k] int32, expert_weights [T, k] fp32.
    """
    scores = scored(logits.float(), score_function)
    choice = scores if correction_bias is None else scores + correction_bias
    keys = ordered(choice)
    if top_groups < num_groups:
        keys = keys.masked_fill(~in_kept_groups(choice, num_groups, top_groups, correction_bias is not None), EXCLUDED)
    ids = keys.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    weights = scores.gather(1, ids).nan_to_num(nan=0.0)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + EPSILON)
    if logical_to_physical is not None:
        ids = logical_to_physical[ids]
    return ids.to(torch.int32), weights * scaling_factor


@wraps(route)
def route_of_bf16_logits(logits: Tensor, correction_bias: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:
    """The same of logits as a bf16 linear layer leaves them."""
    return route(logits.to(torch.bfloat16), correction_bias, **options)


@wraps(route)
def route_with_bf16_bias(logits: Tensor, correction_bias: Tensor | None = None, **options: Any) -> tuple[Tensor, ...]:
    """The same with a bias that is kept in bf16."""
    return route(logits, None if correction_bias is None else correction_bias.to(torch.bfloat16), **options)


implements("route", name="eager_logits_bf16", variant="logits_bf16", batch_invariant=True)(route_of_bf16_logits)
implements("route", name="eager_bias_bf16", variant="bias_bf16", batch_invariant=True)(route_with_bf16_bias)


def scored(logits: Tensor, score_function: str) -> Tensor:
    """Sigmoid or softmax over the present logits; NaN stays NaN."""
    if score_function == "sigmoid":
        return torch.sigmoid(logits)
    present = logits.masked_fill(logits.isnan(), -torch.inf)
    largest = present.amax(-1, keepdim=True)
    mass = torch.where(present == largest, 1.0, torch.exp(present - largest)).masked_fill(present == -torch.inf, 0.0)
    return (mass / mass.sum(-1, keepdim=True).clamp(min=1.0)).masked_fill(logits.isnan(), torch.nan)


MISSING = -(2**31) + 1
EXCLUDED = -(2**31)


def ordered(x: Tensor) -> Tensor:
    """fp32 as int32 keys in the same order; −0 equals +0 and NaN is below −Inf."""
    bits = torch.where(x == 0, 0.0, x).view(torch.int32)
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).masked_fill(x.isnan(), MISSING)


def in_kept_groups(choice: Tensor, num_groups: int, top_groups: int, biased: bool) -> Tensor:
    """Mask [T, E] of the experts of the best groups."""
    groups = choice.unflatten(-1, (num_groups, -1))
    size = groups.shape[-1]
    best = ordered(groups).sort(dim=-1, descending=True, stable=True).indices[..., : min(2 if biased else 1, size)]
    order = ordered(groups.gather(-1, best).sum(-1)).sort(dim=-1, descending=True, stable=True).indices
    kept = torch.zeros(groups.shape[:2], dtype=torch.bool, device=choice.device).scatter(1, order[:, :top_groups], True)
    return kept.repeat_interleave(size, dim=1)
