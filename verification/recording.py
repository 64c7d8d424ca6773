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
from torch import Tensor

from fused.boundary import Implementation
from verification.budget import Golden, derive
from verification.comparison import Observed, compare
from verification.compilation import representative
from verification.execution import Refused, Run
from verification.gfx950 import conformance, executor
from verification.gfx950.machine import ExecutionError
from verification.gfx950.recorded import RecordedLaunch, write
from verification.operator import Case, Operator, operators
from verification.plan import builtin
from verification.transport import DTYPE_NAMES

Judged = Callable[[], list[str]]
"""Runs a program's host code in whatever executor is open, and judges what comes out: what is wrong."""

ERROR = re.compile(r"error: (.*)")


@cache
def subjects() -> dict[str, Judged]:
    """The conformance set and every fused kernel's representative cases at each configuration, by name."""
    found: dict[str, Judged] = {name: _program(program) for name, program in conformance.programs().items()}
    for operator in operators().values():
        for one in builtin():
            if one.family != "fused" or one.declared.operator != operator.name:
                continue
            for configuration in one.declared.configurations or (None,):
                label = f"{one.declared.name}{'+' + configuration if configuration else ''}"
                for case in representative(operator):
                    found[f"{case.id} {label}"] = _case(operator, one.declared, configuration, case)
    return found


def _program(program: conformance.Program) -> Judged:
    return lambda: conformance.judge(program.run(program.inputs()), program.expected(program.inputs()))


def _case(operator: Operator, implementation: Implementation, configuration: str | None, case: Case) -> Judged:
    def judged() -> list[str]:
        # Fresh arguments: some are written in place.
        given, arguments = operator.arguments(case), operator.arguments(case)
        run = Run(implementation, list(operator.weights), configuration, "cpu")
        results = run.direct(arguments)
        touched = {one: arguments[one] for one in operator.in_place if isinstance(arguments.get(one), Tensor)}
        observed = Observed(results=results, devices=["cpu"] * len(results),
                            dtypes=[DTYPE_NAMES[x.dtype] for x in results], in_place=touched)  # fmt: skip
        golden = _golden(operator.name, case, implementation.variant)
        findings = [one.message for one in compare(operator, given, observed, golden, "cpu").findings]
        return findings + [damage for guard in run.guards for damage in guard.damages()]

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
