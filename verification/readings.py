"""A reference as an implementation: read as an ideal path, as a right one of another kind, or as a wrong one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fused.boundary import Implementation
from reference.numerics import Mode, Numerics, Variant, rounded
from verification.operator import Operator, find_operator

Change = Callable[[Tensor], Tensor]
Sum = Callable[[Tensor, int, bool], Tensor]
Product = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Changed(Numerics):
    """A reading in which values, sums and products at named points are others."""

    mode: Mode = "rounded"
    values: Mapping[str, Change] = field(default_factory=dict)
    sums: Mapping[str, Sum] = field(default_factory=dict)
    products: Mapping[str, Product] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    """The points that were come by."""

    def note(self, name: str, x: Tensor) -> Tensor:
        """What the point's change makes of x."""
        if name in self.values:
            self.met.add(name)
            x = self.values[name](x)
        return super().note(name, x)

    def output(self, name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The changed value, stored."""
        return super().output(f"{name} (stored)", self.note(name, x), dtype)

    def sum(self, name: str, terms: Tensor, dim: int, *, keepdim: bool = False) -> Tensor:
        """The sum in its changed form."""
        if name not in self.sums:
            return super().sum(name, terms, dim, keepdim=keepdim)
        self.met.add(name)
        return self.note(name, self.sums[name](terms, dim, keepdim))

    def matmul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """The product in its changed form."""
        if name not in self.products:
            return super().matmul(name, a, b)
        self.met.add(name)
        return self.note(name, self.products[name](a, b))


def reference_implementation(
    operator: str,
    name: str = "reference",
    reading: Callable[[Variant], Numerics] = rounded,
    variant: str = "official",
    of: Callable[..., Any] | None = None,
) -> Implementation:
    """The operator's reference, or another function in its place, as an implementation that stores in place."""
    contract = find_operator(operator)

    def call(**arguments: Any) -> Any:
        return evaluated(contract, of or contract.reference, arguments, reading(contract.variant(variant)))

    call.__signature__ = _without_numerics(contract)  # type: ignore[attr-defined]
    return Implementation(operator, name, call, variant=variant, targets=("cpu",), capturable=False)


def evaluated(operator: Operator, function: Callable[..., Any], arguments: dict[str, Any], numerics: Numerics) -> Any:
    """What a reference gives in this reading, as an implementation returns it."""
    result = function(**arguments, numerics=numerics)
    values = list(result) if isinstance(result, tuple) else [result]
    payload = [values.pop()] if operator.gives_payload else []
    returned = []
    for output, value in zip(operator.outputs, values, strict=True):
        if output.argument is None:
            returned.append(value)
        elif value is not None:
            arguments[output.argument].copy_(value)
    returned = [value for value in returned if value is not None] + payload
    return returned[0] if len(returned) == 1 else tuple(returned)


def _without_numerics(operator: Operator) -> inspect.Signature:
    signature = inspect.signature(operator.reference)
    return signature.replace(parameters=[p for n, p in signature.parameters.items() if n != "numerics"])
