# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import dot_bound
from verification.gfx950.conformance.seeded import NAMES, integers, normal


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row, a_column, b_row, b_column,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, STAGES: tl.constexpr, INTEGER: tl.constexpr,
):  # fmt: skip
    """One tile of C = A B, over K in steps, edges masked."""
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    step = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.int32 if INTEGER else tl.float32)
    for k in tl.range(0, K, TILE_K, num_stages=STAGES):
        a_inside = (row[:, None] < M) & (k + step[None, :] < K)
        b_inside = (k + step[:, None] < K) & (column[None, :] < N)
        a = tl.load(a_ptr + row[:, None] * a_row + (k + step[None, :]) * a_column, mask=a_inside, other=0.0)
        b = tl.load(b_ptr + (k + step[:, None]) * b_row + column[None, :] * b_column, mask=b_inside, other=0.0)
        if INTEGER:
            total = tl.dot(a, b, acc=total, out_dtype=tl.int32)
        else:
            total = tl.dot(a, b, acc=total, input_precision="ieee")
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(c_ptr + row[:, None] * N + column[None, :], total.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def single_dot_kernel(
    a_ptr, b_ptr, c_ptr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, TRANSPOSED: tl.constexpr
):
    """C = A B or A Bᵀ of one tile, without a loop."""
    row, column, step = tl.arange(0, TILE_M), tl.arange(0, TILE_N), tl.arange(0, TILE_K)
    a = tl.load(a_ptr + row[:, None] * TILE_K + step[None, :])
    if TRANSPOSED:
        b = tl.trans(tl.load(b_ptr + column[:, None] * TILE_K + step[None, :]))
    else:
        b = tl.load(b_ptr + step[:, None] * TILE_N + column[None, :])
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * TILE_N + column[None, :], c.to(c_ptr.dtype.element_ty))


@triton.jit
def chained_dot_kernel(a_ptr, b_ptr, c_ptr, d_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """D = (A B, rounded) C: the first product becomes an operand of the second."""
    row, step, column = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    a = tl.load(a_ptr + row[:, None] * K + step[None, :])
    b = tl.load(b_ptr + step[:, None] * K + step[None, :])
    c = tl.load(c_ptr + step[:, None] * N + column[None, :])
    first = tl.dot(a, b).to(c.dtype)
    tl.store(d_ptr + row[:, None] * N + column[None, :], tl.dot(first, c))


def _operand(key: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return normal(key, shape, dtype) if dtype.is_floating_point else integers(key, shape, -128, 128, dtype)


def _operands(name: str, shape: tuple[int, int, int], dtype: torch.dtype, transposed: bool) -> dict[str, Tensor]:
    m, n, k = shape
    return {
        "a": _operand(name + "a", (m, k), dtype),
        "b": _operand(name + "b", (n, k) if transposed else (k, n), dtype),
    }


def _product(inputs: dict[str, Tensor], transposed: bool, out: torch.dtype) -> dict[str, Expected]:
    a, b = inputs["a"], inputs["b"].t() if transposed else inputs["b"]
    if not a.dtype.is_floating_point:
        return {"c": Expected(a.to(torch.int64) @ b.to(torch.int64))}
    a, b = a.double(), b.double()
    return {"c": Expected(a @ b, dot_bound(a, b, out))}


def _gemm(
    dtype: torch.dtype,
    shape: tuple[int, int, int],
    tile: tuple[int, int, int],
    warps: int,
    stages: int = 2,
    out: torch.dtype = torch.float32,
    transposed: bool = False,
    spills: bool = False,
) -> Program:
    (m, n, k), (tile_m, tile_n, tile_k) = shape, tile
    shapes = f"{m}x{n}x{k}/tile{tile_m}x{tile_n}x{tile_k}"
    name = f"dots/{'transposed-' if transposed else ''}gemm/{NAMES[dtype]}/{shapes}/warps{warps}/stages{stages}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        a, b = inputs["a"], inputs["b"].t() if transposed else inputs["b"]
        integer = not dtype.is_floating_point
        c = torch.empty((m, n), dtype=torch.int32 if integer else out, device=a.device)
        dot_kernel[(triton.cdiv(m, tile_m), triton.cdiv(n, tile_n))](
            a, b, c, m, n, k, *a.stride(), *b.stride(), TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k,
            STAGES=stages, INTEGER=integer, num_warps=warps,
        )  # fmt: skip
        return {"c": c}

    draw = partial(_operands, name, shape, dtype, transposed)
    return Program(name, (dot_kernel,), draw, run, partial(_product, transposed=transposed, out=out), spills)


def _single(
    dtype: torch.dtype,
    tile: tuple[int, int, int],
    warps: int,
    out: torch.dtype = torch.float32,
    transposed: bool = False,
    nonkdim: int = 0,
    spills: bool = False,
) -> Program:
    """`nonkdim` asks AMD's backend for the matrix instruction of that size."""
    m, n, k = tile
    suffix = (f"/nonkdim{nonkdim}" if nonkdim else "") + (f"/to-{NAMES[out]}" if out != torch.float32 else "")
    name = f"dots/{'transposed-' if transposed else ''}single/{NAMES[dtype]}/{m}x{n}x{k}/warps{warps}{suffix}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        a = inputs["a"]
        c = torch.empty((m, n), dtype=out if dtype.is_floating_point else torch.int32, device=a.device)
        options = {"matrix_instr_nonkdim": nonkdim} if nonkdim and torch.version.cuda is None else {}
        single_dot_kernel[(1,)](
            a, inputs["b"], c, TILE_M=m, TILE_N=n, TILE_K=k, TRANSPOSED=transposed, num_warps=warps, **options
        )
        return {"c": c}

    draw = partial(_operands, name, tile, dtype, transposed)
    return Program(name, (single_dot_kernel,), draw, run, partial(_product, transposed=transposed, out=out), spills)


def _chained(dtype: torch.dtype, m: int, n: int, k: int, warps: int) -> Program:
    """The first product's error and rounding pass through |C|: e₁|C| + dot_bound(P, C)."""
    name = f"dots/chained/{NAMES[dtype]}/{m}x{n}x{k}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        shapes = {"a": (m, k), "b": (k, k), "c": (k, n)}
        return {key: normal(name + key, shape, dtype, 0.5) for key, shape in shapes.items()}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        a, b, c = (inputs[key] for key in "abc")
        d = torch.empty((m, n), dtype=torch.float32, device=a.device)
        chained_dot_kernel[(1,)](a, b, c, d, M=m, N=n, K=k, num_warps=warps)
        return {"d": d}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        a, b, c = (inputs[key].double() for key in "abc")
        error = dot_bound(a, b, dtype)
        carried = (a @ b).abs() + error
        return {"d": Expected(a @ b @ c, error @ c.abs() + dot_bound(carried, c))}

    return Program(name, (chained_dot_kernel,), draw, run, expected)


F32, B16, H16, I8 = torch.float32, torch.bfloat16, torch.float16, torch.int8
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
PROGRAMS = (
    _single(B16, (16, 16, 16), 1), _single(H16, (16, 16, 16), 1), _single(F32, (16, 16, 16), 1),
    _single(B16, (16, 16, 32), 1), _single(B16, (32, 32, 16), 1), _single(H16, (32, 32, 32), 2),
    _single(F32, (32, 32, 32), 4), _single(E4M3, (32, 32, 64), 4), _single(E5M2, (32, 32, 64), 4),
    _single(I8, (16, 16, 64), 1), _single(I8, (64, 64, 64), 4), _single(E4M3, (16, 16, 128), 1),
    _single(B16, (64, 64, 64), 4, B16), _single(H16, (64, 32, 64), 8, H16), _single(B16, (128, 128, 64), 8),
    _single(B16, (64, 64, 32), 4, nonkdim=16), _single(B16, (64, 64, 32), 4, nonkdim=32),
    _single(E4M3, (64, 64, 64), 4, nonkdim=32), _single(I8, (64, 64, 64), 4, nonkdim=32),
    _single(F32, (64, 64, 16), 4, nonkdim=16), _single(B16, (32, 64, 32), 2, transposed=True),
    _single(F32, (32, 32, 32), 4, transposed=True), _single(E4M3, (64, 64, 64), 8, transposed=True),
    _single(B16, (256, 256, 64), 1, spills=True),
    _gemm(B16, (100, 90, 200), (32, 32, 32), 4, 1), _gemm(B16, (128, 128, 512), (128, 128, 64), 8, 3),
    _gemm(H16, (200, 150, 300), (64, 64, 32), 4, 2), _gemm(F32, (70, 60, 130), (32, 32, 32), 4, 2),
    _gemm(E4M3, (128, 64, 256), (64, 64, 128), 4, 2), _gemm(E5M2, (60, 128, 256), (64, 64, 64), 8, 3),
    _gemm(I8, (100, 100, 333), (64, 32, 64), 8, 2), _gemm(B16, (96, 130, 256), (64, 128, 64), 8, 2, B16),
    _gemm(B16, (64, 256, 192), (64, 128, 64), 4, 2, transposed=True), _gemm(H16, (16, 64, 1000), (16, 32, 128), 1, 4),
    _gemm(B16, (256, 256, 96), (256, 256, 32), 4, 1, spills=True),
    _gemm(B16, (250, 200, 128), (256, 256, 64), 2, 2, spills=True),
    _gemm(B16, (228, 90, 200), (32, 32, 32), 4, 1), _gemm(H16, (330, 150, 300), (64, 64, 32), 4, 2),
    _gemm(F32, (150, 110, 130), (32, 32, 32), 4, 2), _gemm(E4M3, (256, 256, 256), (64, 64, 128), 4, 2),
    _chained(B16, 32, 64, 32, 4), _chained(H16, 64, 64, 64, 8), _chained(B16, 128, 128, 64, 4),
)  # fmt: skip
