"""Which known fault gives the numbers of a wrong result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from reference.numerics import ulp
from verification.budget import Budget, Golden
from verification.comparison import same_bits
from verification.operator import Outputs

DECISIVE = 4.0
"""How many times nearer to a fault than to the exact result an output must be for the fault to be named.

An element just over its budget is within another budget of much that lies beyond it.
"""


@dataclass
class _Distances:
    """Sums of squares of difference ÷ budget, over the elements that fail and over all."""

    to_golden: float = 0.0
    to_fault: float = 0.0
    failed_to_golden: float = 0.0
    failed_to_fault: float = 0.0

    @property
    def ratio(self) -> float:
        """Distance to the exact result ÷ distance to the fault, where elements fail; else over all."""
        far, near = self.failed_to_golden, self.failed_to_fault
        if not far:
            far, near = self.to_golden, self.to_fault
        if not far:
            return 0.0
        return (far / near) ** 0.5 if near else torch.inf


def nearest(got: Outputs, golden: Golden, known: Iterable[tuple[str, Outputs]]) -> str | None:
    """The name of the known fault whose outputs these are within rounding, None where there is none.

    All outputs are as they are compared (`Operator.meant`). A fault matches where each number is
    within its budget and half an ulp of the fault's (where that is the larger, within as many of its
    ulps as budgets usually have), special values and other outputs are the same, and the distance to
    the exact result is `DECISIVE` times that to the fault. The one with the largest such ratio is
    named; of equal ones, all.
    """
    ratios = {name: _nearness(got, golden, fault) for name, fault in known}
    best = max(ratios.values(), default=0.0)
    return " or ".join(name for name, ratio in ratios.items() if ratio == best) if best >= DECISIVE else None


def _nearness(got: Outputs, golden: Golden, fault: Outputs) -> float:
    """Distance to the exact result ÷ distance to the fault; 0 where they are not the fault's outputs."""
    if not got.keys() == fault.keys() == golden.exact.keys():
        return 0.0
    distances = _Distances()
    for name, exact in golden.exact.items():
        value, other = got[name], fault[name]
        if not value.shape == other.shape == exact.shape or value.dtype != other.dtype:
            return 0.0
        if name in golden.budgets:
            if not _add_numbers(distances, value, other, exact, golden.budgets[name]):
                return 0.0
        elif not same_bits(value, other).all():
            return 0.0
        elif not same_bits(value, exact.to(value.dtype)).all():
            distances.failed_to_golden = torch.inf
    return distances.ratio


def _add_numbers(distances: _Distances, value: Tensor, other: Tensor, exact: Tensor, budget: Budget) -> bool:
    """Add an output's distances; False where it is not the fault's within rounding."""
    if not exact.numel():
        return True
    step, exact_step = (ulp(torch.nan_to_num(x.double(), posinf=0.0, neginf=0.0), value.dtype) for x in (other, exact))
    value, other = value.double(), other.double()
    usual = (budget.allowed / exact_step).median()
    to_fault, to_golden = _difference(value, other), _difference(value, exact)
    if not (to_fault <= torch.maximum(budget.allowed, usual * step) + 0.5 * step).all():
        return False
    failed = to_golden > budget.allowed
    near, far = (to_fault / budget.allowed).square(), (to_golden / budget.allowed).square()
    distances.to_fault += float(near.sum())
    distances.to_golden += float(far.sum())
    distances.failed_to_fault += float(near[failed].sum())
    distances.failed_to_golden += float(far[failed].sum())
    return True


def _difference(a: Tensor, b: Tensor) -> Tensor:
    """|a − b|: 0 between equal special values, Inf between a special value and anything else."""
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    return torch.where(same, 0.0, torch.nan_to_num((a - b).abs(), nan=torch.inf, posinf=torch.inf))
