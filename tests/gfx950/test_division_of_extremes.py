"""A compiled division is a division at both ends of the range, where its operands have to be scaled."""

from __future__ import annotations

import itertools

import torch
import triton
import triton.language as tl

from verification.gfx950 import Models, executor

SIZES = [2.0**e * f for e in (-126, -125, -64, -24, 0, 24, 64, 96, 125, 126, 127) for f in (1.0, 1.25, 1.9375)]


@triton.jit
def divided(x_ptr, y_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    tl.store(out_ptr + at, tl.load(x_ptr + at) / tl.load(y_ptr + at))


def test_every_quotient_of_extremes_is_within_an_ulp_or_flushed():
    # Beyond 2^190 even the scaled quotient overflows, and the manual leaves a NaN that nobody has measured.
    pairs = [(x, y) for x, y in itertools.product(SIZES, SIZES) if x / y < 2.0**190]
    pairs += [(1.0, 1.0)] * (-len(pairs) % 64)
    x, y = (torch.tensor(values, dtype=torch.float32) for values in zip(*pairs, strict=True))
    out = torch.full_like(x, 7.0)
    with executor(Models()):
        divided[(len(x) // 64,)](x, y, out, COUNT=64)
    exact = x.double() / y.double()
    infinite = exact >= 2.0**128
    assert torch.isinf(out[infinite]).all()
    error = (out.double() - exact)[~infinite].abs()
    allowed = torch.where(exact < 2.0**-126, exact, exact * 2.0**-23)[~infinite]
    assert (error <= allowed).all(), pairs[int((~(error <= allowed)).nonzero()[0])]


@triton.jit
def squashed(x_ptr, out_ptr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out_ptr + at, 1.0 / (1.0 + tl.exp(-tl.load(x_ptr + at))))


def test_a_sigmoid_is_a_number_down_to_where_it_vanishes():
    x, out = torch.linspace(-110.0, -80.0, 256), torch.full((256,), 7.0)
    with executor(Models()):
        squashed[(1,)](x, out, COUNT=256)
    assert (out >= 0).all()
    assert (out <= 2e-35).all()
