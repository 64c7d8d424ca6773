"""One kernel on the gfx950 executor, with its launches: here, under another Triton, or from another commit."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from verification.comparison import Observed, compare
from verification.gfx950.listing import Listed, read_listings
from verification.operator import Case, find_operator, parse_case
from verification.plan import Check, Selection, build
from verification.runner import Problem, Session
from verification.targets.gfx950 import FUSED, LISTINGS, MODELS
from verification.worker import ROOT


class BadSideError(ValueError):
    """A Triton or a commit that a kernel cannot be run under; the message says why."""


@dataclass(frozen=True)
class Side:
    """Where a kernel and its compiler come from: by default this checkout and the installed Triton."""

    triton: Path | None = None
    """A folder that holds another `triton` package, as `pip install --target` makes one."""
    commit: str | None = None
    models: str = ""

    @property
    def name(self) -> str:
        """For headings."""
        return " ".join(filter(None, [f"triton in {self.triton}" if self.triton else "", self.commit])) or "here"


@dataclass(frozen=True)
class KernelRun:
    """What came of one check: results, what the comparison found, each launch, the Triton that compiled."""

    observed: Observed
    findings: list[str]
    launches: list[Listed]
    triton: str


def chosen_cases(kernel: str) -> list[Case]:
    """The cases that an operator's name or a case's id stands for."""
    return [parse_case(kernel)] if "/" in kernel else find_operator(kernel).representative()


def checks(kernel: str, selection: Selection) -> list[Check]:
    """The checks of numbers on the chosen cases, each on the gfx950 target."""
    asked = [replace(selection, case=case.id, target="gfx950", law="none") for case in chosen_cases(kernel)]
    return [check for one in asked for check in build(one) if check.candidate.family != "eager"]


@contextmanager
def opened(side: Side) -> Iterator[Runner]:
    """A runner of checks on that side; BadSideError where it cannot be."""
    with _folder() as fused, _folder() as listings, Session() as session:
        environment = {MODELS: side.models} if side.models else {}
        if side.triton is not None:
            if not (side.triton / "triton" / "__init__.py").exists():
                raise BadSideError(
                    f"{side.triton} holds no triton package; pip install --target {side.triton} triton==…"
                )
            environment["PYTHONPATH"] = str(side.triton.resolve())
        if side.commit is not None:
            _export(side.commit, Path(fused))
            environment[FUSED] = fused
        yield Runner(session, {**environment, LISTINGS: listings})


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="parity-kernel-")


def _export(commit: str, folder: Path) -> None:
    done = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "fused"], capture_output=True, check=False)
    if done.returncode:
        raise BadSideError(f"commit {commit!r}: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


class Runner:
    """Runs checks in a child of its own."""

    def __init__(self, session: Session, environment: dict[str, str]) -> None:
        self.session, self.environment = session, environment

    def run(self, check: Check) -> KernelRun:
        """One call, judged; raises Problem where it gives no result."""
        arguments, golden = self.session.golden(check.operator, check.case, check.candidate.declared.variant)
        folder = Path(self.environment[LISTINGS])
        for old in folder.iterdir():
            old.unlink()
        target = replace(check.target, environment={**check.target.environment, **self.environment})
        there = replace(check, target=target)
        observed, answer = self.session.execute(there, arguments)
        found = compare(check.operator, arguments, observed, golden, check.target.device).findings
        return KernelRun(observed, [finding.message for finding in found], read_listings(folder),
                         answer["environment"]["triton"])  # fmt: skip

    def attempt(self, check: Check) -> KernelRun | str:
        """As `run`; where there is no result, the sentence that says why."""
        try:
            return self.run(check)
        except Problem as problem:
            return f"{problem.kind}: {problem}"
