"""One kernel under two compilers or from two commits: code, resources and results side by side."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from reference.numerics import FORMATS, ulp
from verification.comparison import same_bits
from verification.gfx950.listing import Listed
from verification.kernel_runs import KernelRun
from verification.operator import Operator

NUMBERS = ("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "scratch_bytes", "lds_bytes", "occupancy",
           "instructions", "code_bytes")  # fmt: skip


@dataclass(frozen=True)
class LaunchDifference:
    """One launch on both sides: its numbers, and what changed in its code."""

    kernel: str
    numbers: dict[str, tuple[int, int]]
    """Resources and wave-instructions executed, those that differ and those that do not."""
    removed: int
    added: int
    opcodes: dict[str, int]
    """Change in the count of each opcode that has one."""
    patch: str
    """The code's unified diff."""

    @property
    def changed(self) -> bool:
        """Whether code or numbers differ."""
        return bool(self.patch) or any(x != y for x, y in self.numbers.values())


@dataclass(frozen=True)
class OutputDifference:
    """One output on both sides: elements whose bits differ, and the largest change."""

    output: str
    elements: int
    changed: int
    largest: float
    ulps: float
    """The largest change in units of the last place of the first side's value; 0 for integers."""
    where: tuple[int, ...]


def launch_differences(a: KernelRun, b: KernelRun) -> list[LaunchDifference]:
    """Launches in order; raises ValueError where the two sides launch other kernels."""
    names = [[launch.kernel for launch in run.launches] for run in (a, b)]
    if names[0] != names[1]:
        raise ValueError(f"the sides launch {', '.join(names[0])} and {', '.join(names[1])}: compare their listings")
    return [_launch(x, y) for x, y in zip(a.launches, b.launches, strict=True)]


def _launch(a: Listed, b: Listed) -> LaunchDifference:
    numbers = {name: (getattr(a.resources, name), getattr(b.resources, name)) for name in NUMBERS}
    numbers["executed"] = (a.executed, b.executed)
    patch = list(difflib.unified_diff(a.code, b.code, "a", "b", lineterm="", n=2))
    before, after = (Counter(line.split()[0] for line in one.code) for one in (a, b))
    opcodes = {name: after[name] - before[name] for name in sorted(before | after) if after[name] != before[name]}
    signs = Counter(line[0] for line in patch[2:])
    return LaunchDifference(a.kernel, numbers, signs["-"], signs["+"], opcodes, "\n".join(patch))


def output_differences(operator: Operator, a: KernelRun, b: KernelRun) -> list[OutputDifference]:
    """Every returned output and in-place argument of both sides."""
    return [_output(name, value, other) for name, value, other in _paired(operator, a, b)]


def _paired(operator: Operator, a: KernelRun, b: KernelRun) -> list[tuple[str, Tensor, Tensor]]:
    returned = [output.name for output in operator.outputs if output.argument is None]
    pairs = list(zip(returned, a.observed.results, b.observed.results, strict=False))
    return pairs + [(name, value, b.observed.in_place[name]) for name, value in a.observed.in_place.items()]


def _output(name: str, a: Tensor, b: Tensor) -> OutputDifference:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return OutputDifference(name, a.numel(), a.numel(), torch.inf, torch.inf, ())
    different = ~same_bits(a, b)
    count = int(different.sum())
    if not count:
        return OutputDifference(name, a.numel(), 0, 0.0, 0.0, ())
    x, y = a.double(), b.double()
    gap = torch.where(different, (x - y).abs().nan_to_num(torch.inf), 0.0)
    worst = int(gap.argmax())
    where = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), a.shape))
    steps = gap / ulp(x.nan_to_num(0.0), a.dtype) if a.dtype in FORMATS else torch.zeros_like(gap)
    return OutputDifference(name, a.numel(), count, float(gap.max()), float(steps.max()), where)
