# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import rounded
from verification.gfx950.conformance.scaled_dots import HALVES
from verification.gfx950.conformance.seeded import NAMES, normal

GROUP = 32


@triton.jit
def int8_rows_kernel(x_ptr, q_ptr, scale_ptr, width, WIDTH: tl.constexpr):
    """A row over its greatest magnitude / 127, halves rounded up."""
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * width + column, mask=column < width, other=0.0).to(tl.float32)
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10), 127.0)
    q = tl.floor(tl.div_rn(x, tl.zeros_like(x) + scale) + 0.5)
    tl.store(q_ptr + row * width + column, q.to(tl.int8), mask=column < width)
    tl.store(scale_ptr + row, scale)


@triton.jit
def fp8_blocks_kernel(x_ptr, q_ptr, scale_ptr, N, LARGEST: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """A tile over its greatest magnitude / the format's largest number."""
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    column = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    offset = row[:, None] * N + column[None, :]
    x = tl.load(x_ptr + offset).to(tl.float32)
    scale = tl.div_rn(tl.max(tl.max(tl.abs(x), axis=1), axis=0), LARGEST)
    q = tl.div_rn(x, tl.zeros_like(x) + scale)
    tl.store(q_ptr + offset, q.to(q_ptr.dtype.element_ty))
    tl.store(scale_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), scale)


@triton.jit
def shared_exponent(x, GREATEST: tl.constexpr):
    """A group's e8m0 scale, floor(log₂ max|x|) - GREATEST, and the elements divided by it."""
    bits = tl.max(tl.abs(x), axis=1).to(tl.int32, bitcast=True)
    exponent = tl.maximum((bits >> 23) - GREATEST, 1)
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    return exponent.to(tl.uint8), x * inverse[:, None]


@triton.jit
def mxfp8_kernel(x_ptr, q_ptr, scale_ptr, GREATEST: tl.constexpr, LARGEST: tl.constexpr, GROUPS: tl.constexpr):
    """Groups of 32 with a power of two each, elements saturated and rounded to fp8."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    offset = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    scale, y = shared_exponent(tl.load(x_ptr + offset).to(tl.float32), GREATEST)
    y = tl.minimum(tl.maximum(y, -LARGEST), LARGEST)
    tl.store(q_ptr + offset, y.to(q_ptr.dtype.element_ty))
    tl.store(scale_ptr + group, scale)


@triton.jit
def mxfp4_kernel(x_ptr, q_ptr, scale_ptr, GROUPS: tl.constexpr):
    """Groups of 32 with a power of two each, elements to e2m1, two a byte with the first in the lower bits."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    offset = group[:, None] * 32 + tl.arange(0, 32)[None, :]
    scale, y = shared_exponent(tl.load(x_ptr + offset).to(tl.float32), 2)
    a = tl.abs(y)
    low = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32) + (a >= 1.75).to(tl.int32)
    code = low + (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32) + (a > 5.0).to(tl.int32)
    code = code | (y.to(tl.int32, bitcast=True) >> 28 & 8)
    first, second = tl.split(tl.reshape(code, (GROUPS, 16, 2)))
    byte = group[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(q_ptr + byte, (first | (second << 4)).to(tl.uint8))
    tl.store(scale_ptr + group, scale)


def _int8(dtype: torch.dtype, rows: int, width: int, warps: int) -> Program:
    name = f"quantisers/int8-rows/{NAMES[dtype]}/{rows}x{width}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        q, scale = torch.empty_like(x, dtype=torch.int8), x.new_empty(rows, dtype=torch.float32)
        int8_rows_kernel[(rows,)](x, q, scale, width, WIDTH=triton.next_power_of_2(width), num_warps=warps)
        return {"q": q, "scale": scale}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, single = inputs["x"].double(), torch.float32
        scale = rounded(x.abs().amax(-1) / 127, single)
        q = rounded(rounded(x / scale[:, None], single) + 0.5, single).floor()
        return {"q": Expected(q.to(torch.int8)), "scale": Expected(scale)}

    draw = lambda: {"x": normal(name, (rows, width), dtype)}  # noqa: E731
    return Program(name, (int8_rows_kernel,), draw, run, expected)


GREATEST = {torch.float8_e4m3fn: (8, 448.0), torch.float8_e5m2: (15, 57344.0)}


def _bytes(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).view(torch.uint8)


def _fp8(dtype: torch.dtype, shape: tuple[int, int], tile: tuple[int, int], warps: int) -> Program:
    name = f"quantisers/{NAMES[dtype]}-blocks/bf16/{shape[0]}x{shape[1]}/tile{tile[0]}x{tile[1]}/warps{warps}"
    grid = (shape[0] // tile[0], shape[1] // tile[1])

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        q, scale = torch.empty_like(x, dtype=dtype), x.new_empty(grid, dtype=torch.float32)
        sizes = {"TILE_M": tile[0], "TILE_N": tile[1]}
        fp8_blocks_kernel[grid](x, q, scale, shape[1], LARGEST=GREATEST[dtype][1], **sizes, num_warps=warps)
        return {"q": q.view(torch.uint8), "scale": scale}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        tiles = inputs["x"].double().reshape(grid[0], tile[0], grid[1], tile[1])
        scale = rounded(tiles.abs().amax((1, 3)) / GREATEST[dtype][1], torch.float32)
        single = rounded(tiles / scale[:, None, :, None], torch.float32)
        q = rounded(single, dtype).reshape(shape).float()
        return {"q": Expected(_bytes(q, dtype)), "scale": Expected(scale)}

    draw = lambda: {"x": normal(name, shape, torch.bfloat16)}  # noqa: E731
    return Program(name, (fp8_blocks_kernel,), draw, run, expected)


def _shared(x: Tensor, greatest: int) -> tuple[Tensor, Tensor]:
    groups = x.double().reshape(-1, GROUP)
    exponent = torch.frexp(groups.abs().amax(-1)).exponent - 1 - greatest
    return exponent + 127, torch.ldexp(groups, -exponent[:, None])


def _nearest_e2m1(y: Tensor) -> Tensor:
    """The code of the nearest e2m1, ties to the even code, saturated; bit 3 is the sign."""
    distance = (y.abs()[..., None] - HALVES).abs()
    even_first = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    code = even_first[distance[..., even_first].argmin(-1)]
    return code | (torch.signbit(y).long() << 3)


def _microscaled(dtype: torch.dtype | None, source: torch.dtype, groups: int, tile: int, warps: int) -> Program:
    """`dtype` None is e2m1."""
    form = "mxfp4" if dtype is None else f"mx{NAMES[dtype]}"
    name = f"quantisers/{form}/{NAMES[source]}/{groups}x{GROUP}/warps{warps}"
    kernel: Callable[..., None] = mxfp4_kernel if dtype is None else mxfp8_kernel

    def draw() -> dict[str, Tensor]:
        spread = torch.exp2(normal(name + "scale", (groups, 1), scale=5.0))
        return {"x": (normal(name, (groups, GROUP)) * spread).to(source)}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        scale = x.new_empty(groups, dtype=torch.uint8)
        if dtype is None:
            q = x.new_empty((groups, GROUP // 2), dtype=torch.uint8)
            mxfp4_kernel[(groups // tile,)](x, q, scale, GROUPS=tile, num_warps=warps)
        else:
            q = torch.empty_like(x, dtype=dtype)
            greatest, largest = GREATEST[dtype]
            mxfp8_kernel[(groups // tile,)](
                x, q, scale, GREATEST=greatest, LARGEST=largest, GROUPS=tile, num_warps=warps
            )
        return {"q": q.view(torch.uint8), "scale": scale}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        greatest, largest = (2, 6.0) if dtype is None else GREATEST[dtype]
        scale, y = _shared(inputs["x"], greatest)
        if dtype is None:
            code = _nearest_e2m1(y).reshape(groups, GROUP // 2, 2)
            q = code[..., 0] | code[..., 1] << 4
        else:
            q = _bytes(rounded(y.clamp(-largest, largest), dtype).float(), dtype)
        return {"q": Expected(q), "scale": Expected(scale)}

    return Program(name, (kernel,), draw, run, expected)


F32, B16, E4M3, E5M2 = torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
PROGRAMS = (
    _int8(F32, 7, 500, 1), _int8(B16, 5, 2000, 4), _fp8(E4M3, (64, 256), (32, 128), 4),
    _fp8(E5M2, (32, 128), (16, 64), 2), _fp8(E4M3, (8, 512), (1, 128), 1),
    _microscaled(E4M3, F32, 64, 16, 4), _microscaled(E5M2, B16, 128, 32, 2), _microscaled(E4M3, B16, 96, 8, 1),
    _microscaled(None, F32, 64, 16, 1), _microscaled(None, B16, 256, 64, 4),
)  # fmt: skip
