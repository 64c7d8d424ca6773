"""Floating-point instructions alone, against exact rational arithmetic rounded once."""

from __future__ import annotations

import math
import operator
import struct
from fractions import Fraction

import numpy as np
import pytest

BITS = {"f32": 32, "f16": 16, "f64": 64}
LETTER = {"f32": "f", "f16": "e", "f64": "d"}
FRACTION_BITS = {"f": 23, "e": 10, "d": 52}
TINY = {"f": 2.0**-126, "e": 2.0**-14, "d": 2.0**-1022}


def finite(*x):
    return all(map(math.isfinite, x))


def plus(a, b):
    return (Fraction(a) + Fraction(b) if finite(a, b) else 0) or a + b


def times(a, b):
    return (Fraction(a) * Fraction(b) if finite(a, b) else 0) or a * b


def fused(a, b, c):
    if not finite(a, b):
        return a * b + c
    product = Fraction(a) * Fraction(b)
    if not finite(c):
        return c
    total = product + Fraction(c)
    if total:
        return total
    return 0.0 if product else a * b + c


def bare(x):
    return x == x


def order(x):
    return x, math.copysign(1, x)


def larger(a, b):
    return max(a, b, key=order) if bare(a) and bare(b) else b if bare(b) else a


def smaller(a, b):
    return min(a, b, key=order) if bare(a) and bare(b) else b if bare(b) else a


def median(a, b, c):
    if not (bare(a) and bare(b) and bare(c)):
        return smaller(smaller(a, b), c)
    most = max(a, b, c)
    return larger(b, c) if most == a else larger(a, c) if most == b else larger(a, b)


def propagating(function):
    return lambda *x: function(*x) if all(map(bare, x)) else math.nan


def integral(function):
    return lambda a: math.copysign(float(function(a)), a) if math.isfinite(a) else a


def fraction(letter):
    below = 1 - Fraction(1, 2 ** (FRACTION_BITS[letter] + 2))

    def function(a):
        if not math.isfinite(a):
            return ... if math.isinf(a) else a
        x = Fraction(a) - math.floor(a)
        return ... if x >= below else x or 0.0  # whether the result stays below 1 is not said

    return function


def scaled(a, n):
    if not math.isfinite(a) or a == 0:
        return a
    return Fraction(a) * Fraction(2) ** max(-4000, min(4000, n))


def mantissa(a):
    return math.frexp(a)[0] if math.isfinite(a) else a


def exponent(a):
    return math.frexp(a)[1] if math.isfinite(a) else 0


def field(letter, x):
    """The exponent field of a number's bits."""
    form, bits = {"f": ("<f", "<I"), "e": ("<e", "<H"), "d": ("<d", "<Q")}[letter]
    (whole,) = struct.unpack(bits, struct.pack(form, x))
    fractions = FRACTION_BITS[letter]
    return whole >> fractions & {"f": 255, "e": 31, "d": 2047}[letter]


def fixup(letter, least):
    def function(quotient, divisor, dividend):
        sign = math.copysign(1, divisor) * math.copysign(1, dividend)
        if not (bare(dividend) and bare(divisor)):
            return math.nan
        if divisor == dividend == 0 or (math.isinf(divisor) and math.isinf(dividend)):
            return math.nan
        if divisor == 0 or math.isinf(dividend):
            return math.copysign(math.inf, sign)
        if math.isinf(divisor) or dividend == 0:
            return math.copysign(0.0, sign)
        if field(letter, dividend) - field(letter, divisor) < least:
            return math.copysign(0.0, sign)
        return math.copysign(quotient, sign)

    return function


FORMULAS = {
    "v_mul_legacy_f32": ("f", "ff", lambda a, b: 0.0 if a == 0 or b == 0 else times(a, b)),
    "v_fmamk_f32": ("f", "fff", fused), "v_fmaak_f32": ("f", "fff", fused),
    "v_minimum3_f32": ("f", "fff", propagating(lambda a, b, c: smaller(smaller(a, b), c))),
    "v_maximum3_f32": ("f", "fff", propagating(lambda a, b, c: larger(larger(a, b), c))),
    "v_ldexp_f32": ("f", "fi", scaled), "v_ldexp_f64": ("d", "di", scaled), "v_ldexp_f16": ("e", "es", scaled),
    "v_frexp_exp_i32_f32": ("i", "f", exponent), "v_frexp_exp_i32_f64": ("i", "d", exponent),
    "v_frexp_exp_i16_f16": ("s", "e", exponent),
    "v_div_fixup_f32": ("f", "fff", fixup("f", -150)), "v_div_fixup_f64": ("d", "ddd", fixup("d", -1075)),
}  # fmt: skip
for _kind, _x in LETTER.items():
    FORMULAS |= {
        f"v_add_{_kind}": (_x, 2 * _x, plus),
        f"v_mul_{_kind}": (_x, 2 * _x, times),
        f"v_fma_{_kind}": (_x, 3 * _x, fused),
        f"v_min_{_kind}": (_x, 2 * _x, smaller),
        f"v_max_{_kind}": (_x, 2 * _x, larger),
        f"v_floor_{_kind}": (_x, _x, integral(math.floor)),
        f"v_ceil_{_kind}": (_x, _x, integral(math.ceil)),
        f"v_trunc_{_kind}": (_x, _x, integral(math.trunc)),
        f"v_rndne_{_kind}": (_x, _x, integral(round)),
        f"v_fract_{_kind}": (_x, _x, fraction(_x)),
        f"v_frexp_mant_{_kind}": (_x, _x, mantissa),
    }
    if _kind != "f16":
        FORMULAS[f"v_fmac_{_kind}"] = (_x, f"{_x}{_x}*{_x}", fused)
    if _kind != "f64":
        FORMULAS |= {
            f"v_sub_{_kind}": (_x, 2 * _x, lambda a, b: plus(a, -b)),
            f"v_subrev_{_kind}": (_x, 2 * _x, lambda a, b: plus(b, -a)),
            f"v_min3_{_kind}": (_x, 3 * _x, lambda a, b, c: smaller(smaller(a, b), c)),
            f"v_max3_{_kind}": (_x, 3 * _x, lambda a, b, c: larger(larger(a, b), c)),
            f"v_med3_{_kind}": (_x, 3 * _x, median),
        }


@pytest.mark.parametrize("opcode", FORMULAS)
def test_result(lanes, opcode):
    lanes.check_vector(opcode, *FORMULAS[opcode])


def test_division_of_halves_is_fixed_up(lanes):
    lanes.check_vector("v_div_fixup_f16", "e", "eee", fixup("e", -99))


@pytest.mark.parametrize("kind", BITS)
def test_fraction_of_an_infinity(lanes, kind):
    x = LETTER[kind]
    infinity = lanes.encoded(x, math.inf)
    lanes.check_vector(f"v_fract_{kind}", x, x, lambda a: math.nan, values=lambda *_: [infinity])


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", ["min", "max"])
def test_signalling_nan_is_not_passed_over(lanes, kind, name):
    x = LETTER[kind]
    signalling = lanes.encoded(x, math.inf) + 1
    one = lanes.encoded(x, 1.0)
    lanes.check_vector(f"v_{name}_{kind}", x, 2 * x, lambda a, b: math.nan, values=lambda *_: [signalling, one])


# ── transcendental units ────────────────────────────────────────────────────


def guarded(function, zero=math.nan, infinity=math.nan, negative=math.nan, flush=True):
    """A function of positive numbers with its values at the ends; fp32 denormals are zeros."""

    def wrapped(a):
        if flush and abs(a) < TINY["f"]:
            a = math.copysign(0.0, a)
        if not bare(a):
            return a
        if a == 0:
            return math.copysign(zero, a) if zero != -math.inf else zero
        if a == math.inf:
            return infinity
        if a < 0:
            return negative(a) if callable(negative) else negative
        x = function(a)
        return 0.0 if flush and abs(x) < TINY["f"] else x

    return wrapped


def reciprocal(a):
    if a == -math.inf:
        return -0.0
    return 1 / Fraction(a)


def power(a):
    if a == -math.inf or a < -2000:
        return 0.0
    return 2.0**a if a < 1000 else math.inf


def flushed_negative(function):
    def wrapped(a):
        x = function(a)
        return math.copysign(0.0, x) if abs(x) < TINY["f"] else x

    return wrapped


def root(a):
    return math.sqrt(a)


def turns(function, zeros):
    """Sine or cosine of turns; multiples of a quarter turn are exact."""

    def wrapped(a):
        if not math.isfinite(a):
            return math.nan
        a = math.copysign(0.0, a) if abs(a) < TINY["f"] else a
        part = Fraction(a) % 1
        if a and part in zeros:
            return ...
        return function(2 * math.pi * float(part if part <= Fraction(1, 2) else part - 1)) if a else function(a)

    return wrapped


def units(flush):
    tidy = flushed_negative if flush else lambda function: function
    return {
        "rcp": guarded(reciprocal, math.inf, 0.0, tidy(reciprocal), flush),
        "rsq": guarded(lambda a: 1 / math.sqrt(a), math.inf, 0.0, flush=flush),
        "sqrt": guarded(root, 0.0, math.inf, flush=flush),
        "exp": lambda a: guarded(power, 1.0, math.inf, tidy(power), flush)(a) if a else 1.0,
        "log": guarded(math.log2, -math.inf, math.inf, flush=flush),
    }


SINGLE, HALF = units(True), units(False)
CIRCULAR = {"sin": turns(math.sin, (0, Fraction(1, 2))), "cos": turns(math.cos, (Fraction(1, 4), Fraction(3, 4)))}


def one(x):
    """exp of ±0 and of a flushed denormal is +1."""
    return 1.0 if abs(x) < TINY["f"] else SINGLE["exp"](x)


@pytest.mark.parametrize("unit", SINGLE)
def test_transcendental_unit(lanes, unit):
    lanes.check_vector(f"v_{unit}_f32", "f", "f", one if unit == "exp" else SINGLE[unit], ulp=1)


def test_reciprocal_that_flags(lanes):
    lanes.check_vector("v_rcp_iflag_f32", "f", "f", SINGLE["rcp"], ulp=1)


@pytest.mark.parametrize("unit", HALF)
def test_transcendental_unit_of_halves(lanes, unit):
    lanes.check_vector(f"v_{unit}_f16", "e", "e", HALF[unit], ulp=1)


@pytest.mark.parametrize("unit", CIRCULAR)
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_sine_and_cosine_of_turns(lanes, unit, kind):
    x = LETTER[kind]

    def inside(generator, bits):
        number = lanes.decode(x, bits[0])
        return bits if not abs(number) > 256 else [lanes.encoded(x, generator.uniform(-256, 256))]

    lanes.check_vector(f"v_{unit}_{kind}", x, x, CIRCULAR[unit], ulp=1, values=inside)


@pytest.mark.parametrize(("unit", "turn"), [("sin", 1.0), ("sin", 128.5), ("cos", 0.25), ("cos", 99.75)])
def test_zeros_of_sine_and_cosine(lanes, unit, turn):
    bits = lanes.encoded("f", turn)
    lanes.check_vector(f"v_{unit}_f32", "f", "f", lambda a: 0.0, values=lambda *_: [bits])


@pytest.mark.parametrize("unit", ["rcp", "rsq", "sqrt"])
def test_unit_of_doubles(lanes, unit):
    lanes.check_vector(f"v_{unit}_f64", "d", "d", HALF[unit], ulp=1)


# ── division's helpers ──────────────────────────────────────────────────────


def div_scale(letter, far, step, tiny):
    least = TINY[letter]

    def denormal(x):
        """Whether the number nearest to x is one."""
        half = Fraction(least) / 2 ** (FRACTION_BITS[letter] + 1)
        return half < abs(x) < least - half

    def function(a, b, c):
        if b == 0 or c == 0:
            return math.nan, False
        up, down = scaled(a, step), scaled(a, -step)
        quotient, small = Fraction(c) / Fraction(b), denormal(1 / Fraction(b))
        if field(letter, c) - field(letter, b) >= far:
            return (up if a == b else a), True
        if denormal(b):
            return up, False
        if small and denormal(quotient):
            return (up if a == b else a), True
        if small:
            return down, False
        if denormal(quotient):
            return (up if a == c else a), True
        return (up if field(letter, c) <= tiny else a), False

    return function


@pytest.mark.parametrize(("kind", "far", "step", "tiny"), [("f32", 96, 64, 23), ("f64", 768, 128, 53)])
def test_operands_of_a_division_are_scaled(lanes, kind, far, step, tiny):
    """The first source is one of the other two, as in a division."""
    x = LETTER[kind]

    def division(generator, bits):
        b, c = (one if math.isfinite(lanes.decode(x, one)) else lanes.encoded(x, 3.0) for one in bits[1:])
        return [generator.choice((b, c)), b, c]

    formula = div_scale(x, far, step, tiny)
    lanes.check_vector(f"v_div_scale_{kind}", x + "m", 3 * x, formula, values=division, groups=12)


def test_reciprocal_of_the_greatest_power_with_a_normal_one(lanes):
    big = lanes.encoded("f", 2.0**126)
    formula = div_scale("f", 96, 64, 23)
    lanes.check_vector("v_div_scale_f32", "fm", "fff", formula, values=lambda *_: [big, big, 0x7F000000])


@pytest.mark.parametrize(("kind", "bias", "step"), [("f32", 127, 64), ("f64", 1023, 128)])
def test_last_step_of_a_division_scales_where_vcc_is_set(lanes, kind, bias, step):
    x = LETTER[kind]

    def formula(a, b, c, scale):
        y = fused(a, b, c)
        return scaled(y, step if field(x, c) > bias else -step) if scale and not isinstance(y, float) else y

    def moderate(generator, bits):
        numbers = [generator.uniform(-4, 4) * 2.0 ** generator.randint(-9, 9) for _ in range(3)]
        return [lanes.encoded(x, one) for one in numbers] + bits[3:]

    lanes.check_vector(f"v_div_fmas_{kind}", x, 3 * x + "*m", formula, values=moderate)


# ── comparisons and classes ─────────────────────────────────────────────────


def unordered(a, b):
    return not (bare(a) and bare(b))


RELATIONS = {
    "lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "u": unordered,
    "lg": lambda a, b: not unordered(a, b) and a != b, "o": lambda a, b: not unordered(a, b),
    "nge": lambda a, b: unordered(a, b) or a < b, "ngt": lambda a, b: unordered(a, b) or a <= b,
    "nle": lambda a, b: unordered(a, b) or a > b, "nlt": lambda a, b: unordered(a, b) or a >= b,
    "neq": lambda a, b: unordered(a, b) or a != b, "nlg": lambda a, b: unordered(a, b) or a == b,
}  # fmt: skip


def often_equal(generator, bits):
    return [bits[0], generator.choice((bits[0], bits[1], bits[1]))]


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", RELATIONS)
def test_comparison(lanes, name, kind):
    x = LETTER[kind]
    lanes.check_vector(f"v_cmp_{name}_{kind}", "m", 2 * x, RELATIONS[name], values=often_equal)


def checked_with_exec(lanes, opcode, kinds, relation, values):
    generator = lanes.generator_for(opcode)
    inputs = np.zeros((1, 4, 64), np.uint32)
    wanted, before = 0, generator.getrandbits(64)
    for lane in range(64):
        bits = values(generator, [lanes.drawn(kind, generator) for kind in kinds])
        inputs[0, :, lane] = [part for one in bits for part in (one & 0xFFFFFFFF, one >> 32)]
        wanted |= int(bool(relation(*(lanes.decode(kind, one) for kind, one in zip(kinds, bits, strict=True))))) << lane
    registers = ", ".join(
        f"v[{at}:{at + 1}]" if kind == "d" else f"v{at}" for kind, at in zip(kinds, (10, 12), strict=True)
    )
    body = f"s_mov_b32 exec_lo, {before & 0xFFFFFFFF:#x}\ns_mov_b32 exec_hi, {before >> 32:#x}\n"
    body += f"{opcode} s[50:51], {registers}"
    low, high, exec_low, exec_high = lanes.execute(body, inputs, None, ("s50", "s51", "s92", "s93"))[0, :, 0].tolist()
    assert low | high << 32 == wanted & before
    assert exec_low | exec_high << 32 == wanted & before


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", RELATIONS)
def test_comparison_that_also_writes_exec(lanes, name, kind):
    checked_with_exec(lanes, f"v_cmpx_{name}_{kind}", 2 * LETTER[kind], RELATIONS[name], often_equal)


def class_of(letter, bits):
    width, fractions = {"f": (32, 23), "e": (16, 10), "d": (64, 52)}[letter]
    top = (1 << width - 1 - fractions) - 1
    negative, power, rest = bits >> width - 1, bits >> fractions & top, bits & (1 << fractions) - 1
    if power == top and rest:
        return rest >> fractions - 1
    if power == top:
        return 2 if negative else 9
    if power:
        return 3 if negative else 8
    if rest:
        return 4 if negative else 7
    return 5 if negative else 6


INTEGERS = {"f": "u", "e": "h", "d": "U"}


@pytest.mark.parametrize(("form", "kind"), [("cmp", "f32"), ("cmp", "f16"), ("cmp", "f64"), ("cmpx", "f32")])
def test_class(lanes, kind, form):
    """Ten classes, signalling NaNs among them: the numbers are drawn and read as integers."""
    x = LETTER[kind]
    opcode, kinds = f"v_{form}_class_{kind}", INTEGERS[x] + ("h" if kind == "f16" else "u")

    def one_class(generator, bits):
        number = lanes.drawn(x, generator)
        if kind != "f16" and generator.random() < 0.2:
            number = lanes.encoded(x, math.inf) | generator.getrandbits(3) | generator.getrandbits(1) << BITS[kind] - 1
        return [number, 1 << generator.randrange(10) if generator.random() < 0.5 else generator.getrandbits(10)]

    def formula(bits, mask):
        return mask >> class_of(x, bits) & 1

    if form == "cmp":
        lanes.check_vector(opcode, "m", kinds, formula, values=one_class)
    else:
        checked_with_exec(lanes, opcode, kinds, formula, one_class)


def test_class_of_a_signalling_half(lanes):
    lanes.check_vector("v_cmp_class_f16", "m", "hh", lambda bits, mask: mask & 1, values=lambda *_: [0x7C01, 1])


OPCODES = {
    *FORMULAS,
    *(f"v_{unit}_{kind}" for unit in [*SINGLE, *CIRCULAR] for kind in ("f32", "f16")),
    *(f"v_{unit}_f64" for unit in ("rcp", "rsq", "sqrt")),
    *(f"v_{form}_{name}_{kind}" for form in ("cmp", "cmpx") for name in RELATIONS for kind in BITS),
    *(f"v_dot2{form}_f32_{wide}" for form in ("", "c") for wide in ("f16", "bf16")),
    "v_rcp_iflag_f32", "v_div_fixup_f16", "v_div_scale_f32", "v_div_scale_f64", "v_div_fmas_f32", "v_div_fmas_f64",
    "v_cmp_class_f32", "v_cmpx_class_f32", "v_cmp_class_f16", "v_cmp_class_f64",
}  # fmt: skip


# ── modifiers ───────────────────────────────────────────────────────────────

SIGNS = {"-{}": lambda x: -x, "|{}|": abs, "-|{}|": lambda x: -abs(x)}


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("shape", SIGNS)
def test_sign_modifiers_of_sources(lanes, kind, shape):
    x, sign = LETTER[kind], SIGNS[shape]
    lanes.check_vector(f"v_fma_{kind}", x, 3 * x, lambda *given: fused(*map(sign, given)), shape=shape)
    lanes.check_vector(f"v_max_{kind}", x, 2 * x, lambda *given: larger(*map(sign, given)), shape=shape)


def test_sign_modifiers_of_what_dpp_reads(lanes):
    generator = lanes.generator_for("dpp signs")
    inputs = np.array([[[lanes.drawn("f", generator) for _ in range(64)] for _ in "ab"]], np.uint32)
    body = "v_add_f32_dpp v200, -|v10|, |v11| row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane in range(64):
        a = lanes.decode("f", int(inputs[0, 0, lane - 1])) if lane % 16 else 0.0
        b = lanes.decode("f", int(inputs[0, 1, lane]))
        assert lanes.agrees("f", got[lane], lanes.encoded("f", plus(-abs(a), abs(b)))), lane


def test_sign_modifiers_of_what_sdwa_reads(lanes):
    generator = lanes.generator_for("sdwa signs")
    inputs = np.array([[[lanes.drawn("e", generator) << 16 for _ in range(64)] for _ in "ab"]], np.uint32)
    selects = "dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:WORD_1"
    body = f"v_mul_f16_sdwa v200, -|v10|, -v11 {selects}"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane in range(64):
        a, b = (lanes.decode("e", int(inputs[0, k, lane]) >> 16) for k in (0, 1))
        assert got[lane] & 0xFFFF == 0
        assert lanes.agrees("e", got[lane] >> 16, lanes.encoded("e", times(-abs(a), -b))), lane


def test_sign_modifiers_of_a_selection(lanes):
    lanes.check_vector("v_cndmask_b32", "f", "ffm", lambda a, b, c: -abs(b if c else a) if bare(b if c else a) else ...,
                       shape="-|{}|")  # fmt: skip


@pytest.mark.parametrize("kind", BITS)
def test_clamp_to_zero_and_one(lanes, kind):
    x = LETTER[kind]

    def formula(a, b):
        y = plus(a, b)
        return max(0.0, min(1.0, y)) if bare(y) and y > 0 else 0.0

    lanes.check_vector(f"v_add_{kind}", x, 2 * x, formula, modifiers="clamp")


@pytest.mark.parametrize(("modifier", "factor"), [("mul:2", 2), ("mul:4", 4), ("div:2", Fraction(1, 2))])
@pytest.mark.parametrize("kind", BITS)
def test_output_is_multiplied(lanes, kind, modifier, factor):
    x = LETTER[kind]

    def moderate(generator, bits):
        return [lanes.encoded(x, generator.uniform(-4, 4) * 2.0 ** generator.randint(-3, 3)) for _ in bits]

    def formula(a, b):
        y = plus(a, b)
        return y * factor if isinstance(y, Fraction) else y

    lanes.check_vector(f"v_add_{kind}", x, 2 * x, formula, modifiers=modifier, values=moderate)


def test_denormals_are_flushed_where_the_kernel_says_so(lanes):
    def flushed(x):
        return math.copysign(0.0, x) if abs(x) < TINY["f"] else x

    def formula(a, b):
        y = plus(flushed(a), flushed(b))
        return flushed(y) if isinstance(y, float) else y if abs(y) >= TINY["f"] else math.copysign(0.0, y)

    lanes.check_vector("v_add_f32", "f", "ff", formula, denormals=0)
    lanes.check_vector("v_add_f16", "e", "ee", plus, denormals=0)
    lanes.check_vector("v_add_f64", "d", "dd", plus, denormals=0)


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
