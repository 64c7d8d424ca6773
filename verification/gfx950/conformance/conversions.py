# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import FORMATS, rounded
from verification.gfx950.conformance.seeded import NAMES, generator, uniform, words

BLOCK = 512
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@triton.jit
def cast_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    """Each element to the output's format."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count)
    tl.store(y_ptr + index, x.to(y_ptr.dtype.element_ty), mask=index < count)


@triton.jit
def narrow_and_back_kernel(x_ptr, y_ptr, count, TO: tl.constexpr, BLOCK: tl.constexpr):
    """Rounded to a narrower format in registers and widened again."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count)
    tl.store(y_ptr + index, x.to(TO).to(tl.float32), mask=index < count)


@triton.jit
def bitcast_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    """The same bits read as fp32, doubled, and written as bits."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count).to(tl.float32, bitcast=True)
    tl.store(y_ptr + index, (x + x).to(tl.int32, bitcast=True), mask=index < count)


def _near_ties(key: str, count: int, narrow: torch.dtype) -> Tensor:
    """Numbers of the narrow format, midpoints between neighbours, and both sides of a midpoint, in fp32."""
    form, draw = FORMATS[narrow], generator(key)
    widest = int(torch.tensor(form.largest).log2().item()) - 1
    least = max(form.least_exponent - form.precision, -100)
    exponent = torch.from_numpy(draw.integers(least, min(widest, 40), count)).double()
    significand = torch.from_numpy(draw.integers(0, 2 ** (form.precision - 1), count)).double()
    nudge = torch.tensor([0.0, 0.5, 0.5 + 2.0**-12, 0.5 - 2.0**-12, 0.25])[torch.arange(count) % 5].double()
    value = (1 + (significand + nudge) * 2.0 ** (1 - form.precision)) * torch.exp2(exponent)
    sign = 1 - 2 * torch.from_numpy(draw.integers(0, 2, count))
    return (sign * value).float()


def _source(key: str, source: torch.dtype, target: torch.dtype, count: int) -> Tensor:
    if not source.is_floating_point:
        drawn = words(key, (count,), source)
        # Wider integers pass through fp32 on their way to bf16 and would be rounded twice.
        return drawn >> 8 if target == torch.bfloat16 and source.itemsize > 2 else drawn
    if not target.is_floating_point:
        return uniform(key, (count,), -120.0, 120.0, source)
    if source.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(source).repeat(2)[:count]
    x = _near_ties(key, count, target if target.itemsize < source.itemsize else source).to(source)
    limit = FORMATS[target].largest
    return torch.where(x.float().abs() > limit, torch.ones_like(x), x)


def _converted(x: Tensor, target: torch.dtype) -> Tensor:
    """Round to nearest even between floats, toward zero to integers, modulo the width between integers."""
    if target.is_floating_point:
        return rounded(x.double(), target)
    return x.to(target)


def _cast(source: torch.dtype, target: torch.dtype, count: int, warps: int) -> Program:
    name = f"conversions/{NAMES[source]}-to-{NAMES[target]}/{count}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = torch.empty(count, dtype=target, device=x.device)
        cast_kernel[(triton.cdiv(count, BLOCK),)](x, y, count, BLOCK=BLOCK, num_warps=warps)
        return {"y": y}

    return Program(
        name,
        (cast_kernel,),
        lambda: {"x": _source(name, source, target, count)},
        run,
        lambda inputs: {"y": Expected(_converted(inputs["x"], target))},
    )


TRITON = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, E4M3: tl.float8e4nv, E5M2: tl.float8e5}


def _narrow_and_back(narrow: torch.dtype, count: int, warps: int) -> Program:
    name = f"conversions/fp32-through-{NAMES[narrow]}/{count}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = torch.empty_like(x)
        grid = (triton.cdiv(count, BLOCK),)
        narrow_and_back_kernel[grid](x, y, count, TO=TRITON[narrow], BLOCK=BLOCK, num_warps=warps)
        return {"y": y}

    return Program(
        name,
        (narrow_and_back_kernel,),
        lambda: {"x": _source(name, torch.float32, narrow, count)},
        run,
        lambda inputs: {"y": Expected(rounded(inputs["x"], narrow))},
    )


def _bitcast(count: int) -> Program:
    """Doubling adds one to the exponent of every finite pattern."""
    name = f"conversions/bitcast/i32/{count}/warps2"

    def patterns() -> dict[str, Tensor]:
        bits = words(name, (count,), torch.int32)
        return {"x": torch.where((bits >> 23 & 0xFF) >= 0xFE, bits & 0x3FFFFFFF, bits)}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"]
        y = torch.empty_like(x)
        bitcast_kernel[(triton.cdiv(count, BLOCK),)](x, y, count, BLOCK=BLOCK, num_warps=2)
        return {"y": y}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        value = inputs["x"].view(torch.float32)
        return {"y": Expected((value.double() * 2).float().view(torch.int32))}

    return Program(name, (bitcast_kernel,), patterns, run, expected)


F32, B16, H16, I32, I16, I8, U8, I64 = (
    torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.int64,
)  # fmt: skip
PAIRS = (
    (F32, B16), (F32, H16), (F32, E4M3), (F32, E5M2), (F32, I32), (F32, I8),
    (B16, F32), (B16, H16), (B16, E4M3), (B16, E5M2), (B16, I32), (B16, I8),
    (H16, F32), (H16, B16), (H16, E4M3), (H16, E5M2), (H16, I32),
    (E4M3, F32), (E4M3, B16), (E4M3, H16), (E5M2, F32), (E5M2, B16), (E5M2, H16),
    (I32, F32), (I32, B16), (I32, H16), (I32, I8), (I32, I64), (I64, I32), (I64, F32),
    (I8, F32), (I8, B16), (I8, H16), (I8, I32), (U8, F32), (U8, I32), (I16, F32),
)  # fmt: skip
PROGRAMS = (
    tuple(
        _cast(source, target, 500 if source.itemsize == 1 else 700 + 61 * (i % 9), (1, 2, 4, 8)[i % 4])
        for i, (source, target) in enumerate(PAIRS)
    )
    + tuple(_narrow_and_back(narrow, 1500, warps) for narrow, warps in ((B16, 1), (H16, 2), (E4M3, 4), (E5M2, 1)))
    + (_bitcast(2000),)
)
