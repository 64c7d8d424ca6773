"""Error budgets derived by random rounding; no tolerance is written down anywhere.

The reference is evaluated `RUNS` times in float64 with every declared rounding point, sum and
function moved at random by as much as a right low-precision implementation may be off. The spread
around the exact evaluation, on the very inputs of the case, is what such an implementation shows:

    budget = z · σ + ½ ulp(|exact| + z · σ),   z = Φ⁻¹(1 − α ÷ 2N)

an element, with σ the root mean square of the differences, at least half the row's median in ulps
(sixteen runs leave some elements unlucky), N the elements compared and α the false-alarm rate.
Where the elements of a row are sums over the same rounded terms (`Output.common_scale`) their errors
are of one size whatever their own is, and σ is at least the root mean square over the row.
Rows and bias have limits from the same runs. The output of a kernel under test has no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from scipy import stats
from torch import Tensor

from reference.numerics import EXACT, FORMATS, OFFICIAL, Numerics, Variant, perturbed, ulp
from verification.inputs import TORCH_DTYPES
from verification.operator import Arguments, Operator

RUNS = 16
FALSE_ALARM = 1e-6
FLOOR = 0.5
HALF_ULP = 3**0.5
"""Half an ulp over the spread of a rounding, ulp ÷ √12: the row limit where every run was exact."""
FORMULA = (
    "z·σ + ½ulp; σ = max(rms of 16 perturbed runs, ½·row median in ulps, or the row's rms where its errors have "
    "one scale); z = Φ⁻¹(1 − 1e-6 ÷ 2N)"
)


@dataclass(frozen=True)
class Budget:
    """What a right implementation may differ by from the exact result of one output."""

    allowed: Tensor
    """Largest error an element, float64."""
    spread: Tensor
    """Standard deviation an element, output rounding included."""
    row_limit: Tensor
    """Largest root mean square of error ÷ spread over each row."""
    bias_limits: tuple[float, float] | None
    """Largest |mean| of error ÷ spread, signed and away from zero; None where it cannot be judged."""


@dataclass(frozen=True)
class Golden:
    """The exact results of a case, the budgets around them, and what was passed through."""

    exact: dict[str, Tensor]
    budgets: dict[str, Budget]
    trace: dict[str, Tensor]
    trace_error: dict[str, Tensor]
    """Largest error that a right implementation may show in an intermediate."""
    variant: Variant = OFFICIAL
    factor: float = 0.0
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)


def output_dtypes(operator: Operator, arguments: Arguments) -> dict[str, torch.dtype]:
    """The dtype that the contract gives each output for these arguments."""
    dtypes = {}
    for output in operator.outputs:
        if output.dtype.startswith("="):
            source = arguments.get(output.dtype[1:])
            if source is not None:
                dtypes[output.name] = source.dtype
        else:
            dtypes[output.name] = TORCH_DTYPES[output.dtype]
    return dtypes


def derive(
    operator: Operator, arguments: Arguments, variant: Variant = OFFICIAL, conditions: Arguments | None = None
) -> Golden:
    """Golden and budgets of one case; discrete choices are held at the exact ones, or at `conditions`."""
    reading = Numerics("exact", variant)
    with reading.trace() as trace:
        exact = operator.evaluate(arguments, numerics=reading, **(conditions or {}))
    trace = dict(trace)
    if conditions is None and operator.condition is not None:
        conditions = operator.condition(arguments, exact)
    exact = operator.meant(exact)
    numbers = [o.name for o in operator.outputs if o.kind == "number" and o.name in exact]
    common = {o.name for o in operator.outputs if o.common_scale}
    count = max(sum(exact[name].numel() for name in numbers), 1)
    factor = float(stats.norm.isf(FALSE_ALARM / (2 * count)))

    dtypes = output_dtypes(operator, arguments)
    samples: dict[str, list[Tensor]] = {name: [] for name in numbers}
    traced: dict[str, list[Tensor]] = {}
    for seed in range(RUNS if numbers else 0):
        moved = perturbed(seed, variant)
        with moved.trace() as passed:
            outputs = operator.evaluate(arguments, numerics=moved, **(conditions or {}))
        if any(o.meaning for o in operator.outputs):  # computed of outputs as they are stored
            outputs = {n: moved.round(f"stored {n}", x, dtypes[n]) if n in numbers else x for n, x in outputs.items()}
        outputs = operator.meant(outputs)
        for name in numbers:
            samples[name].append(_difference(outputs[name], exact[name]))
        for name in operator.intermediates:
            if name in trace:
                traced.setdefault(name, []).append(_difference(passed[name], trace[name]))

    return Golden(
        exact=exact,
        budgets={n: _budget(exact[n], torch.stack(samples[n]), dtypes[n], factor, n in common) for n in numbers},
        trace={n: trace[n] for n in operator.intermediates if n in trace},
        trace_error={n: _error(trace[n], torch.stack(d), torch.float32, factor)[0] for n, d in traced.items()},
        variant=variant,
        factor=factor,
        dtypes=dtypes,
    )


def _difference(moved: Tensor, exact: Tensor) -> Tensor:
    # Inf − Inf and NaN are no spread: special values are compared on their own.
    return torch.nan_to_num(moved - exact, nan=0.0, posinf=0.0, neginf=0.0)


def _error(
    exact: Tensor, differences: Tensor, dtype: torch.dtype, factor: float, common_scale: bool = False
) -> tuple[Tensor, Tensor]:
    """Largest error (without the output's rounding) and σ an element."""
    spacing = ulp(torch.nan_to_num(exact, nan=0.0, posinf=0.0, neginf=0.0), dtype)
    sigma = differences.square().mean(0).sqrt()
    if exact.ndim and exact.shape[-1] and exact.numel():
        if common_scale:
            least = sigma.square().mean(-1, keepdim=True).sqrt()
        else:
            least = FLOOR * (sigma / spacing).median(dim=-1, keepdim=True).values * spacing
        sigma = torch.maximum(sigma, least)
    return factor * sigma, sigma


def _budget(exact: Tensor, differences: Tensor, dtype: torch.dtype, factor: float, common_scale: bool) -> Budget:
    allowed, sigma = _error(exact, differences, dtype, factor, common_scale)
    finite = torch.nan_to_num(exact, nan=0.0, posinf=0.0, neginf=0.0)
    allowed = allowed + 0.5 * ulp(finite.abs() + allowed, dtype)
    spacing = ulp(finite, dtype)
    spread = (sigma.square() + spacing.square() / 12).sqrt()
    if not exact.numel():
        return Budget(allowed, spread, torch.zeros(exact.shape[:-1], dtype=torch.float64), None)
    stored = torch.stack([_stored(exact, d, dtype, run) for run, d in enumerate(differences)])
    scores = (stored - exact).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) / spread
    return Budget(allowed, spread, _row_limit(scores), _bias_limits(scores, finite))


def _stored(exact: Tensor, difference: Tensor, dtype: torch.dtype, run: int) -> Tensor:
    """What a run's result becomes when it is stored in the output's dtype."""
    return perturbed(run).round("stored output", exact + difference, dtype)


def row_scores(scores: Tensor) -> Tensor:
    """Root mean square over the last axis."""
    return scores.square().mean(-1).sqrt()


def _row_limit(scores: Tensor) -> Tensor:
    """Limit a row: with r² = (1 − b) + b·χ²₁, where b is the share of error that a row has in common.

    A score that is off moves a whole row one way, so r is not the mean of many independent errors;
    b comes from the variance of r² over the runs, 2b², and is at least the mean over all rows.
    """
    squares = row_scores(scores).square()
    level = squares.mean(0)
    shared = squares.var(0, correction=1).sqrt() / 2**0.5
    shared = torch.maximum(shared, shared.mean())
    z = float(stats.norm.isf(FALSE_ALARM / (2 * max(level.numel(), 1))))
    limit = (level + shared * (z * z - 1)).clamp(min=0).sqrt()
    return torch.where(level == 0, HALF_ULP, limit)


def biases(scores: Tensor, exact: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of error ÷ spread over all elements, as it is and away from zero."""
    axes = tuple(range(-exact.ndim, 0))
    return scores.mean(axes), (scores * torch.sign(exact)).mean(axes)


MINIMUM_FOR_BIAS = 1024


def _bias_limits(scores: Tensor, exact: Tensor) -> tuple[float, float] | None:
    if exact.numel() < MINIMUM_FOR_BIAS:
        return None
    t = float(stats.t.isf(FALSE_ALARM / 2, df=RUNS))
    least = exact.numel() ** -0.5
    signed, outward = (max(float(b.square().mean().sqrt()), least) * t for b in biases(scores, exact))
    return signed, outward


def largest(dtype: torch.dtype) -> float:
    """Largest finite value of a dtype: beyond it a right implementation may give Inf."""
    return FORMATS[dtype].largest


__all__ = ["EXACT", "FALSE_ALARM", "FORMULA", "RUNS", "Budget", "Golden", "derive"]
