"""Which checks a run consists of: operators × cases × implementations × targets, and laws."""

from __future__ import annotations

import hashlib
import inspect
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fused.boundary import Implementation
from verification import tuning
from verification.fault import SOURCE, find_fault
from verification.operator import (
    SUITES,
    Case,
    CaseGroup,
    Law,
    Operator,
    UnknownNameError,
    find_operator,
    implementations,
    nearest,
    operators,
    parse_case,
)
from verification.targets import Target, targets


class MissingTargetError(RuntimeError):
    """Hardware or a library that was promised is not here."""


@dataclass(frozen=True)
class Candidate:
    """An implementation as the plan knows it: what it declares, and where its code is."""

    declared: Implementation
    source: str
    """`builtin`, `faults`, or the path of a candidate file, which only ever runs in a child."""
    borrows: bool = False
    """Whether the file may use the reference and our implementations: a fault made on purpose, never a kernel."""

    @property
    def family(self) -> str:
        """Which targets make sense for it: eager, fused or candidate."""
        if self.source == SOURCE:
            return "fused" if find_fault(self.declared.operator, self.declared.name).base == "triton" else "eager"
        if self.source != "builtin":
            return "candidate"
        return "eager" if "eager" in inspect.getmodule(self.declared.call).__name__ else "fused"  # type: ignore[union-attr]


@dataclass(frozen=True)
class Check:
    """One implementation on one case and target: its numbers, or one law."""

    case: Case
    group: str
    suite: str
    operator: Operator
    candidate: Candidate
    target: Target
    configuration: str | None = None
    law: Law | None = None

    @property
    def id(self) -> str:
        """`case:implementation@target`, then `+configuration` and `:law` where there is one."""
        text = f"{self.case.id}:{self.candidate.declared.name}@{self.target.name}"
        text += f"+{self.configuration}" if self.configuration else ""
        return text + (f":{self.law.name}" if self.law else "")

    @property
    def command(self) -> str:
        """What repeats this check in a shell."""
        if self.candidate.source == SOURCE:
            words = ["parity", "faults", "--fault", f"{self.operator.name}/{self.candidate.declared.name}"]
            return shlex.join([*words, "--case", self.case.id, "--target", self.target.name])
        words = ["parity", "verify", "--case", self.case.id, "--implementation", self.candidate.declared.name]
        words += ["--target", self.target.name]
        words += ["--candidate", self.candidate.source] if self.candidate.source != "builtin" else []
        words += ["--configuration", self.configuration] if self.configuration else []
        return shlex.join([*words, "--law", self.law.name if self.law else "none"])


@dataclass(frozen=True)
class Selection:
    """What the user asked to run; empty means all."""

    operators: tuple[str, ...] = ()
    suite: str = "smoke"
    target: str | None = None
    implementation: str | None = None
    candidates: tuple[Candidate, ...] = ()
    case: str | None = None
    seed: int | None = None
    law: str | None = None
    configuration: str | None = None

    @property
    def listed(self) -> bool:
        """Whether the cases are those of the suite, with the seeds that are listed there."""
        return self.case is None and self.seed is None

    @property
    def whole(self) -> bool:
        """Whether the suite runs unfiltered, so that its floor holds."""
        return self == Selection(suite=self.suite, target=self.target)


def build(selection: Selection) -> list[Check]:
    """The checks in order of case, so that a case's golden is derived once.

    Raises UnknownNameError for a name that matches nothing, MissingTargetError for a target that
    this machine lacks.
    """
    if selection.suite not in SUITES:
        raise UnknownNameError(f"unknown suite {selection.suite!r}; {nearest(selection.suite, SUITES)}")
    if selection.target is not None:
        usable(selection.target)
    chosen = _operators(selection)
    _require_known(selection, chosen)
    checks = [check for operator in chosen for check in _of_operator(operator, selection)]
    checks = list({check.id: check for check in checks}.values())  # another seed may make two cases one
    if not checks:
        raise UnknownNameError(f"nothing matches {_told(selection)}")
    return checks


def _require_known(selection: Selection, chosen: list[Operator]) -> None:
    """Raise UnknownNameError for an implementation, law or configuration that no chosen operator has."""
    candidates = [c.declared for c in selection.candidates or builtin()]
    names = {op.name for op in chosen}
    for kind, asked, known in (
        ("implementation", selection.implementation, {c.name for c in candidates}),
        ("law", selection.law, {"none", *(law.name for op in chosen for law in op.laws)}),
        (
            "configuration",
            selection.configuration,
            {n for c in candidates if c.operator in names for n in c.configurations},
        ),
    ):
        if asked is not None and asked not in known:
            raise UnknownNameError(f"unknown {kind} {asked!r}; {nearest(asked, sorted(known))}")


def usable(name: str) -> Target:
    """The target by name, if this machine has it."""
    if name not in targets():
        raise UnknownNameError(f"unknown target {name!r}; {nearest(name, targets())}")
    missing = targets()[name].missing()
    if missing:
        raise MissingTargetError(f"target {name} is not here: {missing}")
    return targets()[name]


def builtin(operator: str | None = None, family: str | None = None) -> tuple[Candidate, ...]:
    """Every implementation of this project, or those of one operator or family."""
    everything = (Candidate(_with_tuned(declared), "builtin") for declared in implementations().values())
    return tuple(one for one in everything
                 if operator in (None, one.declared.operator) and family in (None, one.family))  # fmt: skip


def _with_tuned(declared: Implementation) -> Implementation:
    """Its autotuners' configurations beside those that it declares."""
    tuned = tuning.configurations(sys.modules[declared.call.__module__])
    return replace(declared, configurations=declared.configurations + tuned) if tuned else declared


def _operators(selection: Selection) -> list[Operator]:
    if selection.case is not None:
        return [find_operator(parse_case(selection.case).operator)]
    named = selection.operators or tuple(operators())
    return [find_operator(name) for name in named]


def _of_operator(operator: Operator, selection: Selection) -> Iterator[Check]:
    asked, tuning = selection.implementation, selection.configuration
    chosen = [
        candidate
        for candidate in selection.candidates or builtin()
        if (declared := candidate.declared).operator == operator.name
        and asked in (None, declared.name)
        and tuning in (None, *declared.configurations)
    ]
    placed = [(candidate, target) for candidate in chosen if (target := place(candidate, selection.target))]
    for group, case in _cases(operator, selection) if selection.law in (None, "none") else ():
        for candidate, target in placed:
            if group.targets and selection.case is None and target.name not in group.targets:
                continue
            yield from _numbers(
                Check(case, group.name, group.suite, operator, candidate, target, selection.configuration), selection
            )
    for candidate, target in placed:
        if candidate.family == "candidate" and selection.law in (None, "none") and selection.listed:
            case = _unlisted(operator, candidate)
            yield from _numbers(
                Check(case, "unlisted seed", "smoke", operator, candidate, target, selection.configuration), selection
            )
    for case in _law_cases(operator, selection):
        for candidate, target in placed:
            yield from _laws(
                Check(case, "laws", "smoke", operator, candidate, target, selection.configuration), selection
            )


def place(candidate: Candidate, asked: str | None) -> Target | None:
    """The asked target if the implementation can run there, else the best one that is here."""
    for target in targets().values():
        allowed = candidate.declared.targets
        fits = candidate.family in target.runs and (not allowed or target.name in allowed)
        if fits and (target.name == asked if asked else target.missing() is None):
            return target
    return None


def _cases(operator: Operator, selection: Selection) -> Iterator[tuple[CaseGroup, Case]]:
    listed = {case.id: (group, case) for group, case in operator.cases("nightly")}
    if selection.case is not None:
        case = parse_case(selection.case)
        yield listed.get(case.id, (CaseGroup("asked", "nightly", (case,)), case))
        return
    for group, case in operator.cases(selection.suite):
        yield group, case if selection.seed is None else replace(case, seed=selection.seed)


def _unlisted(operator: Operator, candidate: Candidate) -> Case:
    """A usual case whose seed is a digest of the candidate's file: no file can hold the answer to its own."""
    digest = hashlib.sha256(Path(candidate.source).read_bytes()).digest()
    return replace(operator.representative()[-1], seed=int.from_bytes(digest[:4], "little"))


def _law_cases(operator: Operator, selection: Selection) -> tuple[Case, ...]:
    if selection.case is not None:
        return (parse_case(selection.case),) if selection.law else ()
    return (
        operator.law_cases
        if selection.seed is None
        else tuple(replace(case, seed=selection.seed) for case in operator.law_cases)
    )


def _numbers(plain: Check, selection: Selection) -> Iterator[Check]:
    """The check itself and, in larger suites, each tuning configuration alone."""
    declared = plain.candidate.declared
    yield plain
    if plain.configuration is None and selection.suite != "smoke" and selection.case is None:
        yield from (replace(plain, configuration=name) for name in declared.configurations)


def _laws(plain: Check, selection: Selection) -> Iterator[Check]:
    """Each law that the case obeys and the implementation promises."""
    for law in plain.operator.laws:
        if law.applies(plain.case) and selection.law in (None, law.name) and _promises(plain.candidate.declared, law):
            yield replace(plain, law=law)


def _promises(declared: Implementation, law: Law) -> bool:
    return law.name != "batch_invariance" or declared.batch_invariant


def _told(selection: Selection) -> str:
    asked = {k: v for k, v in vars(selection).items() if v}
    asked["candidates"] = [Path(c.source).name for c in selection.candidates]
    return ", ".join(f"{k}={v}" for k, v in asked.items() if v) or "an empty selection"


def shard(checks: list[Check], part: str | None) -> list[Check]:
    """Every n-th check from the i-th on, for `i/n`; ValueError says what was expected."""
    if part is None:
        return checks
    index, slash, count = part.partition("/")
    if not (slash and index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise UnknownNameError(f"--shard {part!r}; expected i/n with 1 ≤ i ≤ n")
    return checks[int(index) - 1 :: int(count)]
