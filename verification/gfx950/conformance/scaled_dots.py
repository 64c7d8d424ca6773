# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import dot_bound
from verification.gfx950.conformance.seeded import integers, normal, words

GROUP = 32
HALVES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
E2M1 = torch.cat((HALVES, -HALVES))
STORED = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}


@triton.jit
def scaled_dot_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, N, K,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    A_SCALED: tl.constexpr, B_SCALED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One tile of C = A B with a power of two for every 32 along K; e2m1 lies two a byte, the lower bits first."""
    A_PACK: tl.constexpr = 2 if A == "e2m1" else 1
    B_PACK: tl.constexpr = 2 if B == "e2m1" else 1
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    a_step, b_step, group = tl.arange(0, TILE_K // A_PACK), tl.arange(0, TILE_K // B_PACK), tl.arange(0, TILE_K // 32)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for k in tl.range(0, K, TILE_K, num_stages=STAGES):
        a = tl.load(a_ptr + row[:, None] * (K // A_PACK) + k // A_PACK + a_step[None, :])
        b = tl.load(b_ptr + (k // B_PACK + b_step[:, None]) * N + column[None, :])
        a_scale = None
        b_scale = None
        if A_SCALED:
            a_scale = tl.load(a_scale_ptr + row[:, None] * (K // 32) + k // 32 + group[None, :])
        if B_SCALED:
            b_scale = tl.load(b_scale_ptr + column[:, None] * (K // 32) + k // 32 + group[None, :])
        total = tl.dot_scaled(a, a_scale, A, b, b_scale, B, acc=total)
    tl.store(c_ptr + row[:, None] * N + column[None, :], total)


def _elements(key: str, rows: int, k: int, form: str) -> Tensor:
    if form == "e2m1":
        return words(key, (rows, k // 2), torch.uint8)
    return normal(key, (rows, k), STORED[form], 2.0)


def decoded(x: Tensor, form: str) -> Tensor:
    """Elements along the last dimension as float64."""
    if form != "e2m1":
        return x.double()
    return torch.stack((E2M1[(x & 15).long()], E2M1[(x >> 4).long()]), -1).flatten(-2)


def _scaled(elements: Tensor, scales: Tensor, form: str) -> Tensor:
    value = decoded(elements, form)
    if form in ("bf16", "fp16"):
        return value
    return value * torch.exp2(scales.double() - 127).repeat_interleave(GROUP, -1)


def _program(
    forms: tuple[str, str],
    shape: tuple[int, int, int],
    tile_k: int,
    warps: int,
    stages: int = 2,
    nonkdim: int = 0,
    grid: tuple[int, int] = (1, 1),
) -> Program:
    """`shape`: a tile, and K; `nonkdim` asks AMD's backend for the matrix instruction of that size."""
    (left, right), (tile_m, tile_n, k) = forms, shape
    m, n = tile_m * grid[0], tile_n * grid[1]
    name = f"scaled_dots/{left}-{right}/{m}x{n}x{k}/step{tile_k}/warps{warps}/stages{stages}" + (
        f"/nonkdim{nonkdim}" if nonkdim else ""
    )

    def draw() -> dict[str, Tensor]:
        return {
            "a": _elements(name + "a", m, k, left),
            "b": _elements(name + "b", n, k, right).t().contiguous(),
            "a_scale": integers(name + "as", (m, k // GROUP), 119, 134, torch.uint8),
            "b_scale": integers(name + "bs", (n, k // GROUP), 119, 134, torch.uint8),
        }

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        a, b = inputs["a"], inputs["b"]
        c = torch.empty((m, n), dtype=torch.float32, device=a.device)
        options = {"matrix_instr_nonkdim": nonkdim} if nonkdim and torch.version.cuda is None else {}
        scaled_dot_kernel[grid](
            a, inputs["a_scale"], b, inputs["b_scale"], c, n, k, TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k,
            A=left, B=right, A_SCALED=left not in ("bf16", "fp16"), B_SCALED=right not in ("bf16", "fp16"),
            STAGES=stages, num_warps=warps, **options,
        )  # fmt: skip
        return {"c": c}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        a = _scaled(inputs["a"], inputs["a_scale"], left)
        b = _scaled(inputs["b"].t(), inputs["b_scale"], right).t()
        return {"c": Expected(a @ b, dot_bound(a, b))}

    return Program(name, (scaled_dot_kernel,), draw, run, expected)


PROGRAMS = (
    _program(("e4m3", "e4m3"), (32, 32, 128), 128, 4),
    _program(("e4m3", "e4m3"), (64, 128, 512), 128, 8),
    _program(("e5m2", "e5m2"), (32, 64, 256), 128, 4, 1),
    _program(("e4m3", "e5m2"), (64, 64, 256), 128, 4),
    _program(("e2m1", "e2m1"), (32, 32, 128), 128, 4),
    _program(("e2m1", "e2m1"), (128, 64, 512), 256, 8, 3),
    _program(("e4m3", "e4m3"), (64, 128, 512), 128, 8, grid=(4, 2)),
    _program(("e2m1", "e2m1"), (128, 64, 512), 256, 8, 3, grid=(2, 4)),
    _program(("e2m1", "e2m1"), (16, 16, 256), 128, 1),
    _program(("e4m3", "e4m3"), (64, 64, 256), 128, 4, nonkdim=16),
    _program(("e2m1", "e2m1"), (64, 32, 512), 128, 4, nonkdim=16),
    _program(("e2m1", "e5m2"), (32, 32, 256), 128, 1, nonkdim=16),
    _program(("e4m3", "e2m1"), (64, 32, 256), 128, 4),
    _program(("e2m1", "e4m3"), (32, 64, 256), 128, 2),
    _program(("e5m2", "e2m1"), (64, 64, 128), 128, 8, 1),
    _program(("bf16", "e2m1"), (32, 64, 256), 128, 4),
    _program(("bf16", "e2m1"), (64, 64, 128), 64, 8, 1),
    _program(("bf16", "e4m3"), (32, 32, 128), 64, 4),
    _program(("fp16", "e2m1"), (32, 32, 128), 64, 4),
)
