"""Conversions of pairs with a scale alone, between small and wide formats."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from .small_formats import SMALL, fits, near, nearest_small, small_number

SCALES = [0x3F800000, 0x40000000, 0x3E800000, 0x42000000, 0x3C000000, 0x3FC00000, 0xBF800000]
"""Fp32 scales: only the exponent counts, not the fraction and not the sign."""
WIDE = {"f32": "f", "f16": "e", "bf16": "b"}
SCALED = [(small, wide) for small in SMALL for wide in WIDE]
PARTS = [(*pair, part) for pair in SCALED for part in range(4 if pair[0] == "fp4" else 2)]
"""The half, or the byte of fp4, that op_sel chooses."""
OPCODES = {
    *(f"v_cvt_scalef32_pk_{wide}_{small}" for small, wide in SCALED),
    *(f"v_cvt_scalef32_pk_{small}_{wide}" for small, wide in SCALED),
}


def scale_of(bits):
    return Fraction(2) ** ((bits >> 23 & 255) - 127)


@pytest.mark.parametrize(("small", "wide", "part"), PARTS)
def test_scaled_pair_to_a_wide_format(lanes, small, wide, part):
    kind, generator = WIDE[wide], lanes.generator_for(small + wide)
    inputs = lanes.words(small + wide, "uu")
    inputs[:, 1] = [[generator.choice(SCALES) for _ in range(64)] for _ in range(2)]
    select = f"op_sel:[{part & 1},{part >> 1},0]" if small == "fp4" else f"op_sel:[{part},0,0]"
    result = "v[200:201]" if wide == "f32" else "v200"
    out = lanes.execute(f"v_cvt_scalef32_pk_{wide}_{small} {result}, v10, v11 {select}", inputs, None, ("v200", "v201"))
    width = 4 if small == "fp4" else 8
    for group in range(2):
        for lane in range(64):
            word, scale = (int(x) for x in inputs[group, :, lane])
            got = int(out[group, 0, lane]) | int(out[group, 1, lane]) << 32
            for k in (0, 1):
                code = word >> (part * 2 + k) * width & (1 << width) - 1
                x = small_number(small, code)
                y = Fraction(x) * scale_of(scale) if math.isfinite(x) and x else x
                step = 32 if wide == "f32" else 16
                assert lanes.agrees(kind, got >> step * k & (1 << step) - 1, lanes.encoded(kind, y)), (hex(code), scale)


@pytest.mark.parametrize(("small", "wide", "part"), PARTS)
def test_scaled_pair_to_a_small_format(lanes, small, wide, part):
    kind, generator = WIDE[wide], lanes.generator_for(wide + small)
    groups, step = 3, 32 if wide == "f32" else 16
    inputs = np.zeros((groups, 3, 64), np.uint32)
    given = {}
    for group in range(groups):
        for lane in range(64):
            scale = generator.choice(SCALES)
            given[group, lane] = [near(generator, small, kind) for _ in range(2)], scale
            a, b = given[group, lane][0]
            inputs[group, :, lane] = (a, b, scale) if wide == "f32" else (a | b << 16, scale, 0)
    if small == "fp4":
        select = f"op_sel:[0,0,{part & 1},{part >> 1}]"
    else:
        select = f"op_sel:[0,0,0,{part}]"
    sources = "v10, v11, v12" if wide == "f32" else "v10, v11"
    body = f"v_mov_b32 v200, 0xabcd1234\nv_cvt_scalef32_pk_{small}_{wide} v200, {sources} {select}"
    out = lanes.execute(body, inputs, None, ("v200",))
    bits, width = (8, 4) if small == "fp4" else (16, 8)
    for (group, lane), (pair, scale) in given.items():
        got = int(out[group, 0, lane])
        outside = 0xFFFFFFFF ^ (1 << bits) - 1 << bits * part
        assert (got ^ 0xABCD1234) & outside == 0
        for k in (0, 1):
            x = lanes.decode(kind, pair[k])
            y = Fraction(x) / scale_of(scale) if math.isfinite(x) and x else x
            wanted = nearest_small(small, y)
            if small == "fp4" and wanted is None:
                continue  # there is no NaN to give
            field = got >> bits * part + width * k & (1 << width) - 1
            assert fits(small, field, wanted), (step, hex(pair[k]), x, hex(scale), hex(field), wanted)
