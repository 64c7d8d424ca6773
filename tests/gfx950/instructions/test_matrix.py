"""Matrix instructions alone, against sums in float64 in the order of k, by the layouts of AMD's ISA document."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from verification.gfx950.assembly import AssemblyError
from verification.gfx950.models import Models

BITS = {"f32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
LETTERS = {"f32": "f", "f16": "e", "bf16": "b"}
SMALL = {"fp8": (4, 3, 7), "bf8": (5, 2, 15), "fp6": (2, 3, 1), "bf6": (3, 2, 3), "fp4": (2, 1, 1)}
"""Bits of the exponent and of the fraction, and the bias."""
EDGES = {
    "f32": (0x7FC00000, 0x7F800000, 0xFF800000, 1, 0x807FFFFF, 0x80000000, 0, 0x7F7FFFFF, 0xFF7FFFFF, 0x00800000),
    "f16": (0x7E00, 0x7C00, 0xFC00, 1, 0x83FF, 0x8000, 0, 0x7BFF, 0xFBFF), "bf16": (
        0x7FC0, 0x7F80, 0xFF80, 1, 0x807F, 0x8000, 0, 0x7F7F, 0xFF7F), "i8": (0, 127, 128, 255, 1),
    "fp8": (0x7F, 0xFF, 1, 0x87, 0x80, 0, 0x7E, 0xFE), "bf8": (0x7D, 0xFF, 0x7C, 0xFC, 1, 0x83, 0x80, 0, 0x7B, 0xFB),
    "fp6": (0, 32, 1, 39, 31, 63), "bf6": (0, 32, 1, 35, 31, 63), "fp4": (0, 8, 1, 9, 7, 15),
}  # fmt: skip
"""NaN, infinities, denormals, zeros, the largest and least."""


def number_of(lanes, kind, code):
    if kind in LETTERS:
        return lanes.decode(LETTERS[kind], code)
    if kind == "i8":
        return float(code - (code > 127) * 256)
    exponent, fraction, bias = SMALL[kind]
    sign, rest = divmod(code, 1 << exponent + fraction)
    power, low = divmod(rest, 1 << fraction)
    if kind == "bf8" and power == 31:
        value = math.nan if low else math.inf
    elif kind == "fp8" and rest == 127:
        value = math.nan
    else:
        value = ((power > 0) + low / 2**fraction) * 2.0 ** (max(power, 1) - bias)
    return -value if sign else value


def drawn(lanes, generator, kind, shape, edges):
    """Codes and their numbers: ordinary ones, and that share of edges."""
    codes = np.empty(shape, object)
    small = range(1 << BITS[kind]) if kind not in LETTERS else ()
    finite = [code for code in small if math.isfinite(number_of(lanes, kind, code))]
    for at in np.ndindex(*shape):
        if generator.random() < edges:
            codes[at] = generator.choice(EDGES[kind])
        elif kind in LETTERS:
            codes[at] = lanes.encoded(LETTERS[kind], generator.uniform(-8, 8) * 2.0 ** generator.randint(-6, 6))
        else:
            codes[at] = generator.choice(finite)
    return codes, np.vectorize(lambda code: number_of(lanes, kind, code), otypes=[float])(codes)


def packed(codes, kind, split):
    """Registers of an operand [block, row, k]: a lane holds consecutive k, or half of them in each half of K."""
    blocks, rows, size = codes.shape
    each = size * rows * blocks // 64 // (2 if split else 1)
    held = [0] * 64
    for b, i, k in np.ndindex(*codes.shape):
        half, rest = divmod(k, size // 2) if split else (0, k)
        item, lane = half * each + rest % each, i + rows * (b + blocks * (rest // each))
        held[lane] |= int(codes[b, i, k]) << item * BITS[kind]
    words = size * rows * blocks * BITS[kind] // 64 // 32
    return np.array([[one >> 32 * word & 0xFFFFFFFF for one in held] for word in range(words)], np.uint32)


def places(blocks, rows):
    """(block, row, column), register and lane of every number of the result."""
    height = 4
    within = -(-64 // (rows * rows // height))
    deep = 64 // within // rows
    groups = rows // (height * deep)
    for b, i, j in np.ndindex(blocks, rows, rows):
        register = i % height + height * (i // (height * deep) + groups * (b // within))
        yield (b, i, j), register, j + rows * (i // height % deep + deep * (b % within))


def laid_out(matrix, registers):
    """Bits [block, row, column] as registers of C."""
    out = np.zeros((registers, 64), np.uint32)
    for at, register, lane in places(matrix.shape[0], matrix.shape[1]):
        out[register, lane] = matrix[at]
    return out


def summed(x, y, c, chained=False):
    """C + A B of [block, row, k] and [block, column, k]: products exact in float64, added in the order of k."""
    total = c.astype(np.float64)
    with np.errstate(all="ignore"):
        for k in range(x.shape[2]):
            total = total + x[:, :, None, k] * y[:, None, :, k]
            if chained:
                total = total.astype(np.float32).astype(np.float64)
        return total.astype(np.float32)


def span(first, count):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def agree(got, wanted):
    """The same bits; any NaN for NaN."""
    same = got == wanted.view(np.uint32)
    return bool((same | (np.isnan(got.view(np.float32)) & np.isnan(wanted))).all())


def run(lanes, opcode, operands, c, suffix="", more=(), **how):
    """D as [block, row, column] bits; exec is off, for it is not looked at."""
    registers = c.shape[0] * c.shape[1] * c.shape[1] // 64
    blocks = [*operands, laid_out(c, registers), *more]
    first = np.cumsum([10, *(len(block) for block in blocks)]).tolist()
    texts = [span(200, registers), *(span(first[k], len(block)) for k, block in enumerate(blocks))]
    body = f"s_mov_b64 exec, 0\ns_nop 4\n{opcode} {', '.join(texts)} {suffix}"
    got = lanes.execute(body, np.concatenate(blocks)[None], None, [f"v{200 + r}" for r in range(registers)], **how)[0]
    out = np.zeros(c.shape, np.uint32)
    for at, register, lane in places(c.shape[0], c.shape[1]):
        out[at] = got[register, lane]
    return out


HALF = [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1), (32, 16, 1), (16, 32, 1)]
BYTE = [(32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 16, 1), (16, 32, 1), (32, 32, 1), (16, 64, 1)]
FLOATS = [
    *(("f32", "f32", *shape) for shape in ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1))),
    *((kind, kind, *shape) for kind in ("f16", "bf16") for shape in HALF),
    *((a, b, *shape) for a in ("fp8", "bf8") for b in ("fp8", "bf8") for shape in ((32, 16, 1), (16, 32, 1))),
]
FORMATS = {"fp8": 0, "bf8": 1, "fp6": 2, "bf6": 3, "fp4": 4}
WIDE = [(32, 64), (16, 128)]


def dense(a, b, rows, size, blocks):
    suffix = f"_{a}" if a == b and a in (*LETTERS, "i8") else f"_{a}_{b}"
    return f"v_mfma_{'i32' if a == 'i8' else 'f32'}_{rows}x{rows}x{size}{f'_{blocks}b' * (blocks > 1)}{suffix}"


OPCODES = {
    *(dense(*one) for one in FLOATS), *(dense("i8", "i8", *shape) for shape in BYTE),
    *(f"v_mfma_{scaled}f32_{rows}x{rows}x{size}_f8f6f4" for rows, size in WIDE for scaled in ("", "scale_")),
    *(f"v_mfma_f64_{name}_f64" for name in ("16x16x4", "4x4x4_4b")),
}  # fmt: skip


def drawn_all(lanes, seed, a, b, rows, size, blocks, edges, split=(False, False)):
    generator = lanes.generator_for(seed)
    (codes_a, x), (codes_b, y) = (drawn(lanes, generator, kind, (blocks, rows, size), edges) for kind in (a, b))
    c, numbers = drawn(lanes, generator, "f32", (blocks, rows, rows), min(1.0, 16 * edges))
    operands = [packed(codes, kind, way) for codes, kind, way in zip((codes_a, codes_b), (a, b), split, strict=True)]
    return operands, x, y, c.astype(np.uint32), numbers, generator


@pytest.mark.parametrize("model", ["fused", "chained"])
@pytest.mark.parametrize("one", FLOATS, ids=lambda one: dense(*one))
def test_floats(lanes, one, model):
    a, b, rows, size, blocks = one
    for edges in (0, 0.5 / size):
        operands, x, y, c, numbers, _ = drawn_all(lanes, dense(*one), a, b, rows, size, blocks, edges)
        got = run(lanes, dense(*one), operands, c, models=Models(matrix=model))
        assert agree(got, summed(x, y, numbers, model == "chained"))


@pytest.mark.parametrize("shape", BYTE)
def test_integers_wrap_or_saturate(lanes, shape):
    rows, size, blocks = shape
    opcode = dense("i8", "i8", *shape)
    generator = lanes.generator_for(opcode)
    (a, x), (b, y) = (drawn(lanes, generator, "i8", (blocks, rows, size), 0.3) for _ in "ab")
    c = np.array([generator.choice([0, 5, -7, 2**31 - 1, -(2**31), 2**31 - 900]) for _ in range(blocks * rows * rows)])
    c = c.reshape(blocks, rows, rows)
    exact = c + np.einsum("bik,bjk->bij", x.astype(np.int64), y.astype(np.int64))
    operands, bits = [packed(a, "i8", False), packed(b, "i8", False)], (c & 0xFFFFFFFF).astype(np.uint32)
    assert (run(lanes, opcode, operands, bits) == exact & 0xFFFFFFFF).all()
    bounded = np.clip(exact, -(2**31), 2**31 - 1)
    assert (bounded != exact).any()
    assert (run(lanes, opcode, operands, bits, overflow=1) == bounded & 0xFFFFFFFF).all()


@pytest.mark.parametrize("a", FORMATS)
@pytest.mark.parametrize("b", FORMATS)
@pytest.mark.parametrize(("rows", "size"), WIDE)
def test_small_formats(lanes, rows, size, a, b):
    opcode, suffix = f"v_mfma_f32_{rows}x{rows}x{size}_f8f6f4", f"cbsz:{FORMATS[a]} blgp:{FORMATS[b]}"
    split = [BITS[kind] == 8 for kind in (a, b)]
    operands, x, y, c, numbers, _ = drawn_all(lanes, opcode + suffix, a, b, rows, size, 1, 0.5 / size, split)
    assert agree(run(lanes, opcode, operands, c, suffix), summed(x, y, numbers))


@pytest.mark.parametrize("chosen", [(0, 0), (1, 2), (3, 1)])
@pytest.mark.parametrize(("a", "b"), [("fp8", "fp8"), ("fp4", "fp4"), ("bf8", "fp4"), ("fp6", "bf6"), ("bf6", "fp8"),
                                      ("fp4", "fp6")])  # fmt: skip
@pytest.mark.parametrize(("rows", "size"), WIDE)
def test_scaled_small_formats(lanes, rows, size, a, b, chosen):
    """Bytes of 0 and 254 make denormals and infinities, 255 is NaN."""
    low, high = ([one >> bit & 1 for one in chosen] for bit in (0, 1))
    opcode = f"v_mfma_scale_f32_{rows}x{rows}x{size}_f8f6f4"
    suffix = f"op_sel:[{low[0]},{low[1]},0] op_sel_hi:[{high[0]},{high[1]},0] cbsz:{FORMATS[a]} blgp:{FORMATS[b]}"
    split = [BITS[kind] == 8 for kind in (a, b)]
    operands, x, y, c, numbers, generator = drawn_all(lanes, opcode + suffix, a, b, rows, size, 1, 0.02 / size, split)
    scales = []
    for matrix, byte in ((x, chosen[0]), (y, chosen[1])):
        words = np.array([[generator.getrandbits(32) for _ in range(64)]], np.uint32)
        for lane in range(64):
            value = generator.choice([0, 60, 120, 126, 127, 129, 254]) if lane % 13 else 255
            words[0, lane] = int(words[0, lane]) & ~(255 << 8 * byte) | value << 8 * byte
            with np.errstate(invalid="ignore"):
                block = slice(32 * (lane // rows), 32 * (lane // rows) + 32)
                matrix[0, lane % rows, block] *= math.nan if value == 255 else 2.0 ** (value - 127)
        scales.append(words)
    got = run(lanes, opcode, operands, c, suffix, scales)
    wanted = summed(x, y, numbers)
    assert agree(got, wanted)
    assert np.isnan(wanted).any()
    assert np.isfinite(wanted).any()


BROADCASTS = {
    1: lambda lane: lane % 32, 2: lambda lane: lane % 32 + 32, 3: lambda lane: (lane + 16) % 64,
    4: lambda lane: lane % 16, 5: lambda lane: lane % 16 + 16, 6: lambda lane: lane % 16 + 32,
    7: lambda lane: lane % 16 + 48,
}  # fmt: skip


@pytest.mark.parametrize(("rows", "size", "blocks", "cbsz", "abid", "blgp"), [
    (32, 4, 2, 1, 0, 0), (32, 4, 2, 1, 1, 3), (16, 4, 4, 1, 1, 1), (16, 4, 4, 2, 3, 2), (4, 4, 16, 4, 13, 4),
    (4, 4, 16, 3, 5, 5), (4, 4, 16, 2, 2, 6), (32, 8, 1, 0, 0, 7), (16, 32, 1, 0, 0, 3),
])  # fmt: skip
def test_broadcasts(lanes, rows, size, blocks, cbsz, abid, blgp):
    """What a lane of A or B reads is another lane's registers: so are the operands of the plain instruction."""
    opcode, suffix = dense("f16", "f16", rows, size, blocks), f"cbsz:{cbsz} abid:{abid} blgp:{blgp}"
    operands, _, _, c, _, _ = drawn_all(lanes, opcode + suffix, "f16", "f16", rows, size, blocks, 0)
    group = 64 >> cbsz
    moved = [operands[0][:, [lane % group + group * abid if cbsz else lane for lane in range(64)]],
             operands[1][:, [BROADCASTS[blgp](lane) if blgp else lane for lane in range(64)]]]  # fmt: skip
    assert (run(lanes, opcode, operands, c, suffix) == run(lanes, opcode, moved, c)).all()


@pytest.mark.parametrize("text", [
    "v_mfma_f32_32x32x8_f16 v[0:15], v[0:1], v[0:1], v[0:15] cbsz:1",
    "v_mfma_f32_32x32x4_2b_f16 v[0:31], v[0:1], v[0:1], v[0:31] cbsz:1 abid:2",
    "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[0:7], v[0:3] cbsz:5",
    "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[0:7], v[0:3] cbsz:2",
    "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[0:7], v[0:3], v1, s2",
    "v_mfma_f64_16x16x4_f64 v[0:7], v[0:1], v[0:1], v[0:7] blgp:1",
    "v_mfma_f32_16x16x8_xf32 v[0:3], v[0:1], v[0:1], v[0:3]",
    "v_mfma_ld_scale_b32 v0, v1",
])  # fmt: skip
def test_what_is_not_known_is_refused(lanes, text):
    with pytest.raises(AssemblyError, match=text.split()[0]):
        lanes.execute(text, np.zeros((1, 1, 64), np.uint32))


@pytest.mark.parametrize("model", ["fused", "chained"])
@pytest.mark.parametrize("shape", [(32, 8, 1), (16, 32, 1), (4, 4, 16)])
def test_a_sum_too_large_is_infinite_or_the_largest(lanes, shape, model):
    """With FP16_OVFL only what was infinite before stays so."""
    rows, size, blocks = shape
    big = np.full((blocks, rows, size), 0x7F00, object)
    c = np.full((blocks, rows, rows), 0x7F7FFFFF, np.uint32)
    c[:, 0, 0] = 0x7F800000
    operands = [packed(big, "bf16", False)] * 2
    wanted = {0: np.full(c.shape, 0x7F800000, np.uint32), 1: c}
    for overflow in (0, 1):
        got = run(lanes, dense("bf16", "bf16", *shape), operands, c, overflow=overflow, models=Models(matrix=model))
        assert (got == wanted[overflow]).all()


@pytest.mark.parametrize("denormals", [0, 3])
def test_fp32_denormals_of_a_and_b_follow_the_mode(lanes, denormals):
    """C and D keep theirs."""
    x, y = (np.zeros((1, 16, 4), object) for _ in "ab")
    x[0, :, 0], y[0, :, 0] = 0x00400000, 0x3F800000
    c = np.full((1, 16, 16), 0x00000003, np.uint32)
    got = run(lanes, "v_mfma_f32_16x16x4_f32", [packed(x, "f32", False), packed(y, "f32", False)], c,
              denormals=denormals)  # fmt: skip
    assert (got == (0x00400003 if denormals else 0x00000003)).all()


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("1.0", 0x3F800000), ("-4.0", 0xC0800000), ("-3", 0xFFFFFFFD)])
def test_c_is_a_constant(lanes, text, value):
    """As if all of C held these bits; D in accumulation registers."""
    operands, _, _, c, _, _ = drawn_all(lanes, text, "f16", "f16", 16, 16, 1, 0)
    moves = "\n".join(f"v_accvgpr_read_b32 v{200 + r}, a{4 + r}" for r in range(4))
    body = f"v_mfma_f32_16x16x16_f16 a[4:7], v[10:11], v[12:13], {text}\n{moves}"
    got = lanes.execute(body, np.concatenate(operands)[None], None, [f"v{200 + r}" for r in range(4)])[0]
    wanted = run(lanes, "v_mfma_f32_16x16x16_f16", operands, np.full_like(c, value))
    assert all(got[register, lane] == wanted[at] for at, register, lane in places(1, 16))


@pytest.mark.parametrize("d", [12, 20])
def test_d_overlaps_its_operands(lanes, d):
    """All of A, B and C are read before D is written."""
    operands, x, y, c, numbers, _ = drawn_all(lanes, str(d), "f16", "f16", 32, 16, 1, 0)
    inputs = np.concatenate([*operands, laid_out(c, 16)])[None]
    got = lanes.execute(f"v_mfma_f32_32x32x16_f16 v[{d}:{d + 15}], v[10:13], v[14:17], v[18:33]", inputs, None,
                        [f"v{d + r}" for r in range(16)])[0]  # fmt: skip
    wanted = summed(x, y, numbers)
    assert all(got[register, lane] == wanted[at].view(np.uint32) for at, register, lane in places(1, 32))


DOUBLES = (0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -2.2e-308, 1.7e308, -1.7e308)


@pytest.mark.parametrize("negated", [(0, 0, 0), (1, 0, 0), (0, 1, 1), (1, 1, 0)])
@pytest.mark.parametrize(("rows", "blocks"), [(16, 1), (4, 4)])
def test_doubles(lanes, rows, blocks, negated):
    """One fused multiply-add for each k, here by exact fractions; a pair of registers holds four rows."""
    generator = lanes.generator_for(f"{rows}{negated}")

    def number():
        edge, ordinary = generator.choice(DOUBLES), generator.uniform(-9, 9) * 2.0 ** generator.randint(-40, 40)
        return edge if generator.random() < 0.08 else ordinary

    def numbers(*shape):
        return np.array([number() for _ in range(math.prod(shape))]).reshape(shape)

    x, y, c = numbers(blocks, rows, 4), numbers(blocks, rows, 4), numbers(blocks, rows, rows)
    a, b, start = (np.zeros((count, 64)) for count in (1, 1, rows * rows * blocks // 64))
    for block, i, k in np.ndindex(*x.shape):
        a[0, i + rows * block + 16 * k], b[0, i + rows * block + 16 * k] = x[block, i, k], y[block, i, k]
    at = {(block, i, j): (i // 4, 16 * (i % 4) + rows * block + j) for block, i, j in np.ndindex(*c.shape)}
    for where, (item, lane) in at.items():
        start[item, lane] = c[where]

    def pairs(values):
        return values.view(np.uint32).reshape(len(values), 64, 2).transpose(0, 2, 1).reshape(-1, 64)

    def fused(p, q, s):
        if not math.isfinite(p) or not math.isfinite(q):
            return p * q + s
        exact = Fraction(p) * Fraction(q) + Fraction(s) if math.isfinite(s) else 0
        return lanes.decode("d", lanes.encoded("d", exact)) if exact else p * q + s if math.isfinite(s) else s

    count, name = len(start), "16x16x4" if rows == 16 else "4x4x4_4b"
    texts = f"{span(200, 2 * count)}, v[10:11], v[12:13], {span(14, 2 * count)} neg:[{','.join(map(str, negated))}]"
    inputs = np.concatenate([pairs(a), pairs(b), pairs(start)])[None]
    got = lanes.execute(f"v_mfma_f64_{name}_f64 {texts}", inputs, None, [f"v{200 + r}" for r in range(2 * count)])[0]
    sign_a, sign_b, sign_c = (-1.0 if one else 1.0 for one in negated)
    for (block, i, j), (item, lane) in at.items():
        total = sign_c * float(c[block, i, j])
        for k in range(4):
            total = fused(sign_a * float(x[block, i, k]), sign_b * float(y[block, j, k]), total)
        bits = int(got[2 * item, lane]) | int(got[2 * item + 1, lane]) << 32
        assert lanes.agrees("d", bits, lanes.encoded("d", total)), (block, i, j)
