# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.seeded import NAMES, generator, integers, normal


@triton.jit
def sort_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, DESCENDING: tl.constexpr):
    """Each row in order."""
    offset = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + offset, tl.sort(tl.load(x_ptr + offset), descending=DESCENDING))


@triton.jit
def topk_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """The K greatest of each row, in order."""
    row = tl.arange(0, M)[:, None]
    x = tl.load(x_ptr + row * N + tl.arange(0, N)[None, :])
    tl.store(y_ptr + row * K + tl.arange(0, K)[None, :], tl.topk(x, K))


@triton.jit
def argsort_kernel(x_ptr, order_ptr, count, N: tl.constexpr):
    """A stable order by keys that carry the value's order-preserving bits above the position."""
    column = tl.arange(0, N)
    x = tl.load(x_ptr + column, mask=column < count, other=float("inf"))
    bits = x.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = (ordered.to(tl.int64) << 32) | column.to(tl.int64)
    tl.store(order_ptr + column, (tl.sort(key) & 0xFFFFFFFF).to(tl.int32), mask=column < count)


@triton.jit
def merge_kernel(x_ptr, y_ptr, N: tl.constexpr):
    """One bitonic merge of a row that rises and then falls."""
    column = tl.arange(0, N)
    tl.store(y_ptr + column, tl.bitonic_merge(tl.load(x_ptr + column)))


@triton.jit
def histogram_kernel(x_ptr, y_ptr, count, N: tl.constexpr, BINS: tl.constexpr):
    """How often each bin occurs, beyond `count` left out."""
    column = tl.arange(0, N)
    inside = column < count
    x = tl.load(x_ptr + column, mask=inside, other=0)
    tl.store(y_ptr + tl.arange(0, BINS), tl.histogram(x, BINS, mask=inside))


@triton.jit
def gather_kernel(
    x_ptr, index_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr
):
    """Elements picked from registers along one axis."""
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    offset = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(y_ptr + offset, tl.gather(x, tl.load(index_ptr + offset), axis=AXIS))


@triton.jit
def flip_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    """Rows reversed, then the even and the odd columns exchanged."""
    offset = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.flip(tl.load(x_ptr + offset), 1)
    even, odd = tl.split(tl.reshape(x, (M, N // 2, 2)))
    tl.store(y_ptr + offset, tl.reshape(tl.join(odd, even), (M, N)))


def _drawn(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Tensor]:
    return {"x": normal(key, shape, dtype) if dtype.is_floating_point else integers(key, shape, -300, 300, dtype)}


def _sort(dtype: torch.dtype, shape: tuple[int, int], warps: int, descending: bool = False) -> Program:
    name = f"sorting/sort{'-descending' if descending else ''}/{NAMES[dtype]}/{shape[0]}x{shape[1]}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty_like(inputs["x"])
        sort_kernel[(1,)](inputs["x"], y, M=shape[0], N=shape[1], DESCENDING=descending, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": Expected(torch.sort(inputs["x"], descending=descending).values)}

    return Program(name, (sort_kernel,), lambda: _drawn(name, shape, dtype), run, expected)


def _topk(dtype: torch.dtype, shape: tuple[int, int], k: int, warps: int) -> Program:
    name = f"sorting/topk{k}/{NAMES[dtype]}/{shape[0]}x{shape[1]}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = x.new_empty((shape[0], k))
        topk_kernel[(1,)](x, y, M=shape[0], N=shape[1], K=k, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": Expected(torch.sort(inputs["x"], descending=True).values[:, :k])}

    return Program(name, (topk_kernel,), lambda: _drawn(name, shape, dtype), run, expected)


def _argsort(count: int, warps: int) -> Program:
    name = f"sorting/argsort/fp32/{count}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        order = inputs["x"].new_empty(count, dtype=torch.int32)
        argsort_kernel[(1,)](inputs["x"], order, count, N=triton.next_power_of_2(count), num_warps=warps)
        return {"order": order}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"order": Expected(torch.sort(inputs["x"], stable=True).indices)}

    draw = lambda: {"x": integers(name, (count,), -20, 20).float() - 0.5}  # noqa: E731
    return Program(name, (argsort_kernel,), draw, run, expected)


def _merge(length: int, warps: int) -> Program:
    name = f"sorting/bitonic_merge/fp32/{length}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        halves = torch.sort(normal(name, (2, length // 2))).values
        return {"x": torch.cat((halves[0], halves[1].flip(0)))}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty_like(inputs["x"])
        merge_kernel[(1,)](inputs["x"], y, N=length, num_warps=warps)
        return {"y": y}

    return Program(name, (merge_kernel,), draw, run, lambda inputs: {"y": Expected(torch.sort(inputs["x"]).values)})


def _histogram(count: int, bins: int, warps: int) -> Program:
    name = f"sorting/histogram{bins}/i32/{count}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = inputs["x"].new_empty(bins)
        tile = triton.next_power_of_2(count)
        histogram_kernel[(1,)](inputs["x"], y, count, N=tile, BINS=bins, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": Expected(torch.bincount(inputs["x"], minlength=bins))}

    draw = lambda: {"x": integers(name, (count,), 0, bins)}  # noqa: E731
    return Program(name, (histogram_kernel,), draw, run, expected)


def _gather(dtype: torch.dtype, shape: tuple[int, int], taken: tuple[int, int], axis: int, warps: int) -> Program:
    name = f"sorting/gather-axis{axis}/{NAMES[dtype]}/{shape[0]}x{shape[1]}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        return _drawn(name, shape, dtype) | {"index": integers(name + "index", taken, 0, shape[axis])}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = x.new_empty(taken)
        sizes = {"M": shape[0], "N": shape[1], "R": taken[0], "C": taken[1]}
        gather_kernel[(1,)](x, inputs["index"], y, **sizes, AXIS=axis, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        return {"y": Expected(torch.gather(inputs["x"], axis, inputs["index"].to(torch.int64)))}

    return Program(name, (gather_kernel,), draw, run, expected)


def _flip(shape: tuple[int, int], warps: int) -> Program:
    name = f"sorting/flip/fp32/{shape[0]}x{shape[1]}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty_like(inputs["x"])
        flip_kernel[(1,)](inputs["x"], y, M=shape[0], N=shape[1], num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        pairs = inputs["x"].flip(1).reshape(shape[0], shape[1] // 2, 2)
        return {"y": Expected(pairs.flip(2).reshape(shape))}

    draw = lambda: {"x": torch.from_numpy(generator(name).random(shape, dtype="float32"))}  # noqa: E731
    return Program(name, (flip_kernel,), draw, run, expected)


PROGRAMS = (
    _sort(torch.float32, (4, 64), 1), _sort(torch.int32, (2, 256), 4), _sort(torch.float16, (8, 32), 2, True),
    _sort(torch.int64, (1, 512), 8), _sort(torch.int16, (4, 128), 1),
    _topk(torch.float32, (8, 64), 8, 1), _topk(torch.int32, (2, 256), 16, 4), _topk(torch.float16, (4, 32), 2, 2),
    _argsort(100, 1), _argsort(500, 4), _merge(128, 1), _merge(512, 2),
    _histogram(300, 16, 1), _histogram(1000, 64, 4), _histogram(2048, 256, 8),
    _gather(torch.float32, (8, 64), (8, 32), 1, 1), _gather(torch.int32, (64, 16), (32, 16), 0, 4),
    _gather(torch.float16, (16, 128), (16, 128), 1, 8), _flip((8, 64), 2), _flip((2, 512), 4),
)  # fmt: skip
