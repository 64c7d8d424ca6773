# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.seeded import NAMES, words

BLOCK = 128


@triton.jit
def arithmetic_kernel(x_ptr, y_ptr, z_ptr, count, BLOCK: tl.constexpr):
    """Sum, difference, product, quotient and remainder (toward zero), least and greatest, three comparisons."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside, other=1)
    y = tl.load(y_ptr + index, mask=inside, other=1)
    one = (y == y).to(x.dtype)
    divisor = tl.where((y == 0) | (y + one == 0), one + one, y)
    tl.store(z_ptr + 0 * count + index, x + y, mask=inside)
    tl.store(z_ptr + 1 * count + index, x - y, mask=inside)
    tl.store(z_ptr + 2 * count + index, x * y, mask=inside)
    tl.store(z_ptr + 3 * count + index, x // divisor, mask=inside)
    tl.store(z_ptr + 4 * count + index, x % divisor, mask=inside)
    tl.store(z_ptr + 5 * count + index, tl.minimum(x, y), mask=inside)
    tl.store(z_ptr + 6 * count + index, tl.maximum(x, y), mask=inside)
    tl.store(z_ptr + 7 * count + index, tl.where(x < y, x, y - x), mask=inside)
    tl.store(z_ptr + 8 * count + index, (x >= y).to(x.dtype) + (x != y).to(x.dtype), mask=inside)


@triton.jit
def bits_kernel(x_ptr, y_ptr, z_ptr, count, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """And, or, exclusive or, not, and both shifts by less than the width."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside, other=1)
    y = tl.load(y_ptr + index, mask=inside, other=1)
    shift = y & (BITS - 1)
    tl.store(z_ptr + 0 * count + index, x & y, mask=inside)
    tl.store(z_ptr + 1 * count + index, x | y, mask=inside)
    tl.store(z_ptr + 2 * count + index, x ^ y, mask=inside)
    tl.store(z_ptr + 3 * count + index, ~x, mask=inside)
    tl.store(z_ptr + 4 * count + index, x << shift, mask=inside)
    tl.store(z_ptr + 5 * count + index, x >> shift, mask=inside)


@triton.jit
def high_product_kernel(x_ptr, y_ptr, z_ptr, count, BLOCK: tl.constexpr):
    """The upper half of the unsigned product."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count, other=1)
    y = tl.load(y_ptr + index, mask=index < count, other=1)
    tl.store(z_ptr + index, tl.umulhi(x, y), mask=index < count)


@triton.jit
def remainder_chain_kernel(x_ptr, y_ptr, z_ptr, w_ptr, count, BLOCK: tl.constexpr):
    """An index taken apart and put together: (x mod a) b + x div a, with runtime and constant divisors."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    x = tl.load(x_ptr + index, mask=inside, other=1)
    a = tl.load(y_ptr + index, mask=inside, other=1)
    b = tl.load(z_ptr + index, mask=inside, other=1)
    tl.store(w_ptr + index, (x % a) * b + x // a + x % 7 * 3 - x // 12, mask=inside)


def _drawn(key: str, dtype: torch.dtype, count: int) -> dict[str, Tensor]:
    """Random bits; every fifth divisor is small."""
    x, y = words(key + "x", (count,), dtype), words(key + "y", (count,), dtype)
    small = torch.arange(count) % 5 == 0
    return {"x": x, "y": torch.where(small, (y & 7).to(dtype), y)}


def _program(
    kind: str, kernel, dtype: torch.dtype, rows: int, count: int, warps: int, reference, **constants: int
) -> Program:
    name = f"integers/{kind}/{NAMES[dtype]}/{count}/warps{warps}"

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y = inputs["x"], inputs["y"]
        z = torch.empty((rows, count), dtype=dtype, device=x.device)
        kernel[(triton.cdiv(count, BLOCK),)](x, y, z, count, **constants, BLOCK=BLOCK, num_warps=warps)
        return {"z": z}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        with np.errstate(over="ignore"):
            z = reference(inputs["x"].numpy(), inputs["y"].numpy())
        return {"z": Expected(torch.from_numpy(np.stack(z)))}

    return Program(name, (kernel,), lambda: _drawn(name, dtype, count), run, expected)


def _arithmetic(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    one = np.ones_like(y)
    divisor = np.where((y == 0) | (y + one == 0), one + one, y)
    remainder = np.fmod(x, divisor)
    quotient = (x - remainder) // divisor
    compared = (x >= y).astype(x.dtype) + (x != y).astype(x.dtype)
    return [
        x + y, x - y, x * y, quotient, remainder, np.minimum(x, y), np.maximum(x, y), np.where(x < y, x, y - x),
        compared,
    ]  # fmt: skip


def _bits(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    shift = y & np.array(8 * x.dtype.itemsize - 1, dtype=x.dtype)
    return [x & y, x | y, x ^ y, ~x, x << shift, x >> shift]


def _high_product(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    width = 8 * x.dtype.itemsize
    unsigned = f"u{x.dtype.itemsize}"
    pairs = zip(x.view(unsigned).tolist(), y.view(unsigned).tolist(), strict=True)
    return [np.array([a * b >> width for a, b in pairs], dtype=unsigned).view(x.dtype)]


def _remainders(dtype: torch.dtype, count: int, warps: int) -> Program:
    name = f"integers/remainders/{NAMES[dtype]}/{count}/warps{warps}"

    def inputs() -> dict[str, Tensor]:
        x, y, z = (words(name + key, (count,), dtype) for key in "xyz")
        return {"x": x & 0xFFFFFF, "y": (y & 0xFFF) + 1, "z": z & 0x3F}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, z = (inputs[key] for key in "xyz")
        w = torch.empty_like(x)
        remainder_chain_kernel[(triton.cdiv(count, BLOCK),)](x, y, z, w, count, BLOCK=BLOCK, num_warps=warps)
        return {"w": w}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, a, b = (inputs[key].to(torch.int64) for key in "xyz")
        return {"w": Expected((x % a) * b + x // a + x % 7 * 3 - x // 12)}

    return Program(name, (remainder_chain_kernel,), inputs, run, expected)


TYPES = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
WARPS = (1, 2, 4, 8, 1)
PROGRAMS = (
    tuple(
        _program("arithmetic", arithmetic_kernel, dtype, 9, 333 + 50 * i, WARPS[i], _arithmetic)
        for i, dtype in enumerate(TYPES)
    )
    + tuple(
        _program("bits", bits_kernel, dtype, 6, 301 + 50 * i, WARPS[4 - i], _bits, BITS=8 * dtype.itemsize)
        for i, dtype in enumerate(TYPES)
    )
    + tuple(
        _program("umulhi", high_product_kernel, dtype, 1, 999, warps, _high_product)
        for dtype, warps in ((torch.int32, 4), (torch.int64, 2))
    )
    + (_remainders(torch.int32, 1111, 2), _remainders(torch.int64, 555, 4))
)
