"""Operators, cases and implementations, and their discovery by package scan."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeVar

from torch import Tensor

from fused.boundary import Implementation, implementations_in, taken_by
from reference.numerics import OFFICIAL, Variant

__all__ = ["Arguments", "Case", "CaseGroup", "Finding", "Implementation", "Law", "Operator", "Output"]

Arguments = dict[str, Any]
"""An operator's arguments by keyword: tensors, numbers, None."""

Outputs = dict[str, Tensor]

Named = TypeVar("Named")

SUITES = ("smoke", "full", "nightly")
"""Each contains the one before it."""

DTYPES = ("bf16", "fp16", "fp32", "int32", "int64")


class UnknownNameError(ValueError):
    """A name that matches nothing; the message offers the nearest ones."""


class InvalidCaseError(ValueError):
    """Parameters that make no case of the operator; the message says which and why."""


@dataclass(frozen=True)
class Case:
    """An operator with parameters, dtype, distribution and seed: enough to rebuild its inputs."""

    operator: str
    parameters: tuple[tuple[str, Any], ...]
    dtype: str = "bf16"
    distribution: str = "normal"
    seed: int = 0

    @property
    def id(self) -> str:
        """`operator/key=value,…/dtype/distribution/seed`: stable, readable, safe in a shell."""
        pairs = ",".join(f"{key}={_spell(value)}" for key, value in self.parameters)
        return f"{self.operator}/{pairs}/{self.dtype}/{self.distribution}/{self.seed}"

    def __getitem__(self, parameter: str) -> Any:
        return dict(self.parameters)[parameter]

    def replaced(self, **changes: Any) -> Case:
        """The same case with some parameters changed."""
        merged = dict(self.parameters) | changes
        return Case(self.operator, tuple(merged.items()), self.dtype, self.distribution, self.seed)


WORDS = {"none": None, "yes": True, "no": False}


def _spell(value: Any) -> str:
    return next((word for word, meaning in WORDS.items() if value is meaning), str(value))


def _read(operator: Operator, name: str, text: str) -> Any:
    """A parameter as text, read as what its usual value is: a word stays a word."""
    usual = operator.defaults.get(name)
    if isinstance(usual, str):
        return text
    if text in WORDS:
        return WORDS[text]
    try:
        number = float(text) if isinstance(usual, float) else int(text)
        if not math.isfinite(number):
            raise ValueError
        return number
    except ValueError:
        kind = "a number" if isinstance(usual, float) else "a whole number"
        raise UnknownNameError(f"{operator.name}: {name}={text!r}; expected {kind}, like {usual}") from None


@dataclass(frozen=True)
class Output:
    """A named result: `number` has budgets, `exact` is equal by bits, `structural` only by structure."""

    name: str
    kind: Literal["number", "exact", "structural"]
    dtype: str
    """A dtype's short name, or `=argument` for that argument's."""
    argument: str | None = None
    """The in-place argument that carries it."""
    common_scale: bool = False
    """Whether a row's elements are sums over the same rounded terms, so that their errors are of one size."""
    meaning: Callable[[Outputs], Tensor] | None = None
    """What of all outputs is compared in its place, where its own value leaves something open."""

    @property
    def compared_as(self) -> str:
        """Its name, or that of what is compared in its place."""
        return self.meaning.__name__ if self.meaning else self.name


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: which check saw it, and a message with what, where, got, wanted."""

    check: str
    message: str


class LawContext(Protocol):
    """What a law may use: fresh arguments, and calls of the implementation under test."""

    operator: Operator
    case: Case
    implementation: str
    batch_invariant: bool
    variant: Variant

    def arguments(self) -> Arguments:
        """The case's arguments, cloned."""

    def call(self, arguments: Arguments) -> Outputs:
        """Results by name, in-place ones included."""

    def judge(self, arguments: Arguments | None = None, outputs: Outputs | None = None) -> list[str]:
        """What a comparison finds in the results on these arguments, or in those outputs, against their golden.

        Without arguments: on the case's own, whose golden is at hand.
        """


@dataclass(frozen=True)
class Law:
    """An equality that holds without any reference; `check` yields what breaks it."""

    name: str
    claim: str
    check: Callable[[LawContext], Iterable[str]]
    applies: Callable[[Case], bool] = field(default=lambda case: True)


@dataclass(frozen=True)
class CaseGroup:
    """Cases that stress one thing, in one suite."""

    name: str
    suite: str
    cases: tuple[Case, ...]
    targets: tuple[str, ...] = ()
    """Where its cases fit: memory beyond a small machine's, for one; empty for everywhere."""


@dataclass(frozen=True)
class Operator:
    """A named function with a contract: how to make its inputs and what its outputs must be."""

    name: str
    reference: Callable[..., Any]
    outputs: tuple[Output, ...]
    defaults: Mapping[str, Any]
    """Parameters of a case and their usual values."""
    make: Callable[[Case], Arguments]
    groups: tuple[CaseGroup, ...]
    law_cases: tuple[Case, ...]
    weights: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = (OFFICIAL,)
    laws: tuple[Law, ...] = ()
    intermediates: tuple[str, ...] = ()
    """Named values of the reference that the structure check needs, with their errors."""
    structure: Callable[[Arguments, Outputs, Any], Iterable[Finding]] | None = None
    """Findings about outputs that no numeric comparison covers: (arguments, outputs, golden)."""
    compared: Callable[[str, Arguments, Outputs], Tensor | None] | None = None
    """Mask of an output's elements that the contract specifies, None for all."""
    condition: Callable[[Arguments, Outputs], Arguments] | None = None
    """Reference arguments that fix discrete choices to those made, so that the rest compares."""
    special_values: str = ""
    """What becomes of NaN, Inf, ties and empty inputs, for the operator's page."""
    payload_of: str | None = None
    """The operator whose implementation of the same name makes this one's `payload`, the last thing that it returns.

    Each of the pair is given those of the case's arguments that its signature names; they share one `prepare`.
    """
    gives_payload: bool = False
    """Whether it returns, after its outputs, a payload for another operator: opaque, and never compared."""

    def case(self, dtype: str = "bf16", distribution: str = "normal", seed: int = 0, **parameters: Any) -> Case:
        """A case of this operator; only parameters that differ from the defaults are kept."""
        return make_case(self.name, self.defaults, dtype, distribution, seed, **parameters)

    def full_parameters(self, case: Case) -> dict[str, Any]:
        """All parameters of the case, defaults included."""
        return dict(self.defaults) | dict(case.parameters)

    def arguments(self, case: Case) -> Arguments:
        """The case's arguments, made anew; InvalidCaseError where its parameters do not fit together."""
        try:
            return self.make(case)
        except (ValueError, KeyError, IndexError, RuntimeError, TypeError, MemoryError) as error:
            raise InvalidCaseError(f"{case.id} is no case of {self.name}: {error}") from None

    def variant(self, name: str) -> Variant:
        """The variant by name."""
        return pick(name, {v.name: v for v in self.variants}, f"variant of {self.name}")

    def cases(self, suite: str) -> Iterator[tuple[CaseGroup, Case]]:
        """Cases of the suite, smaller suites included, each once, with its group."""
        included = SUITES[: SUITES.index(suite) + 1]
        seen: set[str] = set()
        for group in self.groups:
            for case in group.cases if group.suite in included else ():
                if case.id not in seen:
                    seen.add(case.id)
                    yield group, case

    def representative(self) -> list[Case]:
        """The first and the last case of each smoke group: the first often has no rows."""
        groups = [group.cases for group in self.groups if group.suite == "smoke" and group.cases]
        return list(dict.fromkeys(case for cases in groups for case in (cases[0], cases[-1])))

    def evaluate(self, arguments: Arguments, **extra: Any) -> Outputs:
        """The reference's results by output name; absent optional ones are left out."""
        if self.payload_of is not None:
            first = find_operator(self.payload_of).reference
            *_, payload = first(**taken_by(first, arguments), **extra)
            arguments = taken_by(self.reference, arguments) | {"payload": payload}
        result = self.reference(**arguments, **extra)
        values = result if isinstance(result, tuple) else (result,)
        values = values[:-1] if self.gives_payload else values
        return {o.name: v for o, v in zip(self.outputs, values, strict=True) if v is not None}

    def meant(self, outputs: Outputs) -> Outputs:
        """The outputs as they are compared, in their own dtypes."""
        meanings = {o.name: o.meaning for o in self.outputs}
        return {
            name: value if (meaning := meanings[name]) is None else meaning(outputs).to(value.dtype)
            for name, value in outputs.items()
        }


def make_case(
    operator: str,
    defaults: Mapping[str, Any],
    dtype: str = "bf16",
    distribution: str = "normal",
    seed: int = 0,
    **parameters: Any,
) -> Case:
    """A case keeping, in the order of `defaults`, the parameters that differ from them."""
    unknown = parameters.keys() - defaults.keys()
    if unknown:
        raise UnknownNameError(f"{operator} has no parameter {sorted(unknown)}; it has {sorted(defaults)}")
    kept = tuple((k, parameters[k]) for k in defaults if k in parameters and parameters[k] != defaults[k])
    return Case(operator, kept, dtype, distribution, seed)


CASE_ID = re.compile(r"(?P<operator>\w+)/(?P<pairs>[^/]*)/(?P<dtype>\w+)/(?P<distribution>\w+)/(?P<seed>\d+)")


def parse_case(text: str) -> Case:
    """The case that an id names; UnknownNameError says what an id looks like."""
    match = CASE_ID.fullmatch(text.strip())
    if match is None:
        raise UnknownNameError(f"not a case id: {text!r}; expected operator/key=value,…/dtype/distribution/seed")
    pairs = [pair.partition("=") for pair in match["pairs"].split(",") if pair]
    operator = find_operator(match["operator"])
    case = operator.case(
        match["dtype"], match["distribution"], int(match["seed"]), **{k: _read(operator, k, v) for k, _, v in pairs}
    )
    if case.dtype not in DTYPES:
        raise UnknownNameError(f"unknown dtype {case.dtype!r}; expected one of {DTYPES}")
    return case


@cache
def operators() -> dict[str, Operator]:
    """Every operator, by name: the modules of verification.contracts that define OPERATOR."""
    found = [module.OPERATOR for module in scan("verification.contracts") if hasattr(module, "OPERATOR")]
    return {operator.name: operator for operator in sorted(found, key=lambda o: o.name)}


def find_operator(name: str) -> Operator:
    """The operator by name, or UnknownNameError with the nearest names."""
    return pick(name, operators(), "operator")


IMPLEMENTATION_PACKAGES = ("verification.eager", "fused")


@cache
def implementations() -> dict[tuple[str, str], Implementation]:
    """Every built-in implementation, by operator and name."""
    declared = [
        one for package in IMPLEMENTATION_PACKAGES for module in scan(package) for one in implementations_in(module)
    ]
    return {(one.operator, one.name): one for one in declared}


def scan(package: str) -> list[Any]:
    """The modules of a package, imported, in order of name."""
    root = importlib.import_module(package)
    return [importlib.import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(root.__path__)]


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean …` for a misspelt name, with all known names where none is near."""
    import difflib

    known = list(known)
    close = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


def pick(name: str, table: Mapping[str, Named], kind: str) -> Named:
    """The entry of that name; UnknownNameError with the nearest names where there is none."""
    if name not in table:
        raise UnknownNameError(f"unknown {kind} {name!r}; {nearest(name, table)}")
    return table[name]
