"""Plain Triton kernels whose right answers are known: they judge the machine that runs them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Expected:
    """The right answer and the largest absolute error that a right kernel may show.

    A bound of 0 asks for the same value, the sign of a zero included.
    """

    value: Tensor
    bound: Tensor | float = 0.0


@dataclass(frozen=True)
class Program:
    """Kernels, their inputs, how they are launched, and what must come out."""

    name: str
    kernels: tuple[Any, ...]
    inputs: Callable[[], dict[str, Tensor]]
    run: Callable[[dict[str, Tensor]], dict[str, Tensor]]
    expected: Callable[[dict[str, Tensor]], dict[str, Expected]]
    spills: bool = False
    compiler_fault: str = ""
    """Why the compiled code is known to be wrong (Triton 3.9): such a program must not hold."""


def programs() -> dict[str, Program]:
    """Every program of this package's modules, by name."""
    found: dict[str, Program] = {}
    for module in sorted(entry.name for entry in pkgutil.iter_modules(__path__)):
        for program in getattr(importlib.import_module(f"{__name__}.{module}"), "PROGRAMS", ()):
            if program.name in found:
                raise ValueError(f"two programs are called {program.name!r}")
            found[program.name] = program
    return found


def judge(outputs: dict[str, Tensor], expected: dict[str, Expected]) -> list[str]:
    """What is wrong with the outputs: a line for each output that does not hold."""
    findings = [f"{name}: not expected" for name in sorted(outputs.keys() - expected.keys())]
    for name, wanted in expected.items():
        if name not in outputs:
            findings.append(f"{name}: missing")
            continue
        finding = _judge_output(outputs[name].detach().cpu(), wanted)
        if finding is not None:
            findings.append(f"{name}{finding}")
    return findings


def _judge_output(got: Tensor, wanted: Expected) -> str | None:
    if got.shape != wanted.value.shape:
        return f": shape {list(got.shape)}, wanted {list(wanted.value.shape)}"
    if got.dtype.is_floating_point != wanted.value.dtype.is_floating_point:
        return f": {got.dtype}, wanted {wanted.value.dtype}"
    if got.numel() == 0:
        return None
    compare = _floats if got.dtype.is_floating_point else _integers
    bound = torch.as_tensor(wanted.bound, dtype=torch.float64).expand(got.shape)
    value, answer, error, held = compare(got, wanted.value, bound)
    if bool(held.all()):
        return None
    ratio = torch.where(held, -1.0, torch.nan_to_num(error / bound, nan=torch.inf, posinf=torch.inf)).flatten()
    worst = int(ratio.argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(worst), got.shape)]
    return (
        f"{index}: got {value.flatten()[worst].item()!r}, wanted {answer.flatten()[worst].item()!r}, "
        f"bound {bound.flatten()[worst].item():.3g}, ratio {ratio[worst].item():.3g}; "
        f"{int((~held).sum())} of {got.numel()} elements do not hold"
    )


def _floats(got: Tensor, wanted: Tensor, bound: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    value, answer = got.double(), wanted.double()
    error = (value - answer).abs()
    same = (value == answer) & (torch.signbit(value) == torch.signbit(answer))
    same |= value.isnan() & answer.isnan()
    return value, answer, error, same | ((error <= bound) & (bound > 0))


def _integers(got: Tensor, wanted: Tensor, bound: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    value, answer = got.to(torch.int64), wanted.to(torch.int64)
    error = (value.double() - answer.double()).abs()
    return value, answer, error, (value == answer) | ((error <= bound) & (bound > 0))
