"""Which lane a lane reads from: DPP controls and the swizzles of `ds_swizzle_b32`."""

from __future__ import annotations

import re
from collections.abc import Callable

LANES = 64
NO_LANE = -1

CONTROLS = ("quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_bcast", "row_newbcast",
            "wave_shl", "wave_shr", "wave_rol", "wave_ror")  # fmt: skip


def dpp_lanes(control: str, value: str) -> list[int]:
    """Source lane of each lane, −1 where there is none; a row is 16 lanes."""
    if control == "quad_perm":
        order = [int(part) for part in value.strip("[]").split(",")]
        return [lane - lane % 4 + order[lane % 4] for lane in range(LANES)]
    n = int(value) if value else 0

    def in_row(lane: int) -> int:
        return lane % 16

    def shifted(lane: int, by: int) -> int:
        return lane + by if 0 <= in_row(lane) + by < 16 else NO_LANE

    rules: dict[str, Callable[[int], int]] = {
        "row_shl": lambda lane: shifted(lane, n),
        "row_shr": lambda lane: shifted(lane, -n),
        "row_ror": lambda lane: lane - in_row(lane) + (in_row(lane) - n) % 16,
        "row_mirror": lambda lane: lane - in_row(lane) + 15 - in_row(lane),
        "row_half_mirror": lambda lane: lane - lane % 8 + 7 - lane % 8,
        "row_newbcast": lambda lane: lane - in_row(lane) + n,
        "row_bcast": lambda lane: lane // 16 * 16 - 1 if n == 15 else 31 if lane >= 32 else NO_LANE,
        "wave_shl": lambda lane: lane + 1 if lane < LANES - 1 else NO_LANE,
        "wave_shr": lambda lane: lane - 1,
        "wave_rol": lambda lane: (lane + 1) % LANES,
        "wave_ror": lambda lane: (lane - 1) % LANES,
    }
    return [max(NO_LANE, rules[control](lane)) for lane in range(LANES)]


def dpp_mask(rows: int, banks: int) -> int:
    """Lanes that `row_mask` and `bank_mask` let through: 4 rows of 16 lanes, 4 banks of 4 lanes in each."""
    return sum(1 << lane for lane in range(LANES) if rows >> lane // 16 & 1 and banks >> lane % 16 // 4 & 1)


def swizzle_lanes(text: str) -> list[int]:
    """Source lanes of a `ds_swizzle_b32` offset: a number, or `swizzle(MODE, …)`."""
    if match := re.fullmatch(r"swizzle\((.*)\)", text):
        mode, *words = (part.strip().strip('"') for part in match.group(1).split(","))
        return _named_swizzle(mode, words)
    offset = int(text, 0)
    if offset & 0x8000:
        return [lane - lane % 4 + (offset >> 2 * (lane % 4) & 3) for lane in range(LANES)]
    keep, either, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return [lane - lane % 32 + (((lane % 32) & keep | either) ^ flip) for lane in range(LANES)]


def _named_swizzle(mode: str, words: list[str]) -> list[int]:
    if mode == "QUAD_PERM":
        return [lane - lane % 4 + int(words[lane % 4]) for lane in range(LANES)]
    if mode == "BITMASK_PERM":
        bits = words[0][::-1]
        return [
            sum((_bit(lane, k, sign) << k) for k, sign in enumerate(bits)) + lane - lane % 32 for lane in range(LANES)
        ]
    size = int(words[0])
    if mode == "SWAP":
        return [lane ^ size for lane in range(LANES)]
    if mode == "REVERSE":
        return [lane - lane % size + size - 1 - lane % size for lane in range(LANES)]
    if mode == "BROADCAST":
        return [lane - lane % size + int(words[1]) for lane in range(LANES)]
    raise ValueError(f"unknown swizzle mode {mode!r}")


def _bit(lane: int, k: int, sign: str) -> int:
    bit = lane >> k & 1
    return {"0": 0, "1": 1, "p": bit, "i": 1 - bit}[sign]
