# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verification.gfx950.conformance import Expected, Program
from verification.gfx950.conformance.bounds import FP32, dot_bound, gamma, stored
from verification.gfx950.conformance.seeded import NAMES, normal, uniform


@triton.jit
def delta_rule_kernel(
    q_ptr, k_ptr, v_ptr, beta_ptr, o_ptr, state_ptr, length,
    CHUNK: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
):  # fmt: skip
    """S ← S + β k (v - Sᵀk)ᵀ and o = Sᵀq, a chunk at a time by forward substitution."""
    head = tl.program_id(0).to(tl.int64)
    step, key, value = tl.arange(0, CHUNK), tl.arange(0, KEY), tl.arange(0, VALUE)
    state = tl.zeros((KEY, VALUE), dtype=tl.float32)
    for start in range(0, length, CHUNK):
        time = head * length + start + step
        inside = (start + step < length)[:, None]
        q = tl.load(q_ptr + time[:, None] * KEY + key[None, :], mask=inside, other=0.0)
        k = tl.load(k_ptr + time[:, None] * KEY + key[None, :], mask=inside, other=0.0)
        v = tl.load(v_ptr + time[:, None] * VALUE + value[None, :], mask=inside, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + time, mask=start + step < length, other=0.0)
        past = step[:, None] > step[None, :]
        known = tl.dot(k, state.to(k.dtype), input_precision="ieee")
        update = beta[:, None] * (v - known)
        overlap = tl.where(past, beta[:, None] * tl.dot(k, tl.trans(k), input_precision="ieee"), 0.0)
        for i in range(1, CHUNK):
            row = tl.sum(tl.where((step == i)[:, None], overlap, 0.0), axis=0)
            correction = tl.sum(row[:, None] * update, axis=0)
            update = tl.where((step == i)[:, None], update - correction[None, :], update)
        seen = tl.where(past | (step[:, None] == step[None, :]), tl.dot(q, tl.trans(k), input_precision="ieee"), 0.0)
        narrow = update.to(k.dtype)
        o = tl.dot(q, state.to(k.dtype), input_precision="ieee")
        o = tl.dot(seen.to(k.dtype), narrow, acc=o, input_precision="ieee")
        tl.store(o_ptr + time[:, None] * VALUE + value[None, :], o.to(o_ptr.dtype.element_ty), mask=inside)
        state = tl.dot(tl.trans(k), narrow, acc=state, input_precision="ieee")
    tl.store(state_ptr + (head * KEY + key[:, None]) * VALUE + value[None, :], state)


class Uncertain:
    """A matrix with the largest error of each element; operations carry both."""

    def __init__(self, value: Tensor, error: Tensor | None = None) -> None:
        self.value = value.double()
        self.error = torch.zeros_like(self.value) if error is None else error

    def narrowed(self, dtype: torch.dtype) -> Uncertain:
        """Rounded to the format of a matrix product's operands."""
        return self if dtype == torch.float32 else Uncertain(self.value, stored(self.value, self.error, dtype))

    def dot(self, other: Uncertain) -> Uncertain:
        """Errors of AB: eₐ|B| + |A|e_b + eₐe_b + dot_bound(|A| + eₐ, |B| + e_b)."""
        a, b = self.value.abs(), other.value.abs()
        carried = self.error @ b + a @ other.error + self.error @ other.error
        return Uncertain(self.value @ other.value, carried + dot_bound(a + self.error, b + other.error))

    def plus(self, other: Uncertain, sign: float = 1.0) -> Uncertain:
        """Errors of a ± b: e + 2 u (|a| + |b| + e), which covers an accumulator's own rounding."""
        value, error = self.value + sign * other.value, self.error + other.error
        return Uncertain(value, error + 2 * FP32 * (self.value.abs() + other.value.abs() + error))

    def times(self, scale: Tensor) -> Uncertain:
        """By exactly known factors, rounded."""
        magnitude = scale.double().abs()
        error = magnitude * (self.error + FP32 * (self.value.abs() + self.error))
        return Uncertain(scale.double() * self.value, error)


def _substituted(w: Uncertain, overlap: Uncertain) -> Uncertain:
    """Rows uᵢ = wᵢ - Σ_{j<i} aᵢⱼ uⱼ with their errors, γ(C + 2) of the magnitudes and what earlier rows carry."""
    value, error = w.value.clone(), w.error.clone()
    steps = len(value)
    for i in range(1, steps):
        a, e = overlap.value[i, :i], overlap.error[i, :i]
        size = (a.abs() + e) @ (value[:i].abs() + error[:i])
        carried = a.abs() @ error[:i] + e @ (value[:i].abs() + error[:i])
        value[i] = w.value[i] - a @ value[:i]
        error[i] = w.error[i] + carried + gamma(steps + 2) * (size + w.value[i].abs() + w.error[i])
    return Uncertain(value, error)


def _head(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, chunk: int) -> tuple[Uncertain, Uncertain]:
    dtype, outputs = k.dtype, []
    state = Uncertain(torch.zeros(k.shape[1], v.shape[1]))
    for start in range(0, len(k), chunk):
        part = slice(start, start + chunk)
        Q, K, V, scale = Uncertain(q[part]), Uncertain(k[part]), Uncertain(v[part]), beta[part, None]
        keys = Uncertain(K.value.T)
        w = V.plus(K.dot(state.narrowed(dtype)), -1.0).times(scale)
        overlap, seen = K.dot(keys).times(scale), Q.dot(keys)
        update = _substituted(w, Uncertain(overlap.value.tril(-1), overlap.error.tril(-1))).narrowed(dtype)
        seen = Uncertain(seen.value.tril(), seen.error.tril()).narrowed(dtype)
        outputs.append(Q.dot(state.narrowed(dtype)).plus(seen.dot(update)))
        state = state.plus(keys.dot(update))
    value, error = (torch.cat([getattr(o, part) for o in outputs]) for part in ("value", "error"))
    return Uncertain(value, error), state


def _recurrent(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """The rule itself, a step at a time: what the chunks must agree with."""
    q, k, v, beta = (x.double() for x in (q, k, v, beta))
    state, outputs = torch.zeros(k.shape[1], v.shape[1], dtype=torch.float64), []
    for t in range(len(k)):
        state = state + beta[t] * torch.outer(k[t], v[t] - k[t] @ state)
        outputs.append(q[t] @ state)
    return torch.stack(outputs), state


def _program(dtype: torch.dtype, heads: int, length: int, sizes: tuple[int, int, int], warps: int) -> Program:
    chunk, key, value = sizes
    name = f"delta_rule/{NAMES[dtype]}/heads{heads}/{length}x{key}x{value}/chunk{chunk}/warps{warps}"

    def draw() -> dict[str, Tensor]:
        k = normal(name + "k", (heads, length, key))
        return {
            "q": normal(name + "q", (heads, length, key), dtype, key**-0.5),
            "k": (k / k.norm(dim=-1, keepdim=True)).to(dtype),
            "v": normal(name + "v", (heads, length, value), dtype),
            "beta": uniform(name + "beta", (heads, length), 0.05, 0.5),
        }

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        q, k, v, beta = (inputs[part] for part in ("q", "k", "v", "beta"))
        o = torch.empty_like(v)
        state = torch.empty((heads, key, value), dtype=torch.float32, device=q.device)
        delta_rule_kernel[(heads,)](q, k, v, beta, o, state, length, CHUNK=chunk, KEY=key, VALUE=value, num_warps=warps)
        return {"o": o, "state": state}

    def expected(inputs: dict[str, Tensor]) -> dict[str, Expected]:
        parts = [[inputs[part][head] for part in ("q", "k", "v", "beta")] for head in range(heads)]
        bounds = [_head(q, k, v, beta, chunk) for q, k, v, beta in parts]
        o, state = (torch.stack(answer) for answer in zip(*(_recurrent(*part) for part in parts), strict=True))
        o_error = stored(o, torch.stack([bound[0].error for bound in bounds]), dtype)
        return {"o": Expected(o, o_error), "state": Expected(state, torch.stack([bound[1].error for bound in bounds]))}

    return Program(name, (delta_rule_kernel,), draw, run, expected)


PROGRAMS = (
    _program(torch.float32, 2, 48, (16, 32, 32), 4),
    _program(torch.float32, 1, 37, (16, 16, 32), 1),
    _program(torch.bfloat16, 2, 32, (16, 64, 32), 4),
    _program(torch.bfloat16, 1, 29, (16, 128, 64), 8),
    _program(torch.bfloat16, 2, 32, (32, 64, 32), 2),
)
