"""Faults that one check alone sees: by every other they are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from verification import candidate
from verification.eager.mla import mla_decode
from verification.eager.rms_norm import normalized, rms_norm
from verification.eager.route import route
from verification.eager.sampling import greedy_sample


def fault(operator: str, **promises: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare a candidate under the function's own name."""
    return lambda function: candidate(operator, name=function.__name__, **promises)(function)


@fault("rms_norm")
def returns_a_second_output(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return rms_norm(x, weight, eps), x.float().square().mean(-1)


@fault("rms_norm")
def returns_fp32(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rms_norm(x, weight, eps).float()


@fault("rms_norm")
def returns_one_row_for_all(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What launching one program too few gives, where the rows are equal."""
    return rms_norm(x[:1], weight, eps)


@fault("rms_norm")
def changes_its_input(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = rms_norm(x, weight, eps)
    x.copy_(normalized(x, eps))
    return y


@fault("rms_norm")
def leaves_out_rows_with_nan(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = torch.empty_like(x)
    finite = ~x.isnan().any(-1)
    y[finite] = rms_norm(x[finite], weight, eps)
    return y


@fault("rms_norm")
def writes_past_its_end(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = torch.empty_like(x).copy_(rms_norm(x, weight, eps))
    y.as_strided((y.numel() + 1,), (1,), y.storage_offset())[-1] = 0
    return y


@fault("mla_decode")
def empty_sequences_have_mass_one(**arguments: Any) -> tuple[Tensor, Tensor]:
    latent, lse = mla_decode(**arguments)
    return latent, lse.masked_fill(lse == -torch.inf, 0.0)


@fault("route")
def overlooks_the_best(logits: Tensor, **arguments: Any) -> tuple[Tensor, Tensor]:
    best = logits.argmax(-1, keepdim=True)
    return route(logits.scatter(1, best, -torch.inf), **arguments)


@fault("greedy_sample")
def counts_from_one(logits: Tensor) -> Tensor:
    return greedy_sample(logits) + 1


@fault("rms_norm")
def one_element_off(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = rms_norm(x, weight, eps)
    y[0, 17] *= 1.03
    return y


@fault("rms_norm")
def leaves_out_the_last_element(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Of a row's sum: every element of the row is a little too large, none by much."""
    mean = x.float()[:, :-1].square().sum(-1, keepdim=True) / x.shape[-1]
    return ((x.float() * (mean + eps).rsqrt()).to(x.dtype).float() * weight.float()).to(x.dtype)


@fault("rms_norm")
def truncates_the_lower_of_each_pair(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As a packed conversion does whose rounding is added to the upper half alone."""
    y, exact = rms_norm(x, weight, eps), normalized(x, eps) * weight.float()
    y[:, ::2] = (exact.view(torch.int32) & ~0xFFFF).view(torch.float32)[:, ::2].to(x.dtype)
    return y


LAST: dict[torch.Size, Tensor] = {}


@fault("rms_norm")
def gives_the_previous_result(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What reading a buffer too early gives; the first call has nothing else to give."""
    y = rms_norm(x, weight, eps)
    before, LAST[x.shape] = LAST.get(x.shape, y), y
    return before


FIRST: dict[torch.Size, Tensor] = {}


@fault("rms_norm")
def gives_its_first_result_for_good(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return FIRST.setdefault(x.shape, rms_norm(x, weight, eps)).clone()


@fault("rms_norm", batch_invariant=True)
def sums_large_batches_in_another_order(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    mean = x.float().square().cumsum(-1)[:, -1:] / x.shape[-1]
    other = ((x.float() * (mean + eps).rsqrt()).to(x.dtype).float() * weight.float()).to(x.dtype)
    return rms_norm(x, weight, eps) if len(x) < 8 else other
