"""One page an operator, made from its docstring, its contract and one run of its reference."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reference.numerics import Numerics
from verification.operator import SUITES, WORDS, Case, Operator, operators
from verification.plan import builtin


@dataclass
class Recording(Numerics):
    """The exact reading, which remembers what each rounding point would be stored as."""

    points: dict[str, str] = field(default_factory=dict)
    products: dict[str, None] = field(default_factory=dict)

    def round(self, point: str, x: Tensor, dtype: torch.dtype, *, default: bool = True, apart: bool = False) -> Tensor:
        """As Numerics.round, remembered where this variant has the point."""
        if self.has(point, default=default):
            self.points[point] = str(dtype).removeprefix("torch.")
        return super().round(point, x, dtype, default=default, apart=apart)

    def matmul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """As Numerics.matmul, remembered."""
        self.products[name] = None
        return super().matmul(name, a, b)

    def sum(self, name: str, terms: Tensor, dim: int, *, keepdim: bool = False) -> Tensor:
        """As Numerics.sum, remembered."""
        self.products[name] = None
        return super().sum(name, terms, dim, keepdim=keepdim)


def pages() -> dict[str, str]:
    """File name and text of every operator's page, and of the index."""
    found = {f"{name}.md": "\n".join(_page(operator)) + "\n" for name, operator in operators().items()}
    return {"README.md": "\n".join(_index()) + "\n", **found}


def _index() -> Iterator[str]:
    yield "# Contracts"
    yield ""
    yield "Made by `parity report contracts docs/contracts` from the references' docstrings and the contracts; a test"
    yield "holds them current. `?` is optional, `*` in place; every reference takes `numerics` besides."
    yield ""
    yield "| operator | what it is | cases smoke / full / nightly | laws | variants |"
    yield "|---|---|---|---:|---:|"
    for name, operator in operators().items():
        cases = " / ".join(str(sum(1 for _ in operator.cases(suite))) for suite in SUITES)
        counts = f"{cases} | {len(operator.laws)} | {len(operator.variants)}"
        yield f"| [{name}]({name}.md) | {_summary(operator)} | {counts} |"


def _summary(operator: Operator) -> str:
    return " ".join((inspect.getdoc(operator.reference) or "").split("\n\n")[0].split())


def _page(operator: Operator) -> Iterator[str]:
    yield f"# {operator.name}"
    yield ""
    yield f"`{operator.name}({', '.join(_arguments(operator))})` → {', '.join(_results(operator))}"
    yield ""
    for paragraph in (inspect.getdoc(operator.reference) or "").split("\n\n"):
        yield paragraph
        yield ""
    yield from _rounding(operator)
    yield from _variants(operator)
    if operator.special_values:
        yield from ("## Special values", "", operator.special_values, "")
    yield from _outputs(operator)
    yield from _laws(operator)
    yield from _cases(operator)
    yield from _implementations(operator)


def _arguments(operator: Operator) -> Iterator[str]:
    for name, parameter in inspect.signature(operator.reference).parameters.items():
        if name == "numerics" or parameter.kind is parameter.VAR_KEYWORD:
            continue
        optional = "?" if parameter.default is not parameter.empty else ""
        yield name + ("*" if name in operator.in_place else "") + optional


def _results(operator: Operator) -> list[str]:
    return [output.name for output in operator.outputs if output.argument is None] or ["–"]


def _sample(operator: Operator) -> Case:
    """A case that launches something and is cheap."""
    return max(operator.law_cases or tuple(case for _, case in operator.cases("smoke")), key=lambda case: len(case.id))


def _recorded(operator: Operator) -> dict[str, Recording]:
    found = {}
    for variant in operator.variants:
        recording = Recording("exact", variant)
        operator.evaluate(operator.arguments(_sample(operator)), numerics=recording)
        found[variant.name] = recording
    return found


def _rounding(operator: Operator) -> Iterator[str]:
    recorded = _recorded(operator)
    points: dict[str, str] = {}
    for recording in recorded.values():
        points |= recording.points
    official = recorded[operator.variants[0].name]
    yield "## Rounding points"
    yield ""
    if points:
        yield "| point | stored as | in variants |"
        yield "|---|---|---|"
        for point, dtype in points.items():
            names = [name for name, recording in recorded.items() if point in recording.points]
            yield f"| `{point}` | {dtype} | {'all' if len(names) == len(recorded) else ', '.join(names)} |"
    else:
        yield "None but the outputs'."
    yield ""
    if official.products:
        yield f"Sums and products in fp32, in any order: {', '.join(f'`{name}`' for name in official.products)}."
        yield ""


def _variants(operator: Operator) -> Iterator[str]:
    yield "## Variants"
    yield ""
    for variant in operator.variants:
        yield f"- `{variant.name}`: {variant.description}"
    yield ""


KINDS = {"number": "within its derived budget", "exact": "bit for bit", "structural": "by structure"}


def _outputs(operator: Operator) -> Iterator[str]:
    yield "## Compared"
    yield ""
    for output in operator.outputs:
        where = f" (argument `{output.argument}`, the whole tensor)" if output.argument else ""
        dtype = f"`{output.dtype[1:]}`'s dtype" if output.dtype.startswith("=") else output.dtype
        yield f"- `{output.name}`{where}, {dtype}: {KINDS[output.kind]}"
    yield ""


def _laws(operator: Operator) -> Iterator[str]:
    yield "## Laws"
    yield ""
    for law in operator.laws:
        yield f"- `{law.name}`: {law.claim}"
    yield ""


def _cases(operator: Operator) -> Iterator[str]:
    yield "## Cases"
    yield ""
    groups: dict[str, dict[str, int]] = {}
    for group in operator.groups:
        counts = groups.setdefault(group.name, dict.fromkeys(SUITES, 0))
        counts[group.suite] += len(group.cases)
    yield "| group | smoke | full adds | nightly adds |"
    yield "|---|---:|---:|---:|"
    for name, counts in groups.items():
        yield f"| {name} | {' | '.join(str(counts[suite] or '–') for suite in SUITES)} |"
    yield ""
    defaults = ", ".join(f"{name}={_told(value)}" for name, value in operator.defaults.items())
    yield f"Parameters with their defaults: {defaults}. Example: `{_sample(operator).id}`."
    yield ""


def _told(value: Any) -> str:
    return next((word for word, meaning in WORDS.items() if value is meaning), str(value))


def _implementations(operator: Operator) -> Iterator[str]:
    yield "## Implementations here"
    yield ""
    for candidate in builtin(operator.name):
        one = candidate.declared
        promises = [text for text, holds in (("batch invariant", one.batch_invariant),
                                             ("not deterministic", not one.deterministic)) if holds]  # fmt: skip
        yield f"- `{one.name}` ({candidate.family}): variant `{one.variant}`{''.join(f', {p}' for p in promises)}"
    yield ""
