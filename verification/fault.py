"""Faults: implementations with exactly one thing wrong, and their discovery by package scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fused.boundary import Implementation
from verification.operator import UnknownNameError, find_operator, implementations, nearest, pick, scan

KINDS = {
    "term": "a term left out, added or weighted wrongly",
    "constant": "a constant changed: an eps, a scale, a base, a sign",
    "rounding": "a rounding point moved to a worse place, or left out",
    "accumulation": "a sum kept in too few bits, or cut short",
    "index": "an index off by one, a tile's edge, the wrong row",
    "mask": "a mask left out or wrong: padding, causality, validity",
    "layout": "an axis, a stride or an interleaving taken for another",
    "memory": "an element unwritten, a write outside, an input changed",
    "stale": "something of an earlier call or another row that is still used",
    "state": "a slot, a page, a hand-over or a rollback gone wrong",
    "order": "ties, order of results, a permutation lost",
    "special": "NaN, Inf, zero sums, empty inputs, saturation",
    "option": "an option or argument ignored, or applied twice",
    "interface": "dtype, shape or number of the results",
    "batch": "a result that depends on the other rows, or on the run",
    "tuning": "wrong in one tuning choice alone",
}
"""What a fault has wrong, and what that covers."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an operator's implementation."""

    operator: str
    name: str
    kind: str
    says: str
    """What is wrong, in a few words that complete `these are the numbers of …:`."""
    base: str
    """The implementation that it is right but for: `reference`, `eager`, `triton`, …"""
    make: Callable[[Fault, str], Implementation]
    """The faulty implementation, of the operator or of the one that makes its payload."""
    records: tuple[str, ...] = ()
    """Ids of the field's records that it stands for."""
    path: Path = Path(__file__)
    """The file that holds it."""

    @property
    def id(self) -> str:
        """`operator/name`."""
        return f"{self.operator}/{self.name}"

    @property
    def declared(self) -> Implementation:
        """What the plan knows of it: the base's declaration under the fault's name, without its code."""
        return replace(_base(self.operator, self.base), name=self.name, call=_never, prepare=None, supports=None)


SOURCE = "faults"
"""Where the plan and the child find a fault's code, in the place of a candidate's file."""


@cache
def faults() -> dict[str, Fault]:
    """Every fault by id: the corpora of verification.faults."""
    modules = [module for module in scan("verification.faults") if hasattr(module, "CORPUS")]
    found = [replace(fault, path=Path(module.__file__)) for module in modules for fault in module.CORPUS]
    for fault in found:
        find_operator(fault.operator)
        if fault.kind not in KINDS:
            raise UnknownNameError(f"{fault.id}: unknown kind {fault.kind!r}; {nearest(fault.kind, KINDS)}")
    table = {fault.id: fault for fault in found}
    if len(table) != len(found):
        twice = sorted({fault.id for fault in found if sum(other.id == fault.id for other in found) > 1})
        raise UnknownNameError(f"faults of one name: {', '.join(twice)}")
    return table


def chosen(operators: Iterable[str] = (), name: str | None = None, kind: str | None = None) -> list[Fault]:
    """The faults of these operators, of that name and kind; UnknownNameError where none is."""
    operators = {find_operator(operator).name for operator in operators}
    if kind is not None:
        pick(kind, KINDS, "kind of fault")
    within = [f for f in faults().values() if not operators or f.operator in operators]
    found = [f for f in within if name in (None, f.name, f.id) and kind in (None, f.kind)]
    if not found:
        raise UnknownNameError(f"no such fault; {nearest(name or '', [f.id for f in within])}")
    return found


def find_fault(operator: str, name: str) -> Fault:
    """The fault by its operator and name."""
    return pick(f"{operator}/{name}", faults(), "fault")


@cache
def faulty(operator: str, name: str) -> Implementation:
    """The implementation of a fault by name, or that of the operator which makes its payload."""
    for fault in faults().values():
        if fault.name == name and operator in (fault.operator, find_operator(fault.operator).payload_of):
            return fault.make(fault, operator)
    raise UnknownNameError(f"there is no fault {operator}/{name}")


@cache
def _base(operator: str, name: str) -> Implementation:
    """The right implementation by name, `reference` included."""
    if name == "reference":
        from verification.readings import reference_implementation

        return reference_implementation(operator)
    return pick(name, {n: one for (o, n), one in implementations().items() if o == operator}, f"base of {operator}")


def yours(one: Implementation, file: Path) -> Fault:
    """Somebody's own faulty implementation, from a candidate file."""
    return Fault(one.operator, one.name, "yours", f"as {file.name} has it", one.name, _unmade, path=file)


def _unmade(fault: Fault, operator: str) -> Implementation:
    raise AssertionError(f"{fault.id} is in {fault.path}, which runs only in a child")


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a fault runs only in a child")
