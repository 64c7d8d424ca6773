"""Instructions between lanes, or between a lane and the scalars; their C functions are in lanes.h."""

from __future__ import annotations

from verification.gfx950.instructions.rows import Row

TABLE = (
    Row("v_readfirstlane_b32", "cross_lane", ("s32",), ("u32",), "read_first_lane", "function"),
    Row("v_readlane_b32", "cross_lane", ("s32",), ("u32", "s32"), "read_lane", "function"),
    Row("v_writelane_b32", "cross_lane", ("u32",), ("s32", "s32"), "write_lane", "function"),
    Row("v_permlane32_swap_b32", "cross_lane", ("u32",), ("v32",), "swap_halves", "function"),
    Row("v_permlane16_swap_b32", "cross_lane", ("u32",), ("v32",), "swap_rows", "function"),
    Row("v_swap_b32", "cross_lane", ("u32",), ("v32",), "swap_registers", "function"),
    Row("ds_bpermute_b32", "cross_lane", ("u32",), ("u32", "v32"), "lanes_pull", "lds_load_data"),
    Row("ds_permute_b32", "cross_lane", ("u32",), ("u32", "v32"), "lanes_push", "lds_load_data"),
    Row("ds_swizzle_b32", "cross_lane", ("u32",), ("v32",), "lanes_swizzle", "swizzle"),
)
