"""One record a check: JSON lines with a published schema, whole even when a run is interrupted."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA_VERSION = 1

Verdict = Literal["passed", "failed", "error", "unsupported", "waived"]
FailureKind = Literal[
    "structure", "special_value", "budget", "bias", "law", "guard", "determinism", "tokens", "conduct"
]
ErrorKind = Literal["import", "signature", "fault", "raised", "crash", "timeout", "memory"]


class Strict(BaseModel):
    """A frozen model without unknown fields; NaN and Inf are spelt as strings in JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class OutputRecord(Strict):
    """How near one output was."""

    output: str
    dtype: str
    elements: int
    largest_error: float
    ratio: float = Field(description="Largest error ÷ budget; at most 1 where it passes")
    worst_index: list[int] = Field(description="The element with that ratio")
    worst_error: float
    worst_budget: float
    worst_ulps: float = Field(description="Its distance to the exact result rounded once, ulps of the dtype")
    largest_ulps: float = Field(
        description="The largest such distance; large where a result is near zero by cancellation"
    )
    bit_equal: float = Field(description="Share of elements equal to the exact result rounded once")
    row_ratio: float = Field(description="Largest row score ÷ its limit")
    bias: float = Field(description="Mean of signed error ÷ spread")
    bias_ratio: float | None = Field(description="|bias| ÷ its limit; absent where it cannot be judged")
    median_budget_ulps: float


class BudgetRecord(Strict):
    """Where the budget came from."""

    formula: str
    runs: int
    factor: float = Field(description="z of the formula")
    false_alarm: float = Field(description="Stated rate a comparison")


class Environment(Strict):
    """What ran it: only what the process that ran it reported."""

    device: str
    architecture: str
    python: str
    torch: str
    triton: str
    tf32: bool
    float32_matmul_precision: str


class Record(Strict):
    """One check of one implementation on one case: what ran, the verdict, and how to repeat it."""

    schema_version: int = SCHEMA_VERSION
    check: str = Field(description="Id of the check: case, implementation, target, configuration, law")
    case: str
    group: str
    suite: str
    operator: str
    implementation: str
    variant: str
    target: str
    claim: str = Field(description="What may be said of a run on this target")
    configuration: str | None = None
    law: str | None = None
    verdict: Verdict
    kind: FailureKind | ErrorKind | None = None
    findings: list[str] = Field(default_factory=list)
    outputs: list[OutputRecord] = Field(default_factory=list)
    modes: list[str] = Field(default_factory=list, description="How it was run: direct, repeat, replay")
    budget: BudgetRecord | None = None
    waiver: str | None = None
    environment: Environment | None = None
    instructions: int | None = Field(None, description="Wave-instructions that the gfx950 executor ran")
    source_hash: str | None = None
    commit: str
    command: str = Field(description="Repeats this check")
    seconds: float
    date: str


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RecordFile:
    """A JSONL file that grows by whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Record) -> None:
        """Write one line at once, so that an interruption leaves whole lines."""
        line = (record.model_dump_json() + "\n").encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        finally:
            os.close(descriptor)

    def replace(self, records: Iterable[Record]) -> None:
        """Hold just these records, whole or not at all: what a resumed run goes on from."""
        write_whole(self.path, "".join(record.model_dump_json() + "\n" for record in records))


class BadRecordsError(ValueError):
    """A record file that cannot be read; the message names file, line and reason."""


def read_records(path: Path) -> list[Record]:
    """Every record of a file, gzip or plain; a last line cut short by a kill is left out."""
    records = []
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadRecordsError(f"{path}: not a whole gzip file: {error}") from None
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(Record.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                break
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise BadRecordsError(f"{path}:{number}: {where}: {first['msg']}") from None
    return records


def schema() -> dict[str, Any]:
    """The published JSON schema of a record."""
    return Record.model_json_schema()


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_summary(path: Path, command: str, records: Iterable[Record], exit_code: int, **more: Any) -> None:
    """The `--json` file of a command: its exit code, counts by verdict, and its records."""
    kept = list(records)
    counts = {verdict: sum(r.verdict == verdict for r in kept) for verdict in Verdict.__args__}  # type: ignore[attr-defined]
    body = {"command": command, "exit_code": exit_code, "counts": counts, **more}
    body["records"] = [json.loads(r.model_dump_json()) for r in kept]
    write_whole(path, json.dumps(body, indent=1) + "\n")
