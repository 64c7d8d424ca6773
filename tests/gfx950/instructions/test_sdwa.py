"""Parts of registers that SDWA reads and writes."""

from __future__ import annotations

import pytest

from .whole import M32, signed

PARTS = {"DWORD": (0, 32), "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16),
         "WORD_1": (16, 16)}  # fmt: skip


def part(x, name):
    shift, width = PARTS[name]
    return x >> shift & (1 << width) - 1


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", ["DWORD", "BYTE_3", "WORD_1"])
@pytest.mark.parametrize("extended", [False, True])
def test_parts_read_by_sdwa(lanes, first, second, extended):
    inputs, values = lanes.integers(first + second, "uu")
    source = "sext(v10)" if extended else "v10"
    selects = f"dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{first} src1_sel:{second}"
    got = lanes.execute(f"v_add_u32_sdwa v200, {source}, v11 {selects}", inputs, None, ("v200",))[0, 0].tolist()
    for lane, (a, b) in enumerate(values):
        x = part(a, first)
        x = signed(x, PARTS[first][1]) if extended else x
        assert got[lane] == (x + part(b, second)) & M32


@pytest.mark.parametrize("where", PARTS)
@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
def test_part_written_by_sdwa(lanes, where, unused):
    inputs, values = lanes.integers(where + unused, "uuu")
    selects = f"dst_sel:{where} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    body = f"v_mov_b32 v200, v12\nv_xor_b32_sdwa v200, v10, v11 {selects}"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    shift, width = PARTS[where]
    field = (1 << width) - 1 << shift
    for lane, (a, b, old) in enumerate(values):
        x = (a ^ b) << shift & field
        if unused == "UNUSED_SEXT" and x >> shift + width - 1 & 1:
            x |= M32 - ((1 << shift + width) - 1)
        assert got[lane] == (x | old & ~field if unused == "UNUSED_PRESERVE" else x)
