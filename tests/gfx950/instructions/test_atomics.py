"""Atomics alone: what is left in memory and what comes back, a lane each and all lanes at once."""

from __future__ import annotations

import numpy as np
import pytest

from verification.gfx950.assembly import AssemblyError

from .accesses import ADDRESSES, resource
from .execution import span
from .whole import signed

RECORDS = 384
INTEGERS = {
    "swap": lambda old, x, n: x, "add": lambda old, x, n: old + x, "sub": lambda old, x, n: old - x,
    "and": lambda old, x, n: old & x, "or": lambda old, x, n: old | x, "xor": lambda old, x, n: old ^ x,
    "smin": lambda old, x, n: min(signed(old, n), signed(x, n)),
    "smax": lambda old, x, n: max(signed(old, n), signed(x, n)),
    "umin": lambda old, x, n: min(old, x), "umax": lambda old, x, n: max(old, x),
    "inc": lambda old, x, n: 0 if old >= x else old + 1,
    "dec": lambda old, x, n: x if old == 0 or old > x else old - 1,
}  # fmt: skip
IN_LDS = {"wrxchg": ("swap", "b"), "add": ("add", "u"), "sub": ("sub", "u"), "and": ("and", "b"), "or": ("or", "b"),
          "xor": ("xor", "b"), "min_i": ("smin", "i"), "max_i": ("smax", "i"), "min_u": ("umin", "u"),
          "max_u": ("umax", "u"), "inc": ("inc", "u"), "dec": ("dec", "u"), "cmpst": ("swap", "b")}  # fmt: skip
FLOATS = {"add_f32": "f", "pk_add_f16": "e", "pk_add_bf16": "b", "add_f64": "d"}
GLOBAL_FLOATS = FLOATS | {"min_f64": "d", "max_f64": "d"}
LDS_FLOATS = FLOATS | {"min_f32": "f", "max_f32": "f"}
BITS = {"f": 32, "e": 32, "b": 32, "d": 64}
SPACES = ("global", "flat", "buffer")
LDS_FORMS = [(name, back) for name in IN_LDS for back in (False, True) if back or name != "wrxchg"]


OPCODES = {
    *(f"{space}_atomic_{name}{wide}" for space in SPACES for name in (*INTEGERS, "cmpswap") for wide in ("", "_x2")),
    *(f"{space}_atomic_{name}" for space in SPACES for name in GLOBAL_FLOATS),
    *(f"ds_{name.partition('_')[0]}{'_rtn' if back else ''}_{IN_LDS[name][1]}{bits}" for name, back in LDS_FORMS
      for bits in (32, 64)),
    *(f"ds_{name.rpartition('_')[0]}{back}_{name.rpartition('_')[2]}" for name in LDS_FLOATS for back in ("", "_rtn")),
}  # fmt: skip


def floating(lanes, name, kind, old, x):
    """Each number of the word by itself."""
    function = {"add": lambda a, b: a + b, "min": min, "max": max}[name.removeprefix("pk_").partition("_")[0]]
    width = 16 if kind in "eb" else BITS[kind]
    result = 0
    for at in range(0, BITS[kind], width):
        a, b = (lanes.decode(kind, one >> at & (1 << width) - 1) for one in (old, x))
        result |= lanes.encoded(kind, function(a, b)) << at
    return result


def drawn(lanes, generator, kind, bits):
    if kind in "uU":
        return lanes.drawn(kind, generator)
    one = [lanes.encoded(kind, generator.uniform(-8, 8) * 2.0 ** generator.randint(-4, 4)) for _ in "ab"]
    return one[0] | one[1] << 16 if kind in "eb" else one[0]


def words_of(values, bits):
    array = np.array(values, np.uint64)
    return [array & np.uint64(0xFFFFFFFF), array >> np.uint64(32)][: bits // 32]


def checked(lanes, opcode, kind, bits, update, returns, swaps=False):
    """A lane each at 8-byte steps; the last of a buffer's lanes are past its records."""
    generator = lanes.generator_for(opcode)
    space = opcode.partition("_")[0]
    old = [drawn(lanes, generator, kind, bits) for _ in range(64)]
    x = [drawn(lanes, generator, kind, bits) for _ in range(64)]
    compare = [generator.choice((one, one ^ 1)) for one in old]
    places = generator.sample(range(64), 64)
    second, first = (x, compare) if swaps and space == "ds" else (compare, x)
    data = [*words_of(first, bits), *words_of(second, bits)]
    inputs = np.array([[[8 * place for place in places], *data]], np.uint32)
    memory = np.zeros(64, np.uint64)
    memory[places] = np.array(old, np.uint64)
    count = 2 if swaps and space != "ds" else 1
    source, result = span(11, bits // 32 * count), span(200, bits // 32)
    registers = ["v200", "v201"][: bits // 32]
    flag = " sc0" if returns else ""
    if space == "ds":
        texts = [*([result] if returns else []), "v10", source, *([span(11 + bits // 32, bits // 32)] if swaps else [])]
        fill = "global_load_dwordx2 v[30:31], v10, s[12:13]\ns_waitcnt vmcnt(0)\nds_write_b64 v10, v[30:31] offset:64\n"
        body = f"{fill}{opcode} {', '.join(texts)} offset:64\nds_read_b64 v[30:31], v10 offset:64\n"
        body += "s_waitcnt lgkmcnt(0)\nglobal_store_dwordx2 v10, v[30:31], s[12:13]"
    elif space == "buffer":
        body = f"{resource(RECORDS)}{opcode} {source}, v10, s[16:19], 0 offen{flag}"
        registers = ["v11", "v12"][: bits // 32]
    elif space == "flat":
        body = f"{ADDRESSES}{opcode} {result + ', ' if returns else ''}v[20:21], {source}{flag}"
    else:
        body = f"{opcode} {result + ', ' if returns else ''}v10, {source}, s[12:13]{flag}"
    out = lanes.execute(body, inputs, None, registers if returns else (), memory=memory.view(np.uint8), lds=1024)
    for lane, place in enumerate(places):
        outside = space == "buffer" and 8 * place >= RECORDS
        wanted = (x[lane] if old[lane] == compare[lane] else old[lane]) if swaps else update(old[lane], x[lane])
        wanted = old[lane] if outside else wanted & (1 << bits) - 1
        assert int(memory[place]) == wanted, (opcode, hex(old[lane]), hex(x[lane]), hex(int(memory[place])))
        if returns:
            got = sum(int(word) << 32 * k for k, word in enumerate(out[0, :, lane]))
            assert got == (0 if outside else old[lane])


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", [*INTEGERS, "cmpswap"])
@pytest.mark.parametrize("space", SPACES)
def test_integers_in_memory(lanes, space, name, bits, returns):
    def update(old, x):
        return INTEGERS[name](old, x, bits)

    opcode = f"{space}_atomic_{name}{'_x2' if bits == 64 else ''}"
    checked(lanes, opcode, "u" if bits == 32 else "U", bits, update, returns, name == "cmpswap")


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("name", GLOBAL_FLOATS)
@pytest.mark.parametrize("space", SPACES)
def test_floats_in_memory(lanes, space, name, returns):
    kind = GLOBAL_FLOATS[name]
    checked(lanes, f"{space}_atomic_{name}", kind, BITS[kind], lambda *x: floating(lanes, name, kind, *x), returns)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(("name", "returns"), LDS_FORMS)
def test_integers_in_lds(lanes, name, bits, returns):
    formula, kind = IN_LDS[name]
    opcode = f"ds_{name.partition('_')[0]}{'_rtn' if returns else ''}_{kind}{bits}"
    checked(lanes, opcode, "u" if bits == 32 else "U", bits, lambda old, x: INTEGERS[formula](old, x, bits), returns,
            name == "cmpst")  # fmt: skip


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("name", LDS_FLOATS)
def test_floats_in_lds(lanes, name, returns):
    kind = LDS_FLOATS[name]
    operation, _, form = name.rpartition("_")
    opcode = f"ds_{operation}{'_rtn' if returns else ''}_{form}"
    checked(lanes, opcode, kind, BITS[kind], lambda *x: floating(lanes, name, kind, *x), returns)


def test_all_lanes_at_one_address(lanes):
    """Every old value is met once, and lanes that are off add nothing."""
    memory = np.array([1000, 0], np.uint32)
    inputs = np.zeros((1, 2, 64), np.uint32)
    inputs[0, 1] = 1
    body = "s_mov_b32 exec_hi, 0xffff\nglobal_atomic_add v200, v10, v11, s[12:13] sc0"
    got = lanes.execute(body, inputs, None, ("v200",), memory=memory.view(np.uint8))
    assert memory.tolist() == [1048, 0]
    assert sorted(got[0, 0, :48].tolist()) == list(range(1000, 1048))


@pytest.mark.parametrize("text", ["global_atomic_add v200, v10, v11, s[12:13]", "flat_atomic_add v200, v[20:21], v11"])
def test_a_result_without_sc0_is_an_error(lanes, text):
    with pytest.raises(AssemblyError, match="operands where"):
        lanes.execute(text, np.zeros((1, 2, 64)))
