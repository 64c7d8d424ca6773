"""The forms in which a fault is written: an edit of source, a changed point, changed arguments or results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fused.boundary import Implementation, implementations_in
from reference.numerics import Variant, round_to_nearest, ulp
from verification.edited import edited
from verification.fault import Fault
from verification.operator import Arguments, Outputs, find_operator, implementations
from verification.readings import Changed, Product, Sum, reference_implementation


@dataclass(frozen=True)
class Call:
    """A right call that has just ended: its arguments, in-place ones as they were before, and the results by name."""

    arguments: Arguments
    before: Arguments
    outputs: Outputs


class Corpus:
    """The faults of one operator, in the order in which they are told.

    Each method adds one: `name` says it in a few words, `kind` is one of fault.KINDS, `says` completes the
    sentence `these are the numbers of …`, `records` are ids of the field's records, separated by blanks.
    """

    def __init__(self, operator: str) -> None:
        self.operator = operator
        self._faults: list[Fault] = []

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def edit(
        self,
        name: str,
        kind: str,
        says: str,
        module: str,
        *edits: tuple[str, str],
        records: str = "",
        base: str = "eager",
    ) -> None:
        """The base's source with each (old, new) replaced in `module`, which it is in or imports."""

        def make(fault: Fault, operator: str) -> Implementation:
            right = _right(operator, base)
            home = inspect.getmodule(right.call)
            if base == "reference":
                copy = edited(module, edits, find_operator(operator).reference.__module__)
                return _named(reference_implementation(operator, of=getattr(copy, operator)), fault)
            assert home is not None
            copy = edited(module, edits, home.__name__)
            found = {(o.operator, o.name): o for o in implementations_in(copy)}
            return _named(_folded(found[operator, base]), fault)

        self._add(name, kind, says, base, make, records)

    def at(
        self,
        name: str,
        kind: str,
        says: str,
        *,
        values: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
        sums: Mapping[str, Sum] | None = None,
        products: Mapping[str, Product] | None = None,
        records: str = "",
        variant: str = "official",
        drops: tuple[str, ...] = (),
    ) -> None:
        """The reference, rounding to nearest, with other values, sums or products at its named points.

        `drops` leaves out rounding points that the variant has.
        """

        def reading(chosen: Variant) -> Changed:
            fewer = replace(chosen, drops=chosen.drops | set(drops), adds=chosen.adds - set(drops))
            return Changed("rounded", fewer, values=values or {}, sums=sums or {}, products=products or {})

        def make(fault: Fault, operator: str) -> Implementation:
            return _named(reference_implementation(operator, reading=reading, variant=variant), fault)

        self._add(name, kind, says, "reference", make, records)

    def arguments(
        self,
        name: str,
        kind: str,
        says: str,
        change: Callable[[Arguments], Arguments],
        *,
        records: str = "",
        base: str = "eager",
    ) -> None:
        """The base, called with those of its arguments that `change` gives in the place of the case's."""

        def make(fault: Fault, operator: str) -> Implementation:
            right = _folded(_right(operator, base))
            if operator != fault.operator:
                return _named(right, fault)

            def call(**arguments: Any) -> Any:
                return right.call(**{**arguments, **change(arguments)})

            return _named(_like(right, call), fault)

        self._add(name, kind, says, base, make, records)

    def results(
        self,
        name: str,
        kind: str,
        says: str,
        change: Callable[[Call], Mapping[str, Tensor] | None],
        *,
        records: str = "",
        base: str = "eager",
    ) -> None:
        """The base, whose results `change` then alters in place or replaces by name."""

        def make(fault: Fault, operator: str) -> Implementation:
            right = _folded(_right(operator, base))
            if operator != fault.operator:
                return _named(right, fault)

            def call(**arguments: Any) -> Any:
                return _altered(operator, right, change, arguments)

            return _named(_like(right, call), fault)

        self._add(name, kind, says, base, make, records)

    def whole(
        self, name: str, kind: str, says: str, *, records: str = "", base: str = "eager"
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function `wrong(right, **arguments)`: it computes the results, with the base's call at hand."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            def make(fault: Fault, operator: str) -> Implementation:
                right = _folded(_right(operator, base))
                if operator != fault.operator:
                    return _named(right, fault)

                def call(**arguments: Any) -> Any:
                    return function(right.call, **arguments)

                return _named(_like(right, call), fault)

            self._add(name, kind, says, base, make, records)
            return function

        return add

    def _add(
        self, name: str, kind: str, says: str, base: str, make: Callable[[Fault, str], Implementation], records: str
    ) -> None:
        self._faults.append(Fault(self.operator, name, kind, says, base, make, tuple(records.split())))


def _right(operator: str, base: str) -> Implementation:
    return reference_implementation(operator) if base == "reference" else implementations()[operator, base]


def _named(one: Implementation, fault: Fault) -> Implementation:
    return replace(one, name=fault.name)


def _like(right: Implementation, call: Callable[..., Any]) -> Implementation:
    call.__signature__ = inspect.signature(right.call)  # type: ignore[attr-defined]
    call.__module__ = right.call.__module__
    return replace(right, call=call)


def _folded(one: Implementation) -> Implementation:
    """The same with `prepare` a part of the call, so that a fault sees every argument."""
    if one.prepare is None:
        return replace(one, supports=None)
    prepare, inner = one.prepare, one.call
    weights = inspect.signature(prepare).parameters
    _, *inputs = inspect.signature(inner).parameters.values()

    def call(**arguments: Any) -> Any:
        state = prepare(**{name: value for name, value in arguments.items() if name in weights})
        return inner(state, **{name: value for name, value in arguments.items() if name not in weights})

    taken = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*weights.values(), *inputs)]
    call.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    call.__module__ = inner.__module__
    return replace(one, call=call, prepare=None, supports=None)


def _altered(
    operator: str,
    right: Implementation,
    change: Callable[[Call], Mapping[str, Tensor] | None],
    arguments: Arguments,
) -> Any:
    contract = find_operator(operator)
    before = {n: arguments[n].clone() for n in contract.in_place if isinstance(arguments.get(n), Tensor)}
    result = right.call(**arguments)
    returned = [] if result is None else list(result) if isinstance(result, tuple) else [result]
    payload = [returned.pop()] if contract.gives_payload else []
    names = [o.name for o in contract.outputs if o.argument is None]
    outputs = dict(zip(names, returned, strict=False))
    carried = {o.name: arguments[o.argument] for o in contract.outputs if o.argument in before}
    replaced = change(Call(arguments, before, outputs | carried)) or {}
    for name, value in replaced.items():
        if name in carried:
            carried[name].copy_(value)
    values = [replaced.get(name, value) for name, value in outputs.items()] + payload
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Round a point's values to `dtype`."""
    return lambda x: round_to_nearest(x, dtype)


def scaled(factor: float) -> Callable[[Tensor], Tensor]:
    """Multiply a point's values."""
    return lambda x: x * factor


def dropped(x: Tensor) -> Tensor:
    """Make a point's values zero."""
    return torch.zeros_like(x)


def ones(x: Tensor) -> Tensor:
    """Make a point's values one."""
    return torch.ones_like(x)


def summed_in(dtype: torch.dtype, block: int = 1) -> Sum:
    """A running sum that is stored in `dtype` after each block of terms."""

    def total(terms: Tensor, dim: int, keepdim: bool) -> Tensor:
        running = torch.zeros_like(terms.narrow(dim, 0, 1)) if terms.shape[dim] else terms.sum(dim, keepdim=True)
        for part in terms.split(block, dim):
            running = round_to_nearest(running + part.sum(dim, keepdim=True), dtype)
        return running if keepdim else running.squeeze(dim)

    return total


def multiplied_in(dtype: torch.dtype, block: int = 32) -> Product:
    """A product whose accumulator is stored in `dtype` after each block of K."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        total = a[..., :0] @ b[..., :0, :]
        for k in range(0, a.shape[-1], block):
            total = round_to_nearest(total + a[..., k : k + block] @ b[..., k : k + block, :], dtype)
        return total

    return product


def cut_short(block: int) -> Product:
    """A product that leaves out what of K lies past the last whole block."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        whole = a.shape[-1] // block * block
        return a[..., :whole] @ b[..., :whole, :]

    return product


def truncated_to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Round a point's values towards zero."""

    def truncate(x: Tensor) -> Tensor:
        nearest = round_to_nearest(x, dtype)
        spacing = ulp(nearest.nan_to_num(posinf=0.0, neginf=0.0), dtype)
        return torch.where(nearest.abs() > x.abs(), nearest - torch.copysign(spacing, x), nearest)

    return truncate
