"""What can go wrong with any operator's results: parts of faults, for `Corpus.results` and `Corpus.whole`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reference.numerics import ulp
from verification.fault_forms import Call

Change = Callable[[Call], dict[str, Tensor]]


def unwritten_last_row(output: str, axis: int = 0) -> Change:
    """The last row of a result is left as it was allocated."""

    def change(call: Call) -> dict[str, Tensor]:
        value = call.outputs[output]
        partial = torch.empty_like(value)
        kept = max(value.shape[axis] - 1, 0)
        partial.narrow(axis, 0, kept).copy_(value.narrow(axis, 0, kept))
        return {output: partial}

    return change


def written_past_the_end(output: str) -> Change:
    """One element more than the result has is written."""

    def change(call: Call) -> dict[str, Tensor]:
        value = call.outputs[output]
        grown = torch.empty_like(value, memory_format=torch.contiguous_format).copy_(value)
        if grown.numel():
            grown.as_strided((grown.numel() + 1,), (1,)).view(-1)[-1] = 1
        return {output: grown}

    return change


def without_nan(output: str) -> Change:
    """NaN and Inf replaced by numbers, as a sanitised kernel does."""
    return lambda call: {output: torch.nan_to_num(call.outputs[output])}


def in_dtype(output: str, dtype: torch.dtype) -> Change:
    """The result returned in another dtype."""
    return lambda call: {output: call.outputs[output].to(dtype)}


def with_shape(output: str, reshape: Callable[[Tensor], Tensor]) -> Change:
    """The result returned in another shape."""
    return lambda call: {output: reshape(call.outputs[output])}


def rolled(output: str, axis: int = 0) -> Change:
    """Each row has its neighbour's result."""
    return lambda call: {output: call.outputs[output].roll(1, axis)}


def nudged_on_second_run(output: str) -> Change:
    """In two runs of every four an element is one ulp off, as where the order of atomics decides."""
    runs = itertools.count()

    def change(call: Call) -> dict[str, Tensor]:
        value = call.outputs[output].clone()
        # The judge compares a run with the next but one.
        if next(runs) // 2 % 2 and value.numel():
            first = value.view(-1)[:1]
            first += ulp(first.double().nan_to_num(), value.dtype).to(value.dtype)
        return {output: value}

    return change


def stale(output: str) -> Change:
    """The first result of a shape is returned ever after: a buffer, or a graph's input, that was frozen."""
    first: dict[Any, Tensor] = {}

    def change(call: Call) -> dict[str, Tensor]:
        value = call.outputs[output]
        return {output: first.setdefault(tuple(value.shape), value.clone()).clone()}

    return change


def changed_input(argument: str) -> Callable[[Call], None]:
    """An argument that is not in-place is used as scratch."""

    def change(call: Call) -> None:
        value = call.arguments[argument]
        if isinstance(value, Tensor) and value.numel():
            value.mul_(2)

    return change


def left_in(argument: str, output: str) -> Callable[[Call], None]:
    """The result is left in an argument that is not in-place."""

    def change(call: Call) -> None:
        call.arguments[argument].copy_(call.outputs[output])

    return change
