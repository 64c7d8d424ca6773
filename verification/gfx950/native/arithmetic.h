/* The arithmetic that C lacks: minima, division's helpers, transcendental units, integers. */
#pragma once
#include "numbers.h"

/* ── minimum, maximum, median ──────────────────────────────────────────── */
static inline int signalling(f32 x) { return is_nan(x) & !(as_u32(x) >> 22 & 1); }
static inline int signalling64(f64 x) { return (x != x) & !(as_u64(x) >> 51 & 1); }
static inline f32 quiet(f32 x) { return as_f32(as_u32(x) | 1u << 22); }
static inline f64 quiet64(f64 x) { return as_f64(as_u64(x) | 1ull << 51); }
/* In IEEE mode, which every kernel declares, a signalling NaN comes out quiet; a quiet one gives way.
   The chosen one of two numbers, or what NaN makes of them, without branches. */
static inline f32 chosen_f32(int first, f32 a, f32 b)
{
    f32 x = first ? a : b;
    x = is_nan(b) ? a : x;
    x = is_nan(a) ? b : x;
    x = signalling(b) ? quiet(b) : x;
    return signalling(a) ? quiet(a) : x;
}
static inline f64 chosen_f64(int first, f64 a, f64 b)
{
    f64 x = first ? a : b;
    x = b != b ? a : x;
    x = a != a ? b : x;
    x = signalling64(b) ? quiet64(b) : x;
    return signalling64(a) ? quiet64(a) : x;
}
static inline f32 max_f32(f32 a, f32 b) { return chosen_f32((a > b) | ((a == b) & !(as_u32(a) >> 31)), a, b); }
static inline f32 min_f32(f32 a, f32 b) { return chosen_f32((a < b) | ((a == b) & (as_u32(a) >> 31)), a, b); }
static inline f64 max_f64(f64 a, f64 b) { return chosen_f64((a > b) | ((a == b) & !(as_u64(a) >> 63)), a, b); }
static inline f64 min_f64(f64 a, f64 b) { return chosen_f64((a < b) | ((a == b) & (int)(as_u64(a) >> 63)), a, b); }
static inline f32 maximum_f32(f32 a, f32 b) { return is_nan(a) ? a + a : is_nan(b) ? b + b : max_f32(a, b); }
static inline f32 minimum_f32(f32 a, f32 b) { return is_nan(a) ? a + a : is_nan(b) ? b + b : min_f32(a, b); }
static inline f32 median_f32(f32 a, f32 b, f32 c)
{
    if (is_nan(a) || is_nan(b) || is_nan(c)) return min_f32(min_f32(a, b), c);
    f32 most = max_f32(max_f32(a, b), c);
    return most == a ? max_f32(b, c) : most == b ? max_f32(a, c) : max_f32(a, b);
}
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define MEDIAN(a, b, c) LARGER(SMALLER(a, b), SMALLER(LARGER(a, b), c))

/* ── division's three helpers ──────────────────────────────────────────── */
static inline int exponent_of(f32 x) { return as_u32(x) >> 23 & 0xFF; }
static inline int exponent_of64(f64 x) { return as_u64(x) >> 52 & 0x7FF; }
static inline int denormal(f32 x) { return !exponent_of(x) && x != 0; }
static inline int denormal64(f64 x) { return !exponent_of64(x) && x != 0; }

/* Of dividend ÷ divisor: how far their exponents are apart, what is denormal, and which of the two an operand is. */
typedef struct {
    int far, low_dividend, denormal_divisor, denormal_reciprocal, denormal_quotient, is_divisor, is_dividend;
} Division;

/* Whether the operand is scaled up (1) or down (−1); flag: the quotient will be scaled too. Where quotient and
   reciprocal are both denormal the manual scales the divisor up, out of range: then 1 ÷ 2e38 would be NaN, and every
   sigmoid of −88. Down is what makes the sequence a division, which it is on all of these machines. */
static inline int div_scaling(Division d, int *flag)
{
    *flag = d.far || (d.denormal_quotient && !d.denormal_divisor);
    if (d.far) return d.is_divisor;
    if (d.denormal_divisor) return 1;
    if (d.denormal_reciprocal) return d.denormal_quotient ? -d.is_divisor : -1;
    return d.denormal_quotient ? d.is_dividend : d.low_dividend;
}
static inline f32 div_scale_f32(f32 a, f32 divisor, f32 dividend, int *flag)
{
    int exponent = exponent_of(dividend);
    Division d = {exponent - exponent_of(divisor) >= 96, exponent <= 23, denormal(divisor), denormal(1 / divisor),
                  denormal(dividend / divisor), a == divisor, a == dividend};
    int way = div_scaling(d, flag);
    if (dividend != 0 && divisor != 0) return a * (way > 0 ? 0x1p64f : way < 0 ? 0x1p-64f : 1);
    *flag = 0;
    return as_f32(0x7FC00000u);
}
static inline f64 div_scale_f64(f64 a, f64 divisor, f64 dividend, int *flag)
{
    int exponent = exponent_of64(dividend);
    Division d = {exponent - exponent_of64(divisor) >= 768, exponent <= 53, denormal64(divisor), denormal64(1 / divisor),
                  denormal64(dividend / divisor), a == divisor, a == dividend};
    int way = div_scaling(d, flag);
    if (dividend != 0 && divisor != 0) return a * (way > 0 ? 0x1p128 : way < 0 ? 0x1p-128 : 1);
    *flag = 0;
    return NAN;
}

/* The quotient with the sign and the special values of its division, in fp64, which holds fp32 exactly. */
static inline f64 div_fixup(f64 quotient, f64 divisor, f64 dividend, int vanishes)
{
    f64 x;
    if (dividend != dividend) return dividend + dividend;
    if (divisor != divisor) return divisor + divisor;
    if ((divisor == 0 && dividend == 0) || (isinf(divisor) && isinf(dividend))) return as_f64(0xFFF8000000000000ull);
    if (divisor == 0 || isinf(dividend)) x = INFINITY;
    else if (isinf(divisor) || dividend == 0 || vanishes) x = 0;
    else x = fabs(quotient);
    return as_f64(as_u64(x) | ((as_u64(divisor) ^ as_u64(dividend)) & 1ull << 63));
}
static inline f32 div_fixup_f32(f32 quotient, f32 divisor, f32 dividend)
{
    return (f32)div_fixup(quotient, divisor, dividend, exponent_of(dividend) - exponent_of(divisor) < -150);
}
static inline f64 div_fixup_f64(f64 quotient, f64 divisor, f64 dividend)
{
    return div_fixup(quotient, divisor, dividend, exponent_of64(dividend) - exponent_of64(divisor) < -1075);
}

/* ── transcendental units ──────────────────────────────────────────────── */
/* Default model: denormals in and out are flushed and the result is rounded once. The alternative
   takes the other of the two neighbours of the exact value: still within one ulp of it. */
enum { ROUNDED_UNIT, ONE_ULP_UNIT };
static inline f32 unit_result(f64 exact, u32 model)
{
    f32 y = flushed((f32)exact);
    if (model == ONE_ULP_UNIT && isfinite(y) && y != 0 && (f64)y != exact) {
        u32 moved = as_u32(y) + (fabs((f64)y) < fabs(exact) ? 1 : -1);
        if ((moved >> 23 & 0xFF) != 0xFF) y = flushed(as_f32(moved));
    }
    return y;
}
/* 2^x in double by a polynomial; below 1e-15 relative. Adding 1.5·2^52 rounds to the nearest whole
   number and leaves it in the last bits. */
static inline f64 exp2_of(f32 x)
{
    f64 bounded = x < -160 ? -160 : x > 140 ? 140 : x, shifted = bounded + 0x1.8p52;
    f64 r = (bounded - (shifted - 0x1.8p52)) * 0.6931471805599453;
    f64 p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0; p = p * r + 1.0 / 39916800.0; p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0; p = p * r + 1.0 / 40320.0; p = p * r + 1.0 / 5040.0; p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0; p = p * r + 1.0 / 24.0; p = p * r + 1.0 / 6.0; p = p * r + 0.5; p = p * r + 1.0;
    p = p * r + 1.0;
    f64 scaled = p * as_f64((as_u64(shifted) + 1023) << 52);
    return x != x ? (f64)x : scaled;
}
static inline f32 exp_unit(f32 x, u32 model) { f32 y = flushed(x); return unit_result(exp2_of(y), model); }
static inline f32 log_unit(f32 x, u32 model) { f32 y = flushed(x); return unit_result(log2((f64)y), model); }
static inline f32 rcp_unit(f32 x, u32 model) { f32 y = flushed(x); return unit_result(1.0 / (f64)y, model); }
static inline f32 sqrt_unit(f32 x, u32 model) { f32 y = flushed(x); return unit_result(sqrt((f64)y), model); }
static inline f32 rsq_unit(f32 x, u32 model) { f32 y = flushed(x); return unit_result(1.0 / sqrt((f64)y), model); }
/* sin(2πx), exact at multiples of a quarter. */
static inline f64 sine_of_turn(f64 x)
{
    if (x == 0) return x;
    f64 turn = x - nearbyint(x);
    if (fabs(turn) == 0.5) turn = 0;
    if (turn > 0.25) turn = 0.5 - turn;
    if (turn < -0.25) turn = -0.5 - turn;
    return sin(turn * 6.283185307179586);
}
static inline f32 sin_unit(f32 x, u32 model) { return unit_result(sine_of_turn(flushed(x)), model); }
static inline f32 cos_unit(f32 x, u32 model) { return unit_result(sine_of_turn((f64)flushed(x) + 0.25), model); }
static inline f32 fract_f32(f32 x) { f32 y = x - floorf(x); return y >= 1.0f ? 0x1.fffffep-1f : y; }
static inline f64 fract_f64(f64 x) { f64 y = x - floor(x); return y >= 1.0 ? 0x1.fffffffffffffp-1 : y; }

/* ── integers ──────────────────────────────────────────────────────────── */
static inline u32 f32_to_u32(f32 x) { return is_nan(x) || x <= 0 ? 0 : x >= 0x1p32f ? 0xFFFFFFFFu : (u32)x; }
static inline i32 f32_to_i32(f32 x)
{
    return is_nan(x) ? 0 : x >= 0x1p31f ? 0x7FFFFFFF : x <= -0x1p31f ? (i32)0x80000000 : (i32)x;
}
static inline u32 f64_to_u32(f64 x) { return x != x || x <= 0 ? 0 : x >= 0x1p32 ? 0xFFFFFFFFu : (u32)x; }
static inline i32 f64_to_i32(f64 x)
{
    return x != x ? 0 : x >= 0x1p31 ? 0x7FFFFFFF : x <= -0x1p31 ? (i32)0x80000000 : (i32)x;
}
static inline u32 reversed(u32 x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0F0F0F0Fu) | (x & 0x0F0F0F0Fu) << 4;
    return __builtin_bswap32(x);
}
static inline u32 truth(u32 a, u32 b, u32 c, u32 table)
{
    u32 d = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) d |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return d;
}
static inline u32 permuted_byte(u64 data, u32 selector)
{
    if (selector >= 13) return 0xFF;
    if (selector == 12) return 0;
    if (selector >= 8) return data >> (8 * (2 * (selector - 8) + 1) + 7) & 1 ? 0xFF : 0;
    return data >> (8 * selector) & 0xFF;
}
static inline u32 permuted(u32 a, u32 b, u32 selectors)
{
    u64 data = (u64)a << 32 | b;
    u32 d = 0;
    for (int k = 0; k < 4; k++) d |= permuted_byte(data, selectors >> 8 * k & 0xFF) << 8 * k;
    return d;
}
/* The classes in their order: signalling and quiet NaN, then −∞, −normal, −denormal, −0, +0 and so on up to +∞. */
static inline int class_in(u64 bits, int fractions, int width)
{
    u64 top = (1ull << (width - 1 - fractions)) - 1, exponent = bits >> fractions & top;
    u64 fraction = bits & ((1ull << fractions) - 1);
    if (exponent == top && fraction) return fraction >> (fractions - 1);
    int size = exponent == top ? 3 : exponent ? 2 : fraction ? 1 : 0;
    return bits >> (width - 1) ? 5 - size : 6 + size;
}
static inline int class_of(f32 x) { return class_in(as_u32(x), 23, 32); }
static inline int class_of16(f32 x)
{
    int class = class_of(x);
    if ((class == 8 || class == 3) && fabsf(x) < 0x1p-14f) return class == 8 ? 7 : 4;
    return class;
}
static inline int class_of64(f64 x) { return class_in(as_u64(x), 52, 64); }
