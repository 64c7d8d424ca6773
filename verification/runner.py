"""Plan → case → target → comparison → record: the only loop there is."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from pydantic import BaseModel, NonNegativeInt, ValidationError
from torch import Tensor

from fused.boundary import Implementation
from verification.budget import FALSE_ALARM, FORMULA, RUNS, Golden, derive
from verification.comparison import Comparison, Observed, behaviour, compare, named, same_bits
from verification.fault import SOURCE, find_fault
from verification.operator import Arguments, Case, Finding, InvalidCaseError, Operator, Outputs, find_operator
from verification.plan import Candidate, Check
from verification.recognition import TOLD, recognised
from verification.records import (
    BudgetRecord,
    Environment,
    ErrorKind,
    FailureKind,
    OutputRecord,
    Record,
    Verdict,
    now,
)
from verification.targets import Target
from verification.transport import DTYPE_NAMES, Blob, read_results, scratch_folder
from verification.waivers import Waivers
from verification.worker import ROOT, Worker, WorkerError

SERVICE = "verification.execution:serve"
REMEMBERED = 4
RECOGNISED = 5
"""Failures of a run that are held against every known fault of their operator."""
VERDICTS: dict[str, Verdict] = {
    "unsupported": "unsupported", "structure": "failed", "guard": "failed", "conduct": "failed",
}  # fmt: skip
"""Verdict of a run that gave nothing to compare, by kind of problem; any other is an error."""


class Problem(Exception):
    """A run gave no result that could be compared."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Session:
    """Children, goldens and temporary files of one run; a context manager."""

    def __init__(
        self, waivers: Waivers | None = None, seconds: float | None = None, memory_bytes: int | None = None
    ) -> None:
        self.waivers = waivers or Waivers(())
        self.seconds = seconds
        self.memory_bytes = memory_bytes
        self._workers: dict[tuple[str, str], Worker] = {}
        self._goldens: OrderedDict[tuple[str, str], tuple[Arguments, Golden]] = OrderedDict()
        self._counter = itertools.count()
        self.recognitions = 0
        """Failures that have been held against the known faults."""

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        parent = Path(scratch_folder() or tempfile.gettempdir())
        for left in parent.glob("parity-*-*"):  # by a run that was killed
            owner = left.name.split("-")[1]
            if owner.isdigit() and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(left, ignore_errors=True)
        return tempfile.TemporaryDirectory(prefix=f"parity-{os.getpid()}-", dir=parent)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()
        if "_folder" in self.__dict__:
            self._folder.cleanup()

    def run(self, check: Check) -> Record:
        """One check, whatever the implementation does, as a record."""
        started = time.monotonic()
        run = _Running(self, check)
        try:
            run.law() if check.law else run.numbers()
        except Problem as problem:
            run.verdict = VERDICTS.get(problem.kind, "error")
            run.kind = None if run.verdict == "unsupported" else problem.kind
            run.findings = [str(problem)]
        record = run.record(time.monotonic() - started)
        return self.waivers.applied(record)

    def declared(self, source: Path, borrows: bool = False) -> tuple[Candidate, ...]:
        """What a candidate file declares, asked of a child; Problem where it cannot be imported.

        One that `borrows` may use the reference and our implementations: it is a fault made on purpose.
        """
        message = {"do": "describe", "source": str(source), "borrows": borrows}
        answer = self.request(_plain_target(), str(source), message)
        found = []
        for entry in answer["implementations"]:
            find_operator(entry["operator"])
            entry = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
            found.append(Candidate(Implementation(call=_never, **entry), str(source), borrows))
        return tuple(found)

    def golden(self, operator: Operator, case: Case, variant: str) -> tuple[Arguments, Golden]:
        """Arguments and golden of a case under a variant; the last few are remembered."""
        key = (case.id, variant)
        if key not in self._goldens:
            arguments = operator.arguments(case)
            try:
                golden = derive(operator, arguments, operator.variant(variant))
            except (ValueError, KeyError, TypeError, MemoryError) as error:
                raise InvalidCaseError(f"{case.id} is no case of {operator.name}: {error}") from None
            self._goldens[key] = (arguments, golden)
            if len(self._goldens) > REMEMBERED:
                self._goldens.popitem(last=False)
        self._goldens.move_to_end(key)
        return self._goldens[key]

    def request(self, target: Target, source: str, message: dict[str, Any]) -> dict[str, Any]:
        """Ask the child of this target and source; Problem where it gives no result."""
        key = (target.name, source)
        if key not in self._workers:
            self._workers[key] = Worker(SERVICE, target.environment, self.memory_bytes or target.memory_bytes)
        try:
            answer = self._workers[key].request(message, self.seconds or target.seconds)
        except WorkerError as error:
            raise Problem(error.kind, str(error)) from None
        if "problem" in answer:
            if answer["problem"] == "conduct":
                self._workers.pop(key).stop()  # nothing that the process says now can be relied on
            raise _problem(answer)
        return answer

    def execute(
        self, check: Check, arguments: Arguments, mode: str = "direct", changed: Arguments | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Run the implementation once on fresh copies of the arguments, in a child."""
        stem = Path(self._folder.name) / str(next(self._counter))
        blob = Blob.create(stem.with_suffix(".in"), arguments)
        other = Blob.create(stem.with_suffix(".changed"), changed) if changed is not None else blob
        results = stem.with_suffix(".out")
        before = blob.bytes.clone()
        try:
            answer = self.request(check.target, check.candidate.source, {
                "do": "call", "source": check.candidate.source, "borrows": check.candidate.borrows,
                "operator": check.operator.name,
                "implementation": check.candidate.declared.name, "configuration": check.configuration,
                "weights": list(check.operator.weights), "payload_of": check.operator.payload_of,
                "gives_payload": check.operator.gives_payload, "device": check.target.device, "mode": mode,
                "blob": str(blob.path), "changed": str(other.path), "results": str(results), "header": blob.header,
            })  # fmt: skip
            answer = _answered(answer)
            return _observed(check, blob, before, _results(results, answer), answer), answer
        finally:
            blob.close()
            other.close()
            results.unlink(missing_ok=True)


class _Running:
    """The state of one check while it runs."""

    def __init__(self, session: Session, check: Check) -> None:
        self.session, self.check = session, check
        self.verdict: Verdict = "passed"
        self.kind: Any = None
        self.findings: list[str] = []
        self.modes: list[str] = []
        self.comparison = Comparison()
        self.golden: Golden | None = None
        self.environment: dict[str, Any] | None = None
        self.instructions: int | None = None

    def fail(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.verdict, self.kind = "failed", self.kind or finding.check
            self.findings.append(finding.message)

    def numbers(self) -> None:
        """The judged call on fresh state; then a second call, and a graph replay, after other inputs."""
        check = self.check
        arguments, self.golden = self.session.golden(check.operator, check.case, check.candidate.declared.variant)
        first, answer = self.session.execute(check, arguments)
        self.environment, self.instructions = answer["environment"], answer["observed"].get("instructions")
        self.modes.append("direct")
        self.comparison = compare(check.operator, arguments, first, self.golden, check.target.device)
        self.fail(self.comparison.findings)
        if self.kind in TOLD:
            self._recognise(arguments, first)
        if self.findings or not any(isinstance(a, Tensor) and a.numel() for a in arguments.values()):
            return
        changed = self._changed(arguments)
        for mode in self._further_modes():
            again, _ = self.session.execute(check, arguments, mode, changed)
            self.modes.append(mode)
            self.fail(self._same(arguments, first, again, mode))
            if mode == "repeat" and not self.findings:
                self.fail(self._kept(arguments, changed, first, again))

    def _recognise(self, arguments: Arguments, first: Observed) -> None:
        """Add the known fault that gives these numbers, where one does; for the first failures, as it takes a while."""
        check, session = self.check, self.session
        if check.candidate.source == SOURCE or session.recognitions >= RECOGNISED:
            return
        session.recognitions += 1

        def run(other: Check) -> Observed | None:
            try:
                return session.execute(other, arguments)[0]
            except Problem:
                return None

        assert self.golden is not None
        if said := recognised(run, check.operator, check.case, arguments, first, self.golden):
            self.findings.append(said)

    def _further_modes(self) -> list[str]:
        replays = self.check.target.replays_graphs and self.check.candidate.declared.capturable
        return ["repeat", "replay"] if replays else ["repeat"]

    def _changed(self, arguments: Arguments) -> Arguments:
        """Other inputs of the same shape, with the same weights."""
        other = self.check.operator.arguments(replace(self.check.case, seed=self.check.case.seed + 1))
        return {n: arguments[n] if n in self.check.operator.weights else v for n, v in other.items()}

    def _same(self, arguments: Arguments, first: Observed, again: Observed, mode: str) -> list[Finding]:
        assert self.golden is not None
        what = (
            "a second call after other inputs" if mode == "repeat" else "a graph captured on other inputs and replayed"
        )
        if findings := behaviour(self.check.operator, again, self.golden, self.check.target.device):
            return [Finding(f.check, f"{what}: {f.message}") for f in findings]
        if not self.check.candidate.declared.deterministic:
            findings = compare(self.check.operator, arguments, again, self.golden, self.check.target.device).findings
            return [Finding(f.check, f"{what}: {f.message}") for f in findings]
        operator = self.check.operator
        before, after = named(operator, first, self.golden), named(operator, again, self.golden)
        for name, value in before.items():
            different = ~same_bits(value, after[name])
            mask = operator.compared(name, arguments, before) if operator.compared else None
            different = different if mask is None else different & mask
            if different.any():
                return [
                    Finding(
                        "determinism",
                        f"{name}: {int(different.sum())} of {value.numel()} elements differ between the first call "
                        f"and {what}: stale state, a race, or an input that was frozen",
                    )
                ]
        return []

    def _kept(self, arguments: Arguments, changed: Arguments, first: Observed, again: Observed) -> list[Finding]:
        """Whether calls were answered with results of earlier ones."""
        if first.operations[0] and again.operations[0] and not again.operations[1]:
            return [
                Finding(
                    "determinism",
                    f"the first call ran {first.operations[0]} operations and a later one on the same inputs none: "
                    "it returned a result that it had kept",
                )
            ]
        if not any(map(_share_rows, first.results, again.earlier)) or _alike(arguments, changed):
            return []
        # Rows that two inputs share may be right, or of an earlier call: their own golden decides.
        operator, variant = self.check.operator, self.check.candidate.declared.variant
        golden = derive(operator, changed, operator.variant(variant))
        if operator.in_place:
            observed, _ = self.session.execute(self.check, changed)
        else:
            observed = Observed(again.earlier, first.devices, first.dtypes, {})
        findings = compare(operator, changed, observed, golden, self.check.target.device).findings
        return [Finding("determinism", f"a call on other inputs gave rows of an earlier one: {f.message}")
                for f in findings]  # fmt: skip

    def law(self) -> None:
        """Everything that breaks the law, on the case's own arguments."""
        assert self.check.law is not None
        self.modes.append("law")
        claim = self.check.law.claim
        try:
            self.fail(Finding("law", f"{claim} {broken}") for broken in self.check.law.check(_LawContext(self)))
        except (RuntimeError, IndexError) as error:  # what an implementation returns may not fit together
            self.fail([Finding("law", f"{claim} Results of its calls do not fit together: {error}")])

    def record(self, seconds: float) -> Record:
        check, declared = self.check, self.check.candidate.declared
        return Record(
            check=check.id, case=check.case.id, group=check.group, suite=check.suite, operator=check.operator.name,
            implementation=declared.name, variant=declared.variant, target=check.target.name,
            claim=check.target.describes, configuration=check.configuration,
            law=check.law.name if check.law else None, verdict=self.verdict, kind=self.kind, findings=self.findings,
            outputs=[OutputRecord.model_validate(asdict(m)) for m in self.comparison.metrics],
            modes=self.modes, budget=_provenance(self.golden),
            environment=Environment(**self.environment) if self.environment else None,
            instructions=self.instructions, source_hash=current_hash(check),
            commit=commit(), command=check.command, seconds=round(seconds, 3), date=now(),
        )  # fmt: skip


class _LawContext:
    """What a law sees: arguments and calls of the implementation under test, nothing of the harness."""

    def __init__(self, running: _Running) -> None:
        self._running = running
        self.operator, self.case = running.check.operator, running.check.case
        self.implementation = running.check.candidate.declared.name
        self.batch_invariant = running.check.candidate.declared.batch_invariant
        self.variant = self.operator.variant(running.check.candidate.declared.variant)

    def arguments(self) -> Arguments:
        """The case's arguments, made anew."""
        return self.operator.arguments(self.case)

    def call(self, arguments: Arguments) -> Outputs:
        """Results by name; in-place arguments as they are afterwards."""
        observed = self._observe(arguments)
        if touched := [*observed.damages, *(f"{name} was changed" for name in observed.changed_inputs)]:
            raise Problem("guard", "; ".join(touched))
        returned = [o.name for o in self.operator.outputs if o.argument is None]
        if len(returned) != len(observed.results):
            raise Problem("structure", f"returned {len(observed.results)} tensors; expected {len(returned)}")
        return dict(zip(returned, observed.results, strict=True)) | {
            o.name: observed.in_place[o.argument] for o in self.operator.outputs if o.argument in observed.in_place
        }

    def judge(self, arguments: Arguments | None = None, outputs: Outputs | None = None) -> list[str]:
        """What a comparison finds in the results on these arguments, or in those outputs, against their golden.

        Without arguments: on the case's own, whose golden is at hand.
        """
        if arguments is None:
            arguments, golden = self._running.session.golden(self.operator, self.case, self.variant.name)
        else:
            golden = derive(self.operator, arguments, self.variant)
        device = self._running.check.target.device
        observed = self._observe(arguments) if outputs is None else _as_observed(self.operator, outputs, device)
        return [f.message for f in compare(self.operator, arguments, observed, golden, device).findings]

    def _observe(self, arguments: Arguments) -> Observed:
        observed, answer = self._running.session.execute(self._running.check, arguments)
        self._running.environment = answer["environment"]
        return observed


def _as_observed(operator: Operator, outputs: Outputs, device: str) -> Observed:
    """Outputs by name as if a run had given them."""
    results = [outputs[o.name] for o in operator.outputs if o.argument is None]
    carried = {o.argument: outputs[o.name] for o in operator.outputs if o.argument is not None and o.name in outputs}
    return Observed(results, [device] * len(results), [DTYPE_NAMES[x.dtype] for x in results], carried)


def _share_rows(a: Tensor, b: Tensor) -> bool:
    """Whether some row has the same bits in both, and is not one value throughout."""
    if a.shape != b.shape or a.dtype != b.dtype or not a.numel() or not a.dim():
        return False
    ours, theirs = (x.reshape(-1, x.shape[-1]) for x in (a, b))
    equal = same_bits(ours, theirs).all(1)
    return bool((equal & ~same_bits(ours, ours[:, :1].expand_as(ours)).all(1)).any())


def _alike(a: Arguments, b: Arguments) -> bool:
    return all(bool(same_bits(x, b[n]).all()) for n, x in a.items() if isinstance(x, Tensor) and x.shape == b[n].shape)


class _Result(BaseModel):
    """A result as the child describes it."""

    dtype: str
    shape: list[NonNegativeInt]
    device: str
    position: NonNegativeInt
    nbytes: NonNegativeInt


class _Answer(BaseModel):
    """What a child says of a call, which it may have forged: it is judged like any input."""

    results: list[_Result]
    earlier: list[_Result]
    operations: list[NonNegativeInt]
    damages: list[str]
    environment: Environment
    observed: dict[str, Any]


def _answered(answer: dict[str, Any]) -> dict[str, Any]:
    try:
        return _Answer.model_validate(answer, strict=True).model_dump()
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise Problem("crash", f"the child's answer is none: {place}: {error.errors()[0]['msg']}") from None


def _problem(answer: dict[str, Any]) -> Problem:
    kind, message = answer["problem"], answer.get("message")
    if kind in ("unsupported", *get_args(FailureKind), *get_args(ErrorKind)) and isinstance(message, str):
        return Problem(kind, message)
    return Problem("crash", f"the child's answer names no problem: {str(kind)[:60]!r}")


def _results(path: Path, answer: dict[str, Any]) -> list[Tensor]:
    try:
        return read_results(path, [*answer["results"], *answer["earlier"]])
    except ValueError as error:
        raise Problem("crash", f"the child's results cannot be read: {error}") from None


def _observed(check: Check, blob: Blob, before: Tensor, results: list[Tensor], answer: dict[str, Any]) -> Observed:
    after = {name: value.clone() for name, value in blob.arguments().items() if isinstance(value, Tensor)}
    in_place = {name: after[name] for name in check.operator.in_place if name in after}
    # What an implementation may write are the views of its in-place arguments, and no byte beside them.
    expected = before
    views = blob.arguments(expected)
    for name, value in in_place.items():
        views[name].copy_(value)
    changed = {}
    for name, spec in blob.header["tensors"].items():
        start, nbytes = blob.header["storages"][spec["storage"]]
        count = int((blob.bytes[start : start + nbytes] != expected[start : start + nbytes]).sum())
        if count:
            changed[name] = count
    damages = list(answer["damages"])
    for index, count in blob.broken_zones().items():
        owners = [n for n, spec in blob.header["tensors"].items() if spec["storage"] == index]
        damages.append(f"{count} bytes beside the memory of {', '.join(owners)} were written")
    returned = len(answer["results"])
    return Observed(
        results[:returned],
        [r["device"] for r in answer["results"]],
        [r["dtype"] for r in answer["results"]],
        in_place,
        changed,
        damages,
        results[returned:],
        answer["operations"],
    )


def _provenance(golden: Golden | None) -> BudgetRecord | None:
    if golden is None or not golden.budgets:
        return None
    return BudgetRecord(formula=FORMULA, runs=RUNS, factor=golden.factor, false_alarm=FALSE_ALARM)


def _plain_target() -> Target:
    from verification.targets import targets

    return targets()["interpreter"]


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("candidate code runs only in a child")


def current_hash(check: Check) -> str | None:
    """SHA-256 of the file that holds the implementation: which code a verdict is about."""
    source, declared = check.candidate.source, check.candidate.declared
    if source == SOURCE:
        path = find_fault(declared.operator, declared.name).path
    else:
        path = Path(inspect.getfile(declared.call) if source == "builtin" else source)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else None


@cache
def commit() -> str:
    """The commit of this checkout, `+` where it has changes; outside one PARITY_COMMIT, else `unknown`."""
    try:

        def git(*words: str) -> str:
            return subprocess.run(
                ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
            ).stdout.strip()

        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("PARITY_COMMIT", "unknown")
