"""Declaring that a function computes an operator; imports nothing but the standard library."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

ATTRIBUTE = "__parity_implementation__"


@dataclass(frozen=True)
class Implementation:
    """Something that claims to compute an operator: `prepare(weights…) → state`, `call(state, inputs…)`."""

    operator: str
    name: str
    call: Callable[..., Any]
    prepare: Callable[..., Any] | None = None
    """Packing and workspaces, untimed; without it `call` takes the weights as well."""
    supports: Callable[..., str | None] | None = None
    """Given call's arguments by name: why it refuses them, or None."""
    variant: str = "official"
    """The contract variant that it follows and is judged against."""
    targets: tuple[str, ...] = ()
    """Where it runs; empty for everywhere."""
    batch_invariant: bool = False
    """A row has the same bits alone and in any batch."""
    deterministic: bool = True
    """The same inputs give the same bits."""
    capturable: bool = True
    """It can be captured in a CUDA or HIP graph and replayed on changed inputs."""
    configurations: tuple[str, ...] = ()
    """Tuning choices that `call` takes as `configuration=`, each of which is a case."""
    kernels: tuple[Any, ...] = ()
    """The compiled functions behind it, for their hash and resources."""


def implements(
    operator: str,
    *,
    name: str,
    prepare: Callable[..., Any] | None = None,
    supports: Callable[..., str | None] | None = None,
    variant: str = "official",
    targets: Iterable[str] = (),
    batch_invariant: bool = False,
    deterministic: bool = True,
    capturable: bool = True,
    configurations: Iterable[str] = (),
    kernels: Iterable[Any] = (),
) -> Callable[[Function], Function]:
    """Mark a function as an implementation of an operator; the function itself is unchanged.

    Found by scanning the module, so nothing has to be registered. Fields: see `Implementation`.
    """

    def mark(function: Function) -> Function:
        declared = Implementation(
            operator, name, function, prepare, supports, variant, tuple(targets), batch_invariant,
            deterministic, capturable, tuple(configurations), tuple(kernels),
        )  # fmt: skip
        setattr(function, ATTRIBUTE, declared)
        return function

    return mark


candidate = implements
"""The same decorator under the name that a user's own kernel file reads best with."""


def taken_by(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the function's signature names."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def implementations_in(module: ModuleType) -> list[Implementation]:
    """What a module itself declares, in order of definition: what it imports is declared elsewhere."""
    found = [getattr(value, ATTRIBUTE) for value in vars(module).values() if hasattr(value, ATTRIBUTE)]
    return list(dict.fromkeys(one for one in found if getattr(one.call, "__module__", "") == module.__name__))
