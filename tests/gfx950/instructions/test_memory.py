"""Loads and stores of global, flat, buffer and scratch memory alone, and what goes straight to LDS."""

from __future__ import annotations

import numpy as np
import pytest

from verification.gfx950.machine import ExecutionError

from .accesses import ADDRESSES, OLD, loaded, resource
from .execution import masked, named, span

LOADS = {
    "ubyte": (1, False, None), "sbyte": (1, True, None), "ushort": (2, False, None), "sshort": (2, True, None),
    "ubyte_d16": (1, False, 0), "ubyte_d16_hi": (1, False, 16), "sbyte_d16": (1, True, 0),
    "sbyte_d16_hi": (1, True, 16),
    "short_d16": (2, False, 0), "short_d16_hi": (2, False, 16),
    "dword": (4, False, None), "dwordx2": (8, False, None), "dwordx3": (12, False, None), "dwordx4": (16, False, None),
}  # fmt: skip
STORES = {"byte": (1, 0), "byte_d16_hi": (1, 16), "short": (2, 0), "short_d16_hi": (2, 16), "dword": (4, 0),
          "dwordx2": (8, 0), "dwordx3": (12, 0), "dwordx4": (16, 0)}  # fmt: skip
SPACES = ("global", "flat", "buffer")
RECORDS, BYTES = 2048, 4096
RESOURCE = resource(RECORDS)
PLACES = {
    "global": ("", "v10", "s[12:13] offset:24"),
    "flat": (ADDRESSES, "v[20:21]", "offset:24"),
    "buffer": (f"{RESOURCE}s_mov_b32 s20, 8\n", "v10", "s[16:19], s20 offen offset:16"),
}
"""What is computed first, the address, and the rest of the operands: 24 bytes on in all three."""
MASK = 0xF0F7FFFF8EEE7330
PARTIAL = masked(MASK)


def operands(space, data, store):
    first, address, rest = PLACES[space]
    pieces = [data, address, rest] if space == "buffer" or not store else [address, data, rest]
    if space == "flat":
        return first, f"{pieces[0]}, {pieces[1]} {rest}"
    return first, ", ".join(pieces)


def image(generator, count=BYTES):
    return np.frombuffer(generator.randbytes(count), np.uint8).copy()


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("space", SPACES)
def test_load(lanes, space, name):
    """Lanes that are off keep their register; a buffer gives 0 past its records."""
    size, sign, place = LOADS[name]
    generator = lanes.generator_for(space + name)
    memory, words = image(generator), max(size // 4, 1)
    offsets = [generator.randrange(240) * 16 + (8 if space == "buffer" else generator.randrange(4)) for _ in range(64)]
    inputs = np.array([[offsets]], np.uint32)
    first, texts = operands(space, span(200, words), False)
    old = "".join(f"v_mov_b32 v{200 + k}, {OLD:#x}\n" for k in range(words))
    body = f"{first}{old}{PARTIAL}{space}_load_{name} {texts}"
    got = lanes.execute(body, inputs, None, named(200, words), memory=memory)[0]
    for lane, offset in enumerate(offsets):
        raw = memory[offset + 24 : offset + 24 + size].tobytes()
        if space == "buffer" and offset + 24 >= RECORDS:
            raw = bytes(size)
        wanted = loaded(raw, sign, place) if MASK >> lane & 1 else [OLD] * words
        assert got[:, lane].tolist() == wanted, (lane, offset)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("space", SPACES)
def test_store(lanes, space, name):
    size, shift = STORES[name]
    generator = lanes.generator_for(space + "store" + name)
    memory, words = image(generator), max(size // 4, 1)
    before = memory.copy()
    offsets = [16 * k + 8 for k in generator.sample(range(240), 64)]
    data = [[generator.getrandbits(32) for _ in range(64)] for _ in range(4)]
    inputs = np.array([[offsets, *data]], np.uint32)
    first, texts = operands(space, span(11, words), True)
    lanes.execute(f"{first}{PARTIAL}{space}_store_{name} {texts}", inputs, memory=memory)
    for lane, offset in enumerate(offsets):
        if MASK >> lane & 1 and not (space == "buffer" and offset + 24 >= RECORDS):
            raw = np.array([data[k][lane] >> shift for k in range(words)], np.uint32).view(np.uint8)[:size]
            before[offset + 24 : offset + 24 + size] = raw
    assert memory.tolist() == before.tolist()


def test_global_address_in_a_pair_of_registers(lanes):
    generator = lanes.generator_for("pair")
    memory = image(generator)
    inputs = np.arange(64, dtype=np.uint32).reshape(1, 1, 64) * np.uint32(4)
    body = ADDRESSES + "global_load_dword v200, v[20:21], off offset:4\ns_waitcnt vmcnt(0)\n"
    body += "global_store_dword v[20:21], v200, off offset:1024"
    lanes.execute(body, inputs, memory=memory)
    assert memory[1024:1280].tolist() == memory[4:260].tolist()


@pytest.mark.parametrize("opcode", ["load_dword v200, v[20:21]", "store_dword v[20:21], v10"])
@pytest.mark.parametrize("lane", [0, 41])
def test_an_address_whose_end_wraps_around_is_told(lanes, opcode, lane):
    """One lane's alone; the others are within the memory."""
    inputs = np.zeros((1, 1, 64), np.uint32)
    body = ADDRESSES + f"v_writelane_b32 v20, -4, {lane}\nv_writelane_b32 v21, -1, {lane}\nglobal_{opcode}, off"
    with pytest.raises(ExecutionError, match=f"lane {lane}: a {opcode.partition('_')[0]} of 4 bytes"):
        lanes.execute(body, inputs, memory=np.zeros(BYTES, np.uint8))


SCRATCH = 160


def scratch_image(lanes, seed, words=32):
    generator = lanes.generator_for(seed)
    inputs = np.array([[[generator.getrandbits(32) for _ in range(64)] for _ in range(words + 1)]], np.uint32)
    fill = "".join(f"scratch_store_dword off, v{11 + k}, off offset:{4 * k}\n" for k in range(words))
    return generator, inputs, fill, np.ascontiguousarray(inputs[0, 1:].T).view(np.uint8)


@pytest.mark.parametrize("name", LOADS)
def test_scratch_load(lanes, name):
    size, sign, place = LOADS[name]
    generator, inputs, fill, own = scratch_image(lanes, name)
    inputs[0, 0] = [generator.randrange(96) for _ in range(64)]
    words = max(size // 4, 1)
    old = "".join(f"v_mov_b32 v{200 + k}, {OLD:#x}\n" for k in range(words))
    body = f"{fill}{old}{PARTIAL}scratch_load_{name} {span(200, words)}, v10, off offset:8"
    got = lanes.execute(body, inputs, None, named(200, words), scratch=SCRATCH)[0]
    for lane in range(64):
        at = int(inputs[0, 0, lane]) + 8
        wanted = loaded(own[lane, at : at + size].tobytes(), sign, place) if MASK >> lane & 1 else [OLD] * words
        assert got[:, lane].tolist() == wanted


@pytest.mark.parametrize("name", STORES)
def test_scratch_store(lanes, name):
    size, shift = STORES[name]
    generator, inputs, fill, own = scratch_image(lanes, "store" + name)
    inputs[0, 0] = [generator.randrange(96) for _ in range(64)]
    words = max(size // 4, 1)
    body = f"{fill}s_mov_b32 s50, 8\n{PARTIAL}scratch_store_{name} v10, {span(12, words)}, off offset:8\n"
    body += "s_mov_b64 exec, -1\n"
    body += "".join(f"scratch_load_dword v{200 + k}, off, off offset:{4 * k}\n" for k in range(32))
    got = lanes.execute(body, inputs, None, named(200, 32), scratch=SCRATCH)[0]
    for lane in range(64):
        at = int(inputs[0, 0, lane]) + 8
        if MASK >> lane & 1:
            data = np.array([inputs[0, 2 + k, lane] >> shift for k in range(words)], np.uint32).view(np.uint8)
            own[lane, at : at + size] = data[:size]
    assert got.T.tolist() == own.view(np.uint32).tolist()


DIRECT = {"ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True), "dword": (4, False),
          "dwordx3": (12, False), "dwordx4": (16, False)}  # fmt: skip


OPCODES = {
    *(f"{space}_load_{name}" for space in (*SPACES, "scratch") for name in LOADS),
    *(f"{space}_store_{name}" for space in (*SPACES, "scratch") for name in STORES),
    *(f"global_load_lds_{name}" for name in DIRECT),
    *(f"s_load_dword{suffix}" for suffix in ("", "x2", "x4", "x8", "x16")),
}


@pytest.mark.parametrize(("space", "name"), [*(("global", name) for name in DIRECT), ("buffer", "dword"),
                                            ("buffer", "dwordx4")])  # fmt: skip
def test_load_to_lds(lanes, space, name):
    """Lane after lane from m0 and the offset on, a word or more each, in the order of the lanes."""
    size, sign = DIRECT[name]
    generator = lanes.generator_for("direct" + name)
    memory, words = image(generator), max(size // 4, 1)
    inputs = np.array([[[generator.randrange(100) * 16 for _ in range(64)]]], np.uint32)
    if space == "global":
        load = f"global_load_lds_{name} v10, s[12:13] offset:16"
    else:
        load = f"{RESOURCE}s_mov_b32 s20, 0\nbuffer_load_{name} v10, s[16:19], s20 offen offset:16 lds"
    body = f"s_mov_b32 m0, 64\n{load}\ns_waitcnt vmcnt(0)\nv_mov_b32 v3, {4 * words}\nv_mul_lo_u32 v3, v0, v3\n"
    body += "".join(f"ds_read_b32 v{200 + k}, v3 offset:{80 + 4 * k}\n" for k in range(words))
    got = lanes.execute(body, inputs, None, named(200, words), memory=memory, lds=4096)[0]
    for lane in range(64):
        at = int(inputs[0, 0, lane]) + 16
        assert got[:, lane].tolist() == loaded(memory[at : at + size].tobytes(), sign, None)


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_scalar_load(lanes, count):
    memory = image(lanes.generator_for("scalar"), 256)
    suffix = f"x{count}" if count > 1 else ""
    registers = f"s[64:{63 + count}]" if count > 1 else "s64"
    words = memory.view(np.uint32)
    for offset, at in (("0x10", 16), ("s32", 36), ("s32 offset:0x8", 44)):
        scalars = np.full((1, 16), 36, np.uint32)
        body = f"s_load_dword{suffix} {registers}, s[12:13], {offset}"
        got = lanes.execute(body, np.zeros((1, 1, 64)), scalars, [f"s{64 + k}" for k in range(count)], memory=memory)
        assert got[0, :, 0].tolist() == words[at // 4 : at // 4 + count].tolist()
