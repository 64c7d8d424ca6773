"""Integer and bit arithmetic of the vector unit: one value a lane."""

from __future__ import annotations

from verification.gfx950.instructions.rows import rows

BITS = rows(
    "vector",
    """
v_mov_b32 | u32 | u32 | d = a
v_mov_b64 | u64 | u64 | d = a
v_accvgpr_read_b32 | u32 | u32 | d = a
v_accvgpr_write_b32 | u32 | u32 | d = a
v_accvgpr_mov_b32 | u32 | u32 | d = a
v_not_b32 | u32 | u32 | d = ~a
v_and_b32 | u32 | u32 u32 | d = a & b
v_or_b32 | u32 | u32 u32 | d = a | b
v_xor_b32 | u32 | u32 u32 | d = a ^ b
v_xnor_b32 | u32 | u32 u32 | d = ~(a ^ b)
v_and_or_b32 | u32 | u32 u32 u32 | d = (a & b) | c
v_or3_b32 | u32 | u32 u32 u32 | d = a | b | c
v_bfe_u32 | u32 | u32 u32 u32 | d = c & 31 ? a >> (b & 31) & ((1u << (c & 31)) - 1) : 0
v_bfe_i32 | i32 | i32 u32 u32 | u32 o = b & 31, n = c & 31; d = n ? (n + o >= 32 ? a >> o : (i32)((u32)a << (32 - n - o)) >> (32 - n)) : 0
v_bfi_b32 | u32 | u32 u32 u32 | d = (a & b) | (~a & c)
v_bfm_b32 | u32 | u32 u32 | d = ((1u << (a & 31)) - 1) << (b & 31)
v_bfrev_b32 | u32 | u32 | d = reversed(a)
v_bcnt_u32_b32 | u32 | u32 u32 | d = __builtin_popcount(a) + b
v_ffbh_u32 | u32 | u32 | d = a ? (u32)__builtin_clz(a) : 0xFFFFFFFFu
v_ffbh_i32 | u32 | i32 | d = a == 0 || a == -1 ? 0xFFFFFFFFu : (u32)__builtin_clz(a < 0 ? ~a : a)
v_ffbl_b32 | u32 | u32 | d = a ? (u32)__builtin_ctz(a) : 0xFFFFFFFFu
v_alignbit_b32 | u32 | u32 u32 u32 | d = (u32)(((u64)a << 32 | b) >> (c & 31))
v_alignbyte_b32 | u32 | u32 u32 u32 | d = (u32)(((u64)a << 32 | b) >> 8 * (c & 3))
v_perm_b32 | u32 | u32 u32 u32 | d = permuted(a, b, c)
v_bitop3_b32 | u32 | u32 u32 u32 | d = truth(a, b, c, i->extra[0])
v_bitop3_b16 | u16 | u16 u16 u16 | d = (u16)truth(a, b, c, i->extra[0])
v_lshlrev_b32 | u32 | u32 u32 | d = b << (a & 31)
v_lshrrev_b32 | u32 | u32 u32 | d = b >> (a & 31)
v_ashrrev_i32 | i32 | u32 i32 | d = b >> (a & 31)
v_lshlrev_b64 | u64 | u32 u64 | d = b << (a & 63)
v_lshrrev_b64 | u64 | u32 u64 | d = b >> (a & 63)
v_ashrrev_i64 | i64 | u32 i64 | d = b >> (a & 63)
v_lshlrev_b16 | u16 | u16 u16 | d = (u16)(b << (a & 15))
v_lshrrev_b16 | u16 | u16 u16 | d = (u16)(b >> (a & 15))
v_ashrrev_i16 | i16 | u16 i16 | d = (i16)(b >> (a & 15))
v_lshl_add_u32 | u32 | u32 u32 u32 | d = (a << (b & 31)) + c
v_add_lshl_u32 | u32 | u32 u32 u32 | d = (a + b) << (c & 31)
v_lshl_or_b32 | u32 | u32 u32 u32 | d = (a << (b & 31)) | c
v_lshl_add_u64 | u64 | u64 u32 u64 | d = (a << (b & 7)) + c
v_xad_u32 | u32 | u32 u32 u32 | d = (a ^ b) + c
v_mbcnt_lo_u32_b32 | u32 | u32 u32 | d = b + __builtin_popcountll((u64)a & ((1ull << l) - 1))
v_mbcnt_hi_u32_b32 | u32 | u32 u32 | d = b + __builtin_popcountll((u64)a << 32 & ((1ull << l) - 1))
v_cndmask_b32 | u32 | b32f b32f mask | d = c ? b : a
v_prng_b32 | u32 | u32 | d = a << 1 ^ (a >> 31 ? 197u : 0)
""",
)

INTEGERS = rows(
    "vector",
    """
v_add_u32 | u32 | u32 u32 | d = a + b ## d = a + b < a ? 0xFFFFFFFFu : a + b
v_sub_u32 | u32 | u32 u32 | d = a - b ## d = a < b ? 0 : a - b
v_subrev_u32 | u32 | u32 u32 | d = b - a ## d = b < a ? 0 : b - a
v_add_i32 | i32 | i32 i32 | d = (i32)((u32)a + (u32)b) ## i64 t = (i64)a + b; d = t > 0x7FFFFFFF ? 0x7FFFFFFF : t < -0x80000000ll ? (i32)0x80000000 : (i32)t
v_sub_i32 | i32 | i32 i32 | d = (i32)((u32)a - (u32)b) ## i64 t = (i64)a - b; d = t > 0x7FFFFFFF ? 0x7FFFFFFF : t < -0x80000000ll ? (i32)0x80000000 : (i32)t
v_add_co_u32 | u32 mask | u32 u32 | d = a + b; e = d < a
v_sub_co_u32 | u32 mask | u32 u32 | d = a - b; e = b > a
v_subrev_co_u32 | u32 mask | u32 u32 | d = b - a; e = a > b
v_addc_co_u32 | u32 mask | u32 u32 mask | u64 t = (u64)a + b + c; d = (u32)t; e = (u32)(t >> 32)
v_subb_co_u32 | u32 mask | u32 u32 mask | u64 t = (u64)a - b - c; d = (u32)t; e = t >> 32 != 0
v_subbrev_co_u32 | u32 mask | u32 u32 mask | u64 t = (u64)b - a - c; d = (u32)t; e = t >> 32 != 0
v_add3_u32 | u32 | u32 u32 u32 | d = a + b + c
v_mul_lo_u32 | u32 | u32 u32 | d = a * b
v_mul_hi_u32 | u32 | u32 u32 | d = (u32)((u64)a * b >> 32)
v_mul_hi_i32 | i32 | i32 i32 | d = (i32)((i64)a * b >> 32)
v_mul_u32_u24 | u32 | u32 u32 | d = (a & 0xFFFFFF) * (b & 0xFFFFFF)
v_mul_hi_u32_u24 | u32 | u32 u32 | d = (u32)((u64)(a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32)
v_mul_i32_i24 | u32 | u32 u32 | d = (u32)((i32)(a << 8) >> 8) * (u32)((i32)(b << 8) >> 8)
v_mul_hi_i32_i24 | i32 | u32 u32 | d = (i32)((i64)((i32)(a << 8) >> 8) * ((i32)(b << 8) >> 8) >> 32)
v_mad_u32_u24 | u32 | u32 u32 u32 | d = (a & 0xFFFFFF) * (b & 0xFFFFFF) + c
v_mad_i32_i24 | u32 | u32 u32 u32 | d = (u32)((i32)(a << 8) >> 8) * (u32)((i32)(b << 8) >> 8) + c
v_mad_u64_u32 | u64 mask | u32 u32 u64 | u64 t = (u64)a * b; d = t + c; e = d < t
v_mad_i64_i32 | u64 mask | i32 i32 u64 | i64 t = (i64)a * b; d = (u64)t + c; e = (((__int128)t + (i64)c) < 0)
v_min_u32 | u32 | u32 u32 | d = SMALLER(a, b)
v_max_u32 | u32 | u32 u32 | d = LARGER(a, b)
v_min_i32 | i32 | i32 i32 | d = SMALLER(a, b)
v_max_i32 | i32 | i32 i32 | d = LARGER(a, b)
v_min3_u32 | u32 | u32 u32 u32 | d = SMALLER(SMALLER(a, b), c)
v_max3_u32 | u32 | u32 u32 u32 | d = LARGER(LARGER(a, b), c)
v_med3_u32 | u32 | u32 u32 u32 | d = MEDIAN(a, b, c)
v_min3_i32 | i32 | i32 i32 i32 | d = SMALLER(SMALLER(a, b), c)
v_max3_i32 | i32 | i32 i32 i32 | d = LARGER(LARGER(a, b), c)
v_med3_i32 | i32 | i32 i32 i32 | d = MEDIAN(a, b, c)
v_sad_u32 | u32 | u32 u32 u32 | d = (a > b ? a - b : b - a) + c
v_add_u16 | u16 | u16 u16 | d = (u16)(a + b) ## d = (u16)(a + b > 0xFFFF ? 0xFFFF : a + b)
v_sub_u16 | u16 | u16 u16 | d = (u16)(a - b) ## d = (u16)(a < b ? 0 : a - b)
v_subrev_u16 | u16 | u16 u16 | d = (u16)(b - a) ## d = (u16)(b < a ? 0 : b - a)
v_add_i16 | i16 | i16 i16 | d = (i16)(a + b) ## d = (i16)MEDIAN(a + b, -32768, 32767)
v_sub_i16 | i16 | i16 i16 | d = (i16)(a - b) ## d = (i16)MEDIAN(a - b, -32768, 32767)
v_mul_lo_u16 | u16 | u16 u16 | d = (u16)((u32)a * b)
v_mad_u16 | u16 | u16 u16 u16 | d = (u16)((u32)a * b + c)
v_mad_i16 | i16 | i16 i16 i16 | d = (i16)(a * b + c)
v_mad_u32_u16 | u32 | u16 u16 u32 | d = (u32)a * b + c
v_mad_i32_i16 | i32 | i16 i16 i32 | d = (i32)((u32)((i32)a * b) + (u32)c)
v_min_u16 | u16 | u16 u16 | d = SMALLER(a, b)
v_max_u16 | u16 | u16 u16 | d = LARGER(a, b)
v_min_i16 | i16 | i16 i16 | d = SMALLER(a, b)
v_max_i16 | i16 | i16 i16 | d = LARGER(a, b)
v_min3_i16 | i16 | i16 i16 i16 | d = SMALLER(SMALLER(a, b), c)
v_max3_i16 | i16 | i16 i16 i16 | d = LARGER(LARGER(a, b), c)
v_med3_i16 | i16 | i16 i16 i16 | d = MEDIAN(a, b, c)
v_min3_u16 | u16 | u16 u16 u16 | d = SMALLER(SMALLER(a, b), c)
v_max3_u16 | u16 | u16 u16 u16 | d = LARGER(LARGER(a, b), c)
v_med3_u16 | u16 | u16 u16 u16 | d = MEDIAN(a, b, c)
v_ashr_pk_i8_i32 | half16 | i32 i32 u32 | d = (u32)(MEDIAN(a >> (c & 31), -128, 127) & 255) | (u32)(MEDIAN(b >> (c & 31), -128, 127) & 255) << 8
v_ashr_pk_u8_i32 | half16 | i32 i32 u32 | d = (u32)MEDIAN(a >> (c & 31), 0, 255) | (u32)MEDIAN(b >> (c & 31), 0, 255) << 8
v_cvt_pk_u16_u32 | u32 | u32 u32 | d = SMALLER(a, 0xFFFFu) | SMALLER(b, 0xFFFFu) << 16
v_cvt_pk_i16_i32 | u32 | i32 i32 | d = (u32)(MEDIAN(a, -32768, 32767) & 0xFFFF) | (u32)MEDIAN(b, -32768, 32767) << 16
""",
)

SIGNS = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ne": "!=", "ge": ">="}
KINDS = ("i32", "u32", "i64", "u64", "i16", "u16")

COMPARE = rows("vector", "\n".join(
    [f"v_cmp_{name}_{kind} | mask | {kind} {kind} | d = a {sign} b" for name, sign in SIGNS.items() for kind in KINDS]
    + [f"v_cmpx_{name}_{kind} | maskx | {kind} {kind} | d = a {sign} b"
       for name, sign in SIGNS.items() for kind in KINDS]
))  # fmt: skip

TABLE = BITS + INTEGERS + COMPARE
