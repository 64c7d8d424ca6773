"""Packed arithmetic: two halves, or two fp32, at once; op_sel chooses the halves."""

from __future__ import annotations

from verification.gfx950.instructions.rows import rows

HALVES = {
    "f16": {
        "add": ("f16 f16", "d = a + b"), "mul": ("f16 f16", "d = a * b"), "fma": ("f16 f16 f16", "d = fma_odd(a, b, c)"),
        "min": ("f16 f16", "d = min_f32(a, b)"), "max": ("f16 f16", "d = max_f32(a, b)"),
        "minimum3": ("f16 f16 f16", "d = minimum_f32(minimum_f32(a, b), c)"),
        "maximum3": ("f16 f16 f16", "d = maximum_f32(maximum_f32(a, b), c)"),
    },
    "u16": {
        "add": ("u16 u16", "d = (u16)(a + b) ## d = (u16)(a + b > 0xFFFF ? 0xFFFF : a + b)"),
        "sub": ("u16 u16", "d = (u16)(a - b) ## d = (u16)(a < b ? 0 : a - b)"),
        "min": ("u16 u16", "d = SMALLER(a, b)"), "max": ("u16 u16", "d = LARGER(a, b)"),
        "mad": ("u16 u16 u16", "d = (u16)((u32)a * b + c)"),
    },
    "i16": {
        "add": ("i16 i16", "d = (i16)(a + b) ## d = (i16)MEDIAN(a + b, -32768, 32767)"),
        "sub": ("i16 i16", "d = (i16)(a - b) ## d = (i16)MEDIAN(a - b, -32768, 32767)"),
        "min": ("i16 i16", "d = SMALLER(a, b)"), "max": ("i16 i16", "d = LARGER(a, b)"),
        "mad": ("i16 i16 i16", "d = (i16)(a * b + c)"),
    },
}  # fmt: skip

PAIRS_OF_HALVES = rows("packed", "\n".join(
    [f"v_pk_{name}_{kind} | {kind} | {sources} | {code}"
     for kind, table in HALVES.items() for name, (sources, code) in table.items()]
    + ["v_pk_mul_lo_u16 | u16 | u16 u16 | d = (u16)((u32)a * b)",
       "v_pk_lshlrev_b16 | u16 | u16 u16 | d = (u16)(b << (a & 15))",
       "v_pk_lshrrev_b16 | u16 | u16 u16 | d = (u16)(b >> (a & 15))",
       "v_pk_ashrrev_i16 | i16 | u16 i16 | d = (i16)(b >> (a & 15))"]
), "packed")  # fmt: skip

PAIRS_OF_SINGLES = rows(
    "packed",
    """
v_pk_add_f32 | f32 | f32 f32 | d = a + b
v_pk_mul_f32 | f32 | f32 f32 | d = a * b
v_pk_fma_f32 | f32 | f32 f32 f32 | d = fmaf(a, b, c)
v_pk_mov_b32 | u32 | u32 u32 | d = half ? b : a
""",
    "packed",
)


TABLE = PAIRS_OF_HALVES + PAIRS_OF_SINGLES
