# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import FORMATS, sum_bound
from verification.gfx950.conformance.seeded import NAMES, integers, normal, words

TILE = 256


@triton.jit
def update_kernel(x_ptr, slot_ptr, y_ptr, count, OP: tl.constexpr, TILE: tl.constexpr):
    """Each element into its slot by one atomic operation."""
    index = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside)
    target = y_ptr + tl.load(slot_ptr + index, mask=inside, other=0)
    if OP == "add":
        tl.atomic_add(target, x, mask=inside, sem="relaxed")
    elif OP == "max":
        tl.atomic_max(target, x, mask=inside, sem="relaxed")
    elif OP == "min":
        tl.atomic_min(target, x, mask=inside, sem="acq_rel")
    elif OP == "and":
        tl.atomic_and(target, x, mask=inside, sem="relaxed")
    elif OP == "or":
        tl.atomic_or(target, x, mask=inside, sem="release")
    else:
        tl.atomic_xor(target, x, mask=inside, sem="relaxed")


@triton.jit
def exchange_kernel(x_ptr, y_ptr, old_ptr, count, OP: tl.constexpr, TILE: tl.constexpr):
    """A slot for each element alone: what was there comes back."""
    index = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside)
    if OP == "exchange":
        old = tl.atomic_xchg(y_ptr + index, x, mask=inside)
    else:
        old = tl.atomic_add(y_ptr + index, x, mask=inside)
    tl.store(old_ptr + index, old, mask=inside)


@triton.jit
def ticket_kernel(counter_ptr, ticket_ptr, STEP: tl.constexpr):
    """Every program draws a ticket and marks it as drawn."""
    ticket = tl.atomic_add(counter_ptr, STEP)
    tl.store(ticket_ptr + ticket // STEP, 1)


@triton.jit
def swap_kernel(counter_ptr, maximum_ptr, x_ptr, count, STRIDE: tl.constexpr):
    """A counter and a maximum kept by compare and swap, tried again until it takes."""
    for i in range(tl.program_id(0), count, STRIDE):
        x = tl.load(x_ptr + i)
        old = tl.load(counter_ptr, volatile=True)
        seen = tl.atomic_cas(counter_ptr, old, old + 1)
        while seen != old:
            old = seen
            seen = tl.atomic_cas(counter_ptr, old, old + 1)
        tl.atomic_max(maximum_ptr, x)


@triton.jit
def lock_kernel(lock_ptr, x_ptr, y_ptr, N: tl.constexpr):
    """A sum behind a spin lock: plain loads and stores, ordered by the lock alone."""
    column = tl.arange(0, N)
    x = tl.load(x_ptr + tl.program_id(0) * N + column)
    while tl.atomic_cas(lock_ptr, 0, 1, sem="acquire") == 1:
        pass
    y = tl.load(y_ptr + column, cache_modifier=".cg")
    tl.store(y_ptr + column, x + y)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0, sem="release")


@triton.jit
def last_arriver_kernel(x_ptr, part_ptr, counter_ptr, y_ptr, N: tl.constexpr, PROGRAMS: tl.constexpr):
    """Partial sums; whoever arrives last adds them."""
    program = tl.program_id(0)
    part = tl.sum(tl.load(x_ptr + program * N + tl.arange(0, N)), axis=0)
    tl.store(part_ptr + program, part)
    tl.debug_barrier()
    arrived = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
    if arrived == PROGRAMS - 1:
        parts = tl.load(part_ptr + tl.arange(0, PROGRAMS), cache_modifier=".cg")
        tl.store(y_ptr, tl.sum(parts, axis=0))


@triton.jit
def barrier_kernel(x_ptr, part_ptr, counter_ptr, y_ptr, N: tl.constexpr, PROGRAMS: tl.constexpr):
    """Two phases with a barrier of the whole grid between them: y = x - the sum of all of x."""
    program = tl.program_id(0)
    x = tl.load(x_ptr + program * N + tl.arange(0, N))
    tl.store(part_ptr + program, tl.sum(x, axis=0))
    tl.debug_barrier()
    tl.atomic_add(counter_ptr, 1, sem="release")
    while tl.atomic_add(counter_ptr, 0, sem="acquire") < PROGRAMS:
        pass
    tl.debug_barrier()
    parts = tl.load(part_ptr + tl.arange(0, PROGRAMS), cache_modifier=".cg")
    tl.store(y_ptr + program * N + tl.arange(0, N), x - tl.sum(parts, axis=0))


BITS = {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}


def _start(op: str, dtype: torch.dtype, slots: int) -> Tensor:
    value = {"max": -1000, "min": 1000, "and": -1}.get(op, 0)
    return torch.full((slots,), value, dtype=dtype)


def _updated(op: str, x: Tensor, slot: Tensor, y: Tensor) -> Expected:
    if y.dtype.is_floating_point and op == "add":
        count = int(torch.bincount(slot.long()).max())
        zeros = torch.zeros(len(y), dtype=torch.float64)
        value, total = (zeros.scatter_add(0, slot.long(), part) for part in (x.double(), x.double().abs()))
        form = FORMATS[y.dtype]
        return Expected(value, sum_bound(total, count + 1, form.unit) + count * form.subnormal)
    if op in ("add", "max", "min"):
        reduce = {"add": "sum", "max": "amax", "min": "amin"}[op]
        return Expected(y.scatter_reduce(0, slot.long(), x, reduce))
    for at, value in zip(slot.tolist(), x, strict=True):
        y[at] = BITS[op](y[at], value)
    return Expected(y)


def _update(op: str, dtype: torch.dtype, count: int, slots: int, warps: int) -> Program:
    name = f"atomics/{op}/{NAMES[dtype]}/{count}-into-{slots}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        if dtype.is_floating_point:
            x = normal(name, (count,), dtype)
        else:
            x = words(name, (count,), dtype) if op in BITS else integers(name, (count,), -900, 900, dtype)
        return {"x": x, "slot": integers(name + "slot", (count,), 0, slots)}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = _start(op, dtype, slots).to(inputs["x"].device)
        update_kernel[(triton.cdiv(count, TILE),)](
            inputs["x"], inputs["slot"], y, count, OP=op, TILE=TILE, num_warps=warps
        )
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": _updated(op, inputs["x"], inputs["slot"], _start(op, dtype, slots))}

    signed = op in ("max", "min") and not dtype.is_floating_point
    fault = "it reduces signed values that meet in a wave by an unsigned maximum or minimum" if signed else ""
    return Program(name, (update_kernel,), draw, run, expected, compiler_fault=fault)


def _exchange(op: str, dtype: torch.dtype, count: int, warps: int) -> Program:
    name = f"atomics/{op}-returns/{NAMES[dtype]}/{count}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        values = {key: integers(name + key, (count,), -99, 99) for key in "xy"}
        return {key: value.to(dtype) for key, value in values.items()}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y = inputs["x"], inputs["y"].clone()
        old = torch.empty_like(x)
        exchange_kernel[(triton.cdiv(count, TILE),)](x, y, old, count, OP=op, TILE=TILE, num_warps=warps)
        return {"y": y, "old": old}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, y = inputs["x"], inputs["y"]
        return {"y": Expected(x if op == "exchange" else x + y), "old": Expected(y)}

    return Program(name, (exchange_kernel,), draw, run, expected)


def _tickets(programs: int, dtype: torch.dtype, warps: int) -> Program:
    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        counter, drawn = inputs["counter"].clone(), inputs["drawn"].clone()
        ticket_kernel[(programs,)](counter, drawn, STEP=3, num_warps=warps)
        return {"counter": counter, "drawn": drawn}

    return Program(
        f"atomics/tickets/{NAMES[dtype]}/{programs}/warps{warps}",
        (ticket_kernel,),
        lambda: {"counter": torch.zeros(1, dtype=dtype), "drawn": torch.zeros(programs, dtype=torch.int32)},
        run,
        lambda inputs: {"counter": Expected(inputs["counter"] + 3 * programs), "drawn": Expected(inputs["drawn"] + 1)},
    )


def _swap(programs: int, count: int, dtype: torch.dtype) -> Program:
    name = f"atomics/cas/{NAMES[dtype]}/{count}/programs{programs}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        counter, maximum = x.new_zeros(1), x.new_zeros(1)
        swap_kernel[(programs,)](counter, maximum, x, count, STRIDE=programs, num_warps=1)
        return {"counter": counter, "maximum": maximum}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"counter": Expected(torch.tensor([count])), "maximum": Expected(inputs["x"].amax().reshape(1))}

    draw = lambda: {"x": integers(name, (count,), 0, 10**6, dtype)}  # noqa: E731
    return Program(name, (swap_kernel,), draw, run, expected)


def _lock(programs: int, width: int, warps: int) -> Program:
    name = f"atomics/lock/i32/{programs}x{width}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y, lock = x.new_zeros(width), x.new_zeros(1)
        lock_kernel[(programs,)](lock, x, y, N=width, num_warps=warps)
        return {"y": y, "lock": lock}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": Expected(inputs["x"].sum(0)), "lock": Expected(torch.zeros(1, dtype=torch.int32))}

    return Program(name, (lock_kernel,), lambda: {"x": integers(name, (programs, width), 0, 99)}, run, expected)


def _together(kind: str, programs: int, width: int, warps: int) -> Program:
    """Whole numbers below 2²⁴, so that fp32 sums are exact in every order."""
    name = f"atomics/{kind}/fp32/{programs}x{width}/warps{warps}"
    kernel = barrier_kernel if kind == "grid_barrier" else last_arriver_kernel

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = torch.full_like(x, torch.nan) if kind == "grid_barrier" else x.new_full((1,), torch.nan)
        part, counter = x.new_full((programs,), torch.nan), x.new_zeros(1, dtype=torch.int32)
        kernel[(programs,)](x, part, counter, y, N=width, PROGRAMS=programs, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        total = inputs["x"].double().sum()
        return {"y": Expected(inputs["x"] - total if kind == "grid_barrier" else total.reshape(1))}

    draw = lambda: {"x": integers(name, (programs, width), 1, 200).float()}  # noqa: E731
    return Program(name, (kernel,), draw, run, expected)


F32, B16, H16, I32, I64 = torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64
PROGRAMS = (
    _update("add", F32, 1000, 64, 4), _update("add", F32, 3000, 3, 1), _update("add", H16, 700, 100, 2),
    _update("add", B16, 700, 100, 4), _update("add", I32, 5000, 17, 8), _update("add", I64, 1500, 40, 2),
    _update("max", I32, 1200, 20, 4), _update("min", I32, 1200, 20, 1), _update("max", I64, 500, 9, 2),
    _update("and", I32, 300, 50, 1), _update("or", I32, 300, 90, 2), _update("xor", I32, 900, 11, 4),
    _update("xor", I64, 600, 30, 8), _update("max", F32, 800, 12, 4), _update("min", F32, 800, 12, 2),
    _exchange("exchange", I32, 500, 2), _exchange("exchange", I64, 300, 1), _exchange("add", F32, 700, 4),
    _exchange("add", I32, 700, 8), _exchange("add", H16, 256, 1), _tickets(64, I32, 1), _tickets(33, I64, 4),
    _swap(8, 60, I32), _swap(5, 40, I64), _lock(16, 128, 2), _together("last_arriver", 32, 256, 4),
    _together("last_arriver", 8, 1024, 1), _together("grid_barrier", 16, 256, 4), _together("grid_barrier", 32, 64, 1),
)  # fmt: skip
