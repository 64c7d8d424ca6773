from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reference.checks import require, require_shape
from reference.numerics import ROUNDED, Numerics

SCORE_FUNCTIONS = ("sigmoid", "softmax")
DENOMINATOR_EPSILON = 1e-20


class Routing(NamedTuple):
    """Which experts a token goes to, best first, and with what weights."""

    expert_ids: Tensor
    expert_weights: Tensor


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
    numerics: Numerics = ROUNDED,
    chosen: Tensor | None = None,
) -> Routing:
    """Choose top_k experts a token by biased score and weigh them by unbiased score.

    s = sigmoid(logits) or softmax(logits); c = s + bias; ids = the k largest c inside the kept
    groups, equal ones by lower id; w = s[ids] / (Σ s[ids] + 1e-20) · scaling_factor.

    −Inf choices rank below all finite ones and NaN below −Inf; a NaN score has weight 0. With
    `chosen` [T, k] (logical ids) those experts are weighed instead of the best. The points `logits` and
    `correction_bias` (both off) round either to bf16 first: selections flip where choices are close.

    Shapes: logits [T, E] fp32 (bf16, fp16 allowed), correction_bias [E] fp32,
    logical_to_physical [E] int → expert_ids [T, k] int32, expert_weights [T, k] fp32.
    Raises ValueError where the groups cannot hold k experts. Source: DeepSeek-V3's noaux_tc gate.
    """
    check_arguments(logits, correction_bias, top_k, num_groups, top_groups, score_function, logical_to_physical)
    stored = numerics.round("logits", numerics.load(logits), torch.bfloat16, default=False, apart=True)
    scores = expert_scores(stored, score_function, numerics)
    choice = scores
    if correction_bias is not None:
        bias = numerics.round(
            "correction_bias", numerics.load(correction_bias), torch.bfloat16, default=False, apart=True
        )
        choice = numerics.computed("choice", scores + bias)
    numerics.note("choice", choice)
    numerics.note("score", scores)
    if chosen is None:
        kept = kept_experts(choice, num_groups, top_groups, biased=correction_bias is not None)
        chosen = best_experts(choice, kept, top_k)
    weights = expert_weights(scores, chosen, renormalize, scaling_factor, numerics)
    ids = chosen if logical_to_physical is None else logical_to_physical[chosen.long()]
    return Routing(ids.to(torch.int32), numerics.output("expert_weights", weights, torch.float32))


def check_arguments(
    logits: Tensor,
    correction_bias: Tensor | None,
    top_k: int,
    num_groups: int,
    top_groups: int,
    score_function: str,
    logical_to_physical: Tensor | None,
) -> None:
    """Raise ValueError, naming the argument, for what no router can do."""
    require(logits.ndim == 2, "route", f"logits is {list(logits.shape)}; expected [T, E]")
    experts = logits.shape[1]
    require(
        num_groups >= 1 and experts % num_groups == 0,
        "route",
        f"{experts} experts do not divide into {num_groups} groups",
    )
    size = experts // num_groups
    require(1 <= top_groups <= num_groups, "route", f"top_groups is {top_groups}; expected 1…{num_groups}")
    require(
        1 <= top_k <= top_groups * size,
        "route",
        f"top_k is {top_k}; {top_groups} groups of {size} hold {top_groups * size}",
    )
    require(
        score_function in SCORE_FUNCTIONS,
        "route",
        f"score_function is {score_function!r}; expected one of {SCORE_FUNCTIONS}",
    )
    for name, x in (("correction_bias", correction_bias), ("logical_to_physical", logical_to_physical)):
        if x is not None:
            require_shape("route", name, x, (experts,), "[E]")


def expert_scores(logits: Tensor, score_function: str, numerics: Numerics) -> Tensor:
    """Unbiased scores of float64 logits [T, E]; a NaN logit has score NaN."""
    if score_function == "sigmoid":
        return numerics.apply("sigmoid", torch.sigmoid, logits)
    missing = torch.isnan(logits)
    present = logits.masked_fill(missing, -torch.inf)
    largest = present.amax(-1, keepdim=True)
    # At ±Inf a difference would be NaN: the largest share equally, a row of −Inf has no mass.
    shifted = torch.where(present == largest, 0.0, present - largest)
    mass = numerics.apply("exponential", torch.exp, shifted).masked_fill(present == -torch.inf, 0.0)
    total = numerics.sum("softmax_sum", mass, -1, keepdim=True)
    scores = numerics.divide("softmax", mass, torch.where(total == 0, 1.0, total))
    return scores.masked_fill(missing, torch.nan)


def group_scores(choice: Tensor, num_groups: int, *, biased: bool) -> Tensor:
    """Score of each group [T, G]: the sum of its two best choices with a bias, else its best."""
    groups = choice.unflatten(-1, (num_groups, -1))
    best = groups.gather(-1, ranked(groups)[..., : 2 if biased else 1])
    scores: Tensor = best.sum(-1)
    return scores


def kept_experts(choice: Tensor, num_groups: int, top_groups: int, *, biased: bool) -> Tensor:
    """Mask [T, E] of the experts inside the top_groups best groups; equal groups by lower index."""
    if num_groups == top_groups:
        return torch.ones_like(choice, dtype=torch.bool)
    scores = group_scores(choice, num_groups, biased=biased)
    best = ranked(scores)[:, :top_groups]
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter(1, best, True)
    return kept.repeat_interleave(choice.shape[1] // num_groups, dim=1)


def best_experts(choice: Tensor, kept: Tensor, top_k: int) -> Tensor:
    """The top_k kept experts [T, k]: descending choice, then ascending id."""
    order = ranked(choice)
    excluded = ~kept.gather(1, order)
    last = excluded.to(torch.int8).argsort(dim=1, stable=True)
    return order.gather(1, last)[:, :top_k]


def ranked(x: Tensor) -> Tensor:
    """Indices of the last axis by descending value, then ascending index; NaN after −Inf."""
    missing = torch.isnan(x)
    order = x.masked_fill(missing, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    last = missing.gather(-1, order).to(torch.int8).argsort(dim=-1, stable=True)
    return order.gather(-1, last)


def expert_weights(
    scores: Tensor, chosen: Tensor, renormalize: bool, scaling_factor: float, numerics: Numerics
) -> Tensor:
    """Weights [T, k] of the chosen experts from the unbiased scores [T, E]."""
    weights = scores.gather(1, chosen.long())
    if not numerics.has("nan_weights", default=False):
        weights = weights.masked_fill(torch.isnan(weights), 0.0)
    if renormalize:
        total = numerics.sum("weight_sum", weights, -1, keepdim=True)
        if numerics.has("denominator_floor", default=False):
            total = total.clamp(min=DENOMINATOR_EPSILON)
        elif numerics.has("denominator_guard", default=False):
            total = torch.where(total == 0, 1.0, total)
        else:
            total = total + DENOMINATOR_EPSILON
        weights = numerics.divide("normalized", weights, total)
    return numerics.computed("scaled", weights * scaling_factor)
