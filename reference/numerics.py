"""How a reference evaluates: one text, four readings.

A reference computes in float64 and marks, by name, each place where an implementation may round.
`EXACT` ignores the marks and is the golden; `ROUNDED` rounds to nearest at each storage point;
`perturbed(seed)` moves a value at random at each point and in each sum by as much as a right
low-precision implementation may, which is where error budgets come from; a `Variant` says which of
the optional points exist.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

Mode = Literal["exact", "rounded", "perturbed"]

UNIT_FP32 = 2.0**-24
"""Unit roundoff of fp32, the precision in which implementations are expected to compute."""

TINY_FP32 = 2.0**-126
"""Smallest normal fp32: below it an implementation may flush to zero."""

STRATA = 16
"""Runs over which the shifts of a rounding point are spread evenly."""

FUNCTION_ULPS = 2.0
"""What an elementary function, or a division, on a GPU may be off by, in fp32 ulps of its result."""


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: `digits` of significand and the exponents of its normals."""

    digits: int
    smallest_exponent: int
    largest: float


FORMATS = {
    torch.float64: Format(53, -1022, torch.finfo(torch.float64).max),
    torch.float32: Format(24, -126, torch.finfo(torch.float32).max),
    torch.float16: Format(11, -14, torch.finfo(torch.float16).max),
    torch.bfloat16: Format(8, -126, torch.finfo(torch.bfloat16).max),
}


def ulp(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Spacing of `dtype` at a finite x (float64): 2^(max(⌊log2 |x|⌋, e_min) − digits + 1)."""
    form = FORMATS[dtype]
    if dtype == torch.float64:
        exponent = (torch.frexp(x).exponent - 1).clamp(min=form.smallest_exponent)
        return torch.ldexp(torch.ones_like(x), exponent - form.digits + 1).masked_fill(x == 0, 2.0**-1074)
    # By bits, which is several times quicker: each spacing is a normal float64.
    exponent = x.detach().view(torch.int64).bitwise_right_shift(52).bitwise_and_(0x7FF)
    exponent.clamp_(min=form.smallest_exponent + 1023).sub_(form.digits - 1)
    return exponent.bitwise_left_shift_(52).view(torch.float64)


def round_to_nearest(x: Tensor, dtype: torch.dtype) -> Tensor:
    """X (float64) rounded once to `dtype`, ties to even, kept as float64; overflow gives ±Inf.

    A cast by torch would round float64 to fp32 first and then again, which is off at ties.
    """
    spacing = ulp(x.detach(), dtype)
    rounded = torch.round(x / spacing) * spacing
    limit = FORMATS[dtype].largest
    rounded = torch.where(rounded.abs() > limit, torch.copysign(torch.full_like(x, torch.inf), x), rounded)
    return torch.where(torch.isfinite(x), rounded, x)


def round_to_shifted(x: Tensor, spacing: Tensor, shift: float | Tensor, upward: Callable[[], Tensor]) -> Tensor:
    """X rounded to the grid `spacing`·(ℤ − shift), except where it lies on spacing·ℤ already.

    Over a uniform shift in ±½ the error of each element is uniform in ±½ spacing, and equal values
    get equal errors, as they do when an implementation rounds to nearest. A tie, which any noise
    before it sends half a step either way, goes up where `upward` says so.
    """
    steps = x / spacing
    distance = (steps - torch.round(steps)).abs_()  # NaN where x ÷ spacing is no number
    moved = torch.round(steps + shift) - shift
    if (tie := distance == 0.5).any():
        moved = torch.where(tie, torch.floor(steps) + upward(), moved)
    return torch.where(distance > 0, moved * spacing, x)


@dataclass(frozen=True)
class Variant:
    """A named choice among public contracts: the optional points it adds and the default ones it drops."""

    name: str
    description: str
    adds: frozenset[str] = frozenset()
    drops: frozenset[str] = frozenset()


OFFICIAL = Variant("official", "every default rounding point, none of the optional ones")


@dataclass
class Numerics:
    """One reading of a reference: what happens at a rounding point, in a sum, in a function."""

    mode: Mode
    variant: Variant = OFFICIAL
    seed: int = 0
    place: str = ""
    """Where in a loop this reading stands; each place draws noise of its own."""
    _trace: dict[str, Tensor] | None = field(default=None, repr=False)

    def has(self, point: str, *, default: bool = True) -> bool:
        """Whether this reading's variant has the point (or follows the named choice)."""
        if point in self.variant.adds:
            return True
        return default and point not in self.variant.drops

    def at(self, place: str) -> Numerics:
        """The same reading inside one turn of a loop: with noise of its own there, and without a trace."""
        return replace(self, place=f"{self.place}{place}.", _trace=None)

    def load(self, x: Tensor) -> Tensor:
        """A copy of x in float64: every reference computes there."""
        return x.to(torch.float64, copy=True)

    def round(self, point: str, x: Tensor, dtype: torch.dtype, *, default: bool = True, apart: bool = False) -> Tensor:
        """X as it is after being stored in `dtype`, where the variant has this point.

        Perturbed elements move `apart` where few of them are weighed against each other afterwards:
        a shift that they have in common would cancel, but for rare shifts that sixteen runs miss.
        """
        if self.has(point, default=default):
            if self.mode == "rounded":
                x = round_to_nearest(x, dtype)
            elif self.mode == "perturbed":
                x = self._shifted(point, x, ulp(x, dtype), apart=apart)
        return self.note(point, x)

    def computed(self, name: str, x: Tensor) -> Tensor:
        """X as one fp32 operation gives it: within half an ulp, or flushed where subnormal."""
        if self.mode == "perturbed":
            x = self._shifted(name, x, _spacing(x))
        return self.note(name, x)

    def before_choice(self, point: str, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """X as a discrete choice finds it, and by how much it is off where it has been stored in `dtype`.

        When perturbed x keeps its value: it is for the choice to go either way within that distance.
        """
        if not self.has(point):
            return self.note(point, x), torch.zeros_like(x)
        slack = torch.where(torch.isfinite(x), 0.5 * ulp(torch.nan_to_num(x), dtype), 0.0)
        return self.note(point, round_to_nearest(x, dtype) if self.mode == "rounded" else x), slack

    def arrival(self, name: str, keys: Tensor) -> Tensor:
        """Order of the last axis by ascending keys; when perturbed any, for terms that arrive in any order."""
        if self.mode == "perturbed":
            keys = self._uniform(name, keys, 1.0)
        return keys.argsort(dim=-1, stable=True)

    def either(self, name: str, usual: Tensor, other: Tensor) -> Tensor:
        """The usual one of two values that a right implementation may choose between; when perturbed, by lot."""
        if self.mode == "perturbed":
            usual = torch.where(self._uniform(name, usual, 1.0) > 0, other, usual)
        return self.note(name, usual)

    def apply(self, name: str, function: Callable[[Tensor], Tensor], x: Tensor, *, formed_at: float = 0.0) -> Tensor:
        """function(x) as fp32 hardware gives it: at a once-rounded argument, within 2 ulps.

        Equal arguments give equal results, bit for bit, in every reading: a library's function may
        differ in its last bit between the lanes and the tail of a vector, which would break ties.
        Where implementations form the result as a difference of terms, `formed_at` is their size:
        the ulps are those of the larger of the two.
        """
        if x.requires_grad:
            return self.note(name, function(x))
        values, places = torch.unique(x, return_inverse=True)
        if self.mode == "perturbed":
            moved = values * (1 + self._uniform(f"{name}.argument", values, 1.0) * UNIT_FP32)
            results = function(moved)
            results = torch.where(torch.isfinite(values), self._approximate(name, results, formed_at), results)
        else:
            results = function(values)
        return self.note(name, results[places])

    def divide(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """A ÷ b as fast fp32 division gives it, or a product with a reciprocal: within 2 ulps."""
        quotient = a / b
        if self.mode == "perturbed":
            values, places = torch.unique(quotient, return_inverse=True)
            quotient = self._approximate(name, values)[places]
        return self.note(name, quotient)

    def between(self, name: str, usual: Tensor, other: Tensor) -> Tensor:
        """The usual one of two positive values; when perturbed anything between them, by ratio.

        For what an implementation is free to choose, such as the unit in which it rounds.
        """
        if self.mode == "perturbed":
            usual = usual * (other / usual) ** (0.5 + 0.5 * self._uniform(name, usual, 1.0))
        return self.note(name, usual)

    def sum(self, name: str, terms: Tensor, dim: int, *, keepdim: bool = False) -> Tensor:
        """Σ terms as fp32 accumulation in any order gives it.

        ± u · max(√(n−1)·‖terms‖₂, √(Σ Sₖ²)): a tree of n terms, or one chain with partial sums Sₖ from
        either end, which for terms of one sign is the larger; and what such a chain loses of terms
        that are below its own rounding, Σ |terms| ≤ u·|Sₖ|, where a large one comes first.
        """
        total = terms.sum(dim, keepdim=keepdim)
        if self.mode == "perturbed":
            finite = _finite(terms)
            present = (finite != 0).to(torch.float64)
            count = present.sum(dim, keepdim=keepdim)
            tree = finite.square().sum(dim, keepdim=keepdim) * (count - 1).clamp(min=0)
            partial = finite.cumsum(dim)
            backward = finite.sum(dim, keepdim=True) - partial + finite
            size = finite.abs()
            lost = [(size * (size <= UNIT_FP32 * sums.abs())).sum(dim, keepdim=keepdim) for sums in (partial, backward)]
            chains = [sums.mul_(present).square_().sum(dim, keepdim=keepdim) for sums in (partial, backward)]
            spread = UNIT_FP32 * torch.maximum(tree, torch.maximum(*chains) * (count > 1)).sqrt()
            total = total + self._uniform(name, total, 1.0) * (spread + torch.maximum(*lost))
        return self.note(name, total)

    def matmul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """A @ b with fp32 accumulation of n nonzero terms: ± u·√(n−1)·(a² @ b²)^½."""
        product = a @ b
        if self.mode == "perturbed":
            a, b = _finite(a), _finite(b)
            count = ((a != 0).float() @ (b != 0).float()).to(torch.float64)  # whole numbers: exact in fp32
            spread = UNIT_FP32 * ((count - 1).clamp(min=0) * (a.square() @ b.square())).sqrt()
            product = product + self._uniform(name, product, 1.0) * spread
        return self.note(name, product)

    def output(self, name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
        """An operator's result: in `dtype` when rounding, else the unrounded float64 value."""
        self.note(name, x)
        return round_to_nearest(x, dtype).to(dtype) if self.mode == "rounded" else x

    def note(self, name: str, x: Tensor) -> Tensor:
        """Remember an intermediate by name while a trace is open; returns x."""
        if self._trace is not None:
            self._trace[name] = x
        return x

    @contextmanager
    def trace(self) -> Iterator[dict[str, Tensor]]:
        """Collect every named intermediate of the references called inside the block."""
        outer, self._trace = self._trace, {}
        try:
            yield self._trace
        finally:
            self._trace = outer

    def _uniform(self, name: str, like: Tensor, bound: float) -> Tensor:
        noise = torch.rand(like.shape, generator=self._generator(f"{name}#{self.seed}"), dtype=torch.float64)
        return noise.mul_(2).sub_(1).mul_(bound).to(like.device)

    def _approximate(self, name: str, y: Tensor, formed_at: float = 0.0) -> Tensor:
        # A subnormal may be flushed: it is off by itself. At 0 and Inf results are exact.
        size = y.abs().clamp(min=formed_at)
        bound = torch.where(size < TINY_FP32, size, FUNCTION_ULPS * ulp(size, torch.float32))
        moved = y + self._uniform(name, y, 1.0) * bound
        return torch.where(torch.isfinite(y) & (y != 0), moved, y)

    def _shifted(self, name: str, x: Tensor, spacing: Tensor, *, apart: bool = False) -> Tensor:
        shift = self._shifts(name, x.shape).to(x.device) if apart else self._shift(name)
        return round_to_shifted(x, spacing, shift, lambda: (self._uniform(f"{name}.tie", x, 1.0) > 0).to(torch.float64))

    def _shift(self, name: str) -> float:
        # Each point goes through the strata in an order of its own, so that sixteen runs cover it evenly.
        order = _strata(f"{self.place}{name}")
        within = torch.rand(1, generator=self._generator(f"{name}#{self.seed}")).item()
        return float((order[self.seed % STRATA] + within) / STRATA - 0.5)

    def _shifts(self, name: str, shape: torch.Size) -> Tensor:
        """The same for each element, in orders of their own."""
        orders = torch.rand(*shape, STRATA, generator=self._generator(name)).argsort(-1)
        within = torch.rand(shape, generator=self._generator(f"{name}#{self.seed}"), dtype=torch.float64)
        return (orders[..., self.seed % STRATA] + within) / STRATA - 0.5

    def _generator(self, name: str) -> torch.Generator:
        return _generator(f"{self.place}{name}")


def _generator(key: str) -> torch.Generator:
    # torch seeds from the low 32 bits alone, so name and seed are hashed together.
    return torch.Generator().manual_seed(zlib.crc32(key.encode()))


@lru_cache(maxsize=4096)
def _strata(key: str) -> list[int]:
    """The order in which a point goes through the strata: all sixteen runs ask for it."""
    order: list[int] = torch.randperm(STRATA, generator=_generator(key)).tolist()
    return order


def _finite(x: Tensor) -> Tensor:
    # To look for what is not finite is quicker than to copy: weights are large.
    return x if torch.isfinite(x.sum()) else torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _spacing(x: Tensor) -> Tensor:
    # A subnormal may be flushed: the error is then the value itself.
    return torch.where(x.abs() < TINY_FP32, x.abs() * 2, ulp(x, torch.float32))


def rounded(variant: Variant = OFFICIAL) -> Numerics:
    """Nearest rounding at each storage point of the variant: an ideal low-precision path."""
    return Numerics("rounded", variant)


def perturbed(seed: int, variant: Variant = OFFICIAL) -> Numerics:
    """Random rounding at each point, sum and function of the variant."""
    return Numerics("perturbed", variant, seed)


EXACT = Numerics("exact")
"""float64 with every rounding point an identity: the golden."""

ROUNDED = rounded()
"""The official variant with nearest rounding."""
