"""Right implementations of every operator: no comparison may raise an alarm at any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from reference.numerics import Mode, Numerics, Variant, round_to_nearest, rounded
from verification.budget import Golden, derive
from verification.comparison import Observed, compare
from verification.execution import observe, run_of
from verification.operator import Arguments, Case, Operator, Outputs
from verification.plan import Candidate, builtin
from verification.readings import Sum
from verification.transport import DTYPE_NAMES

FRESH = 1 << 20
"""Seeds from here on belong to no run that a budget comes from."""


@dataclass
class Stored(Numerics):
    """A reading whose results are stored, rounded once and to nearest."""

    def output(self, name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The value in the output's dtype."""
        return round_to_nearest(self.note(name, x).to(torch.float64), dtype).to(dtype)


@dataclass
class Single(Stored):
    """The reference evaluated in fp32, its sums and products in an order of their own."""

    mode: Mode = "rounded"
    total: Sum = torch.sum
    block: int = 0
    """Terms of K a step of a product; 0 for torch's own product."""

    def load(self, x: Tensor) -> Tensor:
        """A copy of x in fp32."""
        return x.to(torch.float32, copy=True)

    def round(self, point: str, x: Tensor, dtype: torch.dtype, *, default: bool = True, apart: bool = False) -> Tensor:
        """X as it is after being stored in `dtype`."""
        return super().round(point, x.to(torch.float64), dtype, default=default, apart=apart).to(x.dtype)

    def before_choice(self, point: str, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """X as it is stored before a choice, and how much it may be off."""
        value, slack = super().before_choice(point, x.to(torch.float64), dtype)
        return value.to(x.dtype), slack.to(x.dtype)

    def sum(self, name: str, terms: Tensor, dim: int, *, keepdim: bool = False) -> Tensor:
        """Σ terms in this order."""
        return self.note(name, self.total(terms, dim, keepdim))

    def matmul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """A @ b, block after block of K, each block exact and then added in fp32."""
        a, b = (x.to(torch.promote_types(a.dtype, b.dtype)) for x in (a, b))
        if not self.block:
            return self.note(name, a @ b)
        total = a[..., :0] @ b[..., :0, :]
        for k in range(0, a.shape[-1], self.block):
            part = a[..., k : k + self.block].double() @ b[..., k : k + self.block, :].double()
            total = (total.double() + part).to(total.dtype)
        return self.note(name, total)


def reversed_sum(terms: Tensor, dim: int, keepdim: bool) -> Tensor:
    """One chain from the last term to the first."""
    if not terms.shape[dim]:
        return terms.sum(dim, keepdim=keepdim)
    # torch's own cumsum of fp32 runs in double on a CPU; numpy's keeps to the dtype.
    chain = torch.from_numpy(np.cumsum(terms.flip(dim).numpy(), axis=dim)).narrow(dim, terms.shape[dim] - 1, 1)
    return chain if keepdim else chain.squeeze(dim)


def pairwise_sum(terms: Tensor, dim: int, keepdim: bool) -> Tensor:
    """A balanced tree of neighbours."""
    while terms.shape[dim] > 1:
        odd = terms.narrow(dim, terms.shape[dim] - 1, terms.shape[dim] % 2)
        pairs = terms.narrow(dim, 0, terms.shape[dim] // 2 * 2).unflatten(dim, (-1, 2))
        at = dim if dim >= 0 else dim - 1
        terms = torch.cat([pairs.select(at + 1, 0) + pairs.select(at + 1, 1), odd], dim)
    return terms.sum(dim, keepdim=keepdim)


def compensated_sum(terms: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Kahan's sum: a chain that carries what each addition lost."""
    total = torch.zeros_like(terms.select(dim, 0)) if terms.shape[dim] else terms.sum(dim)
    lost = torch.zeros_like(total)
    for term in terms.unbind(dim):
        corrected = term - lost
        grown = total + corrected
        lost = torch.where(torch.isfinite(grown), (grown - total) - corrected, 0.0)
        total = grown
    return total.unsqueeze(dim) if keepdim else total


def split_sum(terms: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Four lanes, each with every fourth term, added at the end."""
    at = torch.arange(terms.shape[dim])
    lanes = [terms.index_select(dim, at[lane::4]).sum(dim, keepdim=keepdim) for lane in range(4)]
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


Reading = Callable[[Variant, int], Numerics]

READINGS: dict[str, Reading] = {
    "rounded at each point": lambda variant, seed: rounded(variant),
    "float64, rounded once": lambda variant, seed: Stored("exact", variant),
    "random roundings": lambda variant, seed: Stored("perturbed", variant, FRESH + seed),
    "fp32": lambda variant, seed: Single("rounded", variant),
    "fp32, sums from the end": lambda variant, seed: Single("rounded", variant, total=reversed_sum, block=16),
    "fp32, pairwise": lambda variant, seed: Single("rounded", variant, total=pairwise_sum, block=64),
    "fp32, compensated": lambda variant, seed: Single("rounded", variant, total=compensated_sum, block=32),
    "fp32, four lanes": lambda variant, seed: Single("rounded", variant, total=split_sum, block=128),
}
"""Ways in which a right implementation may evaluate a reference's text, by name."""


@dataclass(frozen=True)
class Alarm:
    """A right implementation at which a comparison raised an alarm, which is a fault of ours."""

    operator: str
    case: str
    variant: str
    implementation: str
    finding: str


@dataclass(frozen=True)
class Judged:
    """What was compared on one case under one variant, and the alarms."""

    comparisons: int
    alarms: tuple[Alarm, ...]


def judge(operator: Operator, case: Case, variant: Variant) -> Judged:
    """Every reading of the reference, and every eager implementation of the variant, on one case."""
    arguments = operator.arguments(case)
    golden = derive(operator, arguments, variant)
    right: dict[str, Callable[[], Observed]] = {
        name: lambda reading=reading: _read(operator, arguments, reading(variant, case.seed), golden)  # type: ignore[misc]
        for name, reading in READINGS.items()
    }
    for candidate in _eager(operator, variant):
        right[candidate.declared.name] = lambda one=candidate: _called(operator, one, operator.arguments(case))  # type: ignore[misc]
    alarms = []
    for name, run in right.items():
        found = compare(operator, arguments, run(), golden, "cpu").findings
        alarms += [Alarm(operator.name, case.id, variant.name, name, f.message) for f in found[:1]]
    return Judged(len(right), tuple(alarms))


def _eager(operator: Operator, variant: Variant) -> list[Candidate]:
    return [one for one in builtin(operator.name, "eager") if one.declared.variant == variant.name]


def _called(operator: Operator, candidate: Candidate, arguments: Arguments) -> Observed:
    return observe(run_of(operator, candidate.declared), operator, arguments)


def _read(operator: Operator, arguments: Arguments, numerics: Numerics, golden: Golden) -> Observed:
    outputs = operator.evaluate(_cloned(arguments), numerics=numerics)
    return observed(operator, {n: x.to(golden.dtypes.get(n, x.dtype)) for n, x in outputs.items()})


def _cloned(arguments: Arguments) -> Arguments:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in arguments.items()}


def observed(operator: Operator, outputs: Outputs) -> Observed:
    """Outputs by name as if a run on the CPU had given them."""
    results = [outputs[o.name] for o in operator.outputs if o.argument is None and o.name in outputs]
    carried = {o.argument: outputs[o.name] for o in operator.outputs if o.argument is not None and o.name in outputs}
    return Observed(results, ["cpu"] * len(results), [DTYPE_NAMES[x.dtype] for x in results], carried)


def schedule(
    operators: Iterable[Operator], suite: str, seeds: Iterable[int]
) -> Iterator[tuple[Operator, Case, Variant]]:
    """Every case of the suite under each of these seeds, with every variant."""
    for operator in operators:
        for seed in seeds:
            for group, case in operator.cases(suite):
                if not group.targets:
                    yield from ((operator, replace(case, seed=seed), variant) for variant in operator.variants)
