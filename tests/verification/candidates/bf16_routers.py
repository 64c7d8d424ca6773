"""Routers that keep their logits, or their bias, in bf16, or neither."""

from __future__ import annotations

import torch

from verification import candidate
from verification.eager.route import route


@candidate("route", name="logits_bf16")
def logits_bf16(logits, correction_bias=None, **options):
    return route(logits.to(torch.bfloat16), correction_bias, **options)


@candidate("route", name="bias_bf16")
def bias_bf16(logits, correction_bias=None, **options):
    return route(logits, None if correction_bias is None else correction_bias.to(torch.bfloat16), **options)


@candidate("route", name="official")
def official(logits, correction_bias=None, **options):
    return route(logits, correction_bias, **options)
