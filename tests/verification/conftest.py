from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from verification.operator import Case, parse_case
from verification.plan import Candidate, Check
from verification.records import Record
from verification.runner import Session
from verification.targets import targets

CANDIDATES = Path(__file__).parent / "candidates"

Runner = Callable[..., Record]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Children and goldens that the tests of a module share."""
    with Session() as shared:
        yield shared


def check_of(candidate: Candidate, case: Case | str, target: str = "cpu", **fields: object) -> Check:
    """A check of a candidate on a case, listed or not."""
    from verification.operator import find_operator

    case = parse_case(case) if isinstance(case, str) else case
    plain = Check(case, "tests", "smoke", find_operator(case.operator), candidate, targets()[target])
    return replace(plain, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def candidates() -> Path:
    """The folder of candidate files that the tests judge."""
    return CANDIDATES


@pytest.fixture(scope="module")
def judge(session: Session) -> Runner:
    """Run a candidate file's implementation on a case and give the record."""
    declared: dict[str, tuple[Candidate, ...]] = {}

    def run(file: str | Path, name: str, case: Case | str, **fields: object) -> Record:
        path = str(CANDIDATES / file)
        if path not in declared:
            declared[path] = session.declared(Path(path), borrows=path.startswith(str(CANDIDATES)))
        operator = case.partition("/")[0] if isinstance(case, str) else case.operator
        chosen = next(c for c in declared[path] if (c.declared.operator, c.declared.name) == (operator, name))
        return session.run(check_of(chosen, case, **fields))

    return run
