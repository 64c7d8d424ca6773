/* Number formats, and conversions between them. */
#pragma once
#include "machine.h"

static inline int is_nan(f32 x) { return x != x; }

static inline f32 flushed(f32 x)
{
    u32 bits = as_u32(x);
    return (bits & 0x7F800000u) ? x : as_f32(bits & 0x80000000u);
}

/* ── fp16 and bf16 ─────────────────────────────────────────────────────── */
/* Without branches, so that loops over lanes vectorise. A NaN keeps its bits: minimum and maximum tell
   a signalling one, arithmetic makes it quiet. */
static inline f32 from_f16(u16 x)
{
    u32 sign = (u32)(x & 0x8000) << 16, magnitude = x & 0x7FFF;
    u32 normal = (magnitude << 13) + 0x38000000u, tiny = as_u32((f32)(i32)magnitude * 0x1p-24f);
    u32 special = 0x7F800000u | (magnitude & 0x3FF) << 13;
    return as_f32(sign | (magnitude >= 0x7C00 ? special : magnitude < 0x400 ? tiny : normal));
}
static inline u16 to_f16(f32 x)
{
    u32 bits = as_u32(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFFu;
    u32 normal = (magnitude - 0x38000000u + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    u32 tiny = as_u32(as_f32(magnitude) + 0.5f) & 0xFFFF, nan = 0x7E00 | (magnitude >> 13 & 0x3FF);
    u32 finite = magnitude < 0x38800000u ? tiny : normal;
    return (u16)(sign | (magnitude > 0x7F800000u ? nan : magnitude >= 0x477FF000u ? 0x7C00 : finite));
}

static inline f32 from_bf16(u16 x) { return as_f32((u32)x << 16); }
static inline u16 to_bf16(f32 x)
{
    u32 bits = as_u32(x);
    u32 rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (u16)(is_nan(x) ? bits >> 16 | 0x40 : rounded);
}

/* double → float rounded to odd: rounding it again to a narrower format is then exact. */
static inline f32 to_odd(f64 x)
{
    f32 y = (f32)x;
    if (isinf(y) && !isinf(x)) return copysignf(0x1.fffffep127f, y);
    if ((f64)y == x || is_nan(y) || (as_u32(y) & 1)) return y;
    u32 bits = as_u32(y);
    if ((f64)y == 0.0) return as_f32((as_u64(x) >> 63 ? 0x80000000u : 0) | 1);
    return as_f32(fabs((f64)y) > fabs(x) ? bits - 1 : bits + 1);
}
/* a·b + c for halves, rounded to odd in fp32: what is left out of the double sum goes to its last bit. */
static inline f32 fma_odd(f32 a, f32 b, f32 c)
{
    f64 product = (f64)a * b, sum = product + c;
    f64 back = sum - product, lost = (product - (sum - back)) + (c - back);
    if (lost != 0 && isfinite(sum) && !(as_u64(sum) & 1))
        sum = as_f64(as_u64(sum) + ((lost > 0) == (sum > 0) ? 1 : -1));
    return to_odd(sum);
}

static inline u16 toward_zero_f16(f32 x)
{
    u16 y = to_f16(x);
    if (is_nan(x) || isinf(x)) return y;
    return fabsf(from_f16(y)) > fabsf(x) ? y - 1 : y;
}

/* ── fp8, fp6, fp4 (OCP) ───────────────────────────────────────────────── */
/* A small format: exponent bits, mantissa bits, bias; whether its top exponent holds infinities
   (e5m2), only the all-ones NaN (e4m3), or ordinary numbers (fp6, fp4). */
typedef struct { int exponent, mantissa, bias; enum { IEEE_TOP, NAN_ONLY, NUMBERS } top; } Small;
static const Small FP8 = {4, 3, 7, NAN_ONLY}, BF8 = {5, 2, 15, IEEE_TOP};
static const Small FP6 = {2, 3, 1, NUMBERS}, BF6 = {3, 2, 3, NUMBERS}, FP4 = {2, 1, 1, NUMBERS};

static inline f32 from_small(u32 code, Small f)
{
    u32 width = f.exponent + f.mantissa, ones = (1u << width) - 1, magnitude = code & ones;
    u32 top = ((1u << f.exponent) - 1) << f.mantissa, sign = (code >> width & 1) << 31;
    u32 normal = (magnitude << (23 - f.mantissa)) + ((u32)(127 - f.bias) << 23);
    u32 tiny = as_u32((f32)(i32)magnitude * as_f32((u32)(128 - f.bias - f.mantissa) << 23));
    u32 x = magnitude >> f.mantissa ? normal : tiny;
    if (f.top == IEEE_TOP) x = magnitude > top ? 0x7FC00000u : magnitude == top ? 0x7F800000u : x;
    if (f.top == NAN_ONLY) x = magnitude == ones ? 0x7FC00000u : x;
    return as_f32(sign | x);
}

static inline f64 largest_small(Small f)
{
    u32 top = (1u << f.exponent) - 1, mantissa = (1u << f.mantissa) - 1;
    if (f.top == IEEE_TOP) return ldexp(2 - ldexp(1, -f.mantissa), (int)top - 1 - f.bias);
    return ldexp((f64)((1u << f.mantissa) | (f.top == NAN_ONLY ? mantissa - 1 : mantissa)), (int)top - f.bias - f.mantissa);
}

/* Nearest even, or, given 32 random bits, up with the probability of the part cut off.
   Beyond the largest: NaN (e4m3), infinity (e5m2), the largest (fp6, fp4, or any with the mode bit
   FP16_OVFL). */
static inline u32 to_small(f64 x, Small f, int stochastic, u32 noise, int saturate)
{
    u32 sign = (u32)(as_u64(x) >> 63) << (f.exponent + f.mantissa);
    u32 ones = (1u << (f.exponent + f.mantissa)) - 1;
    u32 infinity = ((1u << f.exponent) - 1) << f.mantissa;
    if (x != x) return sign | ones;
    f64 magnitude = fabs(x), largest = largest_small(f);
    u32 beyond = f.top == IEEE_TOP ? infinity - (saturate ? 1 : 0) : f.top == NAN_ONLY && saturate ? ones - 1 : ones;
    if (isinf(magnitude)) return sign | beyond;
    int exponent;
    frexp(magnitude, &exponent);
    int unit = (exponent - 1 < 1 - f.bias ? 1 - f.bias : exponent - 1) - f.mantissa;
    f64 scaled = ldexp(magnitude, -unit);
    f64 rounded = stochastic ? floor(scaled + ldexp((f64)noise, -32)) : nearbyint(scaled);
    f64 value = ldexp(rounded, unit);
    if (value > largest) return sign | beyond;
    if (value == 0) return sign;
    frexp(value, &exponent);
    if (exponent - 1 < 1 - f.bias) return sign | (u32)rounded;
    u32 whole = (u32)ldexp(value, f.mantissa - (exponent - 1));
    return sign | (u32)(exponent - 1 + f.bias) << f.mantissa | (whole & ((1u << f.mantissa) - 1));
}

/* 2^(exponent field of an fp32 scale - 127). */
static inline f64 scale_of(u32 bits) { return as_f64((u64)((bits >> 23 & 0xFF) + 896) << 52); }
static inline f64 e8m0(u32 byte) { return byte == 255 ? NAN : as_f64((u64)(byte + 896) << 52); }
