"""Refusals of bad arguments that say what was wrong and what was expected."""

from __future__ import annotations

from torch import Tensor


def require(condition: bool, operator: str, message: str) -> None:
    """Raise ValueError naming the operator unless the condition holds."""
    if not condition:
        raise ValueError(f"{operator}: {message}")


def require_shape(operator: str, name: str, x: Tensor, expected: tuple[int | None, ...], axes: str) -> None:
    """Raise ValueError unless x has the expected shape; None stands for any size.

    Shapes: x any; `axes` names them for the message, as in "[T, H]".
    """
    fits = x.ndim == len(expected) and all(
        want is None or got == want for got, want in zip(x.shape, expected, strict=True)
    )
    sizes = ", ".join("any" if size is None else str(size) for size in expected)
    require(fits, operator, f"{name} is {list(x.shape)}; expected {axes} = [{sizes}]")
