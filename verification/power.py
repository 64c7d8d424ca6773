"""Detection power: every fault tried, every right implementation judged, over several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

import numpy as np

from reference.numerics import Variant
from verification.detection import HINTS, Detection, detect, read_hints, trials
from verification.fault import Fault, faults, find_fault
from verification.operator import Case, Operator, find_operator
from verification.records import write_whole
from verification.runner import Session
from verification.sound import Alarm, judge

CALL_SECONDS = 30.0
"""How long a faulty call may hang."""


@dataclass(frozen=True)
class Job:
    """One operator's part: its faults, and on how many cases right implementations are judged."""

    operator: str
    faults: tuple[str, ...]
    suite: str
    target: str | None
    right: int | None
    """Cases an operator, drawn by the seed; None for all."""
    seed: int


@dataclass
class Power:
    """What a measurement came to."""

    detections: list[Detection] = field(default_factory=list)
    comparisons: dict[str, int] = field(default_factory=dict)
    """Comparisons of right implementations, by operator."""
    alarms: list[Alarm] = field(default_factory=list)
    defects: dict[str, str] = field(default_factory=dict)
    """What went wrong with the measurement itself, by operator."""
    planned: int = 0
    interrupted: bool = False

    @property
    def missed(self) -> list[Detection]:
        """Faults that no check noticed."""
        return [d for d in self.detections if d.missed]

    @property
    def broken(self) -> list[Detection]:
        """Faults that could not be run."""
        return [d for d in self.detections if d.broken]

    @property
    def held(self) -> bool:
        """Whether every fault was noticed and no right implementation raised an alarm."""
        return not (self.missed or self.broken or self.alarms or self.defects)


def sampled(some: list[Fault], count: int | None, seed: int) -> list[Fault]:
    """`count` of the faults, drawn by the seed; all of them without a count."""
    if count is None or count >= len(some):
        return some
    drawn = np.random.Generator(np.random.Philox(seed)).permutation(len(some))[:count]
    return [some[i] for i in sorted(drawn)]


def jobs(some: Iterable[Fault], suite: str, target: str | None, right: int | None, seed: int) -> list[Job]:
    """A job an operator, the largest first."""
    by_operator: dict[str, list[str]] = {}
    for fault in some:
        by_operator.setdefault(fault.operator, []).append(fault.name)
    made = [Job(operator, tuple(names), suite, target, right, seed) for operator, names in by_operator.items()]
    return sorted(made, key=lambda job: -len(job.faults))


def measure(work: list[Job], processes: int, advance: Callable[[Job], None] = lambda job: None) -> Power:
    """All jobs, in so many processes; ctrl-C ends it with what was done."""
    power = Power(planned=len(work))
    if processes == 1:
        results: Iterator[Result] = map(perform, work)
        return _gathered(power, results, advance)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _started) as pool:
        futures: list[Future[Result]] = [pool.submit(perform, job) for job in work]
        try:
            return _gathered(power, (future.result() for future in as_completed(futures)), advance)
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Result:
    """What came of a job."""

    job: Job
    detections: tuple[Detection, ...]
    comparisons: int = 0
    alarms: tuple[Alarm, ...] = ()
    defect: str = ""
    """What in the measurement itself went wrong."""


def perform(job: Job) -> Result:
    """One operator's faults, each until a check notices it, then its right implementations."""
    try:
        return _performed(job)
    except Exception:  # what other operators came to is not lost by it
        return Result(job, (), defect=traceback.format_exc())


def _performed(job: Job) -> Result:
    with Session(seconds=CALL_SECONDS) as session:
        tried = trials([find_fault(job.operator, name) for name in job.faults], job.target)
        found = tuple(detect(session, tried, job.suite)) if tried else ()
    judged = [judge(operator, case, variant) for operator, case, variant in right_cases(job)]
    return Result(job, found, sum(j.comparisons for j in judged), tuple(a for j in judged for a in j.alarms))


def right_cases(job: Job) -> list[tuple[Operator, Case, Variant]]:
    """The job's cases for right implementations: with the seed as their own, under every variant."""
    operator = find_operator(job.operator)
    cases = [replace(case, seed=job.seed) for group, case in operator.cases(job.suite) if not group.targets]
    pairs = [(operator, case, variant) for case in cases for variant in operator.variants]
    if job.right is None or job.right >= len(pairs):
        return pairs
    drawn = np.random.Generator(np.random.Philox(job.seed)).permutation(len(pairs))[: job.right]
    return [pairs[i] for i in sorted(drawn)]


def _gathered(power: Power, results: Iterator[Result], advance: Callable[[Job], None]) -> Power:
    try:
        for result in results:
            power.detections += result.detections
            power.alarms += result.alarms
            power.comparisons[result.job.operator] = result.comparisons
            if result.defect:
                power.defects[result.job.operator] = result.defect
            advance(result.job)
    except KeyboardInterrupt:
        power.interrupted = True
    power.detections.sort(key=lambda d: d.fault)
    return power


def _started() -> None:
    # The processes share the cores: one thread each.
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)


def remember(power: Power) -> None:
    """Write down what noticed each fault, for the next run to try first; faults that were not tried keep theirs."""
    hints = {name: check for name, check in read_hints().items() if name in faults()}
    hints |= {d.fault: d.check for d in power.detections if d.check is not None}
    write_whole(HINTS, json.dumps(dict(sorted(hints.items())), indent=1) + "\n")
