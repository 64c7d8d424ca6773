"""Scalar arithmetic: one value a wave; `scc` is the condition code."""

from __future__ import annotations

from verification.gfx950.instructions.rows import rows

ARITHMETIC = rows(
    "scalar",
    """
s_mov_b32 | u32 | u32 | d = a
s_mov_b64 | u64 | u64 | d = a
s_cmov_b32 | u32 | u32 (u32) | d = scc ? a : b
s_cmov_b64 | u64 | u64 (u64) | d = scc ? a : b
s_movk_i32 | i32 | k16 | d = a
s_cmovk_i32 | i32 | k16 (i32) | d = scc ? a : b
s_addk_i32 | i32 | k16 (i32) | d = (i32)((u32)b + (u32)a); scc = ((a ^ d) & (b ^ d)) < 0
s_mulk_i32 | i32 | k16 (i32) | d = (i32)((u32)b * (u32)a)
s_add_u32 | u32 | u32 u32 | d = a + b; scc = d < a
s_sub_u32 | u32 | u32 u32 | d = a - b; scc = b > a
s_add_i32 | i32 | i32 i32 | d = (i32)((u32)a + (u32)b); scc = ((a ^ d) & (b ^ d)) < 0
s_sub_i32 | i32 | i32 i32 | d = (i32)((u32)a - (u32)b); scc = ((a ^ b) & (a ^ d)) < 0
s_addc_u32 | u32 | u32 u32 | u64 t = (u64)a + b + scc; d = (u32)t; scc = (int)(t >> 32)
s_subb_u32 | u32 | u32 u32 | u64 t = (u64)a - b - scc; d = (u32)t; scc = t >> 32 != 0
s_min_i32 | i32 | i32 i32 | scc = a < b; d = scc ? a : b
s_min_u32 | u32 | u32 u32 | scc = a < b; d = scc ? a : b
s_max_i32 | i32 | i32 i32 | scc = a > b; d = scc ? a : b
s_max_u32 | u32 | u32 u32 | scc = a > b; d = scc ? a : b
s_abs_i32 | i32 | i32 | d = a < 0 ? (i32)(0u - (u32)a) : a; scc = d != 0
s_absdiff_i32 | u32 | i32 i32 | d = (u32)a - (u32)b; d = (i32)d < 0 ? 0 - d : d; scc = d != 0
s_mul_i32 | u32 | u32 u32 | d = a * b
s_mul_hi_u32 | u32 | u32 u32 | d = (u32)((u64)a * b >> 32)
s_mul_hi_i32 | u32 | i32 i32 | d = (u32)((i64)a * b >> 32)
s_cselect_b32 | u32 | u32 u32 | d = scc ? a : b
s_cselect_b64 | u64 | u64 u64 | d = scc ? a : b
s_lshl_b32 | u32 | u32 u32 | d = a << (b & 31); scc = d != 0
s_lshr_b32 | u32 | u32 u32 | d = a >> (b & 31); scc = d != 0
s_ashr_i32 | i32 | i32 u32 | d = a >> (b & 31); scc = d != 0
s_lshl_b64 | u64 | u64 u32 | d = a << (b & 63); scc = d != 0
s_lshr_b64 | u64 | u64 u32 | d = a >> (b & 63); scc = d != 0
s_ashr_i64 | i64 | i64 u32 | d = a >> (b & 63); scc = d != 0
s_lshl1_add_u32 | u32 | u32 u32 | u64 t = ((u64)a << 1) + b; d = (u32)t; scc = t >> 32 != 0
s_lshl2_add_u32 | u32 | u32 u32 | u64 t = ((u64)a << 2) + b; d = (u32)t; scc = t >> 32 != 0
s_lshl3_add_u32 | u32 | u32 u32 | u64 t = ((u64)a << 3) + b; d = (u32)t; scc = t >> 32 != 0
s_lshl4_add_u32 | u32 | u32 u32 | u64 t = ((u64)a << 4) + b; d = (u32)t; scc = t >> 32 != 0
s_bfm_b32 | u32 | u32 u32 | d = ((1u << (a & 31)) - 1) << (b & 31)
s_bfm_b64 | u64 | u32 u32 | d = ((1ull << (a & 63)) - 1) << (b & 63)
s_bfe_u32 | u32 | u32 u32 | u32 n = b >> 16 & 127; d = n ? (n >= 32 ? a >> (b & 31) : a >> (b & 31) & ((1u << n) - 1)) : 0; scc = d != 0
s_bfe_i32 | i32 | i32 u32 | u32 n = b >> 16 & 127, o = b & 31; d = n ? (n + o >= 32 ? a >> o : (i32)((u32)a << (32 - n - o)) >> (32 - n)) : 0; scc = d != 0
s_bfe_u64 | u64 | u64 u32 | u32 n = b >> 16 & 127; d = n ? (n >= 64 ? a >> (b & 63) : a >> (b & 63) & ((1ull << n) - 1)) : 0; scc = d != 0
s_bfe_i64 | i64 | i64 u32 | u32 n = b >> 16 & 127, o = b & 63; d = n ? (n + o >= 64 ? a >> o : (i64)((u64)a << (64 - n - o)) >> (64 - n)) : 0; scc = d != 0
s_brev_b32 | u32 | u32 | d = reversed(a)
s_brev_b64 | u64 | u64 | d = (u64)reversed((u32)a) << 32 | reversed((u32)(a >> 32))
s_bcnt0_i32_b32 | u32 | u32 | d = 32 - __builtin_popcount(a); scc = d != 0
s_bcnt1_i32_b32 | u32 | u32 | d = __builtin_popcount(a); scc = d != 0
s_bcnt1_i32_b64 | u32 | u64 | d = __builtin_popcountll(a); scc = d != 0
s_ff0_i32_b32 | u32 | u32 | d = ~a ? (u32)__builtin_ctz(~a) : 0xFFFFFFFFu
s_ff1_i32_b32 | u32 | u32 | d = a ? (u32)__builtin_ctz(a) : 0xFFFFFFFFu
s_ff1_i32_b64 | u32 | u64 | d = a ? (u32)__builtin_ctzll(a) : 0xFFFFFFFFu
s_flbit_i32_b32 | u32 | u32 | d = a ? (u32)__builtin_clz(a) : 0xFFFFFFFFu
s_flbit_i32_b64 | u32 | u64 | d = a ? (u32)__builtin_clzll(a) : 0xFFFFFFFFu
s_flbit_i32 | u32 | i32 | d = a == 0 || a == -1 ? 0xFFFFFFFFu : (u32)__builtin_clz(a < 0 ? ~a : a)
s_sext_i32_i8 | i32 | u32 | d = (i8)a
s_sext_i32_i16 | i32 | u32 | d = (i16)a
s_bitset0_b32 | u32 | u32 (u32) | d = b & ~(1u << (a & 31))
s_bitset1_b32 | u32 | u32 (u32) | d = b | 1u << (a & 31)
s_bitset0_b64 | u64 | u32 (u64) | d = b & ~(1ull << (a & 63))
s_bitset1_b64 | u64 | u32 (u64) | d = b | 1ull << (a & 63)
s_pack_ll_b32_b16 | u32 | u32 u32 | d = (a & 0xFFFF) | b << 16
s_pack_lh_b32_b16 | u32 | u32 u32 | d = (a & 0xFFFF) | (b & 0xFFFF0000u)
s_pack_hh_b32_b16 | u32 | u32 u32 | d = a >> 16 | (b & 0xFFFF0000u)
s_bitcmp0_b32 | - | u32 u32 | scc = !(a >> (b & 31) & 1)
s_bitcmp1_b32 | - | u32 u32 | scc = a >> (b & 31) & 1
s_bitcmp0_b64 | - | u64 u32 | scc = !(a >> (b & 63) & 1)
s_bitcmp1_b64 | - | u64 u32 | scc = (int)(a >> (b & 63) & 1)
""",
)

LOGIC_EXPRESSIONS = {
    "and": "a & b", "or": "a | b", "xor": "a ^ b", "andn2": "a & ~b", "orn2": "a | ~b",
    "nand": "~(a & b)", "nor": "~(a | b)", "xnor": "~(a ^ b)",
}  # fmt: skip

LOGIC = rows("scalar", "\n".join(
    [f"s_{name}_b{bits} | u{bits} | u{bits} u{bits} | d = {code}; scc = d != 0"
     for name, code in LOGIC_EXPRESSIONS.items() for bits in (32, 64)]
    + [f"s_{name}_saveexec_b64 | u64 | u64 (exec) | d = b; b = {code}; scc = b != 0; set_sgpr64(w, EXEC, b)"
       for name, code in LOGIC_EXPRESSIONS.items()]
    + [f"s_{name}_saveexec_b64 | u64 | u64 (exec) | d = b; b = {code}; scc = b != 0; set_sgpr64(w, EXEC, b)"
       for name, code in {"andn1": "~a & b", "orn1": "~a | b"}.items()]
    + [f"s_not_b{bits} | u{bits} | u{bits} | d = ~a; scc = d != 0" for bits in (32, 64)]
))  # fmt: skip

COMPARISONS = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}

COMPARE = rows("scalar", "\n".join(
    [f"s_cmp_{name}_{kind} | - | {kind} {kind} | scc = a {sign} b"
     for name, sign in COMPARISONS.items() for kind in ("i32", "u32")]
    + [f"s_cmpk_{name}_i32 | - | i32 k16 | scc = a {sign} b" for name, sign in COMPARISONS.items()]
    + [f"s_cmpk_{name}_u32 | - | u32 k16u | scc = a {sign} b" for name, sign in COMPARISONS.items()]
    + [f"s_cmp_{name}_u64 | - | u64 u64 | scc = a {COMPARISONS[name]} b" for name in ("eq", "lg")]
))  # fmt: skip

TABLE = ARITHMETIC + LOGIC + COMPARE
