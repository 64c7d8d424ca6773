# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import FORMATS, FP32, gamma, stored, sum_bound
from verification.gfx950.conformance.seeded import NAMES, integers, normal, uniform


@triton.jit
def softmax_kernel(x_ptr, y_ptr, width, WIDTH: tl.constexpr):
    """A row's softmax in fp32."""
    column = tl.arange(0, WIDTH)
    inside = column < width
    offset = tl.program_id(0) * width + column
    x = tl.load(x_ptr + offset, mask=inside, other=float("-inf")).to(tl.float32)
    weight = tl.exp(x - tl.max(x, axis=0))
    y = weight / tl.sum(weight, axis=0)
    tl.store(y_ptr + offset, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def normalize_kernel(x_ptr, w_ptr, y_ptr, width, eps, CENTRED: tl.constexpr, WIDTH: tl.constexpr):
    """A row scaled to unit root mean square, or standardized, and by the weight."""
    column = tl.arange(0, WIDTH)
    inside = column < width
    offset = tl.program_id(0) * width + column
    x = tl.load(x_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        x = tl.where(inside, x - tl.sum(x, axis=0) / width, 0.0)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / width + eps) * weight
    tl.store(y_ptr + offset, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def extremes_kernel(x_ptr, value_ptr, index_ptr, width, LEAST: tl.constexpr, WIDTH: tl.constexpr):
    """A row's extreme and where it comes first."""
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    inside = column < width
    if LEAST:
        x = tl.load(x_ptr + row * width + column, mask=inside, other=float("inf"))
        value, index = tl.min(x, axis=0, return_indices=True)
    else:
        x = tl.load(x_ptr + row * width + column, mask=inside, other=float("-inf"))
        value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(value_ptr + row, value)
    tl.store(index_ptr + row, index)


@triton.jit
def plane_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    """A plane reduced along one axis."""
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if OP == "sum":
        y = tl.sum(x, axis=AXIS)
    elif OP == "max":
        y = tl.max(x, axis=AXIS)
    elif OP == "min":
        y = tl.min(x, axis=AXIS)
    elif OP == "argmin":
        y = tl.argmin(x, axis=AXIS)
    else:
        y = tl.xor_sum(x, axis=AXIS)
    tl.store(y_ptr + tl.arange(0, N if AXIS == 0 else M), y)


@triton.jit
def affine_combine(a, b, c, d):
    """The affine map x → a x + b followed by x → c x + d."""
    return a * c, b * c + d


@triton.jit
def scan_kernel(
    x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr, REVERSE: tl.constexpr
):
    """A plane scanned along one axis."""
    offset = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offset)
    if OP == "cumsum":
        y = tl.cumsum(x, axis=AXIS, reverse=REVERSE)
    else:
        y = tl.cumprod(x, axis=AXIS, reverse=REVERSE)
    tl.store(y_ptr + offset, y)


@triton.jit
def recurrence_kernel(a_ptr, b_ptr, h_ptr, M: tl.constexpr, N: tl.constexpr):
    """The recurrence h ← a h + b along rows, as a scan of affine maps."""
    offset = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(a_ptr + offset), tl.load(b_ptr + offset)
    _, h = tl.associative_scan((a, b), axis=1, combine_fn=affine_combine)
    tl.store(h_ptr + offset, h)


def _rows(kind: str, dtype: torch.dtype, rows: int, width: int, warps: int) -> Program:
    """Softmax, RMSNorm or layer norm of each row."""
    name = f"reductions/{kind}/{NAMES[dtype]}/{rows}x{width}/warps{warps}"
    tile = triton.next_power_of_2(width)

    def inputs() -> dict[str, Tensor]:
        return {"x": normal(name + "x", (rows, width), dtype, 2.0), "w": normal(name + "w", (width,), dtype)}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, w = inputs["x"], inputs["w"]
        y = torch.empty_like(x)
        if kind == "softmax":
            softmax_kernel[(rows,)](x, y, width, WIDTH=tile, num_warps=warps)
        else:
            centred = kind == "layer_norm"
            normalize_kernel[(rows,)](x, w, y, width, 1e-5, CENTRED=centred, WIDTH=tile, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, w = inputs["x"].double(), inputs["w"].double()
        y, error = _softmax(x) if kind == "softmax" else _normalized(x, w, kind == "layer_norm")
        return {"y": Expected(y, stored(y, error, dtype))}

    kernel = softmax_kernel if kind == "softmax" else normalize_kernel
    return Program(name, (kernel,), inputs, run, expected)


def _softmax(x: Tensor) -> tuple[Tensor, Tensor]:
    """Weights err by (3 d + 4) u with d = max - x, their sum by the same averaged and γ(n), the quotient by 5 u."""
    depth = x.amax(-1, keepdim=True) - x
    y = torch.softmax(x, -1)
    weight = (3 * depth + 4) * FP32
    total = (y * weight).sum(-1, keepdim=True) + gamma(x.shape[-1])
    return y, y * (weight + total + 5 * FP32) + 2.0**-126


def _normalized(x: Tensor, w: Tensor, centred: bool) -> tuple[Tensor, Tensor]:
    """Mean: δ = γ(n + 5) mean|x|; the mean square errs by γ(n + 9) of itself and 2 δ mean|x| + δ², its root by half."""
    width = x.shape[-1]
    shift = gamma(width + 5) * x.abs().mean(-1, keepdim=True) if centred else torch.zeros(())
    x = x - x.mean(-1, keepdim=True) if centred else x
    square = (x * x).mean(-1, keepdim=True) + float(torch.tensor(1e-5))
    relative = gamma(width + 9) + (2 * shift * x.abs().mean(-1, keepdim=True) + shift * shift) / square
    inverse = square.rsqrt()
    y = x * inverse * w
    return y, y.abs() * (relative / 2 + 8 * FP32) + (shift + x.abs() * FP32) * inverse * w.abs() * (1 + relative)


def _extremes(least: bool, rows: int, width: int, warps: int) -> Program:
    """Few distinct values, so that the first of many equal ones must be found."""
    name = f"reductions/{'argmin' if least else 'argmax'}/fp32/{rows}x{width}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        value, index = x.new_empty(rows), x.new_empty(rows, dtype=torch.int32)
        tile = triton.next_power_of_2(width)
        extremes_kernel[(rows,)](x, value, index, width, LEAST=least, WIDTH=tile, num_warps=warps)
        return {"value": value, "index": index}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x = inputs["x"]
        value = x.amin(-1) if least else x.amax(-1)
        return {"value": Expected(value), "index": Expected((x == value[:, None]).int().argmax(-1))}

    draw = lambda: {"x": integers(name, (rows, width), -9, 9).float() + 0.5}  # noqa: E731
    return Program(name, (extremes_kernel,), draw, run, expected)


REDUCED: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, axis: x.sum(axis),
    "max": lambda x, axis: x.amax(axis),
    "min": lambda x, axis: x.amin(axis),
    "argmin": lambda x, axis: (x == x.amin(axis, keepdim=True)).int().argmax(axis),
}


def _xor(x: Tensor, axis: int) -> Tensor:
    total = torch.zeros_like(x.select(axis, 0))
    for part in x.unbind(axis):
        total ^= part
    return total


def _plane(op: str, dtype: torch.dtype, shape: tuple[int, int], axis: int, warps: int) -> Program:
    name = f"reductions/{op}-axis{axis}/{NAMES[dtype]}/{shape[0]}x{shape[1]}/warps{warps}"
    floating = dtype.is_floating_point

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = x.new_empty(shape[1 - axis], dtype=torch.int32 if op == "argmin" else dtype)
        plane_kernel[(1,)](x, y, M=shape[0], N=shape[1], AXIS=axis, OP=op, num_warps=warps)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x = inputs["x"].double() if floating else inputs["x"].to(torch.int64)
        y = _xor(x, axis) if op == "xor" else REDUCED[op](x, axis)
        error = sum_bound(x.abs().sum(axis), shape[axis], FORMATS[dtype].unit) if floating else torch.zeros(())
        return {"y": Expected(y, stored(y, error, dtype) if op == "sum" and floating else 0.0)}

    def draw() -> dict[str, Tensor]:
        return {"x": normal(name, shape, dtype) if floating else integers(name, shape, -1000, 1000, dtype)}

    return Program(name, (plane_kernel,), draw, run, expected)


def _scan(op: str, dtype: torch.dtype, shape: tuple[int, int], axis: int, warps: int, reverse: bool = False) -> Program:
    direction = "-reversed" if reverse else ""
    name = f"reductions/{op}{direction}-axis{axis}/{NAMES[dtype]}/{shape[0]}x{shape[1]}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        if not dtype.is_floating_point:
            return {"x": integers(name, shape, -50, 50, dtype)}
        return {"x": uniform(name, shape, 0.8, 1.25) if op == "cumprod" else normal(name, shape)}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = torch.empty_like(x)
        scan_kernel[(1,)](x, y, M=shape[0], N=shape[1], AXIS=axis, OP=op, REVERSE=reverse, num_warps=warps)
        return {"y": y}

    def scanned(x: Tensor) -> Tensor:
        x = x.flip(axis) if reverse else x
        y = x.cumsum(axis) if op == "cumsum" else x.cumprod(axis)
        return y.flip(axis) if reverse else y

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        if not dtype.is_floating_point:
            return {"y": Expected(scanned(inputs["x"].to(torch.int64)))}
        x = inputs["x"].double()
        return {"y": Expected(scanned(x), gamma(shape[axis]) * scanned(x.abs()))}

    return Program(name, (scan_kernel,), draw, run, expected)


def _recurrence(rows: int, length: int, warps: int) -> Program:
    """Each term meets at most 2n products and n sums: γ(3 n) of the recurrence over magnitudes."""
    name = f"reductions/associative_scan/fp32/{rows}x{length}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        h = torch.empty_like(inputs["a"])
        recurrence_kernel[(1,)](inputs["a"], inputs["b"], h, M=rows, N=length, num_warps=warps)
        return {"h": h}

    def unrolled(a: Tensor, b: Tensor) -> Tensor:
        h = [b[:, 0]]
        for t in range(1, length):
            h.append(a[:, t] * h[-1] + b[:, t])
        return torch.stack(h, 1)

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        a, b = inputs["a"].double(), inputs["b"].double()
        return {"h": Expected(unrolled(a, b), gamma(3 * length) * unrolled(a.abs(), b.abs()))}

    def draw() -> dict[str, Tensor]:
        return {"a": uniform(name + "a", (rows, length), -1.0, 1.0), "b": normal(name + "b", (rows, length))}

    return Program(name, (recurrence_kernel,), draw, run, expected)


F32, B16, H16, I32, I64 = torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64
PROGRAMS = (
    _rows("softmax", F32, 7, 1000, 4), _rows("softmax", B16, 5, 333, 1), _rows("softmax", H16, 3, 2500, 8),
    _rows("rms_norm", F32, 9, 257, 1), _rows("rms_norm", B16, 4, 1536, 2), _rows("rms_norm", B16, 3, 7168, 8),
    _rows("layer_norm", F32, 6, 700, 2), _rows("layer_norm", H16, 5, 1024, 4),
    _extremes(False, 8, 500, 1), _extremes(False, 5, 1300, 4), _extremes(True, 6, 900, 2), _extremes(True, 3, 64, 8),
    _plane("sum", F32, (64, 128), 0, 4), _plane("sum", F32, (64, 128), 1, 4), _plane("sum", B16, (128, 32), 1, 2),
    _plane("sum", I32, (32, 32), 0, 8), _plane("sum", I64, (16, 64), 1, 1), _plane("max", F32, (128, 64), 0, 8),
    _plane("max", H16, (32, 256), 1, 4), _plane("min", I32, (64, 64), 0, 2), _plane("xor", I32, (64, 32), 1, 4),
    _plane("argmin", F32, (64, 64), 0, 4),
    _scan("cumsum", F32, (8, 256), 1, 4), _scan("cumsum", I32, (64, 16), 0, 2), _scan("cumprod", F32, (4, 128), 1, 1),
    _scan("cumsum", F32, (16, 64), 1, 8, True), _scan("cumsum", I64, (2, 512), 1, 4),
    _recurrence(4, 128, 2), _recurrence(2, 512, 4),
)  # fmt: skip
