"""Detection power: which check notices each known fault first, and which notices none."""

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
"""Which check noticed each fault first when all were last run: tried first, so that goldens are shared and few."""

BROKEN = ("fault", "signature", "import")
"""Errors that tell of the fault's own code, and notice nothing."""


class BrokenFaultError(RuntimeError):
    """A fault that cannot be run: it does not say what a wrong kernel would do."""


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
    verdict: str | None = None
    noticed_by: str | None = None
    """Kind of the verdict: structure, budget, …; `law` and its name where a law noticed it."""
    finding: str = ""
    command: str = ""


@dataclass
class _Trial:
    """A fault that no check has noticed so far."""

    candidate: Candidate
    fault: Fault
    target: Target
    checks: int = 0
    noticed: Record | None = None
    tried: set[str] = field(default_factory=set)


def detect(
    session: Session, faults: Iterable[Fault], suite: str = "smoke", target: str | None = None
) -> Iterator[Detection]:
    """Each fault of one operator on the suite's cases and laws, until something notices it.

    A fault that its target cannot run is left out. Cases are the outer loop: a golden serves every fault.
    """
    trials = [trial for fault in faults if (trial := _trial(fault, target)) is not None]
    if not trials:
        return
    operator = find_operator(trials[0].fault.operator)
    _first_by_hints(session, operator, trials)
    for case, law in _schedule(operator, suite):
        for trial in (t for t in trials if t.noticed is None):
            _try(session, operator, trial, case, law)
    for trial in trials:
        yield _told(trial)


def _trial(fault: Fault, target: str | None) -> _Trial | None:
    candidate = Candidate(fault.declared, SOURCE)
    placed = place(candidate, target)
    return None if placed is None or placed.missing() else _Trial(candidate, fault, placed)


def _first_by_hints(session: Session, operator: Operator, trials: list[_Trial]) -> None:
    hints = read_hints()
    hinted = [(hints[t.fault.id], t) for t in trials if t.fault.id in hints]
    for hint, trial in sorted(hinted, key=lambda pair: pair[0]):
        case, _, law = hint.partition(":")
        _try(session, operator, trial, parse_case(case), law or None)


def _schedule(operator: Operator, suite: str) -> Iterator[tuple[Case, str | None]]:
    cases = [case for group, case in operator.cases(suite) if not group.targets]
    representative = [case for case in operator.representative() if case in cases]
    yield from ((case, None) for case in dict.fromkeys([*representative, *cases]))
    for case in operator.law_cases:
        yield from ((case, law.name) for law in operator.laws if law.applies(case))


def _try(session: Session, operator: Operator, trial: _Trial, case: Case, law: str | None) -> None:
    plain = Check(case, "faults", "smoke", operator, trial.candidate, trial.target)
    if law is not None:
        found = next((one for one in operator.laws if one.name == law), None)
        if found is None or (law == "batch_invariance" and not trial.candidate.declared.batch_invariant):
            return
        checks = [replace(plain, law=found)]
    else:
        checks = [plain, *(replace(plain, configuration=c) for c in trial.candidate.declared.configurations)]
    for check in checks:
        if trial.noticed is None and check.id not in trial.tried:
            trial.tried.add(check.id)
            record = session.run(check)
            trial.checks += record.verdict != "unsupported"
            # On other targets what is raised is what the executor or the device says of the kernel.
            broken = BROKEN if trial.target.name != "cpu" else (*BROKEN, "raised")
            if record.verdict == "error" and record.kind in broken:
                raise BrokenFaultError(
                    f"{trial.fault.id} on {record.case}: {record.findings[0]}; mend {trial.fault.path.name}"
                )
            trial.noticed = record if record.verdict in ("failed", "error") else None


def _told(trial: _Trial) -> Detection:
    fault, record = trial.fault, trial.noticed
    plain = Detection(
        fault.id, fault.operator, fault.kind, fault.says, fault.records, trial.target.name, trial.checks
    )  # fmt: skip
    if record is None:
        return plain
    by = f"law {record.law}" if record.law and record.kind == "law" else str(record.kind)
    return replace(
        plain, check=record.case + (f":{record.law}" if record.law else ""), verdict=record.verdict, noticed_by=by,
        finding=record.findings[0] if record.findings else "", command=record.command,
    )  # fmt: skip


def read_hints() -> dict[str, str]:
    """What noticed each fault first when it was last recorded: a case's id, and `:law`."""
    hints: dict[str, str] = json.loads(HINTS.read_text()) if HINTS.exists() else {}
    return hints
