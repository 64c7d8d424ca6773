"""Verdicts: structure, special values, numbers within budgets, bias; what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from reference.numerics import round_to_nearest, ulp
from verification.budget import Budget, Golden, biases, derive, largest, row_scores
from verification.guards import poisoned
from verification.localization import describe_failures
from verification.operator import Arguments, Finding, Operator, Output, Outputs
from verification.transport import DTYPE_NAMES

TORCH_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Metrics:
    """How near an output is: errors against budgets, in ulps, and the share that is bit-equal."""

    output: str
    dtype: str
    elements: int
    largest_error: float
    ratio: float
    """Largest error ÷ budget over the elements; at most 1 where it passes."""
    worst_index: tuple[int, ...]
    """Where that ratio is, with the error, the budget and the error in ulps there."""
    worst_error: float
    worst_budget: float
    worst_ulps: float
    largest_ulps: float
    bit_equal: float
    row_ratio: float
    bias: float
    """Mean of error ÷ spread, signed."""
    bias_ratio: float | None
    median_budget_ulps: float


@dataclass
class Observed:
    """What a run gave: results by name, what it did to memory, and where they were."""

    results: list[Tensor]
    devices: list[str]
    dtypes: list[str]
    in_place: Outputs
    changed_inputs: dict[str, int] = field(default_factory=dict)
    """Arguments not declared in-place whose memory changed, with the count of bytes."""
    damages: list[str] = field(default_factory=list)
    earlier: list[Tensor] = field(default_factory=list)
    """Results of the call on other inputs that went before."""
    operations: list[int] = field(default_factory=list)
    """How much each call computed."""


@dataclass
class Comparison:
    """Findings of the first check that failed, and the metrics that could be had."""

    findings: list[Finding] = field(default_factory=list)
    metrics: list[Metrics] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def compare(operator: Operator, arguments: Arguments, observed: Observed, golden: Golden, device: str) -> Comparison:
    """Every check of a result in order; the first that finds something decides the kind of failure."""
    outcome = Comparison()
    outcome.findings = list(_interface(operator, observed, golden, device))
    if outcome.findings:
        return outcome
    outputs = named(operator, observed, golden)
    meant = operator.meant(outputs)
    for stage in (
        _inputs_unchanged(observed),
        _written(operator, arguments, outputs, golden),
        _zones_intact(observed),
        _special_values(operator, arguments, outputs, meant, golden),
        _structure(operator, arguments, outputs, golden),
    ):
        outcome.findings = list(stage)
        if outcome.findings:
            return outcome
    golden = conditioned(operator, arguments, outputs, golden)
    for output in operator.outputs:
        if output.kind == "number" and output.name in outputs:
            got, exact = meant[output.name], golden.exact[output.name]
            mask = _mask(operator, output.name, arguments, outputs)
            if mask is not None:
                got = torch.where(mask, got, round_to_nearest(exact, got.dtype).to(got.dtype))
            metrics, findings = compare_numbers(output.compared_as, got, exact, golden.budgets[output.name])
            outcome.metrics += [metrics] if metrics else []
            outcome.findings += findings
        elif output.kind == "exact" and output.name in outputs:
            outcome.findings += _equal_bits(operator, output, arguments, outputs, meant[output.name], golden)
    return outcome


def behaviour(operator: Operator, observed: Observed, golden: Golden, device: str) -> list[Finding]:
    """Whether a run gave what the interface asks for and touched nothing else, its numbers left aside."""
    return list(_interface(operator, observed, golden, device)) or [
        *_inputs_unchanged(observed),
        *_zones_intact(observed),
    ]


def named(operator: Operator, observed: Observed, golden: Golden) -> Outputs:
    """Results by name: returned ones in order, then the in-place arguments."""
    returned = [o.name for o in operator.outputs if o.argument is None]
    carried = {
        o.name: observed.in_place[o.argument]
        for o in operator.outputs
        if o.argument in observed.in_place and o.name in golden.exact
    }
    return dict(zip(returned, observed.results, strict=True)) | carried


def conditioned(operator: Operator, arguments: Arguments, outputs: Outputs, golden: Golden) -> Golden:
    """The golden for the discrete choices that were made, where they are not the exact ones."""
    if operator.condition is None:
        return golden
    conditions = operator.condition(arguments, outputs)
    usual = operator.condition(arguments, golden.exact)
    if all(torch.equal(value, usual[name]) for name, value in conditions.items()):
        return golden
    return derive(operator, arguments, golden.variant, conditions)


def _interface(operator: Operator, observed: Observed, golden: Golden, device: str) -> Iterator[Finding]:
    returned = [o for o in operator.outputs if o.argument is None]
    miscounted = list(_count(returned, observed))
    if miscounted:
        yield from miscounted
        return
    for output, got, dtype, place in zip(returned, observed.results, observed.dtypes, observed.devices, strict=True):
        yield from list(_dtype(output, dtype, golden)) or _shape(output, got, golden)
        yield from _device(output, place, device)


def _count(returned: list[Output], observed: Observed) -> Iterator[Finding]:
    if len(observed.results) != len(returned):
        names = ", ".join(o.name for o in returned)
        yield Finding("structure", f"returned {len(observed.results)} tensors; expected {len(returned)}: {names}")


def _dtype(output: Output, dtype: str, golden: Golden) -> Iterator[Finding]:
    wanted = DTYPE_NAMES[golden.dtypes[output.name]]
    if dtype != wanted:
        yield Finding("structure", f"{output.name} has dtype {dtype}; expected {wanted}")


def _shape(output: Output, got: Tensor, golden: Golden) -> Iterator[Finding]:
    shape = list(golden.exact[output.name].shape)
    if list(got.shape) != shape:
        yield Finding("structure", f"{output.name} has shape {list(got.shape)}; expected {shape}")


def _device(output: Output, place: str, device: str) -> Iterator[Finding]:
    if place != device:
        yield Finding("structure", f"{output.name} is on {place}; expected {device}")


def _inputs_unchanged(observed: Observed) -> Iterator[Finding]:
    for name, count in observed.changed_inputs.items():
        yield Finding("guard", f"{name} was changed ({count} bytes of its memory); it is not an in-place argument")


def _zones_intact(observed: Observed) -> Iterator[Finding]:
    for damage in observed.damages:
        yield Finding("guard", damage)


def _mask(operator: Operator, name: str, arguments: Arguments, outputs: Outputs) -> Tensor | None:
    return operator.compared(name, arguments, outputs) if operator.compared else None


def _written(operator: Operator, arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    for output in operator.outputs:
        if output.argument is not None or output.name not in outputs:
            continue
        got = outputs[output.name]
        unwritten = poisoned(got)
        if output.kind == "exact":
            unwritten &= ~poisoned(golden.exact[output.name].to(got.dtype))  # the right value may be the poison's
        mask = _mask(operator, output.name, arguments, outputs)
        if mask is not None:
            unwritten &= mask
        if unwritten.any():
            yield Finding(
                "guard",
                f"{output.name}: {int(unwritten.sum())} of {got.numel()} elements still hold the allocation's poison: "
                f"never written, or copied from scratch that was not; {describe_failures(unwritten)}",
            )


def _special_values(
    operator: Operator, arguments: Arguments, outputs: Outputs, meant: Outputs, golden: Golden
) -> Iterator[Finding]:
    for output in operator.outputs:
        if output.kind != "number" or output.name not in outputs:
            continue
        got, exact = meant[output.name].to(torch.float64), golden.exact[output.name]
        # Within its budget of overflow a number may be Inf; an exact Inf may not be a number.
        nearly_infinite = torch.isfinite(exact) & (
            exact.abs() + golden.budgets[output.name].allowed > largest(outputs[output.name].dtype)
        )
        wrong_nan = torch.isnan(got) != torch.isnan(exact)
        got_inf, want_inf = torch.isinf(got), torch.isinf(exact)
        wrong_inf = (got_inf != want_inf) & ~nearly_infinite | (got_inf & (torch.sign(got) != torch.sign(exact)))
        wrong = wrong_nan | wrong_inf & ~torch.isnan(exact)
        mask = _mask(operator, output.name, arguments, outputs)
        if mask is not None:
            wrong &= mask
        if wrong.any():
            yield Finding(
                "special_value",
                f"{output.compared_as}: {int(wrong.sum())} of {got.numel()} elements differ in being NaN or Inf; "
                f"{_first(wrong, got, exact)}; {describe_failures(wrong)}",
            )


def _structure(operator: Operator, arguments: Arguments, outputs: Outputs, golden: Golden) -> Iterator[Finding]:
    if operator.structure is not None:
        yield from operator.structure(arguments, outputs, golden)


def _equal_bits(
    operator: Operator, output: Output, arguments: Arguments, outputs: Outputs, got: Tensor, golden: Golden
) -> Iterator[Finding]:
    wanted = golden.exact[output.name].to(golden.dtypes[output.name])
    different = ~same_bits(got, wanted)
    mask = _mask(operator, output.name, arguments, outputs)
    if mask is not None:
        different &= mask
    if different.any():
        yield Finding(
            "structure",
            f"{output.name}: {int(different.sum())} of {got.numel()} elements differ; "
            f"{_first(different, got, wanted)}; {describe_failures(different)}",
        )


def compare_numbers(name: str, got: Tensor, exact: Tensor, budget: Budget) -> tuple[Metrics | None, list[Finding]]:
    """Errors against budgets an element and a row, and the bias over all; special values agree already."""
    if not exact.numel():
        return None, []
    finite = torch.isfinite(exact)
    dtype, value = got.dtype, got.to(torch.float64)
    error = torch.where(finite & torch.isfinite(value), (value - exact).abs(), 0.0)
    error = torch.where(torch.isnan(value) != torch.isnan(exact), torch.inf, error)
    ratio = error / budget.allowed
    within = error <= budget.allowed
    worst = int(torch.argmax(ratio))
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), exact.shape))
    signed = torch.where(finite & torch.isfinite(value), (value - exact) / budget.spread, 0.0)
    rows = row_scores(signed)
    bias, outward = (float(b) for b in biases(signed, torch.nan_to_num(exact)))
    bias_ratio = None
    if budget.bias_limits is not None:
        bias_ratio = max(abs(bias) / budget.bias_limits[0], abs(outward) / budget.bias_limits[1])
    nearest = round_to_nearest(exact, dtype)
    spacing = ulp(torch.nan_to_num(nearest, posinf=0.0, neginf=0.0), dtype)
    ulps = torch.where(finite & torch.isfinite(value), (value - nearest).abs() / spacing, 0.0)
    metrics = Metrics(
        output=name, dtype=DTYPE_NAMES[dtype], elements=exact.numel(), largest_error=float(error.max()),
        ratio=float(ratio[place]), worst_index=place, worst_error=float(error[place]),
        worst_budget=float(budget.allowed[place]), worst_ulps=float(ulps[place]), largest_ulps=float(ulps.max()),
        bit_equal=float(same_bits(got, nearest.to(dtype)).double().mean()),
        row_ratio=float(_shares(rows, budget.row_limit).max()), bias=bias, bias_ratio=bias_ratio,
        median_budget_ulps=float((budget.allowed / spacing).median()),
    )  # fmt: skip
    return metrics, list(_numeric_findings(name, value, exact, budget, ~within, rows, metrics))


def _numeric_findings(
    name: str, got: Tensor, exact: Tensor, budget: Budget, over: Tensor, rows: Tensor, metrics: Metrics
) -> Iterator[Finding]:
    beyond = list(_elements_within(name, got, exact, budget, over))
    yield from beyond
    if not beyond:
        yield from _rows_within(name, budget, rows, metrics)
        yield from _unbiased(name, metrics)


def _elements_within(name: str, got: Tensor, exact: Tensor, budget: Budget, over: Tensor) -> Iterator[Finding]:
    if over.any():
        yield Finding(
            "budget",
            f"{name}: {int(over.sum())} of {exact.numel()} elements exceed their budget; "
            f"{_worst(over, got, exact, budget.allowed)}; {describe_failures(over)}",
        )


def _rows_within(name: str, budget: Budget, rows: Tensor, metrics: Metrics) -> Iterator[Finding]:
    if not metrics.row_ratio <= 1:
        row = int(torch.argmax(_shares(rows, budget.row_limit)))
        yield Finding(
            "budget",
            f"{name}: row {row} of {rows.numel()} is off as a whole: root mean square of error ÷ spread "
            f"{float(rows.flatten()[row]):.3g}, limit {float(budget.row_limit.flatten()[row]):.3g}, though "
            "each element is within its budget",
        )


def _unbiased(name: str, metrics: Metrics) -> Iterator[Finding]:
    if metrics.bias_ratio is not None and not metrics.bias_ratio <= 1:
        yield Finding(
            "bias",
            f"{name}: errors lean one way: mean of error ÷ spread {metrics.bias:+.3g}, {metrics.bias_ratio:.3g} "
            "× the limit; look for truncation or a scale rounded too early",
        )


def _shares(values: Tensor, limits: Tensor) -> Tensor:
    """Values ÷ limits; a limit of 0 allows 0 alone."""
    return torch.where(values == 0, 0.0, values / limits)


WORST = 3


def _worst(over: Tensor, got: Tensor, exact: Tensor, allowed: Tensor) -> str:
    ratio = torch.where(over, (got - exact).abs() / allowed, 0.0).flatten()
    lines = []
    for flat in torch.topk(ratio, min(WORST, int(over.sum()))).indices:
        index = [int(i) for i in torch.unravel_index(flat, exact.shape)]
        lines.append(
            f"at {index} got {float(got.flatten()[flat]):.6g}, wanted {float(exact.flatten()[flat]):.6g} "
            f"± {float(allowed.flatten()[flat]):.2g} ({float(ratio[flat]):.3g} × budget)"
        )
    return "; ".join(lines)


def _first(mask: Tensor, got: Tensor, wanted: Tensor) -> str:
    index = mask.nonzero()[0]
    at = tuple(int(i) for i in index)
    return f"at {list(at)} got {got[at].item():.6g}, wanted {wanted[at].item():.6g}"


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Element by element, whether two tensors of one dtype hold the same bits; all NaN are alike."""
    bits = TORCH_BITS[a.element_size()]
    equal = a.contiguous().view(bits) == b.contiguous().view(bits)
    return equal | (torch.isnan(a) & torch.isnan(b)) if a.is_floating_point() else equal
