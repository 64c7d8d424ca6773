"""Instructions between lanes alone, and the swizzles of the LDS hardware."""

from __future__ import annotations

import numpy as np
import pytest

from .execution import masked

MASK = 0xF0F7FFFF8EEE7330
OFF = masked(MASK)


OPCODES = {
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32",
    "v_swap_b32", "ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32",
}  # fmt: skip


@pytest.fixture
def words(lanes):
    generator = lanes.generator_for("cross lane")
    return np.array([[[generator.getrandbits(32) for _ in range(64)] for _ in range(3)]], np.uint32)


def test_reading_lanes(lanes, words):
    scalars = np.full((1, 16), 64 + 37, np.uint32)
    body = OFF + "v_readfirstlane_b32 s50, v10\nv_readlane_b32 s51, v10, 63\nv_readlane_b32 s52, v10, s32"
    got = lanes.execute(body, words, scalars, ("s50", "s51", "s52"))[0, :, 0].tolist()
    assert got == words[0, 0, [4, 63, 37]].tolist()


def test_first_lane_of_none_is_lane_zero(lanes, words):
    body = "s_mov_b64 exec, 0\nv_readfirstlane_b32 s50, v10"
    assert lanes.execute(body, words, None, ("s50",))[0, 0, 0] == words[0, 0, 0]


def test_writing_a_lane_does_not_look_at_exec(lanes, words):
    scalars = np.full((1, 16), 0xDEADBEEF, np.uint32)
    body = OFF + "v_writelane_b32 v10, s32, 3\ns_mov_b32 s50, 69\nv_writelane_b32 v10, 7, s50"
    got = lanes.execute(body, words, scalars, ("v10",))
    wanted = words[0, 0].copy()
    wanted[3], wanted[5] = 0xDEADBEEF, 7
    assert got[0, 0].tolist() == wanted.tolist()


@pytest.mark.parametrize("width", [16, 32])
def test_swapping_rows_and_halves(lanes, words, width):
    got = lanes.execute(f"v_permlane{width}_swap_b32 v10, v11", words, None, ("v10", "v11"))[0]
    a, b = (words[0, k].reshape(-1, 2, width) for k in (0, 1))
    assert got[0].tolist() == np.stack([a[:, 0], b[:, 0]], 1).reshape(-1).tolist()
    assert got[1].tolist() == np.stack([a[:, 1], b[:, 1]], 1).reshape(-1).tolist()


def test_swapping_registers_where_exec_is_set(lanes, words):
    got = lanes.execute(OFF + "v_swap_b32 v10, v11", words, None, ("v10", "v11"))[0]
    on = np.array([MASK >> lane & 1 for lane in range(64)], bool)
    assert got[0].tolist() == np.where(on, words[0, 1], words[0, 0]).tolist()
    assert got[1].tolist() == np.where(on, words[0, 0], words[0, 1]).tolist()


@pytest.mark.parametrize("offset", [0, 4, 100])
def test_pulling_from_lanes(lanes, words, offset):
    body = OFF + f"v_mov_b32 v12, v12\nds_bpermute_b32 v12, v10, v11 offset:{offset}\ns_waitcnt lgkmcnt(0)"
    got = lanes.execute(body, words, None, ("v12",))[0, 0].tolist()
    for lane in range(64):
        source = (int(words[0, 0, lane]) + offset & 0xFFFFFFFF) // 4 % 64
        value = int(words[0, 1, source]) if MASK >> source & 1 else 0
        assert got[lane] == (value if MASK >> lane & 1 else words[0, 2, lane])


@pytest.mark.parametrize("offset", [0, 8])
def test_pushing_to_lanes_the_highest_wins(lanes, words, offset):
    body = OFF + f"ds_permute_b32 v12, v10, v11 offset:{offset}\ns_waitcnt lgkmcnt(0)"
    got = lanes.execute(body, words, None, ("v12",))[0, 0].tolist()
    pushed = [0] * 64
    for lane in range(64):
        if MASK >> lane & 1:
            pushed[(int(words[0, 0, lane]) + offset & 0xFFFFFFFF) // 4 % 64] = int(words[0, 1, lane])
    assert got == [x if MASK >> lane & 1 else words[0, 2, lane] for lane, x in enumerate(pushed)]


SWIZZLES = {
    "0x80b1": lambda lane: lane // 4 * 4 + (1, 0, 3, 2)[lane % 4],
    "swizzle(QUAD_PERM,2,3,0,1)": lambda lane: lane // 4 * 4 + (2, 3, 0, 1)[lane % 4],
    "0x041f": lambda lane: lane ^ 1,
    "0x0018": lambda lane: lane // 8 * 8,
    "0x0203": lambda lane: lane // 32 * 32 + (lane & 3 | 16),
    'swizzle(BITMASK_PERM,"01pip")': lambda lane: lane // 32 * 32 + (lane & 5 | 8 | ~lane & 2),
    "swizzle(SWAP,16)": lambda lane: lane ^ 16,
    "swizzle(REVERSE,8)": lambda lane: lane ^ 7,
    "swizzle(BROADCAST,4,3)": lambda lane: lane // 4 * 4 + 3,
}


@pytest.mark.parametrize("offset", SWIZZLES)
@pytest.mark.parametrize("partial", [False, True])
def test_swizzle(lanes, words, offset, partial):
    mask = MASK if partial else (1 << 64) - 1
    body = OFF * partial + f"ds_swizzle_b32 v12, v10 offset:{offset}\ns_waitcnt lgkmcnt(0)"
    got = lanes.execute(body, words, None, ("v12",))[0, 0].tolist()
    for lane in range(64):
        source = SWIZZLES[offset](lane)
        value = int(words[0, 0, source]) if mask >> source & 1 else 0
        assert got[lane] == (value if mask >> lane & 1 else words[0, 2, lane])
