"""Every operator's eager implementation with one thing wrong: the negative controls of the harness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from verification import candidate
from verification.eager.attention_residual import attention_residual
from verification.eager.moe_sorting import moe_sorting, route_sort
from verification.eager.rms_norm import rms_norm
from verification.eager.route import route

RIGHT = {
    "rms_norm": rms_norm,
    "route": route,
    "moe_sorting": moe_sorting,
    "route_sort": route_sort,
    "attention_residual": attention_residual,
}


def results(value: Any) -> list[Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def zeros(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    return tuple(torch.zeros_like(x) for x in results(right(**arguments)))


def nan(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    return tuple(torch.full_like(x, torch.nan) if x.is_floating_point() else x for x in results(right(**arguments)))


def its_inputs(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    """The first argument, cut or repeated to each output's shape."""
    source = next(x for x in arguments.values() if isinstance(x, Tensor)).flatten()
    return tuple(
        source[torch.arange(x.numel()) % len(source)].reshape(x.shape).to(x.dtype) for x in results(right(**arguments))
    )


KEPT: dict[int, list[Tensor]] = {}


def previous_output(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    now = results(right(**arguments))
    before = KEPT.get(id(right), now)
    KEPT[id(right)] = now
    return tuple(b if b.shape == n.shape else n for b, n in zip(before, now, strict=True))


def one_element(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    got = results(right(**arguments))
    number = next(x for x in got if x.is_floating_point())
    number.view(-1)[0] *= 1.05
    return tuple(got)


def one_row(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    got = results(right(**arguments))
    for x in got:
        if x.is_floating_point() and x.ndim == 2:
            x[-1] = x[0]
    return tuple(got)


def swapped_experts(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    """The first two ids of the first row, with their weights, in the wrong order."""
    got = results(right(**arguments))
    for x in got[:2]:
        first = x.view(-1) if x.ndim == 1 else x[0]
        first[:2] = first[:2].flip(0)
    return tuple(got)


def past_its_end(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    got = [torch.empty_like(x).copy_(x) for x in results(right(**arguments))]
    one = got[0]
    torch.as_strided(one, (one.numel() + 1,), (1,), one.storage_offset())[-1] = 1
    return tuple(got)


def changes_an_input(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    got = results(right(**arguments))
    tensors = [x for name, x in arguments.items() if isinstance(x, Tensor) and name not in ("prefix", "blocks")]
    tensors[0].view(-1)[:1] += 1
    return tuple(got)


def half_written(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    got = []
    for x in results(right(**arguments)):
        out = torch.empty_like(x)
        out.view(-1)[: -(-x.numel() // 2)] = x.view(-1)[: -(-x.numel() // 2)]
        got.append(out)
    return tuple(got)


def leaning(right: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    """Every fourth element one step nearer to zero, where an output is bf16."""
    got = results(right(**arguments))
    for x in got:
        if x.dtype == torch.bfloat16:
            x.view(torch.int16).view(-1)[1::4] -= 1
    return tuple(got)


CONTROLS = (
    zeros, nan, its_inputs, previous_output, one_element, one_row, swapped_experts, past_its_end,
    changes_an_input, half_written, leaning,
)  # fmt: skip


def wrapped(right: Callable[..., Any], control: Callable[..., Any]) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        return control(right, arguments)

    return call


for _operator, _right in RIGHT.items():
    for _control in CONTROLS:
        globals()[f"{_operator}_{_control.__name__}"] = candidate(_operator, name=_control.__name__)(
            wrapped(_right, _control)
        )
