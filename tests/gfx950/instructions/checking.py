"""Whether an instruction gives in every lane what a formula gives."""

from __future__ import annotations

from itertools import product

import numpy as np

from .execution import LANES, SCALARS, execute, masked, span
from .formats import WIDTH, agrees, decode, drawn, encoded, generator_for


def check_vector(opcode, results, sources, formula, *, modifiers="", shape="{}", groups=6, ulp=0, denormals=3,
                 values=None):  # fmt: skip
    """Compare a vector instruction lane by lane with formula(*sources) -> value, or a tuple of values.

    A `*` before a source ties it to the result's register (to vcc for a mask). `shape` writes a source.
    `values(generator, bits)` chooses other bits than those drawn; a value of `...` is not compared.
    """
    kinds = sources.replace("*", "")
    tied = {len(sources[:at].replace("*", "")) for at, sign in enumerate(sources) if sign == "*"}
    given = _drawn(opcode, kinds, groups, values)
    inputs, scalars = _registers(opcode, kinds, tied, given, groups)
    body = _written(opcode, results, kinds, tied, shape, modifiers)
    stored = [name for k, kind in enumerate(results)
              for name in (("s50", "s51") if kind == "m" else (f"v{200 + 2 * k}", f"v{201 + 2 * k}"))]  # fmt: skip
    out = execute(body, inputs, scalars, stored, denormals=denormals)
    wrong = []
    for (group, lane), bits in given.items():
        numbers = [decode(kind, one) for kind, one in zip(kinds, bits, strict=True)]
        wanted = formula(*numbers)
        for k, value in enumerate(wanted if isinstance(wanted, tuple) else (wanted,)):
            got = _got(out[group, 2 * k : 2 * k + 2, lane], results[k], lane)
            expected = None if value is ... else int(bool(value)) if results[k] == "m" else encoded(results[k], value)
            if value is not ... and not agrees(results[k], got, expected, ulp):
                wrong.append((opcode, k, [hex(one) for one in bits], numbers, hex(got), expected and hex(expected)))
    assert not wrong, f"{len(wrong)} of {groups * LANES}: {wrong[:4]}"


def _drawn(opcode, kinds, groups, values):
    """Bits of each source by group and lane."""
    generator, found = generator_for(opcode), {}
    for place in product(range(groups), range(LANES)):
        bits = [drawn(kind, generator) for kind in kinds]
        found[place] = values(generator, bits) if values else bits
    return found


def _registers(opcode, kinds, tied, given, groups):
    """Two registers a source, anything above a half; masks in s[36:37]."""
    junk = generator_for(f"{opcode} junk")
    inputs = np.zeros((groups, 2 * len(kinds) + 2, LANES), np.uint32)
    scalars = np.zeros((groups, SCALARS), np.uint32)
    for (group, lane), bits in given.items():
        for k, (kind, one) in enumerate(zip(kinds, bits, strict=True)):
            if kind == "m":
                scalars[group, 4 + lane // 32] |= np.uint32(one << lane % 32)
                continue
            above = junk.getrandbits(16) << 16 if WIDTH[kind] == 16 and k not in tied else 0
            inputs[group, 2 * k : 2 * k + 2, lane] = one & 0xFFFFFFFF | above, one >> 32
    return inputs, scalars


def _written(opcode, results, kinds, tied, shape, modifiers):
    """The instruction, behind what fills the registers of tied sources."""
    texts, head = [], []
    for k, kind in enumerate(results):
        texts.append("s[50:51]" if kind == "m" else span(200 + 2 * k, WIDTH[kind] // 32 or 1))
    for k, kind in enumerate(kinds):
        if k not in tied:
            texts.append("s[36:37]" if kind == "m" else shape.format(span(10 + 2 * k, WIDTH[kind] // 32 or 1)))
        elif kind == "m":
            head.append("s_mov_b64 vcc, s[36:37]")
        else:
            head += [f"v_mov_b32 v{200 + word}, v{10 + 2 * k + word}" for word in (0, 1)]
    return "\n".join([*head, f"{opcode} {', '.join(texts)} {modifiers}"])


def _got(words, kind, lane):
    if kind == "m":
        return int(words[lane // 32]) >> lane % 32 & 1
    return int(words[0]) | int(words[1]) << 32 if WIDTH[kind] == 64 else int(words[0])


def check_exec(opcode, kinds, relation, values):
    """Compare a comparison that also writes exec, of two sources, with some of the lanes off."""
    generator = generator_for(opcode)
    inputs = np.zeros((1, 4, LANES), np.uint32)
    wanted, before = 0, generator.getrandbits(64)
    for lane in range(LANES):
        bits = values(generator, [drawn(kind, generator) for kind in kinds])
        inputs[0, :, lane] = [part for one in bits for part in (one & 0xFFFFFFFF, one >> 32)]
        wanted |= int(bool(relation(*(decode(kind, one) for kind, one in zip(kinds, bits, strict=True))))) << lane
    registers = ", ".join(span(at, WIDTH[kind] // 32 or 1) for kind, at in zip(kinds, (10, 12), strict=True))
    body = f"{masked(before)}{opcode} s[50:51], {registers}"
    low, high, exec_low, exec_high = execute(body, inputs, None, ("s50", "s51", "s92", "s93"))[0, :, 0].tolist()
    assert low | high << 32 == wanted & before
    assert exec_low | exec_high << 32 == wanted & before


def words(seed, kinds, groups=2):
    """Bits of numbers of 32 bits and less, [group, kind, lane]."""
    generator = generator_for(seed)
    bits = [[[drawn(kind, generator) for _ in range(LANES)] for kind in kinds] for _ in range(groups)]
    return np.array(bits, np.uint32)


def integers(seed, kinds):
    """Words of one group, and the numbers of each lane."""
    bits = words(seed, kinds, groups=1)
    rows = ([decode(kind, one) for one in row] for kind, row in zip(kinds, bits[0].tolist(), strict=True))
    return bits, list(zip(*rows, strict=True))
