"""Loads and stores of LDS alone, transposing reads among them."""

from __future__ import annotations

import numpy as np
import pytest

from .accesses import OLD, loaded
from .execution import masked, named, span

SIZE = 8192
FILL = """v_mov_b32 v2, v1
{moves}
s_waitcnt lgkmcnt(0)
"""
LOADS = {
    "u8": (1, False, None), "i8": (1, True, None), "u16": (2, False, None), "i16": (2, True, None),
    "u8_d16": (1, False, 0), "u8_d16_hi": (1, False, 16), "i8_d16": (1, True, 0), "i8_d16_hi": (1, True, 16),
    "u16_d16": (2, False, 0), "u16_d16_hi": (2, False, 16),
    "b32": (4, False, None), "b64": (8, False, None), "b96": (12, False, None), "b128": (16, False, None),
}  # fmt: skip
STORES = {"b8": (1, 0), "b8_d16_hi": (1, 16), "b16": (2, 0), "b16_d16_hi": (2, 16), "b32": (4, 0), "b64": (8, 0),
          "b96": (12, 0), "b128": (16, 0)}  # fmt: skip


TRANSPOSED = [(64, 16), (64, 8), (64, 4), (96, 6)]
OPCODES = {
    *(f"ds_read_{name}" for name in LOADS),
    *(f"ds_write_{name}" for name in STORES),
    *(f"ds_{way}2{stride}_b{bits}" for way in ("read", "write") for stride in ("", "st64") for bits in (32, 64)),
    *(f"ds_read_b{total}_tr_b{bits}" for total, bits in TRANSPOSED),
}


def filled(lanes, seed, words=16):
    """LDS from byte 0 on holds word k·64 + lane; addresses are in v10, the image is returned too."""
    generator = lanes.generator_for(seed)
    image = np.array([generator.getrandbits(32) for _ in range(64 * words)], np.uint32)
    inputs = np.zeros((1, 1 + words, 64), np.uint32)
    inputs[0, 1:] = image.reshape(words, 64)
    moves = "\n".join(f"ds_write_b32 v1, v{11 + k} offset:{256 * k}" for k in range(words))
    return inputs, image.view(np.uint8), FILL.format(moves=moves), generator


@pytest.mark.parametrize("name", LOADS)
def test_load(lanes, name):
    size, sign, place = LOADS[name]
    inputs, image, fill, generator = filled(lanes, name)
    step = min(size, 4) if size != 16 else 16
    inputs[0, 0] = [generator.randrange(0, 4000 // step) * step for _ in range(64)]
    words = max(size // 4, 1)
    old = "\n".join(f"v_mov_b32 v{200 + k}, {OLD:#x}" for k in range(words))
    body = f"{fill}{old}\nds_read_{name} {span(200, words)}, v10 offset:16\ns_waitcnt lgkmcnt(0)"
    got = lanes.execute(body, inputs, None, named(200, words), lds=SIZE)[0]
    for lane in range(64):
        at = int(inputs[0, 0, lane]) + 16
        assert got[:, lane].tolist() == loaded(image[at : at + size].tobytes(), sign, place)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("mask", [(1 << 64) - 1, 0xF0F7FFFF8EEE7330])
def test_store(lanes, name, mask):
    size, shift = STORES[name]
    inputs, image, fill, generator = filled(lanes, name)
    inputs[0, 0] = np.array(generator.sample(range(4000 // 16), 64)) * 16
    words = max(size // 4, 1)
    body = f"{fill}{masked(mask)}ds_write_{name} v10, {span(12, words)} offset:16\ns_mov_b64 exec, -1\n"
    body += "\n".join(f"ds_read_b32 v{200 + k}, v1 offset:{256 * k}" for k in range(16))
    got = lanes.execute(body, inputs, None, named(200, 16), lds=SIZE)
    wanted = image.copy()
    for lane in range(64):
        if mask >> lane & 1:
            data = np.array([inputs[0, 2 + k, lane] >> shift for k in range(words)], np.uint32).tobytes()[:size]
            at = int(inputs[0, 0, lane]) + 16
            wanted[at : at + size] = np.frombuffer(data, np.uint8)
    assert got.reshape(-1).tolist() == wanted.view(np.uint32).tolist()


@pytest.mark.parametrize("stride", ["", "st64"])
@pytest.mark.parametrize("bits", [32, 64])
def test_two_loads(lanes, stride, bits):
    inputs, image, fill, _ = filled(lanes, "two")
    inputs[0, 0] = np.arange(64) * 8
    size, words = bits // 8, bits // 32
    step = size * (64 if stride else 1)
    body = f"{fill}ds_read2{stride}_b{bits} {span(200, 2 * words)}, v10 offset0:1 offset1:5\ns_waitcnt lgkmcnt(0)"
    got = lanes.execute(body, inputs, None, named(200, 2 * words), lds=SIZE)[0]
    for lane in range(64):
        raw = (image[8 * lane + offset * step :][:size].tobytes() for offset in (1, 5))
        assert got[:, lane].tolist() == [x for one in raw for x in loaded(one, False, None)]


@pytest.mark.parametrize("stride", ["", "st64"])
@pytest.mark.parametrize("bits", [32, 64])
def test_two_stores(lanes, stride, bits):
    inputs, image, fill, _ = filled(lanes, "two stores")
    size, words = bits // 8, bits // 32
    inputs[0, 0] = np.arange(64) * size
    first, second = (1, 3) if stride else (64, 192)
    body = (
        f"{fill}ds_write2{stride}_b{bits} v10, {span(12, words)}, {span(20, words)} offset0:{first} offset1:{second}\n"
    )
    body += "\n".join(f"ds_read_b32 v{200 + k}, v1 offset:{256 * k}" for k in range(16))
    got = lanes.execute(body, inputs, None, named(200, 16), lds=SIZE)
    wanted = image.view(np.uint32).copy()
    for lane in range(64):
        for offset, register in ((first, 2), (second, 10)):
            at = (lane * size + offset * size * (64 if stride else 1)) // 4
            wanted[at : at + words] = inputs[0, register : register + words, lane]
    assert got.reshape(-1).tolist() == wanted.tolist()


@pytest.mark.parametrize(("total", "bits"), TRANSPOSED)
def test_transposing_read(lanes, total, bits):
    """In each 16 lanes: their rows of 16 columns one after another; lane l takes column l of all rows."""
    inputs, image, fill, _ = filled(lanes, f"transposed {bits}")
    size, words, count = total // 8, total // 32, total // bits
    inputs[0, 0] = np.arange(64) * size
    body = f"{fill}ds_read_b{total}_tr_b{bits} {span(200, words)}, v10\ns_waitcnt lgkmcnt(0)"
    got = lanes.execute(body, inputs, None, named(200, words), lds=SIZE)[0]
    for group in range(4):
        stream = int.from_bytes(image[16 * size * group : 16 * size * (group + 1)].tobytes(), "little")
        elements = [stream >> bits * k & (1 << bits) - 1 for k in range(16 * count)]
        for lane in range(16):
            value = sum(int(x) << 32 * k for k, x in enumerate(got[:, 16 * group + lane]))
            assert [value >> bits * k & (1 << bits) - 1 for k in range(count)] == elements[lane::16]
