"""Which check notices each fault of an operator first, and which faults none notices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from verification.fault import SOURCE, Fault
from verification.operator import Case, Operator, find_operator, parse_case
from verification.plan import Candidate, Check, place
from verification.records import Record
from verification.runner import Session
from verification.targets import Target

HINTS = Path(__file__).with_name("faults") / "noticed_by.json"
"""What noticed each fault first when all were last run: tried first, so that goldens are shared and few."""

BROKEN = ("fault", "signature", "import")
"""Errors that tell of the fault's own code, and notice nothing."""


@dataclass(frozen=True)
class Detection:
    """What came of one fault: the check that noticed it first, or none."""

    fault: str
    operator: str
    kind: str
    says: str
    records: tuple[str, ...]
    target: str
    checks: int
    """Checks that ran, the noticing one included."""
    check: str | None = None
    """The case's id, and `:law`."""
    noticed_by: str | None = None
    """The verdict's kind: structure, special_value, budget, …; `law` and its name where a law noticed it."""
    finding: str = ""
    command: str = ""
    broken: str = ""
    """Why the fault could not be run: then it says nothing of the checks."""

    @property
    def missed(self) -> bool:
        """Whether every check passed it."""
        return self.noticed_by is None and not self.broken


@dataclass
class Trial:
    """A fault, as long as no check has noticed it, and what has been tried."""

    fault: Fault
    candidate: Candidate
    target: Target
    checks: int = 0
    noticed: Record | None = None
    broken: str = ""
    tried: set[str] = field(default_factory=set)

    @property
    def open(self) -> bool:
        """Whether a further check could tell something."""
        return self.noticed is None and not self.broken


def trials(faults: Iterable[Fault], target: str | None = None) -> list[Trial]:
    """The faults that the target, or the best one here, can run."""
    found = []
    for fault in faults:
        candidate = Candidate(fault.declared, SOURCE)
        placed = place(candidate, target)
        if placed is not None and placed.missing() is None:
            found.append(Trial(fault, candidate, placed))
    return found


def detect(session: Session, tried: list[Trial], suite: str = "smoke") -> Iterator[Detection]:
    """Each fault of one operator on the suite's cases and laws, until something notices it.

    Cases are the outer loop, so that a golden serves every fault.
    """
    operator = find_operator(tried[0].fault.operator)
    _first_by_hints(session, operator, tried)
    for case, law in _schedule(operator, suite):
        for trial in (t for t in tried if t.open):
            attempt(session, operator, trial, case, law)
    yield from map(told, tried)


def _first_by_hints(session: Session, operator: Operator, tried: list[Trial]) -> None:
    hints = read_hints()
    hinted = [(hints[t.fault.id], t) for t in tried if t.fault.id in hints]
    for hint, trial in sorted(hinted, key=lambda pair: pair[0]):
        case, _, law = hint.partition(":")
        attempt(session, operator, trial, parse_case(case), law or None)


def _schedule(operator: Operator, suite: str) -> Iterator[tuple[Case, str | None]]:
    cases = [case for group, case in operator.cases(suite) if not group.targets]
    representative = [case for case in operator.representative() if case in cases]
    yield from ((case, None) for case in dict.fromkeys([*representative, *cases]))
    for case in operator.law_cases:
        yield from ((case, law.name) for law in operator.laws if law.applies(case))


def attempt(session: Session, operator: Operator, trial: Trial, case: Case, law: str | None) -> None:
    """Judge the fault on a case, with each tuning configuration, or by a law."""
    for check in _checks(operator, trial, case, law):
        if trial.open and check.id not in trial.tried:
            trial.tried.add(check.id)
            record = session.run(check)
            trial.checks += record.verdict != "unsupported"
            if record.verdict == "error" and record.kind in _broken(trial):
                trial.broken = f"{record.case}: {record.findings[0]}"
            elif record.verdict in ("failed", "error"):
                trial.noticed = record


def _checks(operator: Operator, trial: Trial, case: Case, law: str | None) -> list[Check]:
    plain = Check(case, "faults", "smoke", operator, trial.candidate, trial.target)
    if law is None:
        return [plain, *(replace(plain, configuration=c) for c in trial.candidate.declared.configurations)]
    promised = law != "batch_invariance" or trial.candidate.declared.batch_invariant
    return [replace(plain, law=one) for one in operator.laws if one.name == law and promised]


def _broken(trial: Trial) -> tuple[str, ...]:
    if trial.candidate.source != SOURCE:
        return ("import",)
    # On other targets what is raised is what the executor or the device says of the kernel.
    return (*BROKEN, "raised") if trial.target.name == "cpu" else BROKEN


def told(trial: Trial) -> Detection:
    """What came of the trial."""
    fault, record = trial.fault, trial.noticed
    plain = Detection(
        fault.id, fault.operator, fault.kind, fault.says, fault.records, trial.target.name, trial.checks,
        broken=trial.broken,
    )  # fmt: skip
    if record is None:
        return plain
    by = f"law {record.law}" if record.law and record.kind == "law" else str(record.kind)
    return replace(
        plain, check=record.case + (f":{record.law}" if record.law else ""), noticed_by=by,
        finding=record.findings[0] if record.findings else "", command=record.command,
    )  # fmt: skip


def read_hints() -> dict[str, str]:
    """What noticed each fault first when it was last recorded: a case's id, and `:law`."""
    hints: dict[str, str] = json.loads(HINTS.read_text()) if HINTS.exists() else {}
    return hints
