"""Compiled kernels with one instruction deleted or changed: how many of them a comparison notices."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verification.budget import Golden, derive
from verification.comparison import Observed, compare
from verification.execution import run_of
from verification.gfx950 import Models, executor
from verification.gfx950.build import handler_numbers
from verification.gfx950.encoding import Program
from verification.gfx950.instructions import instructions
from verification.gfx950.machine import ExecutionError
from verification.gfx950.operands import CONSTANT, IN_VGPR
from verification.operator import Arguments, Operator, find_operator, implementations, parse_case
from verification.transport import DTYPE_NAMES

CASES = {
    "rms_norm": "rms_norm/rows=3,hidden=1000/bf16/normal/0",
    "attention_residual": "attention_residual/rows=3,hidden=1024,blocks=3,write=yes/bf16/normal/0",
    "route": "route/rows=3/fp32/normal/0",
}
"""One case a kernel: an operator's `triton` implementation on it."""

ORDER = frozenset({"s_nop", "s_waitcnt", "s_barrier", "buffer_wbl2", "buffer_inv", "s_setprio", "s_sleep"})
"""Instructions that only order others in time."""


@dataclass(frozen=True)
class Mutant:
    """What was done to which instruction, and what came of it: noticed, order, equal or within."""

    line: int
    text: str
    change: str
    outcome: str
    told: str


def mutate(name: str, count: int = 200, seed: int = 1) -> list[Mutant]:
    """Seeded mutants of an operator's Triton kernel, each judged on one case in the derived budgets.

    `noticed`: an error, or a comparison that fails. Unnoticed: `order`, an instruction that only waits;
    `equal`, the same bits came out (the instruction is redundant on this case); `within`, other bits
    inside the budget. Instruction limit: twice the clean run.
    """
    operator, case = find_operator(name), parse_case(CASES[name])
    run = _Run(operator, operator.arguments(case))
    clean, program, outcome = run.clean()
    executed = np.flatnonzero(outcome.counts > 0)
    random = np.random.Generator(np.random.Philox(seed))
    limits = replace(Models(), instruction_limit=2 * outcome.executed)
    found = []
    for index in random.choice(executed, size=count, replace=count > len(executed)).tolist():
        mutated, change = _changed(program, index, random)
        verdict, told = run.judge(mutated, limits, clean)
        line = program.listing.lines[index]
        if verdict != "noticed" and line.opcode in ORDER:
            verdict = "order"
        found.append(Mutant(line.number, line.text, change, verdict, told))
    return found


def summary(mutants: list[Mutant]) -> Counter[str]:
    """How many of each outcome."""
    return Counter(mutant.outcome for mutant in mutants)


class _Run:
    def __init__(self, operator: Operator, arguments: Arguments) -> None:
        self.operator, self.arguments = operator, arguments
        self.golden: Golden = derive(operator, arguments, operator.variant("official"))

    def clean(self) -> tuple[Observed, Program, Any]:
        programs: list[Program] = []
        observed, session = self._execute(Models(), lambda launch: programs.append(launch.program))
        assert compare(self.operator, self.arguments, observed, self.golden, "cpu").findings == []
        return observed, programs[-1], session.launches[-1].outcome

    def judge(self, program: Program, models: Models, clean: Observed) -> tuple[str, str]:
        try:
            observed, _ = self._execute(models, lambda launch: setattr(launch, "program", program))
        except ExecutionError as error:
            return "noticed", error.kind
        findings = compare(self.operator, self.arguments, observed, self.golden, "cpu").findings
        if findings:
            return "noticed", findings[0].check
        return ("equal" if _same(observed, clean) else "within"), ""

    def _execute(self, models: Models, observe: Any) -> tuple[Observed, Any]:
        arguments = _cloned(self.arguments)
        run = run_of(self.operator, implementations()[self.operator.name, "triton"])
        # Run poisons allocations: what a mutant leaves unwritten must not hold an earlier run's answer.
        with executor(models) as session:
            session.observe = observe
            results = run.direct(arguments)
        touched = {name: arguments[name] for name in self.operator.in_place if arguments.get(name) is not None}
        observed = Observed(results=results, devices=["cpu"] * len(results),
                            dtypes=[DTYPE_NAMES[x.dtype] for x in results], in_place=touched)  # fmt: skip
        return observed, session


def _cloned(arguments: Arguments) -> Arguments:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in arguments.items()}


def _same(a: Observed, b: Observed) -> bool:
    ours, theirs = ([*one.results, *one.in_place.values()] for one in (a, b))
    return all(
        torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for x, y in zip(ours, theirs, strict=True)
    )


# ── changes ─────────────────────────────────────────────────────────────────


def _changed(program: Program, index: int, random: np.random.Generator) -> tuple[Program, str]:
    """The program with an instruction deleted, given another opcode of its form, or another operand."""
    mutated = copy.copy(program)
    mutated.code = program.code.copy()
    one = mutated.code[index]
    ways = [way for way in (_other_opcode, _other_operand) if random.random() < 0.5]
    for way in ways:
        if told := way(one, program, index, random):
            return mutated, told
    one["handler"] = handler_numbers()["s_nop"]
    return mutated, "deleted"


def _other_opcode(one: Any, program: Program, index: int, random: np.random.Generator) -> str | None:
    table = instructions()
    name = next((name for name in _spellings(program.listing.lines[index].opcode) if name in table), None)
    if name is None or table[name].form not in ("plain", "packed"):
        return None
    row = table[name]
    alike = [
        other.name
        for other in table.values()
        if (other.form, other.results, other.sources) == (row.form, row.results, row.sources) and other is not row
    ]
    if not alike:
        return None
    chosen = alike[int(random.integers(len(alike)))]
    one["handler"] = handler_numbers()[chosen]
    return f"now {chosen}"


def _other_operand(one: Any, program: Program, index: int, random: np.random.Generator) -> str | None:
    for k in random.permutation(3).tolist():
        source = one["source"][k]
        if source["where"] == CONSTANT and program.listing.lines[index].operands:
            source["value"] ^= 1
            return f"source {k}: another constant"
        if source["where"] == IN_VGPR and source["width"] == 1 and source["reg"] ^ 1 < program.vgprs:
            source["reg"] ^= 1
            return f"source {k}: the neighbouring register"
    return None


def _spellings(opcode: str) -> Iterator[str]:
    yield opcode
    for suffix in ("_e32", "_e64", "_dpp", "_sdwa"):
        yield opcode.removesuffix(suffix)
