"""Lanes that DPP reads, and which lanes it writes."""

from __future__ import annotations

import pytest

from .whole import M32, M64


def shifted(by):
    return lambda lane: lane + by if 0 <= lane % 16 + by <= 15 else None


DPP = {
    "quad_perm:[3,1,0,2]": lambda lane: lane // 4 * 4 + (3, 1, 0, 2)[lane % 4],
    "quad_perm:[1,1,1,1]": lambda lane: lane // 4 * 4 + 1,
    "row_shl:1": shifted(1), "row_shl:15": shifted(15), "row_shr:1": shifted(-1), "row_shr:7": shifted(-7),
    "row_ror:1": lambda lane: lane // 16 * 16 + (lane + 15) % 16,
    "row_ror:12": lambda lane: lane // 16 * 16 + (lane + 4) % 16,
    "row_mirror": lambda lane: lane ^ 15, "row_half_mirror": lambda lane: lane ^ 7,
    "row_bcast:15": lambda lane: lane // 16 * 16 - 1 if lane >= 16 else None,
    "row_bcast:31": lambda lane: 31 if lane >= 32 else None,
    "row_newbcast:5": lambda lane: lane // 16 * 16 + 5,
    "wave_shl:1": lambda lane: lane + 1 if lane < 63 else None,
    "wave_shr:1": lambda lane: lane - 1 if lane else None,
    "wave_rol:1": lambda lane: (lane + 1) % 64, "wave_ror:1": lambda lane: (lane - 1) % 64,
}  # fmt: skip


@pytest.mark.parametrize("control", DPP)
@pytest.mark.parametrize(("rows", "banks"), [(15, 15), (10, 15), (15, 6), (5, 9)])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("mask", [M64, 0xF0F7FFFF8EEE7331])
def test_lanes_read_by_dpp(lanes, control, rows, banks, zero, mask):
    """A lane with nothing to read keeps its result, or reads 0 with bound_ctrl."""
    inputs, values = lanes.integers(control, "uuu")
    body = f"""v_mov_b32 v200, v12
        {lanes.masked(mask)}
        v_sub_u32_dpp v200, v10, v11 {control} row_mask:{rows:#x} bank_mask:{banks:#x}{" bound_ctrl:0" * zero}"""
    got = lanes.execute(body, inputs, None, ("v200",))[0, 0].tolist()
    for lane, (_, b, old) in enumerate(values):
        source = DPP[control](lane)
        readable = source is not None and mask >> source & 1
        on = mask >> lane & 1 and rows >> lane // 16 & 1 and banks >> lane % 16 // 4 & 1
        wanted = old if not on or not (readable or zero) else (values[source][0] if readable else 0) - b
        assert got[lane] == wanted & M32, (lane, source)
