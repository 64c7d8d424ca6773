# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import FORMATS, FP32, dot_bound, gamma, stored
from verification.gfx950.conformance.seeded import NAMES, normal


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, queries, keys, scale,
    HEAD: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, CAUSAL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """softmax(scale Q Kᵀ) V of a tile of queries, with a running maximum and sum; `scale` carries log₂e."""
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    feature, step = tl.arange(0, HEAD), tl.arange(0, TILE_K)
    q_offset = (head * queries + row[:, None]) * HEAD + feature[None, :]
    q = tl.load(q_ptr + q_offset, mask=row[:, None] < queries, other=0.0)
    greatest = tl.full((TILE_Q,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((TILE_Q,), dtype=tl.float32)
    mixed = tl.zeros((TILE_Q, HEAD), dtype=tl.float32)
    last = keys
    if CAUSAL:
        last = tl.minimum(keys, (tl.program_id(0) + 1) * TILE_Q)
    for start in tl.range(0, last, TILE_K, num_stages=STAGES):
        key = start + step
        offset = (head * keys + key[:, None]) * HEAD + feature[None, :]
        k = tl.load(k_ptr + offset, mask=key[:, None] < keys, other=0.0)
        score = tl.dot(q, tl.trans(k)) * scale
        seen = key[None, :] < keys
        if CAUSAL:
            seen = seen & (key[None, :] <= row[:, None])
        score = tl.where(seen, score, float("-inf"))
        higher = tl.maximum(greatest, tl.max(score, axis=1))
        weight = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(greatest - higher)
        total = total * shrink + tl.sum(weight, axis=1)
        v = tl.load(v_ptr + offset, mask=key[:, None] < keys, other=0.0)
        mixed = tl.dot(weight.to(v.dtype), v, acc=mixed * shrink[:, None])
        greatest = higher
    o = mixed / total[:, None]
    tl.store(o_ptr + q_offset, o.to(o_ptr.dtype.element_ty), mask=row[:, None] < queries)


def _attended(q: Tensor, k: Tensor, v: Tensor, causal: bool, tile: int) -> tuple[Tensor, Tensor]:
    """Scores err by ε; weights by δ = ε + (3 d + 4 + 8 tiles) u, d their depth; p's rounding is the format's.

    e = Σ p|v| (δ + u_format + γ(n + 2 tiles)) + |o| (Σ p δ + γ(n + 2 tiles) + 5 u).
    """
    dtype, scale = q.dtype, 1 / math.sqrt(q.shape[-1])
    q, k, v = q.double(), k.double(), v.double()
    score, error = scale * (q @ k.mT), scale * dot_bound(q, k.mT)
    if causal:
        score = score.masked_fill(torch.ones(score.shape[-2:]).triu(1).bool(), -torch.inf)
    p = torch.softmax(score, -1)
    depth = torch.nan_to_num(score.amax(-1, keepdim=True) - score, posinf=0.0)
    tiles, keys = -(-k.shape[-2] // tile), k.shape[-2]
    delta = error + (3 * depth + 3 * score.abs().nan_to_num(posinf=0.0) + 4 + 8 * tiles) * FP32
    delta = torch.where(p > 0, delta, 0.0)
    sums = gamma(keys + 2 * tiles, 2 * FP32)
    o = p @ v
    spread = (p * (delta + FORMATS[dtype].unit + sums)) @ v.abs()
    bound = spread + o.abs() * ((p * delta).sum(-1, keepdim=True) + sums + 5 * FP32)
    return o, 1.01 * bound + FORMATS[dtype].subnormal * v.abs().sum(-2, keepdim=True)


def _program(
    dtype: torch.dtype,
    shape: tuple[int, int, int, int],
    tile: tuple[int, int],
    causal: bool,
    warps: int,
    stages: int,
) -> Program:
    heads, queries, keys, size = shape
    kind = "causal" if causal else "full"
    sizes = f"heads{heads}/{queries}x{keys}x{size}"
    name = f"attention/{kind}/{NAMES[dtype]}/{sizes}/tile{tile[0]}x{tile[1]}/warps{warps}/stages{stages}"

    def draw() -> dict[str, Tensor]:
        lengths = {"q": queries, "k": keys, "v": keys}
        return {key: normal(name + key, (heads, length, size), dtype) for key, length in lengths.items()}

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        q, k, v = (inputs[key] for key in "qkv")
        o = torch.empty_like(q)
        scale = math.log2(math.e) / math.sqrt(size)
        attention_kernel[(triton.cdiv(queries, tile[0]), heads)](
            q, k, v, o, queries, keys, scale, HEAD=size, TILE_Q=tile[0], TILE_K=tile[1], CAUSAL=causal,
            STAGES=stages, num_warps=warps,
        )  # fmt: skip
        return {"o": o}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        o, error = _attended(inputs["q"], inputs["k"], inputs["v"], causal, tile[1])
        return {"o": Expected(o, stored(o, error, dtype))}

    return Program(name, (attention_kernel,), draw, run, expected)


B16, H16 = torch.bfloat16, torch.float16
PROGRAMS = (
    _program(B16, (1, 64, 64, 64), (64, 64), False, 4, 1),
    _program(B16, (2, 100, 150, 64), (64, 32), False, 4, 2),
    _program(B16, (2, 128, 128, 64), (64, 32), True, 4, 2),
    _program(B16, (1, 90, 90, 128), (32, 32), True, 4, 1),
    _program(B16, (1, 128, 256, 128), (128, 64), False, 8, 3),
    _program(B16, (1, 128, 128, 128), (128, 64), True, 8, 2),
    _program(H16, (2, 60, 200, 64), (32, 64), False, 2, 2),
    _program(B16, (3, 1, 300, 128), (16, 64), False, 1, 2),
    _program(B16, (8, 100, 150, 64), (64, 32), False, 4, 2),
    _program(B16, (8, 128, 128, 64), (64, 32), True, 4, 2),
    _program(H16, (16, 60, 200, 64), (32, 64), False, 2, 2),
)
