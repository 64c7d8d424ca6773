"""Sparse matrix instructions alone: of four numbers along a row of A two are held, and where they belong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from verification.gfx950.machine import ExecutionError
from verification.gfx950.models import Models

LETTERS = {"f16": "e", "bf16": "b"}
BYTES = {"fp8": (3, 7, 0x7F), "bf8": (2, 15, 0x7C)}
"""Bits of the fraction, the bias, and the first code that is not finite."""
PAIRS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
KINDS = [("f32", "f16", "f16"), ("f32", "bf16", "bf16"), ("i32", "i8", "i8"),
         *(("f32", a, b) for a in BYTES for b in BYTES)]  # fmt: skip
SHAPES = [(16, 32), (32, 16), (16, 64), (32, 32)]
"""Rows and K of the 16-bit types; K is twice that for bytes."""


def name_of(result, a, b, rows, size):
    return f"v_smfmac_{result}_{rows}x{rows}x{size}_{a}" + ("" if a == b and a not in BYTES else f"_{b}")


def bits_of(kind):
    return 16 if kind in LETTERS else 8


ALL = [(*kinds, rows, size * 16 // bits_of(kinds[1])) for kinds in KINDS for rows, size in SHAPES]
OPCODES = {name_of(*one) for one in ALL}


def drawn(lanes, generator, kind, shape, edges):
    codes = np.empty(shape, object)
    numbers = np.empty(shape)
    for at in np.ndindex(*shape):
        if kind in LETTERS:
            value = generator.choice([math.nan, math.inf, -0.0, 2.0**-130]) if generator.random() < edges else None
            value = generator.uniform(-4, 4) if value is None else value
            codes[at] = lanes.encoded(LETTERS[kind], value) if not math.isnan(value) else 0x7FC0 | 0x7E00
            numbers[at] = lanes.decode(LETTERS[kind], codes[at])
        elif kind == "i8":
            codes[at] = generator.getrandbits(8)
            numbers[at] = codes[at] - (codes[at] > 127) * 256
        else:
            fraction, bias, end = BYTES[kind]
            codes[at] = code = generator.randrange(end) | generator.getrandbits(1) << 7
            power, low = divmod(code & 127, 1 << fraction)
            numbers[at] = ((power > 0) + low / 2**fraction) * 2.0 ** (max(power, 1) - bias) * (-1 if code > 127 else 1)
    return codes, numbers


def packed(codes, kind, split):
    """Registers of [row, k]: a lane holds consecutive k, or half of them in each half of K."""
    rows, size = codes.shape
    each = size * rows // 64 // (2 if split else 1)
    held = [0] * 64
    for i, k in np.ndindex(rows, size):
        half, rest = divmod(k, size // 2) if split else (0, k)
        held[i + rows * (rest // each)] |= int(codes[i, k]) << (half * each + rest % each) * bits_of(kind)
    words = size * rows * bits_of(kind) // 64 // 32
    return np.array([[one >> 32 * word & 0xFFFFFFFF for one in held] for word in range(words)], np.uint32)


def place(rows, i, j):
    """Register and lane of a number of the result."""
    return (4 * (i // 8) + i % 4, j + 32 * (i // 4 % 2)) if rows == 32 else (i % 4, j + 16 * (i // 4))


def span(first, count):
    return f"v[{first}:{first + count - 1}]"


def operands_of(lanes, one, chosen, edges):
    """Registers of A, B and the places; A in full, what of it is held, and B as numbers."""
    _, a, b, rows, size = one
    generator = lanes.generator_for(f"{one}{chosen}")
    codes_a, numbers = drawn(lanes, generator, a, (rows, size // 2), edges)
    codes_b, y = drawn(lanes, generator, b, (rows, size), edges)
    width = rows * size // 64  # bits of the places of a lane; it stands for as many k
    words = [generator.getrandbits(32) & ~((1 << width) - 1 << width * chosen) for _ in range(64)]
    x, held = np.zeros((rows, size)), np.zeros((rows, size), bool)
    for i, four in np.ndindex(rows, size // 4):
        group, q = divmod(four, width // 4)
        pair = generator.choice(PAIRS)
        words[i + rows * group] |= (pair[0] | pair[1] << 2) << width * chosen + 4 * q
        for k in range(2):
            x[i, 4 * four + pair[k]], held[i, 4 * four + pair[k]] = numbers[i, 2 * four + k], True
    split = bits_of(b) * size * rows // 64 == 256
    return [packed(codes_a, a, False), packed(codes_b, b, split), np.array([words], np.uint32)], x, held, y


def run(lanes, one, registers, c, suffix="", **how):
    """D as [row, column] bits; exec is off, for it is not looked at."""
    rows = one[3]
    start = np.zeros((rows * rows // 64, 64), np.uint32)
    for i, j in np.ndindex(rows, rows):
        start[place(rows, i, j)] = c[i, j]
    blocks = [*registers, start]
    first = np.cumsum([10, *(len(block) for block in blocks)]).tolist()
    a, b, _, d = (span(first[k], len(block)) for k, block in enumerate(blocks))
    names = [f"v{first[3] + r}" for r in range(len(start))]
    body = f"s_mov_b64 exec, 0\ns_nop 4\n{name_of(*one)} {d}, {a}, {b}, v{first[2]} {suffix}"
    got = lanes.execute(body, np.concatenate(blocks)[None], None, names, **how)[0]
    return np.array([[got[place(rows, i, j)] for j in range(rows)] for i in range(rows)])


def summed(x, held, y, c, chained):
    """C and the products of what is held, exact in float64, added in the order of k."""
    total = c.astype(np.float64)
    with np.errstate(all="ignore"):
        for k in range(x.shape[1]):
            total = np.where(held[:, k, None], total + x[:, k, None] * y[None, :, k], total)
            if chained:
                total = total.astype(np.float32).astype(np.float64)
        return total.astype(np.float32)


@pytest.mark.parametrize("model", ["fused", "chained"])
@pytest.mark.parametrize("one", [one for one in ALL if one[0] == "f32"], ids=lambda one: name_of(*one))
def test_floats(lanes, one, model):
    for edges in (0, 0.5 / one[4]):
        registers, x, held, y = operands_of(lanes, one, 0, edges)
        c = np.linspace(-9, 9, one[3] ** 2, dtype=np.float32).reshape(one[3], one[3])
        wanted = summed(x, held, y, c, model == "chained")
        got = run(lanes, one, registers, c.view(np.uint32), models=Models(matrix=model))
        assert ((got == wanted.view(np.uint32)) | (np.isnan(got.view(np.float32)) & np.isnan(wanted))).all()


@pytest.mark.parametrize("one", [one for one in ALL if one[0] == "i32"], ids=lambda one: name_of(*one))
def test_integers_wrap_or_saturate(lanes, one):
    registers, x, _, y = operands_of(lanes, one, 0, 0)
    c = np.where(np.arange(one[3] ** 2) % 3, 2**31 - 1, -(2**31)).reshape(one[3], one[3])
    exact, bits = c + x.astype(np.int64) @ y.T.astype(np.int64), (c & 0xFFFFFFFF).astype(np.uint32)
    assert (run(lanes, one, registers, bits) == exact & 0xFFFFFFFF).all()
    bounded = np.clip(exact, -(2**31), 2**31 - 1)
    assert (run(lanes, one, registers, bits, overflow=1) == bounded & 0xFFFFFFFF).all()


@pytest.mark.parametrize(("one", "sets"), [
    (("f32", "f16", "f16", 16, 32), 4), (("f32", "bf16", "bf16", 32, 16), 4), (("f32", "f16", "f16", 32, 32), 2),
    (("f32", "fp8", "bf8", 16, 64), 2), (("f32", "bf8", "bf8", 32, 64), 1),
])  # fmt: skip
def test_the_set_of_places_is_chosen(lanes, one, sets):
    """By abid where cbsz is 0; another cbsz means the first set."""
    c = np.zeros((one[3], one[3]), np.float32)
    for chosen in range(sets):
        registers, x, held, y = operands_of(lanes, one, chosen, 0)
        wanted = summed(x, held, y, c, False).view(np.uint32)
        assert (run(lanes, one, registers, c.view(np.uint32), f"abid:{chosen}") == wanted).all()
        if not chosen:
            assert (run(lanes, one, registers, c.view(np.uint32), "cbsz:1 abid:1") == wanted).all()


@pytest.mark.parametrize("pair", [0b0000, 0b0001, 0b1111, 0b0010])
def test_places_out_of_order_are_told(lanes, pair):
    one = ("f32", "f16", "f16", 16, 32)
    registers, *_ = operands_of(lanes, one, 0, 0)
    registers[2][0, 37] = int(registers[2][0, 37]) & ~15 | pair
    with pytest.raises(ExecutionError, match=name_of(*one)) as caught:
        run(lanes, one, registers, np.zeros((16, 16), np.uint32))
    assert caught.value.kind == "unsupported"
