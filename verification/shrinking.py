"""The smallest case that still fails the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verification.operator import Case, InvalidCaseError, Operator
from verification.plan import Check
from verification.records import Record
from verification.runner import Session

MOST_TRIALS = 200


def shrink(session: Session, check: Check, first: Record) -> tuple[Check, Record, int]:
    """Make parameters smaller one at a time while the failure keeps its kind; returns the trials too."""
    best, record, trials = check, first, 0
    progress = True
    while progress and trials < MOST_TRIALS:
        progress = False
        for case in smaller(best.operator, best.case):
            trials += 1
            smaller_check = replace(best, case=case, group="shrunk")
            if (tried := _tried(session, smaller_check)) and (tried.verdict, tried.kind) == (first.verdict, first.kind):
                best, record, progress = smaller_check, tried, True
                break
            if trials >= MOST_TRIALS:
                break
    return best, record, trials


def _tried(session: Session, check: Check) -> Record | None:
    try:
        return session.run(check)
    except InvalidCaseError:
        return None


def smaller(operator: Operator, case: Case) -> Iterator[Case]:
    """Neighbours with one parameter reduced: the boldest step first."""
    parameters = operator.full_parameters(case)
    for name, value in parameters.items():
        for less in _reductions(value):
            changed = parameters | {name: less}
            yield operator.case(case.dtype, case.distribution, case.seed, **changed)


def _reductions(value: object) -> list[object]:
    if isinstance(value, bool):
        return [False] if value else []
    if isinstance(value, int) and value > 1:
        return list(dict.fromkeys(v for v in (1, value // 4, value // 2, value - 1) if 0 < v < value))
    return []
