"""What tests of memory share: addresses, and what a load leaves in its registers."""

from __future__ import annotations

import numpy as np

OLD = 0xABCD1234
"""What is in the registers before."""
ADDRESSES = """v_mov_b32 v20, s12
v_mov_b32 v21, s13
v_add_co_u32 v20, vcc, v20, v10
v_addc_co_u32 v21, vcc, v21, 0, vcc
"""
"""v[20:21] from the memory's address on by the offsets in v10."""


def resource(records):
    """A buffer of the memory in s[16:19]."""
    return f"s_mov_b32 s16, s12\ns_and_b32 s17, s13, 0xffff\ns_mov_b32 s18, {records}\ns_mov_b32 s19, 0x27000\n"


def loaded(raw, sign, place):
    """Registers of a lane after a load of these bytes: extended, or in the half that begins at bit `place`."""
    if len(raw) >= 4:
        return np.frombuffer(raw, np.uint32).tolist()
    x = int.from_bytes(raw, "little", signed=sign) & 0xFFFFFFFF
    if place is None:
        return [x]
    return [OLD & (0xFFFF0000 if place == 0 else 0xFFFF) | (x & 0xFFFF) << place]
