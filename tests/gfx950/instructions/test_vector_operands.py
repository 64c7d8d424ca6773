"""What any vector instruction may do with its operands: constants, scalars, halves, lanes that are off."""

from __future__ import annotations

import numpy as np
import pytest

from .whole import M32, M64


@pytest.mark.parametrize("sources", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("result", [0, 1])
def test_halves_chosen_by_op_sel(lanes, sources, result):
    inputs, values = lanes.integers("op_sel", "uu")
    first, second = sources
    body = f"v_mov_b32 v200, 0xabcd1234\nv_add_u16_e64 v200, v10, v11 op_sel:[{first},{second},{result}]"
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane, (a, b) in enumerate(values):
        x = (a >> 16 * first) + (b >> 16 * second) & 0xFFFF
        assert got[lane] == (x << 16 | 0x1234) if result else got[lane] & 0xFFFF == x, (lane, hex(a), hex(b))


def test_constants_and_scalars_are_the_same_in_every_lane(lanes):
    inputs, values = lanes.integers("constants", "u")
    scalars = np.full((1, 16), 0x12345678, np.uint32)
    body = """v_add_u32 v200, s32, v10
        v_add_u32 v201, -16, v10
        v_add_u32 v202, 64, v10
        v_xor_b32 v203, 0xdeadbeef, v10
        v_lshlrev_b64 v[204:205], 3, s[32:33]"""
    got = lanes.execute(body, inputs, scalars, tuple(f"v{200 + k}" for k in range(6)))[0].tolist()
    wide = 0x1234567812345678 << 3 & M64
    for lane, (a,) in enumerate(values):
        wanted = [a + 0x12345678, a - 16, a + 64, a ^ 0xDEADBEEF, wide, wide >> 32]
        assert [row[lane] for row in got] == [x & M32 for x in wanted]


def test_lanes_that_are_off_keep_their_result(lanes):
    inputs, values = lanes.integers("partial", "uu")
    mask = 0x80000001F00F1234
    body = f"v_mov_b32 v200, 77\n{lanes.masked(mask)}v_add_co_u32 v200, s[50:51], v10, v11"
    got, low, high = lanes.execute(body, inputs, None, ("v200", "s50", "s51"))[0].tolist()
    carries = sum(int(a + b > M32) << lane for lane, (a, b) in enumerate(values))
    assert low[0] | high[0] << 32 == carries & mask
    assert got == [(a + b) & M32 if mask >> lane & 1 else 77 for lane, (a, b) in enumerate(values)]
