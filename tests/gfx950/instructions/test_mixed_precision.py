"""Instructions that compute in fp32 on halves alone: multiply-add of either, dot products of two."""

from __future__ import annotations

import math

import numpy as np
import pytest

from .exact import fused

OPCODES = {
    *(f"v_dot2{form}_f32_{wide}" for form in ("", "c") for wide in ("f16", "bf16")),
    "v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16",
}  # fmt: skip


@pytest.mark.parametrize("wide", ["bf16", "f16"])
@pytest.mark.parametrize("form", ["dot2c", "dot2"])
def test_dot_of_two_halves(lanes, wide, form):
    """Small integers, whose products and sums are exact: the order and the roundings do not matter."""
    x = "b" if wide == "bf16" else "e"

    def halves(word):
        return lanes.decode(x, word & 0xFFFF), lanes.decode(x, word >> 16)

    def small(generator, bits):
        quarters = [lanes.encoded(x, generator.randint(-9, 9) / 4) for _ in range(4)]
        words = [quarters[0] | quarters[1] << 16, quarters[2] | quarters[3] << 16]
        return [*words, lanes.encoded("f", float(generator.randint(-999, 999)))]

    def formula(a, b, c):
        (p, q), (r, s) = halves(a), halves(b)
        return p * r + q * s + c

    tied = "uu*f" if form == "dot2c" else "uuf"
    lanes.check_vector(f"v_{form}_f32_{wide}", "f", tied, formula, values=small)


@pytest.mark.parametrize("wide", range(8))
@pytest.mark.parametrize("high", [0, 5, 7])
@pytest.mark.parametrize("opcode", ["v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"])
def test_mixed_precision(lanes, opcode, wide, high):
    """op_sel_hi says which sources are halves, op_sel which half; signs apply to the number read."""
    inputs = lanes.words(f"{opcode}{wide}{high}", "fff")
    generator = lanes.generator_for(opcode)
    for group in range(2):
        for k in range(3):
            if wide >> k & 1:
                inputs[group, k] = [lanes.drawn("e", generator) | lanes.drawn("e", generator) << 16 for _ in range(64)]
    select, select_hi = (",".join(str(x >> k & 1) for k in range(3)) for x in (high & wide, wide))
    body = "v_mov_b32 v200, 0xabcd1234\n"
    body += f"{opcode} v200, -v10, |v11|, v12 op_sel:[{select}] op_sel_hi:[{select_hi}]"
    out = lanes.execute(body, inputs, None, ("v200",))
    for group in range(2):
        for lane in range(64):
            numbers = []
            for k in range(3):
                bits = int(inputs[group, k, lane])
                half = bits >> (16 if high & wide & 1 << k else 0) & 0xFFFF
                numbers.append(lanes.decode("e", half) if wide >> k & 1 else lanes.decode("f", bits))
            a, b, c = numbers
            exact, got = fused(-a, abs(b), c), int(out[group, 0, lane])
            if opcode == "v_fma_mix_f32":
                assert lanes.agrees("f", got, lanes.encoded("f", exact)), (numbers, hex(got))
                continue
            shift = 16 if opcode == "v_fma_mixhi_f16" else 0
            rounded = lanes.encoded("f", exact)
            twice = math.nan if rounded is None else lanes.decode("f", rounded)
            if lanes.encoded("e", twice) != lanes.encoded("e", exact):
                continue  # below
            assert got >> 16 - shift & 0xFFFF == (0x1234 if shift else 0xABCD)
            assert lanes.agrees("e", got >> shift & 0xFFFF, lanes.encoded("e", exact)), (numbers, hex(got))


@pytest.mark.parametrize("opcode", ["v_fma_mixlo_f16", "v_fma_mixhi_f16"])
def test_mixed_precision_rounds_the_sum_before_it_is_converted(lanes, opcode):
    numbers = (1.0, -(2.0**-30), 65520.0)
    inputs = np.array([[[lanes.encoded("f", x)] * 64 for x in numbers]], np.uint32)
    body = f"v_mov_b32 v200, 0\n{opcode} v200, v10, v11, v12 op_sel_hi:[0,0,0]"
    got = int(lanes.execute(body, inputs, None, ("v200",))[0, 0, 0])
    assert got == (0x7C00 if opcode == "v_fma_mixlo_f16" else 0x7C000000)
