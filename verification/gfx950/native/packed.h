/* Sources of packed and mixed-precision instructions. */
#pragma once
#include "operands.h"

/* One half of source k: op_sel says which for the low result, op_sel_hi for the high one. */
static inline void packed_half(Wave *w, const Instruction *i, int k, int half, u32 *out, u32 sign)
{
    u32 buffer[LANES];
    const u32 *x = source32(w, i, k, buffer, 0);
    u32 shift = (half ? i->op_sel_hi : i->op_sel) >> k & 1 ? 16 : 0;
    u32 flip = (half ? i->packed_neg_hi : i->packed_neg_lo) >> k & 1 ? sign : 0;
    for (int l = 0; l < LANES; l++) out[l] = (x[l] >> shift & 0xFFFF) ^ flip;
}

/* One of two fp32: a constant, and the low half of a scalar pair, are the same for both. */
static inline void packed_single(Wave *w, const Instruction *i, int k, int half, u32 *out, u32 sign)
{
    const Operand *o = &i->source[k];
    u32 high = (half ? i->op_sel_hi : i->op_sel) >> k & 1;
    u32 flip = (half ? i->packed_neg_hi : i->packed_neg_lo) >> k & 1 ? sign : 0;
    for (int l = 0; l < LANES; l++)
        out[l] = (o->where == IN_VGPR ? w->v[o->reg + high][l]
                  : o->where == IN_SGPR ? w->s[o->reg + high] : (u32)o->value) ^ flip;
}

/* op_sel_hi: the source is a half, which op_sel chooses; else a whole fp32. */
static inline void mixed_sources(Wave *w, const Instruction *i, f32 (*out)[LANES])
{
    for (int k = 0; k < 3; k++) {
        const Operand *o = &i->source[k];
        Operand plain = *o;
        Instruction copy = *i;
        u32 buffer[LANES];
        plain.modifiers = 0;
        copy.source[k] = plain;
        const u32 *x = source32(w, &copy, k, buffer, 0);
        for (int l = 0; l < LANES; l++) {
            f32 y = i->op_sel_hi >> k & 1 ? from_f16((u16)(x[l] >> (i->op_sel >> k & 1 ? 16 : 0))) : as_f32(x[l]);
            if (o->modifiers & ABS) y = fabsf(y);
            out[k][l] = o->modifiers & NEG ? -y : y;
        }
    }
}
static inline void fma_mix(Wave *w, const Instruction *i, int half)
{
    f32 x[3][LANES];
    u32 d[LANES], old[LANES];
    mixed_sources(w, i, x);
    memcpy(old, w->v[i->result[0].reg], sizeof old);
    for (int l = 0; l < LANES; l++) d[l] = as_u32(fmaf(x[0][l], x[1][l], x[2][l]));
    if (half < 0) FINISH(f32, i, d);
    else
        for (int l = 0; l < LANES; l++) {
            f32 y = as_f32(d[l]);
            if (i->clamp) y = CLAMPED(y);
            d[l] = half ? (old[l] & 0xFFFF) | (u32)to_f16(y) << 16 : (old[l] & 0xFFFF0000u) | to_f16(y);
        }
    blend(w, i->result[0].reg, d);
}
static void fma_mixed(Wave *w, const Instruction *i) { fma_mix(w, i, -1); }
static void fma_mixed_low(Wave *w, const Instruction *i) { fma_mix(w, i, 0); }
static void fma_mixed_high(Wave *w, const Instruction *i) { fma_mix(w, i, 1); }
