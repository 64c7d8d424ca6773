"""The conformance set on hardware and on the executor, and where the two differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verification.gfx950 import executor
from verification.gfx950.conformance import Program, judge, programs
from verification.records import BadRecordsError, now
from verification.targets import targets

Outputs = dict[str, Tensor]

EXECUTOR = "gfx950 executor: compiled instructions executed on a CPU, not hardware"


@dataclass(frozen=True)
class Row:
    """One program: what was wrong, and the digest of each output's bits."""

    name: str
    findings: list[str]
    digests: dict[str, str]


@dataclass(frozen=True)
class Conformance:
    """One machine's run of the set."""

    machine: str
    triton: str
    date: str
    rows: list[Row]

    @property
    def wrong(self) -> int:
        """Programs that do not hold, those with a known fault of the compiler left out."""
        known = {name for name, program in programs().items() if program.compiler_fault}
        return sum(bool(row.findings) and row.name not in known for row in self.rows)

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def conform(prefixes: tuple[str, ...], device: str) -> Conformance:
    """Run the programs whose names begin so; raises MissingTargetError where hardware is asked and absent."""
    import triton

    from verification.plan import MissingTargetError

    if device not in ("executor", "hardware"):
        raise BadRecordsError(f"--device {device}: expected executor or hardware")
    if device == "hardware" and not torch.cuda.is_available():
        raise MissingTargetError(f"hardware is not here: {targets()['hip'].missing()}")
    chosen = [one for name, one in programs().items() if not prefixes or name.startswith(prefixes)]
    run = _on_hardware if device == "hardware" else _executed
    return Conformance(_machine(device), triton.__version__, now(), [_attempted(one, run) for one in chosen])


def _machine(device: str) -> str:
    if device == "executor":
        return EXECUTOR
    gpu = torch.cuda.get_device_properties(0)
    return str(gpu.gcnArchName) if torch.version.hip else f"sm_{gpu.major}{gpu.minor} ({gpu.name})"


def _attempted(program: Program, run: Callable[[Program], Outputs]) -> Row:
    """A program that gives no result is a row that says so: the others still run."""
    try:
        outputs = run(program)
    except Exception as error:
        return Row(program.name, [f"gave no result: {type(error).__name__}: {str(error).strip()[:300]}"], {})
    return _row(program, outputs)


def _executed(program: Program) -> Outputs:
    with executor():
        return program.run(program.inputs())


def _on_hardware(program: Program) -> Outputs:
    import triton

    # Tensor descriptors made in a kernel need scratch memory on some devices.
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    outputs = program.run({name: x.cuda() for name, x in program.inputs().items()})
    return {name: x.cpu() for name, x in outputs.items()}


def _row(program: Program, outputs: Outputs) -> Row:
    findings = judge(outputs, program.expected(program.inputs()))
    return Row(program.name, findings, {name: _digest(x) for name, x in outputs.items()})


def _digest(x: Tensor) -> str:
    return hashlib.sha256(x.contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def differences(ours: Conformance, theirs: Path) -> list[str]:
    """A line for each output whose bits differ from an earlier run's; raises BadRecordsError."""
    try:
        other = json.loads(theirs.read_text())
        rows = {row["name"]: row for row in other["rows"]}
        machine = other["machine"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadRecordsError(f"{theirs} is no record of `parity gfx950 conformance`: {error!r}") from None
    found = []
    for row in ours.rows:
        if row.name not in rows:
            found.append(f"{row.name}: not in {theirs}")
            continue
        for output, digest in row.digests.items():
            if rows[row.name]["digests"].get(output) != digest:
                judged = ["holds" if not one else "does not hold" for one in (row.findings, rows[row.name]["findings"])]
                found.append(f"{row.name} {output}: other bits than on {machine} ({judged[0]} here, {judged[1]} there)")
    return found
