"""Conversions of fp32 to and from fp8 and bf8 alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from .small_formats import POSITIVE, fits, near, nearest_small, small_number

OPCODES = {
    *(f"v_cvt_{form}_{name}_f32" for form in ("pk", "sr") for name in ("fp8", "bf8")),
    *(f"v_cvt_{form}f32_{name}" for form in ("", "pk_") for name in ("fp8", "bf8")),
}


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_every_code_of_a_byte_format(lanes, name):
    inputs = np.arange(256, dtype=np.uint32).reshape(4, 1, 64) * np.uint32(0x01010101)
    body = f"v_cvt_f32_{name} v200, v10\nv_cvt_pk_f32_{name} v[202:203], v10"
    out = lanes.execute(body, inputs, None, ("v200", "v202", "v203"))
    for code in range(256):
        for got in out[code // 64, :, code % 64].tolist():
            assert lanes.agrees("f", got, lanes.encoded("f", small_number(name, code))), hex(code)


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_pair_of_the_upper_half(lanes, name):
    inputs = lanes.words(name, "u")
    body = f"v_cvt_pk_f32_{name}_e64 v[202:203], v10 op_sel:[1,0]"
    out = lanes.execute(body, inputs, None, ("v202", "v203"))
    for (group, _, lane), x in np.ndenumerate(inputs):
        for k in (0, 1):
            wanted = lanes.encoded("f", small_number(name, int(x) >> 16 + 8 * k & 255))
            assert lanes.agrees("f", int(out[group, k, lane]), wanted)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_pair_of_singles_to_bytes(lanes, name, half):
    generator = lanes.generator_for(name)
    inputs = np.array([[[near(generator, name, "f") for _ in range(64)] for _ in "ab"] for _ in range(6)],
                      np.uint32)  # fmt: skip
    body = f"v_mov_b32 v200, 0xabcd1234\nv_cvt_pk_{name}_f32 v200, v10, v11 op_sel:[0,0,{half}]"
    out = lanes.execute(body, inputs, None, ("v200",))
    for group in range(6):
        for lane in range(64):
            got = int(out[group, 0, lane])
            assert got >> 16 * (1 - half) & 0xFFFF == (0x1234 if half else 0xABCD)
            for k in (0, 1):
                x = lanes.decode("f", int(inputs[group, k, lane]))
                assert fits(name, got >> 16 * half + 8 * k & 255, nearest_small(name, x)), (x, hex(got))


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_overflow_mode_keeps_finite_numbers_finite(lanes, name):
    generator = lanes.generator_for(name)
    numbers = [generator.uniform(-1, 1) * 10.0 ** generator.randint(2, 9) for _ in range(64)]
    inputs = np.array([[[lanes.encoded("f", x) for x in numbers]]], np.uint32)
    out = lanes.execute(f"v_cvt_pk_{name}_f32 v200, v10, v10", inputs, None, ("v200",), overflow=1)
    largest, last = POSITIVE[name][-1]
    for lane, bits in enumerate(inputs[0, 0].tolist()):
        x = lanes.decode("f", bits)
        wanted = nearest_small(name, max(-largest, min(largest, Fraction(x))))
        assert int(out[0, 0, lane]) & 255 == wanted, (x, last)


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_stochastic_rounding_to_bytes_ends_at_a_neighbour(lanes, name, place):
    """Down without noise; up with all of it unless the number is exact; only one byte is written."""
    generator = lanes.generator_for(name)
    largest = float(POSITIVE[name][-1][0])
    numbers = [lanes.encoded("f", generator.uniform(-largest, largest) / 2 ** generator.randint(0, 9))
               for _ in range(64)]  # fmt: skip
    inputs = np.array([[numbers, [0] * 64, [0xFFFFFFFF] * 64]], np.uint32)
    body = "\n".join(f"v_mov_b32 v{200 + k}, 0xabcd1234\nv_cvt_sr_{name}_f32 v{200 + k}, v10, v{11 + k} "
                     f"op_sel:[0,0,{place & 1},{place >> 1}]" for k in (0, 1))  # fmt: skip
    out = lanes.execute(body, inputs, None, ("v200", "v201"))
    for lane, bits in enumerate(numbers):
        x = lanes.decode("f", bits)
        below = max(y for y, _ in POSITIVE[name] if y <= abs(Fraction(x)))
        above = min(y for y, _ in POSITIVE[name] if y >= abs(Fraction(x)))
        for k, wanted in enumerate((below, above)):
            got = int(out[0, k, lane])
            assert (got ^ 0xABCD1234) & (0xFFFFFFFF ^ 255 << 8 * place) == 0
            assert abs(small_number(name, got >> 8 * place & 255)) == wanted, (x, hex(got))
