"""Branches, waits and the other instructions of control."""

from __future__ import annotations

import re

from verification.gfx950.encoding.entry import Entry
from verification.gfx950.encoding.memory import drop_hints
from verification.gfx950.operands import OperandError

UNBOUNDED = 64
"""A count that is never waited for."""


def _branch(entry: Entry) -> None:
    (label,) = entry.texts(1)
    if label not in entry.kernel.labels:
        raise OperandError(f"unknown label {label}")
    entry.out["immediate"] = entry.kernel.labels[label]


def _wait(entry: Entry) -> None:
    entry.out["extra"][0] = entry.number("vmcnt", UNBOUNDED)
    entry.out["extra"][1] = entry.number("lgkmcnt", UNBOUNDED)
    entry.rest.pop("expcnt", None)
    if entry.line.operands:
        raise OperandError("s_waitcnt by a number is not read")


def _overflow_mode(entry: Entry) -> None:
    register, value = entry.texts(2)
    if not re.fullmatch(r"hwreg\(HW_REG_MODE,\s*23,\s*1\)", register):
        raise OperandError(f"{register} is not modelled: only the mode bit FP16_OVFL is")
    entry.out["immediate"] = int(value, 0)


def _none(entry: Entry) -> None:
    if entry.line.operands:
        raise OperandError("operands of an instruction that takes none")


def _immediate(entry: Entry) -> None:
    int(entry.line.operands[0], 0)


def _result(entry: Entry) -> None:
    entry.place(entry.row.results, ())


def _source(entry: Entry) -> None:
    entry.place((), entry.row.sources)


FORMS = {
    "branch": _branch, "wait": _wait, "overflow_mode": _overflow_mode, "none": _none, "immediate": _immediate,
    "cache": drop_hints, "result": _result, "source": _source,
}  # fmt: skip
