# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import gamma
from verification.gfx950.conformance.seeded import integers, normal

TILE = 128


@triton.jit
def collatz_kernel(x_ptr, y_ptr):
    """Steps to 1: halve the even, 3 n + 1 the odd; each program takes as long as its number does."""
    n = tl.load(x_ptr + tl.program_id(0))
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(y_ptr + tl.program_id(0), steps)


@triton.jit
def divergent_kernel(x_ptr, y_ptr, count, TILE: tl.constexpr):
    """The greatest common divisor with 360 in every lane: the loop ends when the last lane has ended."""
    index = tl.program_id(0) * TILE + tl.arange(0, TILE)
    a = tl.load(x_ptr + index, mask=index < count, other=1)
    b = tl.full((TILE,), 360, dtype=tl.int32)
    while tl.max(b, axis=0) != 0:
        divisor = tl.where(b == 0, 1, b)
        a, b = tl.where(b == 0, a, b), tl.where(b == 0, 0, a % divisor)
    tl.store(y_ptr + index, a, mask=index < count)


@triton.jit
def branches_kernel(x_ptr, kind_ptr, y_ptr, N: tl.constexpr):
    """A different formula by the row's kind, one of them leaving early."""
    row = tl.program_id(0)
    kind = tl.load(kind_ptr + row)
    if kind == 3:
        return
    offset = row * N + tl.arange(0, N)
    x = tl.load(x_ptr + offset)
    if kind == 0:
        y = x + x
    elif kind == 1:
        y = -x
    else:
        y = tl.zeros_like(x) + tl.max(x, axis=0)
    tl.store(y_ptr + offset, y)


@triton.jit
def ragged_kernel(x_ptr, start_ptr, y_ptr, TILE: tl.constexpr):
    """Sums of segments of different lengths, empty ones included."""
    segment = tl.program_id(0)
    first, last = tl.load(start_ptr + segment), tl.load(start_ptr + segment + 1)
    total = tl.zeros((TILE,), dtype=tl.float32)
    for at in range(first, last, TILE):
        index = at + tl.arange(0, TILE)
        total += tl.load(x_ptr + index, mask=index < last, other=0.0)
    tl.store(y_ptr + segment, tl.sum(total, axis=0))


@triton.jit
def nested_kernel(y_ptr, N, M: tl.constexpr):
    """A double loop with a runtime inner bound and an unrolled one: Σ_i Σ_{j<i} (i j + p) and Σ k²."""
    program = tl.program_id(0)
    total = program * 0
    for i in range(N):
        for j in range(i):
            total += i * j + program
    for k in tl.static_range(M):
        total += k * k
    tl.store(y_ptr + program, total)


@triton.jit
def stride_kernel(x_ptr, y_ptr, count, TILE: tl.constexpr):
    """A grid smaller than the work: each program takes every num_programs-th tile."""
    for tile in range(tl.program_id(0), tl.cdiv(count, TILE), tl.num_programs(0)):
        index = tile * TILE + tl.arange(0, TILE)
        x = tl.load(x_ptr + index, mask=index < count)
        tl.store(y_ptr + index, 3 * x + tile, mask=index < count)


@triton.jit
def grid_kernel(y_ptr):
    """What every program of a grid of three dimensions knows of itself."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    flat = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    size = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    tl.store(y_ptr + flat, x + 100 * y + 10000 * z + 1000000 * size)


@triton.jit
def newton_kernel(x_ptr, y_ptr, count, TILE: tl.constexpr):
    """The whole square root by Newton's steps, until no lane of the tile changes."""
    index = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n = tl.load(x_ptr + index, mask=index < count, other=1)
    root, moved = n, 1
    while moved > 0:
        better = (root + n // root) // 2
        moved = tl.max((better < root).to(tl.int32), axis=0)
        root = tl.where(better < root, better, root)
    tl.store(y_ptr + index, root, mask=index < count)


def _collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def _mapped(
    kind: str, kernel, count: int, warps: int, highest: int, answer: Callable[[Tensor], Tensor], tile: int | None = TILE
) -> Program:
    """Integers to integers, each alone."""
    name = f"control/{kind}/{count}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty_like(inputs["x"])
        if tile is None:
            kernel[(count,)](inputs["x"], y, num_warps=warps)
        else:
            kernel[(triton.cdiv(count, tile),)](inputs["x"], y, count, TILE=tile, num_warps=warps)
        return {"y": y}

    draw = lambda: {"x": integers(name, (count,), 1, highest)}  # noqa: E731
    return Program(name, (kernel,), draw, run, lambda inputs: {"y": Expected(answer(inputs["x"]))})


def _branches(rows: int, width: int, warps: int) -> Program:
    name = f"control/branches/{rows}x{width}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.full_like(inputs["x"], 7.0)
        branches_kernel[(rows,)](inputs["x"], inputs["kind"], y, N=width, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, kind = inputs["x"], inputs["kind"][:, None]
        greatest = x.amax(-1, keepdim=True)
        y = torch.where(kind == 0, 2 * x, torch.where(kind == 1, -x, torch.where(kind == 2, greatest, 7.0)))
        return {"y": Expected(y)}

    draw = lambda: {"x": normal(name, (rows, width)), "kind": torch.arange(rows, dtype=torch.int32) % 4}  # noqa: E731
    return Program(name, (branches_kernel,), draw, run, expected)


def _ragged(segments: int, longest: int, warps: int) -> Program:
    name = f"control/ragged/{segments}x{longest}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        length = integers(name + "length", (segments,), 0, longest)
        length[::5] = 0
        start = torch.cat((torch.zeros(1, dtype=torch.int32), length.cumsum(0).int()))
        return {"x": normal(name, (int(start[-1]),)), "start": start}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = inputs["x"].new_empty(segments)
        ragged_kernel[(segments,)](inputs["x"], inputs["start"], y, TILE=TILE, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        start = inputs["start"].tolist()
        parts = [inputs["x"].double()[a:b] for a, b in pairwise(start)]
        bound = [gamma(longest + TILE) * part.abs().sum() for part in parts]
        return {"y": Expected(torch.stack([part.sum() for part in parts]), torch.stack(bound))}

    return Program(name, (ragged_kernel,), draw, run, expected)


def _nested(programs: int, outer: int) -> Program:
    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty_like(inputs["programs"])
        nested_kernel[(programs,)](y, outer, M=5, num_warps=1)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        program = inputs["programs"].to(torch.int64)
        pairs = outer * (outer - 1) // 2
        return {"y": Expected(sum(i * j for i in range(outer) for j in range(i)) + pairs * program + 30)}

    draw = lambda: {"programs": torch.arange(programs, dtype=torch.int32)}  # noqa: E731
    return Program(f"control/nested/{programs}x{outer}", (nested_kernel,), draw, run, expected)


def _strided(programs: int, count: int, warps: int) -> Program:
    name = f"control/stride/{count}/programs{programs}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty_like(inputs["x"])
        stride_kernel[(programs,)](inputs["x"], y, count, TILE=TILE, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": Expected(3 * inputs["x"] + (torch.arange(count) // TILE).int())}

    draw = lambda: {"x": integers(name, (count,), -1000, 1000)}  # noqa: E731
    return Program(name, (stride_kernel,), draw, run, expected)


def _grid(x: int, y: int, z: int) -> Program:
    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        out = torch.empty_like(inputs["blank"])
        grid_kernel[(x, y, z)](out, num_warps=1)
        return {"y": out}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        a, b, c = torch.arange(x), torch.arange(y)[:, None], torch.arange(z)[:, None, None]
        return {"y": Expected(a + 100 * b + 10000 * c + 1000000 * x * y * z)}

    draw = lambda: {"blank": torch.zeros((z, y, x), dtype=torch.int32)}  # noqa: E731
    return Program(f"control/grid/{x}x{y}x{z}", (grid_kernel,), draw, run, expected)


def _divisors(x: Tensor) -> Tensor:
    return torch.gcd(x, torch.tensor(360, dtype=torch.int32))


def _roots(x: Tensor) -> Tensor:
    return x.double().sqrt().floor().int()


def _collatz_each(x: Tensor) -> Tensor:
    return torch.tensor([_collatz(n) for n in x.tolist()], dtype=torch.int32)


PROGRAMS = (
    _mapped("collatz", collatz_kernel, 40, 1, 500, _collatz_each, None),
    _mapped("collatz", collatz_kernel, 12, 4, 2000, _collatz_each, None),
    _mapped("gcd", divergent_kernel, 500, 2, 10000, _divisors),
    _mapped("newton", newton_kernel, 700, 4, 2**30, _roots),
    _mapped("newton", newton_kernel, 200, 1, 10**4, _roots),
    _branches(23, 100 + 28, 1), _branches(8, 512, 4), _ragged(20, 500, 2), _ragged(7, 2000, 8), _nested(16, 13),
    _strided(7, 3000, 4), _strided(3, 1000, 1), _grid(3, 4, 5), _grid(7, 1, 2),
)  # fmt: skip
