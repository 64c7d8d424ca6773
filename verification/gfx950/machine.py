"""One launch: state as the kernel declares it, execution, and faults with their names."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from verification.gfx950.build import library
from verification.gfx950.encoding import INSTRUCTION, OPERAND, Program
from verification.gfx950.memory import Reach, live_tensor_at, merged
from verification.gfx950.models import RESIDENT, Models

LDS_LIMIT = 160 * 1024
USER_REGISTERS = tuple((f"user_sgpr_{name}", words) for name, words in (
    ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2), ("dispatch_id", 2), ("private_segment_size", 1)
))  # fmt: skip
ID_REGISTERS = tuple(f"system_sgpr_workgroup_id_{axis}" for axis in "xyz")


class Range(ctypes.Structure):
    """Field by field the Range of machine.h."""

    _fields_ = [("start", ctypes.c_uint64), ("end", ctypes.c_uint64), ("writable", ctypes.c_uint32),
                ("tensor", ctypes.c_uint32)]  # fmt: skip


class Launch(ctypes.Structure):
    """Field by field the Launch of machine.h."""

    _fields_ = [
        ("code", ctypes.c_void_p), ("code_count", ctypes.c_uint64), ("lanes", ctypes.c_void_p),
        ("ranges", ctypes.c_void_p), ("range_count", ctypes.c_uint64), ("grid", ctypes.c_uint64 * 3),
        ("waves", ctypes.c_uint32), ("vgprs", ctypes.c_uint32), ("lds_bytes", ctypes.c_uint32),
        ("scratch_bytes", ctypes.c_uint32), ("user_sgprs", ctypes.c_uint32), ("id_sgprs", ctypes.c_uint32 * 3),
        ("sgpr_values", ctypes.c_uint32 * 32), ("seed", ctypes.c_uint64), ("quantum", ctypes.c_uint64),
        ("limit", ctypes.c_uint64), ("resident_limit", ctypes.c_uint64), ("transcendental", ctypes.c_uint32),
        ("matrix", ctypes.c_uint32), ("early", ctypes.c_uint32), ("saturate", ctypes.c_uint32),
        ("first_group", ctypes.c_uint64), ("group_step", ctypes.c_uint64), ("group_count", ctypes.c_uint64),
        ("order_step", ctypes.c_uint64), ("order_first", ctypes.c_uint64), ("counts", ctypes.c_void_p),
        ("executed", ctypes.c_uint64), ("writes", ctypes.c_uint64), ("clock", ctypes.c_uint64),
        ("fault", ctypes.c_uint32), ("fault_pc", ctypes.c_uint32), ("fault_wave", ctypes.c_uint32),
        ("fault_lane", ctypes.c_uint32), ("fault_bytes", ctypes.c_uint32), ("fault_store", ctypes.c_uint32),
        ("fault_group", ctypes.c_uint64), ("fault_address", ctypes.c_uint64), ("started", ctypes.c_uint64),
        ("resident", ctypes.c_void_p), ("free_groups", ctypes.c_void_p), ("resident_count", ctypes.c_uint64),
        ("last_range", ctypes.c_uint64), ("random", ctypes.c_uint64),
    ]  # fmt: skip


class ExecutionError(RuntimeError):
    """A kernel did what it must not: the message names kernel, workgroup, wave, lane, instruction, tensor."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


FAULTS = ("", "global access", "LDS access", "scratch access", "deadlock", "instruction limit", "trap", "unsupported",
          "memory")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What a launch did: wave-instructions, and the executions of each instruction."""

    executed: int
    counts: Any


@dataclass
class Grid:
    """What to run: a program with its arguments in memory."""

    program: Program
    grid: tuple[int, int, int]
    waves: int
    lds_bytes: int
    kernarg: bytes
    tensors: Sequence[Reach]
    pointers: bool = False
    """Whether memory may hold addresses of further tensors (a table of pointers is an argument)."""
    others: list[Reach] = field(default_factory=list)


def run(launch: Grid, models: Models) -> Outcome:
    """Execute; raises ExecutionError."""
    native = _native()
    # A copy with room behind: 16-byte scalar loads of the last arguments may read past their end.
    kernarg = ctypes.create_string_buffer(launch.kernarg, len(launch.kernarg) + 64)
    counts = np.zeros(len(launch.program.code), np.uint64)
    start = ctypes.addressof(kernarg)
    state, own = _state(launch, models, start, counts), (start, start + len(kernarg), 0, 0)
    try:
        while True:
            ranges = _ranges([*launch.tensors, *launch.others], own)
            state.ranges, state.range_count, state.last_range = ctypes.addressof(ranges), len(ranges), 0
            fault = native.run_launch(ctypes.byref(state))
            if not fault:
                return Outcome(state.executed, counts)
            found = _pointed_at(launch, state) if FAULTS[fault] == "global access" else None
            if found is None:
                raise ExecutionError(FAULTS[fault], _message(launch, state, native))
            launch.others.append(found)
    finally:
        native.end_launch(ctypes.byref(state))


@cache
def _native() -> ctypes.CDLL:
    native = library()
    native.layout.restype = ctypes.c_uint64
    sizes = [native.layout(which) for which in range(4)]
    expected = [OPERAND.itemsize, INSTRUCTION.itemsize, ctypes.sizeof(Launch), ctypes.sizeof(Range)]
    assert sizes == expected, (sizes, expected)
    native.list_waves.restype = ctypes.c_uint64
    return native


def _state(launch: Grid, models: Models, kernarg: int, counts: Any) -> Launch:
    program, declared = launch.program, launch.program.listing.directives
    total = math.prod(launch.grid)
    count = min(total, models.sample or total)
    step, first = _order(count, models.seed)
    code, lanes = program.addresses
    user, ids, values = _registers(declared, kernarg)
    return Launch(
        code=code, code_count=len(program.code), lanes=lanes, grid=launch.grid,
        waves=launch.waves, vgprs=program.vgprs, lds_bytes=launch.lds_bytes,
        scratch_bytes=declared.get("private_segment_fixed_size", 0), user_sgprs=user, id_sgprs=ids, sgpr_values=values,
        seed=models.seed, random=models.seed, quantum=64 if models.seed else models.quantum,
        limit=models.instruction_limit, resident_limit=RESIDENT, transcendental=models.transcendental == "one_ulp",
        matrix=models.matrix == "chained", early=models.completion == "early",
        saturate=declared.get("fp16_overflow", 0), group_count=count, group_step=total // max(count, 1),
        order_step=step, order_first=first, counts=ctypes.addressof(ctypes.c_char.from_buffer(counts)),
    )  # fmt: skip


def _registers(declared: dict[str, int], kernarg: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """User SGPRs in the order in which the directives enable them, and what they hold; the workgroup's ids follow."""
    if declared.get("next_free_sgpr", 0) > 106:
        raise ExecutionError("unsupported", "more scalar registers than there are")
    values: list[int] = []
    for name, words in USER_REGISTERS:
        if declared.get(name):
            held = name == "user_sgpr_kernarg_segment_ptr"
            values += (kernarg & 0xFFFFFFFF, kernarg >> 32) if held else (0,) * words
    # The prologue loads what hardware would preload; both entries are equal, and this one reads memory.
    position = user = declared.get("user_sgpr_count", len(values))
    ids = []
    for name in ID_REGISTERS:
        enabled = declared.get(name, 0)
        ids.append(position if enabled else 255)
        position += enabled
    return user, tuple(ids), tuple(values)


def _order(count: int, seed: int) -> tuple[int, int]:
    """An affine permutation of the workgroups: the identity for seed 0."""
    if not seed or count < 2:
        return 1, 0
    step = seed * 2654435761 % count or 1
    while math.gcd(step, count) != 1:
        step = step % count + 1
    return step, seed % count


def _ranges(reaches: Sequence[Reach], own: tuple[int, int, int, int]) -> Any:
    """Tensors may be read and written, the kernel's arguments only read."""
    rows = sorted([own, *((start, end, 1, 0) for start, end in merged(reaches))])
    return (Range * len(rows))(*(Range(*row) for row in rows))


def _pointed_at(launch: Grid, state: Launch) -> Reach | None:
    return live_tensor_at(state.fault_address, state.fault_bytes) if launch.pointers else None


# ── messages ────────────────────────────────────────────────────────────────


def _message(launch: Grid, state: Launch, native: ctypes.CDLL) -> str:
    kind = FAULTS[state.fault]
    listing = launch.program.listing
    line = listing.lines[min(state.fault_pc, len(listing.lines) - 1)]
    group = np.unravel_index(int(state.fault_group), launch.grid[::-1])[::-1]
    place = f"{listing.name}, workgroup {tuple(map(int, group))}, wave {state.fault_wave}"
    code = f"{line.text!r} (assembly line {line.number}{', ' + line.source if line.source else ''})"
    if kind.endswith("access"):
        what = "a store" if state.fault_store else "a load"
        where = {
            "global access": lambda: _named_address(launch, state),
            "LDS access": lambda: f"LDS byte {state.fault_address} of {launch.lds_bytes}",
            "scratch access": lambda: f"scratch byte {state.fault_address} of {state.scratch_bytes}",
        }[kind]()
        return f"{place}, lane {state.fault_lane}: {what} of {state.fault_bytes} bytes at {where} by {code}"
    if kind == "deadlock":
        return f"{listing.name}: deadlock: {_waiting(launch, state, native)}"
    if kind == "instruction limit":
        return f"{place}: more than {state.limit} wave-instructions; it was at {code}"
    if kind == "unsupported":
        return f"{place}: {code} is used in a way that is not modelled"
    return f"{place}: {kind} at {code}"


def _named_address(launch: Grid, state: Launch) -> str:
    address = int(state.fault_address)
    known = [*launch.tensors, *launch.others]
    if not known:
        return f"address {address:#x}; the kernel was given no tensor"
    near = min(known, key=lambda reach: max(reach.start - address, address - reach.end + 1, 0))
    if near.start <= address < near.end:
        side = "across the end of"
    else:
        side = (
            f"{near.start - address} bytes before"
            if address < near.start
            else f"{address - near.end} bytes past the end of"
        )
    return f"{side} {near.name} {list(near.shape)} (index {near.index(address)})"


def _waiting(launch: Grid, state: Launch, native: ctypes.CDLL) -> str:
    rows = np.zeros((64, 4), np.uint64)
    count = native.list_waves(ctypes.byref(state), rows.ctypes.data_as(ctypes.c_void_p), 64)
    texts = []
    lines = launch.program.listing.lines
    for group, wave, pc, condition in rows[:count].tolist()[:6]:
        if condition == 2:
            continue
        line = lines[min(pc, len(lines) - 1)]
        how = "waits at a barrier before" if condition == 1 else "spins at"
        texts.append(f"workgroup {group} wave {wave} {how} {line.text!r} (line {line.number})")
    more = f" and {count - len(texts)} more" if count > len(texts) else ""
    return f"no wave can go on, nothing was written since: {'; '.join(texts)}{more}"
