"""Floating-point arithmetic of the vector unit in fp32, fp16 and fp64."""

from __future__ import annotations

from verification.gfx950.instructions.rows import rows

UNITS = ("rcp", "rsq", "sqrt", "exp", "log", "sin", "cos")

SINGLE = rows(
    "floating",
    """
v_add_f32 | f32 | f32 f32 | d = a + b
v_sub_f32 | f32 | f32 f32 | d = a - b
v_subrev_f32 | f32 | f32 f32 | d = b - a
v_mul_f32 | f32 | f32 f32 | d = a * b
v_mul_legacy_f32 | f32 | f32 f32 | d = a == 0 || b == 0 ? 0.0f : a * b
v_fma_f32 | f32 | f32 f32 f32 | d = fmaf(a, b, c)
v_fmac_f32 | f32 | f32 f32 (f32) | d = fmaf(a, b, c)
v_fmamk_f32 | f32 | f32 f32 f32 | d = fmaf(a, b, c)
v_fmaak_f32 | f32 | f32 f32 f32 | d = fmaf(a, b, c)
v_min_f32 | f32 | f32 f32 | d = min_f32(a, b)
v_max_f32 | f32 | f32 f32 | d = max_f32(a, b)
v_min3_f32 | f32 | f32 f32 f32 | d = min_f32(min_f32(a, b), c)
v_max3_f32 | f32 | f32 f32 f32 | d = max_f32(max_f32(a, b), c)
v_med3_f32 | f32 | f32 f32 f32 | d = median_f32(a, b, c)
v_minimum3_f32 | f32 | f32 f32 f32 | d = minimum_f32(minimum_f32(a, b), c)
v_maximum3_f32 | f32 | f32 f32 f32 | d = maximum_f32(maximum_f32(a, b), c)
v_floor_f32 | f32 | f32 | d = floorf(a)
v_ceil_f32 | f32 | f32 | d = ceilf(a)
v_trunc_f32 | f32 | f32 | d = truncf(a)
v_rndne_f32 | f32 | f32 | d = rintf(a)
v_fract_f32 | f32 | f32 | d = fract_f32(a)
v_ldexp_f32 | f32 | f32 i32 | d = ldexpf(a, MEDIAN(b, -1000, 1000))
v_frexp_mant_f32 | f32 | f32 | int n; d = isfinite(a) ? frexpf(a, &n) : a
v_frexp_exp_i32_f32 | i32 | f32 | int n = 0; if (isfinite(a)) frexpf(a, &n); d = n
v_rcp_iflag_f32 | f32 | f32 | d = rcp_unit(a, model)
v_div_scale_f32 | f32 mask | f32 f32 f32 | int flag; d = div_scale_f32(a, b, c, &flag); e = flag
v_div_fmas_f32 | f32 | f32 f32 f32 (vcc) | d = fmaf(a, b, c); d = f ? d * (exponent_of(c) > 127 ? 0x1p64f : 0x1p-64f) : d
v_div_fixup_f32 | f32 | f32 f32 f32 | d = div_fixup_f32(a, b, c)
v_cmp_class_f32 | mask | f32 u32 | d = b >> class_of(a) & 1
v_cmpx_class_f32 | maskx | f32 u32 | d = b >> class_of(a) & 1
v_dot2c_f32_bf16 | f32 | bf16s bf16s (f32) | d = fmaf(from_bf16((u16)(a >> 16)), from_bf16((u16)(b >> 16)), fmaf(from_bf16((u16)a), from_bf16((u16)b), c))
v_dot2c_f32_f16 | f32 | f16s f16s (f32) | d = fmaf(from_f16((u16)(a >> 16)), from_f16((u16)(b >> 16)), fmaf(from_f16((u16)a), from_f16((u16)b), c))
v_dot2_f32_bf16 | f32 | bf16s bf16s f32 | d = fmaf(from_bf16((u16)(a >> 16)), from_bf16((u16)(b >> 16)), fmaf(from_bf16((u16)a), from_bf16((u16)b), c))
v_dot2_f32_f16 | f32 | f16s f16s f32 | d = fmaf(from_f16((u16)(a >> 16)), from_f16((u16)(b >> 16)), fmaf(from_f16((u16)a), from_f16((u16)b), c))
""",
)

TRANSCENDENTAL = rows("floating", "\n".join(
    [f"v_{unit}_f32 | f32 | f32 | d = {unit}_unit(a, model)" for unit in UNITS]
    + [f"v_{unit}_f16 | f16 | f16 | d = {code}" for unit, code in {
        "rcp": "(f32)(1.0 / (f64)a)", "rsq": "(f32)(1.0 / sqrt((f64)a))", "sqrt": "(f32)sqrt((f64)a)",
        "exp": "(f32)exp2_of(a)", "log": "(f32)log2((f64)a)",
        "sin": "(f32)sine_of_turn(a)", "cos": "(f32)sine_of_turn((f64)a + 0.25)",
    }.items()]
    + ["v_rcp_f64 | f64 | f64 | d = 1.0 / a", "v_rsq_f64 | f64 | f64 | d = 1.0 / sqrt(a)",
       "v_sqrt_f64 | f64 | f64 | d = sqrt(a)"]
))  # fmt: skip

HALF = rows(
    "floating",
    """
v_add_f16 | f16 | f16 f16 | d = a + b
v_sub_f16 | f16 | f16 f16 | d = a - b
v_subrev_f16 | f16 | f16 f16 | d = b - a
v_mul_f16 | f16 | f16 f16 | d = a * b
v_fma_f16 | f16 | f16 f16 f16 | d = fma_odd(a, b, c)
v_min_f16 | f16 | f16 f16 | d = min_f32(a, b)
v_max_f16 | f16 | f16 f16 | d = max_f32(a, b)
v_min3_f16 | f16 | f16 f16 f16 | d = min_f32(min_f32(a, b), c)
v_max3_f16 | f16 | f16 f16 f16 | d = max_f32(max_f32(a, b), c)
v_med3_f16 | f16 | f16 f16 f16 | d = median_f32(a, b, c)
v_floor_f16 | f16 | f16 | d = floorf(a)
v_ceil_f16 | f16 | f16 | d = ceilf(a)
v_trunc_f16 | f16 | f16 | d = truncf(a)
v_rndne_f16 | f16 | f16 | d = rintf(a)
v_fract_f16 | f16 | f16 | f32 t = a - floorf(a); d = t >= 1.0f ? 0x1.ffcp-1f : t
v_ldexp_f16 | f16 | f16 power16 | d = to_odd(ldexp((f64)a, b))
v_frexp_mant_f16 | f16 | f16 | int n; d = isfinite(a) ? frexpf(a, &n) : a
v_frexp_exp_i16_f16 | i16 | f16 | int n = 0; if (isfinite(a)) frexpf(a, &n); d = (i16)n
v_div_fixup_f16 | f16 | f16 f16 f16 | d = div_fixup_f32(a, b, c)
v_cmp_class_f16 | mask | f16 u16 | d = b >> class_of16(a) & 1
""",
)

DOUBLE = rows(
    "floating",
    """
v_add_f64 | f64 | f64 f64 | d = a + b
v_mul_f64 | f64 | f64 f64 | d = a * b
v_fma_f64 | f64 | f64 f64 f64 | d = fma(a, b, c)
v_fmac_f64 | f64 | f64 f64 (f64) | d = fma(a, b, c)
v_min_f64 | f64 | f64 f64 | d = min_f64(a, b)
v_max_f64 | f64 | f64 f64 | d = max_f64(a, b)
v_floor_f64 | f64 | f64 | d = floor(a)
v_ceil_f64 | f64 | f64 | d = ceil(a)
v_trunc_f64 | f64 | f64 | d = trunc(a)
v_rndne_f64 | f64 | f64 | d = rint(a)
v_fract_f64 | f64 | f64 | d = fract_f64(a)
v_ldexp_f64 | f64 | f64 i32 | d = ldexp(a, MEDIAN(b, -5000, 5000))
v_frexp_mant_f64 | f64 | f64 | int n; d = isfinite(a) ? frexp(a, &n) : a
v_frexp_exp_i32_f64 | i32 | f64 | int n = 0; if (isfinite(a)) frexp(a, &n); d = n
v_div_scale_f64 | f64 mask | f64 f64 f64 | int flag; d = div_scale_f64(a, b, c, &flag); e = flag
v_div_fmas_f64 | f64 | f64 f64 f64 (vcc) | d = fma(a, b, c); d = f ? d * (exponent_of64(c) > 1023 ? 0x1p128 : 0x1p-128) : d
v_div_fixup_f64 | f64 | f64 f64 f64 | d = div_fixup_f64(a, b, c)
v_cmp_class_f64 | mask | f64 u32 | d = b >> class_of64(a) & 1
""",
)

ORDERED = {"lt": "a < b", "eq": "a == b", "le": "a <= b", "gt": "a > b", "lg": "a < b || a > b", "ge": "a >= b",
           "o": "a == a && b == b", "u": "a != a || b != b", "nge": "!(a >= b)", "nlg": "!(a < b || a > b)",
           "ngt": "!(a > b)", "nle": "!(a <= b)", "neq": "a != b", "nlt": "!(a < b)"}  # fmt: skip

COMPARE = rows("floating", "\n".join(
    f"v_{form}_{name}_{kind} | {result} | {kind} {kind} | d = {code}"
    for form, result in (("cmp", "mask"), ("cmpx", "maskx"))
    for name, code in ORDERED.items() for kind in ("f32", "f16", "f64")
))  # fmt: skip

TABLE = SINGLE + TRANSCENDENTAL + HALF + DOUBLE + COMPARE
