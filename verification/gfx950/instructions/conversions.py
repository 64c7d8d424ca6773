"""Conversions between number formats; scaled ones divide or multiply by 2^(exponent of an fp32)."""

from __future__ import annotations

from verification.gfx950.instructions.rows import Row, rows

PLAIN = rows(
    "conversions",
    """
v_cvt_f32_i32 | f32 | i32 | d = (f32)a
v_cvt_f32_u32 | f32 | u32 | d = (f32)a
v_cvt_i32_f32 | i32 | f32 | d = f32_to_i32(a)
v_cvt_u32_f32 | u32 | f32 | d = f32_to_u32(a)
v_cvt_rpi_i32_f32 | i32 | f32 | d = f32_to_i32(floorf(a + 0.5f))
v_cvt_flr_i32_f32 | i32 | f32 | d = f32_to_i32(floorf(a))
v_cvt_f16_f32 | f16 | f32 | d = a
v_cvt_f32_f16 | f32 | f16 | d = is_nan(a) ? quiet(a) : a
v_cvt_f64_f32 | f64 | f32 | d = a
v_cvt_f32_f64 | f32 | f64 | d = (f32)a
v_cvt_f64_i32 | f64 | i32 | d = a
v_cvt_f64_u32 | f64 | u32 | d = a
v_cvt_i32_f64 | i32 | f64 | d = f64_to_i32(a)
v_cvt_u32_f64 | u32 | f64 | d = f64_to_u32(a)
v_cvt_f32_ubyte0 | f32 | u32 | d = (f32)(a & 255)
v_cvt_f32_ubyte1 | f32 | u32 | d = (f32)(a >> 8 & 255)
v_cvt_f32_ubyte2 | f32 | u32 | d = (f32)(a >> 16 & 255)
v_cvt_f32_ubyte3 | f32 | u32 | d = (f32)(a >> 24)
v_cvt_f16_u16 | f16 | u16 | d = (f32)a
v_cvt_f16_i16 | f16 | i16 | d = (f32)a
v_cvt_u16_f16 | u16 | f16 | d = (u16)SMALLER(f32_to_u32(a), 0xFFFFu)
v_cvt_i16_f16 | i16 | f16 | d = (i16)MEDIAN(f32_to_i32(a), -32768, 32767)
v_cvt_f32_bf16 | f32 | bf16 | d = from_bf16(a)
v_cvt_pkrtz_f16_f32 | u32 | f32 f32 | d = toward_zero_f16(a) | (u32)toward_zero_f16(b) << 16
v_cvt_pk_f16_f32 | u32 | f32 f32 | d = to_f16(a) | (u32)to_f16(b) << 16
v_cvt_pk_bf16_f32 | u32 | f32 f32 | d = to_bf16(a) | (u32)to_bf16(b) << 16
v_cvt_f32_fp8 | f32 | u32 | d = from_small(a & 255, FP8)
v_cvt_f32_bf8 | f32 | u32 | d = from_small(a & 255, BF8)
v_cvt_pk_f32_fp8 | u64 | word | d = as_u32(from_small(a & 255, FP8)) | (u64)as_u32(from_small(a >> 8 & 255, FP8)) << 32
v_cvt_pk_f32_bf8 | u64 | word | d = as_u32(from_small(a & 255, BF8)) | (u64)as_u32(from_small(a >> 8 & 255, BF8)) << 32
v_cvt_pk_fp8_f32 | half16 | f32 f32 | d = to_small(a, FP8, 0, 0, w->saturate) | to_small(b, FP8, 0, 0, w->saturate) << 8
v_cvt_pk_bf8_f32 | half16 | f32 f32 | d = to_small(a, BF8, 0, 0, w->saturate) | to_small(b, BF8, 0, 0, w->saturate) << 8
v_cvt_sr_fp8_f32 | byte8 | f32 u32 | d = to_small(a, FP8, 1, b, w->saturate)
v_cvt_sr_bf8_f32 | byte8 | f32 u32 | d = to_small(a, BF8, 1, b, w->saturate)
v_cvt_sr_bf16_f32 | half16 | f32 u32 | d = isfinite(a) ? (as_u32(a) + (b & 0xFFFF)) >> 16 : to_bf16(a)
""",
)

SMALL = {"fp8": "FP8", "bf8": "BF8", "fp4": "FP4"}
WIDE = {"f32": "{}", "f16": "from_f16((u16)({}))", "bf16": "from_bf16((u16)({}))"}


def _scaled() -> str:
    """The scaled conversions of pairs, for every small and wide format."""
    lines = []
    for small, constant in SMALL.items():
        bits, mask = (4, 15) if small == "fp4" else (8, 255)
        packed, source = ("byte8", "byte2") if small == "fp4" else ("half16", "word")
        read = [f"from_small(a >> {shift} & {mask}, {constant})" for shift in (0, bits)]
        times = [f"(f32)({value} * scale_of(b))" for value in read]
        lines.append(f"v_cvt_scalef32_pk_f32_{small} | u64 | {source} u32 | "
                     f"d = as_u32({times[0]}) | (u64)as_u32({times[1]}) << 32")  # fmt: skip
        for wide in ("f16", "bf16"):
            lines.append(f"v_cvt_scalef32_pk_{wide}_{small} | u32 | {source} u32 | "
                         f"d = to_{wide}({times[0]}) | (u32)to_{wide}({times[1]}) << 16")  # fmt: skip
            halves = [WIDE[wide].format(half) for half in ("a", "a >> 16")]
            small_halves = [f"to_small({half} / scale_of(b), {constant}, 0, 0, w->saturate)" for half in halves]
            lines.append(f"v_cvt_scalef32_pk_{small}_{wide} | {packed} | {wide}s u32 | "
                         f"d = {small_halves[0]} | {small_halves[1]} << {bits}")  # fmt: skip
        lines.append(f"v_cvt_scalef32_pk_{small}_f32 | {packed} | f32 f32 u32 | "
                     f"d = to_small(a / scale_of(c), {constant}, 0, 0, w->saturate) | "
                     f"to_small(b / scale_of(c), {constant}, 0, 0, w->saturate) << {bits}")  # fmt: skip
    return "\n".join(lines)


MIXED = tuple(
    Row(name, "conversions", (result,), ("mixed", "mixed", "mixed"), function, form="mixed")
    for name, result, function in (
        ("v_fma_mix_f32", "u32", "fma_mixed"),
        ("v_fma_mixlo_f16", "u32", "fma_mixed_low"),
        ("v_fma_mixhi_f16", "u32", "fma_mixed_high"),
    )
)

TABLE = PLAIN + rows("conversions", _scaled()) + MIXED
