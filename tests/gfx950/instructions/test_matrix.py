"""Matrix instructions alone, on small numbers whose products and sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

BITS = {"f32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "fp4": 4}
SHIFTS = {"f32": "f", "f16": "e", "bf16": "b"}
SMALL = {"fp8": (3, 7), "bf8": (2, 15), "fp4": (1, 1)}
"""Bits of the fraction, and the bias of the exponent."""


def small_number(name, code):
    fractions, bias = SMALL[name]
    sign = -1.0 if code >> BITS[name] - 1 else 1.0
    code &= (1 << BITS[name] - 1) - 1
    power, rest = code >> fractions, code & (1 << fractions) - 1
    return sign * ((power > 0) + rest / 2**fractions) * 2.0 ** (max(power, 1) - bias)


def elements(lanes, generator, kind, shape):
    """Codes and the numbers that they stand for."""
    if kind in SMALL:
        near = [code for code in range(1 << BITS[kind]) if 0.25 <= abs(small_number(kind, code)) <= 4]
        codes = np.array([generator.choice(near) for _ in range(shape[0] * shape[1])], np.uint64)
        numbers = np.array([small_number(kind, int(code)) for code in codes])
    else:
        numbers = np.array([float(generator.randint(-7, 7)) for _ in range(shape[0] * shape[1])])
        if kind == "i8":
            codes = np.array([int(x) * 17 & 255 for x in numbers], np.uint64)
            numbers = numbers * 17
        else:
            codes = np.array([lanes.encoded(SHIFTS[kind], x / 4) for x in numbers], np.uint64)
            numbers = numbers / 4
    return codes.reshape(shape), numbers.reshape(shape)


def k_of(j, group, per, size, kind, wide):
    """Which column of A the j-th element of a lane in that group of lanes is."""
    if wide and kind != "fp4":
        return 16 * group + j % 16 + (size // 2 if j >= 16 else 0)
    return per * group + j


def in_registers(codes, kind, rows, size, wide=False):
    per, bits = rows * size // 64, BITS[kind]
    registers = np.zeros((per * bits // 32, 64), np.uint32)
    for lane in range(64):
        for j in range(per):
            code = int(codes[lane % rows, k_of(j, lane // rows, per, size, kind, wide)])
            registers[j * bits // 32, lane] |= np.uint32(code << j * bits % 32)
    return registers


def place(r, lane, rows):
    row = 8 * (r // 4) + r % 4 + 4 * (lane // 32) if rows == 32 else r + 4 * (lane // 16)
    return row, lane % rows


def span(first, count):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def checked(lanes, opcode, rows, size, kinds, *, wide=False, scaled=None, suffix="", integer=False):
    generator = lanes.generator_for(opcode + suffix)
    (a, x), (b, y) = (elements(lanes, generator, kind, (rows, size)) for kind in kinds)
    c = np.array([[float(generator.randint(-99, 99)) for _ in range(rows)] for _ in range(rows)])
    registers = [in_registers(codes, kind, rows, size, wide) for codes, kind in ((a, kinds[0]), (b, kinds[1]))]
    per = rows * rows // 64
    start = np.zeros((per, 64), np.uint32)
    for r in range(per):
        for lane in range(64):
            value = c[place(r, lane, rows)]
            start[r, lane] = int(value) & 0xFFFFFFFF if integer else lanes.encoded("f", float(value))
    blocks = [*registers, start]
    first = np.cumsum([10, *(len(block) for block in blocks)]).tolist()
    texts = [span(200, per)] + [span(first[k], len(block)) for k, block in enumerate(blocks)]
    if scaled:
        for which, chosen in enumerate(scaled):
            words = np.array([[generator.getrandbits(32) for _ in range(64)]], np.uint32)
            matrix = (x, y)[which]
            for lane in range(64):
                power = generator.randint(-2, 2)
                words[0, lane] = int(words[0, lane]) & ~(255 << 8 * chosen) | (127 + power) << 8 * chosen
                block = slice(32 * (lane // rows), 32 * (lane // rows) + 32)
                matrix[lane % rows, block] *= 2.0**power
            texts.append(f"v{first[3] + which}")
            blocks.append(words)
        low, high = ([one >> bit & 1 for one in scaled] for bit in (0, 1))
        suffix = f"op_sel:[{low[0]},{low[1]},0] op_sel_hi:[{high[0]},{high[1]},0] {suffix}"
    # Exec is not looked at.
    body = f"s_mov_b64 exec, 0\ns_nop 4\n{opcode} {', '.join(texts)} {suffix}"
    got = lanes.execute(body, np.concatenate(blocks)[None], None, [f"v{200 + r}" for r in range(per)])[0]
    product = x @ y.T + c
    for r in range(per):
        for lane in range(64):
            wanted = product[place(r, lane, rows)]
            bits = int(wanted) & 0xFFFFFFFF if integer else lanes.encoded("f", float(wanted))
            assert int(got[r, lane]) == bits or (wanted == 0 and int(got[r, lane]) << 1 & 0xFFFFFFFF == 0), (r, lane)


PLAIN = {
    f"v_mfma_f32_{rows}x{rows}x{size}{suffix}": (rows, size, kind)
    for suffix, kind, shapes in (
        ("_f32", "f32", ((32, 2), (16, 4))), ("_f16", "f16", ((32, 8), (16, 16), (32, 16), (16, 32))),
        ("_bf16", "bf16", ((32, 16), (16, 32), (32, 8), (16, 16))),
    )
    for rows, size in shapes
}  # fmt: skip
BYTES = [(rows, size, a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8") for rows, size in ((32, 16), (16, 32))]
INTEGER = [(32, 16), (16, 32), (32, 32), (16, 64)]
FORMATS = {"fp8": 0, "bf8": 1, "fp4": 4}
WIDE = [(32, 64), (16, 128)]


TINY = [(1, "f32", "f32"), (4, "f16", "f16"), (4, "bf16", "bf16")]
OPCODES = {
    *PLAIN,
    *(f"v_mfma_f32_{rows}x{rows}x{size}_{a}_{b}" for rows, size, a, b in BYTES),
    *(f"v_mfma_i32_{rows}x{rows}x{size}_i8" for rows, size in INTEGER),
    *(f"v_mfma_{scaled}f32_{rows}x{rows}x{size}_f8f6f4" for rows, size in WIDE for scaled in ("", "scale_")),
    *(f"v_mfma_f32_4x4x{size}_16b_{suffix}" for size, suffix, _ in TINY),
}


@pytest.mark.parametrize("opcode", PLAIN)
def test_floats(lanes, opcode):
    rows, size, kind = PLAIN[opcode]
    checked(lanes, opcode, rows, size, (kind, kind))


@pytest.mark.parametrize(("rows", "size", "a", "b"), BYTES)
def test_bytes(lanes, rows, size, a, b):
    checked(lanes, f"v_mfma_f32_{rows}x{rows}x{size}_{a}_{b}", rows, size, (a, b))


@pytest.mark.parametrize(("rows", "size"), INTEGER)
def test_integers(lanes, rows, size):
    checked(lanes, f"v_mfma_i32_{rows}x{rows}x{size}_i8", rows, size, ("i8", "i8"), integer=True)


@pytest.mark.parametrize("a", FORMATS)
@pytest.mark.parametrize("b", FORMATS)
@pytest.mark.parametrize(("rows", "size"), WIDE)
def test_small_formats(lanes, rows, size, a, b):
    chosen = f"cbsz:{FORMATS[a]} blgp:{FORMATS[b]}"
    checked(lanes, f"v_mfma_f32_{rows}x{rows}x{size}_f8f6f4", rows, size, (a, b), wide=True, suffix=chosen)


@pytest.mark.parametrize("scaled", [(0, 0), (1, 2), (3, 1)])
@pytest.mark.parametrize(("a", "b"), [("fp8", "fp8"), ("fp4", "fp4"), ("bf8", "fp4")])
@pytest.mark.parametrize(("rows", "size"), WIDE)
def test_scaled_small_formats(lanes, rows, size, a, b, scaled):
    chosen = f"cbsz:{FORMATS[a]} blgp:{FORMATS[b]}"
    opcode = f"v_mfma_scale_f32_{rows}x{rows}x{size}_f8f6f4"
    checked(lanes, opcode, rows, size, (a, b), wide=True, scaled=scaled, suffix=chosen)


@pytest.mark.parametrize(("size", "suffix", "kind"), TINY)
def test_sixteen_small_products(lanes, size, suffix, kind):
    """Four lanes a product: lane l mod 4 holds a row of A and a column of B and of the result."""
    generator = lanes.generator_for(suffix)
    (a, x), (b, y) = (elements(lanes, generator, kind, (64, size)) for _ in "ab")
    words = size * BITS[kind] // 32
    blocks = []
    for codes in (a, b):
        block = np.zeros((words, 64), np.uint32)
        for j in range(size):
            block[j * BITS[kind] // 32] |= (codes[:, j] << np.uint64(j * BITS[kind] % 32)).astype(np.uint32)
        blocks.append(block)
    c = np.array([[float(generator.randint(-99, 99)) for _ in range(64)] for _ in range(4)])
    blocks.append(np.array([[lanes.encoded("f", float(one)) for one in row] for row in c], np.uint32))
    texts = [span(200, 4), span(10, words), span(10 + words, words), span(10 + 2 * words, 4)]
    body = f"v_mfma_f32_4x4x{size}_16b_{suffix} {', '.join(texts)}"
    got = lanes.execute(body, np.concatenate(blocks)[None], None, [f"v{200 + r}" for r in range(4)])[0]
    for lane in range(64):
        for row in range(4):
            wanted = float(x[lane // 4 * 4 + row] @ y[lane] + c[row, lane])
            assert lanes.decode("f", int(got[row, lane])) == wanted
