"""Conversions between number formats alone, against exact rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest


def bounded(least, most):
    """Towards zero into a range; NaN is 0."""

    def function(x):
        if math.isnan(x):
            return 0
        return math.trunc(max(least, min(most, x)))

    return function


TO_I32, TO_U32 = bounded(-(2**31), 2**31 - 1), bounded(0, 2**32 - 1)


def same(x):
    return x


def whole(function, convert):
    return lambda x: convert(function(x)) if math.isfinite(x) else convert(x)


FORMULAS = {
    "v_cvt_f32_i32": ("f", "i", Fraction), "v_cvt_f32_u32": ("f", "u", Fraction),
    "v_cvt_f64_i32": ("d", "i", Fraction), "v_cvt_f64_u32": ("d", "u", Fraction),
    "v_cvt_i32_f32": ("i", "f", TO_I32), "v_cvt_u32_f32": ("u", "f", TO_U32),
    "v_cvt_i32_f64": ("i", "d", TO_I32), "v_cvt_u32_f64": ("u", "d", TO_U32),
    "v_cvt_flr_i32_f32": ("i", "f", whole(math.floor, TO_I32)),
    "v_cvt_f16_f32": ("e", "f", same), "v_cvt_f32_f16": ("f", "e", same), "v_cvt_f64_f32": ("d", "f", same),
    "v_cvt_f32_f64": ("f", "d", same), "v_cvt_f32_bf16": ("f", "b", same),
    "v_cvt_f16_u16": ("e", "h", Fraction), "v_cvt_f16_i16": ("e", "s", Fraction),
    "v_cvt_u16_f16": ("h", "e", bounded(0, 65535)), "v_cvt_i16_f16": ("s", "e", bounded(-32768, 32767)),
} | {f"v_cvt_f32_ubyte{k}": ("f", "u", lambda a, k=k: Fraction(a >> 8 * k & 255)) for k in range(4)}  # fmt: skip


@pytest.mark.parametrize("opcode", FORMULAS)
def test_conversion(lanes, opcode):
    lanes.check_vector(opcode, *FORMULAS[opcode])


def test_a_signalling_half_comes_out_quiet(lanes):
    got = lanes.execute("v_cvt_f32_f16 v200, v10", np.full((1, 1, 64), 0xFC01, np.uint32), None, ("v200",))
    assert (got == 0xFFC02000).all()


def test_rounding_half_up(lanes):
    """The sum with a half is rounded to fp32 before its floor."""

    def formula(x):
        if not math.isfinite(x):
            return TO_I32(x)
        y = Fraction(x) + Fraction(1, 2)
        y = lanes.decode("f", lanes.encoded("f", y))
        return TO_I32(math.floor(y))

    lanes.check_vector("v_cvt_rpi_i32_f32", "i", "f", formula)


# ── small formats: every code by its definition, nearest by search ──────────

SMALL = {"fp8": (4, 3, 7), "bf8": (5, 2, 15), "fp4": (2, 1, 1)}


def small_number(name, code):
    """The number that a code stands for; e4m3 has one NaN and no infinity, e5m2 both, e2m1 neither."""
    exponents, fractions, bias = SMALL[name]
    sign = -1.0 if code >> exponents + fractions & 1 else 1.0
    power, rest = code >> fractions & (1 << exponents) - 1, code & (1 << fractions) - 1
    if name == "bf8" and power == 31:
        return math.nan if rest else sign * math.inf
    if name == "fp8" and power == 15 and rest == 7:
        return math.nan
    lead = 1 if power else 0
    return sign * (lead + rest / 2**fractions) * 2.0 ** (max(power, 1) - bias)


def positive_codes(name):
    exponents, fractions, _ = SMALL[name]
    every = [(small_number(name, code), code) for code in range(1 << exponents + fractions)]
    return [(Fraction(x), code) for x, code in every if math.isfinite(x)]


POSITIVE = {name: positive_codes(name) for name in SMALL}
TOP = {"fp8": 0x7F, "bf8": 0x7C, "fp4": 0x7}


def nearest_small(name, x):
    """The code nearest to x, ties to even codes; past the largest NaN, infinity, or the largest. None: a NaN."""
    exponents, fractions, _ = SMALL[name]
    width = exponents + fractions
    if isinstance(x, float) and math.isnan(x):
        return None
    sign = (x < 0 or (isinstance(x, float) and math.copysign(1, x) < 0)) << width
    if isinstance(x, float) and math.isinf(x):
        return None if name == "fp8" else sign | TOP[name]
    x = abs(Fraction(x))
    largest, last = POSITIVE[name][-1]
    step = largest - POSITIVE[name][-2][0]
    if x > largest + step / 2 or (x == largest + step / 2 and last & 1):
        return None if name == "fp8" else sign | TOP[name]
    _, _, code = min((abs(x - y), code & 1, code) for y, code in POSITIVE[name])
    return sign | code


def is_small_nan(name, code):
    return math.isnan(small_number(name, code))


def words(lanes, seed, kinds, groups=2):
    generator = lanes.generator_for(seed)
    bits = [[[lanes.drawn(kind, generator) for _ in range(64)] for kind in kinds] for _ in range(groups)]
    return np.array(bits, np.uint32)


SCALES = [0x3F800000, 0x40000000, 0x3E800000, 0x42000000, 0x3C000000, 0x3FC00000, 0xBF800000]
"""Fp32 scales: only the exponent counts, not the fraction and not the sign."""


def scale_of(bits):
    return Fraction(2) ** ((bits >> 23 & 255) - 127)


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
    inputs = words(lanes, name, "u")
    body = f"v_cvt_pk_f32_{name}_e64 v[202:203], v10 op_sel:[1,0]"
    out = lanes.execute(body, inputs, None, ("v202", "v203"))
    for (group, _, lane), x in np.ndenumerate(inputs):
        for k in (0, 1):
            wanted = lanes.encoded("f", small_number(name, int(x) >> 16 + 8 * k & 255))
            assert lanes.agrees("f", int(out[group, k, lane]), wanted)


def near(lanes, generator, name, wide):
    """Bits of a number at, near or between two codes of the small format, or any."""
    x, _ = generator.choice(POSITIVE[name])
    y, _ = generator.choice(POSITIVE[name])
    chosen = generator.random()
    value = x if chosen < 0.3 else (x + y) / 2 if chosen < 0.6 else x * Fraction(generator.randint(900, 1100), 1000)
    bits = lanes.encoded(wide, value if generator.random() < 0.5 else -value)
    return bits if chosen < 0.9 else lanes.drawn(wide, generator)


def fits(name, got, wanted):
    return is_small_nan(name, got) if wanted is None else got == wanted


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_pair_of_singles_to_bytes(lanes, name, half):
    generator = lanes.generator_for(name)
    inputs = np.array([[[near(lanes, generator, name, "f") for _ in range(64)] for _ in "ab"] for _ in range(6)],
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


WIDE = {"f32": "f", "f16": "e", "bf16": "b"}
SCALED = [(small, wide) for small in SMALL for wide in WIDE]


@pytest.mark.parametrize(("small", "wide"), SCALED)
@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_scaled_pair_to_a_wide_format(lanes, small, wide, part):
    """op_sel chooses the half (a byte of fp4) that is read."""
    if small != "fp4" and part > 1:
        return
    kind, generator = WIDE[wide], lanes.generator_for(small + wide)
    inputs = words(lanes, small + wide, "uu")
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


@pytest.mark.parametrize(("small", "wide"), SCALED)
@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_scaled_pair_to_a_small_format(lanes, small, wide, part):
    if small != "fp4" and part > 1:
        return
    kind, generator = WIDE[wide], lanes.generator_for(wide + small)
    groups, step = 3, 32 if wide == "f32" else 16
    inputs = np.zeros((groups, 3, 64), np.uint32)
    given = {}
    for group in range(groups):
        for lane in range(64):
            scale = generator.choice(SCALES)
            given[group, lane] = [near(lanes, generator, small, kind) for _ in range(2)], scale
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


OPCODES = {
    *FORMULAS,
    *(f"v_cvt_scalef32_pk_{wide}_{small}" for small, wide in SCALED),
    *(f"v_cvt_scalef32_pk_{small}_{wide}" for small, wide in SCALED),
    *(f"v_cvt_{form}_{name}_f32" for form in ("pk", "sr") for name in ("fp8", "bf8")),
    *(f"v_cvt_{form}f32_{name}" for form in ("", "pk_") for name in ("fp8", "bf8")),
    "v_cvt_rpi_i32_f32", "v_cvt_pk_f16_f32", "v_cvt_pk_bf16_f32", "v_cvt_pkrtz_f16_f32", "v_cvt_sr_bf16_f32",
    "v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16",
}  # fmt: skip


# ── pairs of halves, stochastic rounding, mixed precision ───────────────────


def toward_zero(lanes, x):
    bits = lanes.encoded("e", x)
    if bits is None or math.isinf(x):
        return bits
    return bits - 1 if abs(lanes.decode("e", bits)) > abs(x) else bits


PAIRS = {
    "v_cvt_pk_f16_f32": ("e", lambda lanes, x: lanes.encoded("e", x)),
    "v_cvt_pk_bf16_f32": ("b", lambda lanes, x: lanes.encoded("b", x)),
    "v_cvt_pkrtz_f16_f32": ("e", toward_zero),
}


@pytest.mark.parametrize("opcode", PAIRS)
def test_pair_of_halves(lanes, opcode):
    kind, function = PAIRS[opcode]
    inputs = words(lanes, opcode, "ff", groups=6)
    out = lanes.execute(f"{opcode} v200, v10, v11", inputs, None, ("v200",))
    for group in range(6):
        for lane in range(64):
            for k in (0, 1):
                x = lanes.decode("f", int(inputs[group, k, lane]))
                got = int(out[group, 0, lane]) >> 16 * k & 0xFFFF
                assert lanes.agrees(kind, got, function(lanes, x)), (x, hex(got))


def test_stochastic_rounding_to_bf16_adds_to_what_is_cut_off(lanes):
    for half in (0, 1):
        inputs = words(lanes, "sr bf16", "fu")
        body = f"v_mov_b32 v200, 0xabcd1234\nv_cvt_sr_bf16_f32 v200, v10, v11 op_sel:[0,0,0,{half}]"
        out = lanes.execute(body, inputs, None, ("v200",))
        for group in range(2):
            for lane in range(64):
                bits, noise = (int(x) for x in inputs[group, :, lane])
                got = int(out[group, 0, lane])
                assert got >> 16 * (1 - half) & 0xFFFF == (0x1234 if half else 0xABCD)
                finite = math.isfinite(lanes.decode("f", bits))
                wanted = bits + (noise & 0xFFFF) >> 16 if finite else lanes.encoded("b", lanes.decode("f", bits))
                assert lanes.agrees("b", got >> 16 * half & 0xFFFF, wanted), (hex(bits), hex(noise))


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


def fused(a, b, c):
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    total = Fraction(a) * Fraction(b) + Fraction(c)
    return total or (0.0 if Fraction(a) * Fraction(b) else a * b + c)


@pytest.mark.parametrize("wide", range(8))
@pytest.mark.parametrize("high", [0, 5, 7])
@pytest.mark.parametrize("opcode", ["v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"])
def test_mixed_precision(lanes, opcode, wide, high):
    """op_sel_hi says which sources are halves, op_sel which half; signs apply to the number read."""
    inputs = words(lanes, f"{opcode}{wide}{high}", "fff")
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
