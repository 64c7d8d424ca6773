"""Record what the installed Triton makes of the conformance set and of every fused kernel: `DIR` holds the result.

`python -m verification.recording DIR` with another Triton first on PYTHONPATH records that one.
"""

from __future__ import annotations

import datetime
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import triton

from verification.budget import Golden, derive
from verification.comparison import compare
from verification.execution import Refused, observe, run_of
from verification.gfx950 import conformance, executor
from verification.gfx950.machine import ExecutionError
from verification.gfx950.recorded import RecordedLaunch, write
from verification.operator import Case, Implementation, operators
from verification.plan import builtin

Judged = Callable[[], list[str]]
"""Runs a program's host code in whatever executor is open, and judges what comes out: what is wrong."""

ERROR = re.compile(r"error: (.*)")


@cache
def subjects() -> dict[str, Judged]:
    """The conformance set and every fused kernel's representative cases at each configuration, by name."""
    found: dict[str, Judged] = {name: _program(program) for name, program in conformance.programs().items()}
    for candidate in builtin(family="fused"):
        declared = candidate.declared
        for configuration in declared.configurations or (None,):
            label = f"{declared.name}{'+' + configuration if configuration else ''}"
            for case in operators()[declared.operator].representative():
                found[f"{case.id} {label}"] = _case(declared, configuration, case)
    return found


def _program(program: conformance.Program) -> Judged:
    return lambda: conformance.judge(program.run(program.inputs()), program.expected(program.inputs()))


def _case(implementation: Implementation, configuration: str | None, case: Case) -> Judged:
    operator = operators()[case.operator]

    def judged() -> list[str]:
        # Fresh arguments: some are written in place.
        given, arguments = operator.arguments(case), operator.arguments(case)
        observed = observe(run_of(operator, implementation, configuration), operator, arguments)
        golden = _golden(operator.name, case, implementation.variant)
        return [one.message for one in compare(operator, given, observed, golden, "cpu").findings]

    return judged


@cache
def _golden(operator: str, case: Case, variant: str) -> Golden:
    found = operators()[operator]
    return derive(found, found.arguments(case), found.variant(variant))


def record(folder: Path) -> Path:
    """Compile, execute and judge every subject, and write the recording of this Triton into a folder of its own."""
    programs: dict[str, list[RecordedLaunch]] = {}
    refused: dict[str, str] = {}
    wrong: list[str] = []
    for name, judged in subjects().items():
        with _messages() as messages, executor() as session:
            try:
                findings = judged()
            except Refused as refusal:
                if refusal.kind != "unsupported":
                    raise
                continue
            except ExecutionError:
                raise
            except RuntimeError as error:
                refused[name] = "; ".join([str(error), *dict.fromkeys(ERROR.findall(messages()))])
                continue
        if session.launches:
            programs[name] = [RecordedLaunch.of(launch) for launch in session.launches]
        wrong += [name] if findings else []
        print(f"{name}: {len(session.launches)} launches{', ' + findings[0] if findings else ''}", file=sys.stderr)
    about = {"triton": triton.__version__, "made": datetime.date.today().isoformat(),
             "by": "python -m verification.recording", "refused": refused, "wrong": wrong}  # fmt: skip
    place = folder / f"triton-{triton.__version__}"
    write(place, programs, about)
    return place


@contextmanager
def _messages() -> Iterator[Callable[[], str]]:
    """What a compiler writes to the file of stderr itself."""
    with tempfile.TemporaryFile() as written:
        stderr = os.dup(2)
        os.dup2(written.fileno(), 2)

        def read() -> str:
            written.seek(0)
            return written.read().decode(errors="replace")

        try:
            yield read
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


if __name__ == "__main__":
    print(record(Path(sys.argv[1])))
