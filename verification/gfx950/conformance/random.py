# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import FP32, rounded

BLOCK = 256
SCALE = float(np.float32(4.6566127342e-10))


@triton.jit
def random_kernel(seed_ptr, y_ptr, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Numbers of the stream that the seed names, by their offset."""
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seed = tl.load(seed_ptr)
    inside = offset < count
    if KIND == "randint":
        tl.store(y_ptr + offset, tl.randint(seed, offset), mask=inside)
    elif KIND == "rand":
        tl.store(y_ptr + offset, tl.rand(seed, offset), mask=inside)
    elif KIND == "randn":
        tl.store(y_ptr + offset, tl.randn(seed, offset), mask=inside)
    else:
        a, b, c, d = tl.randint4x(seed, offset)
        tl.store(y_ptr + offset * 4, a, mask=inside)
        tl.store(y_ptr + offset * 4 + 1, b, mask=inside)
        tl.store(y_ptr + offset * 4 + 2, c, mask=inside)
        tl.store(y_ptr + offset * 4 + 3, d, mask=inside)


def philox(seed: int, count: int) -> np.ndarray:
    """Philox 4x32 of ten rounds on the counters (offset, 0, 0, 0): uint32 [4, count]."""
    mask, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    state = [np.arange(count, dtype=np.uint64), *(np.zeros(count, dtype=np.uint64) for _ in range(3))]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        even, odd = state[0] * np.uint64(0xD2511F53), state[2] * np.uint64(0xCD9E8D57)
        state = [
            odd >> word ^ state[1] ^ np.uint64(key[0]),
            odd & mask,
            even >> word ^ state[3] ^ np.uint64(key[1]),
            even & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(state).astype(np.uint32)


def _uniform(drawn: np.ndarray) -> Tensor:
    """The magnitude of the signed word over 2³¹, in fp32, each step rounded."""
    signed = torch.from_numpy(drawn.view(np.int32).astype(np.int64))
    magnitude = torch.where(signed < 0, -signed - 1, signed)
    return rounded(rounded(magnitude.double(), torch.float32) * SCALE, torch.float32)


def _normal(drawn: np.ndarray) -> Expected:
    """Box and Muller: r cos θ with r = √(-2 ln u) right to 8 u and cos to (8 + 2 θ) u."""
    u = _uniform(drawn[0]).clamp(min=float(np.float32(1e-7)))
    angle = 2 * torch.pi * _uniform(drawn[1])
    radius = (-2 * u.log()).sqrt()
    y = radius * angle.cos()
    return Expected(y, y.abs() * 10 * FP32 + radius * (8 + 2 * angle) * FP32)


def _answer(kind: str, seed: int, count: int) -> Expected:
    drawn = philox(seed, count)
    if kind == "randn":
        return _normal(drawn)
    if kind == "rand":
        return Expected(_uniform(drawn[0]))
    words = drawn.T if kind == "randint4x" else drawn[0]
    return Expected(torch.from_numpy(np.ascontiguousarray(words).view(np.int32)))


def _program(kind: str, seed: int, count: int, warps: int) -> Program:
    shape = (count, 4) if kind == "randint4x" else (count,)
    dtype = torch.int32 if kind.startswith("randint") else torch.float32

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        y = torch.empty(shape, dtype=dtype, device=inputs["seed"].device)
        random_kernel[(triton.cdiv(count, BLOCK),)](inputs["seed"], y, count, KIND=kind, BLOCK=BLOCK, num_warps=warps)
        return {"y": y}

    return Program(
        f"random/{kind}/{count}/seed{seed}/warps{warps}",
        (random_kernel,),
        lambda: {"seed": torch.tensor([seed], dtype=torch.int64)},
        run,
        lambda inputs: {"y": _answer(kind, int(inputs["seed"]), count)},
    )


PROGRAMS = (
    _program("randint", 42, 1000, 4),
    _program("randint", 0x123456789ABCDE, 777, 1),
    _program("randint4x", 7, 500, 2),
    _program("rand", 2024, 2000, 8),
    _program("rand", 0, 300, 1),
    _program("randn", 99, 1500, 4),
)
