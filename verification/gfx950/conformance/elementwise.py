# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import FP32, half_ulp, rounded, ulps
from verification.gfx950.conformance.seeded import NAMES, normal, uniform

BLOCK = 256
Function = Callable[[Tensor], Tensor]


@triton.jit
def unary_kernel(x_ptr, y_ptr, count, OP: tl.constexpr, BLOCK: tl.constexpr):
    """One argument: y = f(x)."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count, other=1.0)
    if OP == "exp":
        y = tl.exp(x)
    elif OP == "exp2":
        y = tl.exp2(x)
    elif OP == "log":
        y = tl.log(x)
    elif OP == "log2":
        y = tl.log2(x)
    elif OP == "sqrt":
        y = tl.sqrt(x)
    elif OP == "sqrt_rn":
        y = tl.sqrt_rn(x)
    elif OP == "rsqrt":
        y = tl.rsqrt(x)
    elif OP == "sin":
        y = tl.sin(x)
    elif OP == "cos":
        y = tl.cos(x)
    elif OP == "erf":
        y = tl.erf(x)
    elif OP == "sigmoid":
        y = tl.sigmoid(x)
    elif OP == "silu":
        y = x / (1.0 + tl.exp(-x))
    elif OP == "floor":
        y = tl.floor(x)
    elif OP == "ceil":
        y = tl.ceil(x)
    elif OP == "abs":
        y = tl.abs(x)
    else:
        y = -x
    tl.store(y_ptr + index, y, mask=index < count)


@triton.jit
def binary_kernel(x_ptr, y_ptr, z_ptr, count, OP: tl.constexpr, BLOCK: tl.constexpr):
    """Two arguments: z = f(x, y)."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count, other=1.0)
    y = tl.load(y_ptr + index, mask=index < count, other=1.0)
    if OP == "add":
        z = x + y
    elif OP == "sub":
        z = x - y
    elif OP == "mul":
        z = x * y
    elif OP == "div":
        z = x / y
    elif OP == "div_rn":
        z = tl.div_rn(x, y)
    elif OP == "max_number":
        z = tl.maximum(x, y)
    elif OP == "min_number":
        z = tl.minimum(x, y)
    elif OP == "max_nan":
        z = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "min_nan":
        z = tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
    else:
        z = tl.where(x < y, x, tl.where(x == y, 0.5 * x, -y))
    tl.store(z_ptr + index, z.to(z_ptr.dtype.element_ty), mask=index < count)


@triton.jit
def ternary_kernel(x_ptr, y_ptr, z_ptr, w_ptr, count, OP: tl.constexpr, BLOCK: tl.constexpr):
    """Three arguments: w = f(x, y, z)."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < count, other=1.0)
    y = tl.load(y_ptr + index, mask=index < count, other=1.0)
    z = tl.load(z_ptr + index, mask=index < count, other=1.0)
    if OP == "fma":
        w = tl.fma(x, y, z)
    elif OP == "clamp_number":
        w = tl.clamp(x, tl.minimum(y, z), tl.maximum(y, z))
    else:
        w = tl.clamp(x, tl.minimum(y, z), tl.maximum(y, z), propagate_nan=tl.PropagateNan.ALL)
    tl.store(w_ptr + index, w, mask=index < count)


def _specials(dtype: torch.dtype) -> Tensor:
    form = torch.finfo(dtype)
    least = form.smallest_normal * form.eps
    half = [0.0, least, 3 * least, form.smallest_normal, 0.3, 1.0, 1 + form.eps, 1e3, form.max, torch.inf]
    return torch.tensor([*half, *(-v for v in half), torch.nan], dtype=torch.float64).to(dtype)


def _pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    values = _specials(dtype)
    return values.repeat_interleave(len(values)), values.repeat(len(values))


def _grid(count: int) -> tuple[int]:
    return (triton.cdiv(count, BLOCK),)


def _exp(x: Tensor, y: Tensor) -> Tensor:
    """The function as 2^(x log₂e): (2|x| + 4) u |y|, subnormals may flush."""
    return y.abs() * (2 * x.abs() + 4) * FP32 + ulps(y, 0)


def _sigmoid(x: Tensor, y: Tensor) -> Tensor:
    """1 / (1 + exp(-x)): exp's error, an addition, and a quotient of 2.5 ulps."""
    return y.abs() * (2 * x.abs() + 10) * FP32 + ulps(y, 0)


def _limit(count: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: ulps(y, count)


# Where no formula says more, the limits are those of OpenCL's full profile in ulps.
UNARY: dict[str, tuple[float, float, Function, Callable[[Tensor, Tensor], Tensor] | None, int]] = {
    "exp": (-90.0, 88.0, torch.exp, _exp, 1),
    "exp2": (-130.0, 127.0, torch.exp2, _limit(2), 2),
    "log": (1e-6, 4.0, torch.log, _limit(3), 4),
    "log2": (1e-6, 900.0, torch.log2, _limit(3), 8),
    "sqrt": (0.0, 1e6, torch.sqrt, _limit(1), 1),
    "sqrt_rn": (0.0, 10.0, torch.sqrt, None, 2),
    "rsqrt": (1e-3, 1e3, torch.rsqrt, _limit(2), 4),
    "sin": (-200.0, 200.0, torch.sin, _limit(4), 8),
    "cos": (-200.0, 200.0, torch.cos, _limit(4), 1),
    "erf": (-5.0, 5.0, torch.erf, _limit(16), 2),
    "sigmoid": (-30.0, 30.0, torch.sigmoid, _sigmoid, 4),
    "silu": (-30.0, 30.0, lambda x: x * torch.sigmoid(x), _sigmoid, 8),
    "floor": (-50.0, 50.0, torch.floor, None, 1),
    "ceil": (-50.0, 50.0, torch.ceil, None, 2),
    "abs": (-50.0, 50.0, torch.abs, None, 4),
    "neg": (-50.0, 50.0, torch.neg, None, 8),
}


def _launch_unary(inputs: dict[str, Tensor], op: str, warps: int) -> dict[str, Tensor]:
    x = inputs["x"]
    y = torch.empty_like(x)
    unary_kernel[_grid(x.numel())](x, y, x.numel(), OP=op, BLOCK=BLOCK, num_warps=warps)
    return {"y": y}


def _unary(op: str, count: int) -> Program:
    low, high, function, limit, warps = UNARY[op]

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x = inputs["x"].double()
        y = function(x)
        return {"y": Expected(rounded(y, torch.float32)) if limit is None else Expected(y, limit(x, y))}

    name = f"elementwise/{op}/fp32/{count}/warps{warps}"
    return Program(
        name,
        (unary_kernel,),
        lambda: {"x": uniform(name, (count,), low, high)},
        lambda inputs: _launch_unary(inputs, op, warps),
        expected,
    )


def _unary_specials(op: str) -> Program:
    """Zeros, subnormals, the largest numbers, infinities and NaN, where the answers are exact."""
    function = UNARY[op][2]
    return Program(
        f"elementwise/{op}/fp32/specials/warps1",
        (unary_kernel,),
        lambda: {"x": _specials(torch.float32)},
        lambda inputs: _launch_unary(inputs, op, 1),
        lambda inputs: {"y": Expected(rounded(function(inputs["x"].double()), torch.float32))},
    )


def _where(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x < y, x, torch.where(x == y, 0.5 * x, -y))


def _maximum_number(x: Tensor, y: Tensor) -> Tensor:
    return torch.from_numpy(np.fmax(x.numpy(), y.numpy()))


def _minimum_number(x: Tensor, y: Tensor) -> Tensor:
    return torch.from_numpy(np.fmin(x.numpy(), y.numpy()))


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "div_rn": torch.div,
    "max_number": _maximum_number,
    "min_number": _minimum_number,
    "max_nan": torch.maximum,
    "min_nan": torch.minimum,
    "where": _where,
}


def _launch_binary(inputs: dict[str, Tensor], op: str, warps: int) -> dict[str, Tensor]:
    x, y = inputs["x"], inputs["y"]
    z = torch.empty_like(x)
    binary_kernel[_grid(x.numel())](x, y, z, x.numel(), OP=op, BLOCK=BLOCK, num_warps=warps)
    return {"z": z}


def _binary(op: str, dtype: torch.dtype, count: int, warps: int, specials: bool = False) -> Program:
    name = f"elementwise/{op}/{NAMES[dtype]}/{'specials' if specials else count}/warps{warps}"

    def inputs() -> dict[str, Tensor]:
        if specials:
            return dict(zip(("x", "y"), _pairs(dtype), strict=True))
        return {"x": normal(name + "x", (count,), dtype, 3.0), "y": normal(name + "y", (count,), dtype)}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, y = inputs["x"].double(), inputs["y"].double()
        z = BINARY[op](x, y)
        if op == "div":  # OpenCL's 2.5 ulps of fp32, then the format's rounding
            bound = ulps(z, 2.5) + (half_ulp(z, dtype) if dtype != torch.float32 else 0.0)
            return {"z": Expected(z, bound)}
        unsigned = (x == 0) & (y == 0) if op.startswith(("max", "min")) else torch.zeros_like(x, dtype=torch.bool)
        return {"z": Expected(rounded(z, dtype), torch.where(unsigned, 2.0**-100, 0.0))}

    return Program(name, (binary_kernel,), inputs, lambda inputs: _launch_binary(inputs, op, warps), expected)


def _fma_inputs(key: str, count: int) -> dict[str, Tensor]:
    """Factors of [1, 2) and addends of the product's size: the exact sum has fewer than 53 bits."""
    x, y, z = (uniform(key + name, (count,), 1.0, 2.0) for name in "xyz")
    sign = torch.where(torch.arange(count) % 3 == 0, 1.0, -1.0)
    return {"x": x, "y": y * sign, "z": torch.where(torch.arange(count) % 2 == 0, -(x * y * sign), 2 * z)}


def _ternary(op: str, count: int, warps: int) -> Program:
    name = f"elementwise/{op}/fp32/{count}/warps{warps}"

    def inputs() -> dict[str, Tensor]:
        if op == "fma":
            return _fma_inputs(name, count)
        tensors = {key: normal(name + key, (count,)) for key in "xyz"}
        tensors["x"][::7] = torch.nan
        return tensors

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, z = (inputs[key] for key in "xyz")
        w = torch.empty_like(x)
        ternary_kernel[_grid(count)](x, y, z, w, count, OP=op, BLOCK=BLOCK, num_warps=warps)
        return {"w": w}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        x, y, z = (inputs[key].double() for key in "xyz")
        if op == "fma":
            return {"w": Expected(rounded(x * y + z, torch.float32))}
        low, high = torch.minimum(y, z), torch.maximum(y, z)
        clamped = torch.minimum(torch.maximum(x, low), high)
        # Without propagation a NaN gives either end, by the order of the two comparisons: leave it out.
        numbers = torch.where(x.isnan(), low, clamped) if op == "clamp_number" else clamped
        slack = torch.where(x.isnan(), high - low, 0.0) if op == "clamp_number" else 0.0
        return {"w": Expected(numbers, slack)}

    return Program(name, (ternary_kernel,), inputs, run, expected)


FLOATS = (torch.float32, torch.bfloat16, torch.float16)
PROGRAMS = (
    tuple(_unary(op, 1000 + 37 * i) for i, op in enumerate(UNARY))
    + tuple(_unary_specials(op) for op in ("sqrt_rn", "floor", "ceil", "abs", "neg"))
    + tuple(
        _binary(op, torch.float32, 1023, warps)
        for op, warps in zip(BINARY, (1, 2, 4, 8, 1, 2, 4, 8, 1, 2), strict=True)
    )
    + tuple(_binary("add", dtype, 4099, 8) for dtype in FLOATS)
    + tuple(_binary(op, dtype, 513, 2) for op in ("mul", "sub", "div") for dtype in FLOATS[1:])
    + tuple(_binary(op, torch.float32, 0, 1, True) for op in BINARY if op not in ("div", "div_rn", "sub"))
    + tuple(_binary(op, dtype, 0, 2, True) for op in ("add", "mul", "max_nan") for dtype in FLOATS[1:])
    + (_ternary("fma", 777, 4), _ternary("clamp_number", 500, 1), _ternary("clamp_nan", 500, 2))
)
