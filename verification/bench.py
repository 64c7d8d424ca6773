"""How fast the gfx950 executor is, against a yardstick that every machine has."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from verification.gfx950 import Models, executor
from verification.gfx950.conformance import Program, judge, programs
from verification.records import now

CHOSEN = (
    "reductions/softmax", "sorting/sort", "dots/single", "dots/gemm", "elementwise/add", "attention/full",
)  # fmt: skip
REPEATS = 5


def executor_speed() -> dict[str, Any]:
    """Median rates of kernels of several kinds, warm, with their outputs judged again after each.

    Units: wave-instructions a second, and that divided by calls a second of `numpy.add(a, b, out=c)`
    on 64 fp32.
    """
    calls = _yardstick()
    rows = [_measure(program, calls) for program in programs().values() if _wanted(program)]
    return {
        "date": now(), "machine": platform.machine(), "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "numpy_add_calls_per_second": calls, "kernels": rows,
    }  # fmt: skip


def _wanted(program: Program) -> bool:
    return not program.compiler_fault and program.name.startswith(CHOSEN)


def _yardstick() -> float:
    a, b, c = (np.ones(64, np.float32) for _ in range(3))

    def many() -> None:
        for _ in range(20_000):
            np.add(a, b, out=c)

    many()
    return statistics.median(20_000 / _seconds(many) for _ in range(REPEATS))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _measure(program: Program, calls: float) -> dict[str, Any]:
    """Time inside the machine alone: Triton's host code is not the executor's."""
    inputs = program.inputs()
    rates = []
    with executor(Models()) as session:
        program.run(inputs)
        for _ in range(REPEATS):
            session.launches.clear()
            outputs = program.run(inputs)
            spent = sum(launch.seconds for launch in session.launches)
            rates.append(session.executed / spent)
        waves = sum(launch.waves * launch.grid[0] * launch.grid[1] * launch.grid[2] for launch in session.launches)
        instructions = session.executed
    assert judge(outputs, program.expected(program.inputs())) == [], program.name
    rate = statistics.median(rates)
    return {"kernel": program.name, "waves": waves, "instructions": instructions, "per_second": rate,
            "ratio": rate / calls}  # fmt: skip
