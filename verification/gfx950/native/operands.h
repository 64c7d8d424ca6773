/* Reading sources and writing results: modifiers, DPP, SDWA, exec. */
#pragma once
#include "arithmetic.h"

/* exec as a mask a lane, remade when exec has changed. */
static inline const u32 *active(Wave *w)
{
    u64 exec = exec_of(w);
    if (exec != w->expanded) {
        for (int l = 0; l < LANES; l++) w->active[l] = exec >> l & 1 ? 0xFFFFFFFFu : 0;
        w->expanded = exec;
    }
    return w->active;
}

static inline u32 selected(u32 x, u32 select, int extend)
{
    switch (select) {
    case BYTE0: case BYTE1: case BYTE2: case BYTE3:
        x = x >> 8 * (select - BYTE0) & 0xFF;
        return extend ? (u32)(i32)(i8)x : x;
    case WORD0: case WORD1:
        x = x >> 16 * (select - WORD0) & 0xFFFF;
        return extend ? (u32)(i32)(i16)x : x;
    }
    return x;
}

static inline u64 source_lanes(Wave *w, const Instruction *i, const i8 *from)
{
    u64 valid = 0, exec = exec_of(w);
    (void)i;
    for (int l = 0; l < LANES; l++)
        if (from[l] >= 0 && (exec >> from[l] & 1)) valid |= 1ull << l;
    return valid;
}

static inline const i8 *lanes_of(Wave *w, const Instruction *i) { return w->group->launch->lanes + 64 * (i64)i->lanes; }

/* Modifiers of a 32-bit source, in hardware's order: DPP or SDWA first, then |x|, then −x. */
static __attribute__((noinline)) const u32 *modified(
    Wave *w, const Instruction *i, const Operand *o, const u32 *in, u32 *out, u32 sign)
{
    u32 buffer[LANES];
    if (o->modifiers & CROSS) {
        const i8 *from = lanes_of(w, i);
        u64 valid = source_lanes(w, i, from);
        for (int l = 0; l < LANES; l++) buffer[l] = valid >> l & 1 ? in[from[l]] : 0;
        in = buffer;
    }
    for (int l = 0; l < LANES; l++) {
        u32 x = selected(in[l], o->select, o->modifiers & SEXT);
        if (o->modifiers & FLUSH && !(x & 0x7F800000u)) x &= 0x80000000u;
        if (o->modifiers & ABS) x &= ~sign;
        if (o->modifiers & NEG) x ^= sign;
        out[l] = x;
    }
    return out;
}

static inline const u32 *source32(Wave *w, const Instruction *i, int k, u32 *buffer, u32 sign)
{
    const Operand *o = &i->source[k];
    const u32 *p;
    if (o->where == IN_VGPR) p = w->v[o->reg];
    else {
        u32 x = o->where == IN_SGPR ? w->s[o->reg] : (u32)o->value;
        for (int l = 0; l < LANES; l++) buffer[l] = x;
        p = buffer;
    }
    return o->modifiers | o->select ? modified(w, i, o, p, buffer, sign) : p;
}

static inline void source64(Wave *w, const Instruction *i, int k, u64 *out, u64 sign)
{
    const Operand *o = &i->source[k];
    if (o->where == IN_VGPR) {
        const u32 *low = w->v[o->reg], *high = w->v[o->reg + 1];
        for (int l = 0; l < LANES; l++) out[l] = low[l] | (u64)high[l] << 32;
        if (o->modifiers & CROSS) {
            u64 in[LANES];
            const i8 *from = lanes_of(w, i);
            u64 valid = source_lanes(w, i, from);
            memcpy(in, out, sizeof in);
            for (int l = 0; l < LANES; l++) out[l] = valid >> l & 1 ? in[from[l]] : 0;
        }
    } else {
        u64 x = o->where == IN_SGPR ? sgpr64(w, o->reg) : o->value;
        for (int l = 0; l < LANES; l++) out[l] = x;
    }
    if (o->modifiers & (ABS | NEG))
        for (int l = 0; l < LANES; l++) {
            if (o->modifiers & ABS) out[l] &= ~sign;
            if (o->modifiers & NEG) out[l] ^= sign;
        }
}

static inline u64 source_mask(const Wave *w, const Instruction *i, int k)
{
    const Operand *o = &i->source[k];
    return o->where == IN_SGPR ? sgpr64(w, o->reg) : o->value;
}

static inline u32 scalar32(const Wave *w, const Operand *o)
{
    return o->where == IN_SGPR ? w->s[o->reg] : o->where == IN_VGPR ? w->v[o->reg][0] : (u32)o->value;
}
static inline u64 scalar64(const Wave *w, const Operand *o)
{
    return o->where == IN_SGPR ? sgpr64(w, o->reg) : o->value;
}

/* Lanes that an instruction writes: exec, less what DPP leaves alone. */
static inline u64 written_lanes(Wave *w, const Instruction *i)
{
    u64 lanes = exec_of(w);
    if (i->cross) {
        lanes &= i->write_mask;
        if (!i->cross_zero) lanes &= source_lanes(w, i, lanes_of(w, i));
    }
    return lanes;
}

static inline void blend(Wave *w, u32 reg, const u32 *x)
{
    u32 *d = w->v[reg];
    if (exec_of(w) == ~0ull) {
        memcpy(d, x, 4 * LANES);
        return;
    }
    const u32 *on = active(w);
    for (int l = 0; l < LANES; l++) d[l] = (x[l] & on[l]) | (d[l] & ~on[l]);
}

static inline void blend_lanes(Wave *w, u32 reg, const u32 *x, u64 lanes)
{
    u32 *d = w->v[reg];
    for (int l = 0; l < LANES; l++) d[l] = lanes >> l & 1 ? x[l] : d[l];
}

/* SDWA's destination: a byte or half of the result, and what becomes of the rest. */
static inline u32 placed(u32 x, u32 old, const Instruction *i)
{
    u32 select = i->result_select;
    if (select == DWORD) return x;
    u32 bits = select <= BYTE3 ? 8 : 16, shift = select <= BYTE3 ? 8 * (select - BYTE0) : 16 * (select - WORD0);
    u32 field = ((bits == 8 ? 0xFFu : 0xFFFFu)) << shift, value = x << shift & field;
    if (i->result_unused == PRESERVE) return (old & ~field) | value;
    if (i->result_unused == SIGN_EXTEND && (value >> (shift + bits - 1) & 1))
        value |= shift + bits < 32 ? ~0u << (shift + bits) : 0;
    return value;
}

static __attribute__((noinline)) void result32_slow(Wave *w, const Instruction *i, u32 *x)
{
    u32 *d = w->v[i->result[0].reg];
    for (int l = 0; l < LANES; l++) x[l] = placed(x[l], d[l], i);
    blend_lanes(w, i->result[0].reg, x, written_lanes(w, i));
}

static inline void result32(Wave *w, const Instruction *i, u32 *x)
{
    if (i->cross | i->result_select) result32_slow(w, i, x);
    else blend(w, i->result[0].reg, x);
}

static inline void result64(Wave *w, const Instruction *i, const u64 *x)
{
    u32 low[LANES], high[LANES];
    for (int l = 0; l < LANES; l++) low[l] = (u32)x[l], high[l] = (u32)(x[l] >> 32);
    if (i->cross) {
        u64 lanes = written_lanes(w, i);
        blend_lanes(w, i->result[0].reg, low, lanes);
        blend_lanes(w, i->result[0].reg + 1, high, lanes);
        return;
    }
    blend(w, i->result[0].reg, low);
    blend(w, i->result[0].reg + 1, high);
}

/* Output modifiers of a float result: ×2, ×4, ÷2, then the clamp to [0, 1] (NaN to 0). */
static const f32 multipliers[4] = {1, 2, 4, 0.5f};
#define CLAMPED(y) ((y) > 0 ? ((y) < 1 ? (y) : 1) : 0)
static __attribute__((noinline)) void finish_f32(const Instruction *i, u32 *x)
{
    for (int l = 0; l < LANES; l++) {
        f32 y = as_f32(x[l]) * multipliers[i->multiply];
        if (i->clamp) y = CLAMPED(y);
        if (i->flush) y = flushed(y);
        x[l] = as_u32(y);
    }
}
static __attribute__((noinline)) void finish_f16(const Instruction *i, u32 *x)
{
    for (int l = 0; l < LANES; l++) {
        f32 y = from_f16((u16)x[l]) * multipliers[i->multiply];
        if (i->clamp) y = CLAMPED(y);
        x[l] = to_f16(y);
    }
}
static __attribute__((noinline)) void finish_f64(const Instruction *i, u64 *x)
{
    for (int l = 0; l < LANES; l++) {
        f64 y = as_f64(x[l]) * multipliers[i->multiply];
        if (i->clamp) y = CLAMPED(y);
        x[l] = as_u64(y);
    }
}
#define FINISH(kind, i, x) do { if ((i)->clamp | (i)->multiply | (i)->flush) finish_##kind(i, x); } while (0)

/* One bit a lane from all-ones-or-zero words; lanes that are off give 0. */
static inline u64 packed_mask(const u32 *x)
{
    u64 mask = 0;
#ifdef __AVX2__
    for (int k = 0; k < 8; k++) {
        typedef float v8 __attribute__((vector_size(32)));
        v8 y;
        memcpy(&y, x + 8 * k, 32);
        mask |= (u64)(u32)__builtin_ia32_movmskps256(y) << 8 * k;
    }
#else
    for (int l = 0; l < LANES; l++) mask |= (u64)(x[l] & 1) << l;
#endif
    return mask;
}

static inline void result_mask(Wave *w, const Instruction *i, int k, const u32 *x)
{
    set_sgpr64(w, i->result[k].reg, packed_mask(x) & exec_of(w));
}
