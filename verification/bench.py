"""How fast the gfx950 executor is, against a yardstick that every machine has."""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from verification.gfx950 import Models, executor
from verification.gfx950.conformance import Program, judge, programs
from verification.gfx950.driver import LaunchRecord
from verification.records import now

REPEATS, CALLS = 7, 5_000
GOALS = {"64 waves and more": 2.0, "one workgroup of 4 waves": 0.4}
"""The least ratio wanted of every kernel of a class."""


def executor_speed() -> dict[str, Any]:
    """Median rates of all conformance programs, warm, with their outputs judged again after each.

    Units: wave-instructions a second, and that divided by calls a second of `numpy.add(a, b, out=c)`
    on 64 fp32, measured before each repetition.
    """
    rows = [_measure(program) for program in programs().values() if not program.compiler_fault]
    return {
        "date": now(), "machine": platform.machine(), "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__,
        "numpy_add_calls_per_second": statistics.median(row["numpy_add_calls_per_second"] for row in rows),
        "goals": [_goal(name, wanted, rows) for name, wanted in GOALS.items()], "kernels": rows,
    }  # fmt: skip


def _goal(name: str, wanted: float, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The slowest kernel of a class."""
    own = [row for row in rows if row["class"] == name]
    least = min(own, key=lambda row: float(row["ratio"]))
    ratio = least["ratio"]
    return {"class": name, "kernels": len(own), "goal": wanted, "least_ratio": ratio, "kernel": least["kernel"],
            "held": ratio >= wanted}  # fmt: skip


def _yardstick() -> float:
    a, b, c = (np.ones(64, np.float32) for _ in range(3))

    def many() -> None:
        for _ in range(CALLS):
            np.add(a, b, out=c)

    return CALLS / _seconds(many)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _measure(program: Program) -> dict[str, Any]:
    """Time inside the machine alone: Triton's host code is not the executor's."""
    inputs = program.inputs()
    rates, calls = [], []
    with executor(Models()) as session:
        program.run(inputs)
        for _ in range(REPEATS):
            session.launches.clear()
            calls.append(_yardstick())
            outputs = program.run(inputs)
            rates.append(session.executed / sum(launch.seconds for launch in session.launches))
        launches, instructions = session.launches, session.executed
    assert judge(outputs, program.expected(program.inputs())) == [], program.name
    waves = [launch.waves * math.prod(launch.grid) for launch in launches]
    return {
        "kernel": program.name, "waves": sum(waves), "class": _class(waves, launches), "instructions": instructions,
        "per_second": statistics.median(rates), "numpy_add_calls_per_second": statistics.median(calls),
        "ratio": statistics.median(rate / call for rate, call in zip(rates, calls, strict=True)),
    }  # fmt: skip


def _class(waves: list[int], launches: list[LaunchRecord]) -> str:
    if min(waves) >= 64:
        return "64 waves and more"
    alone = len(launches) == 1 and math.prod(launches[0].grid) == 1
    return "one workgroup of 4 waves" if alone and launches[0].waves == 4 else "other"
