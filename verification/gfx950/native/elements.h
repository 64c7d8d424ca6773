/* Operands of matrix instructions: from packed registers to doubles, and which k is where. */
#pragma once
#include "operands.h"

/* Numbers of the element types, as matrix.py spells them. */
enum { E_F32, E_F16, E_BF16, E_I8, E_FP8, E_BF8, E_FP4, E_FP6, E_BF6 };
static const u8 element_bits[] = {32, 16, 16, 8, 8, 8, 4, 6, 6};

#define MOST_ITEMS 32
#define WIDEST 128

/* Item j of every lane. The items of lanes r·g to r·g + r - 1 with the same j are a column of A, or a
   row of B: the r numbers that share one k. */
typedef struct { f64 item[MOST_ITEMS][LANES]; } __attribute__((aligned(64))) Items;

INLINE f64 element(u32 code, int type, int flush)
{
    switch (type) {
    case E_F32: return as_f32(flush && !(code & 0x7F800000u) ? code & 0x80000000u : code);
    case E_F16: return from_f16((u16)code);
    case E_BF16: return from_bf16((u16)code);
    case E_I8: return (i8)code;
    case E_FP8: return from_small(code, FP8);
    case E_BF8: return from_small(code, BF8);
    case E_FP4: return from_small(code, FP4);
    case E_FP6: return from_small(code, FP6);
    default: return from_small(code, BF6);
    }
}

INLINE void decode_as(const Wave *w, u32 reg, int count, int type, int flush, Items *x)
{
    u32 bits = element_bits[type];
    for (int j = 0; j < count; j++) {
        u32 at = j * bits, shift = at % 32;
        const u32 *low = w->v[reg + at / 32], *high = w->v[reg + (at + bits - 1) / 32];
        if (low == high) for (int l = 0; l < LANES; l++) x->item[j][l] = element(low[l] >> shift, type, flush);
        else for (int l = 0; l < LANES; l++) x->item[j][l] = element(low[l] >> shift | high[l] << (32 - shift), type, flush);
    }
}

static void decode(const Wave *w, u32 reg, int count, int type, int flush, Items *x)
{
    switch (type) {
    case E_F32: decode_as(w, reg, count, E_F32, flush, x); break;
    case E_F16: decode_as(w, reg, count, E_F16, 0, x); break;
    case E_BF16: decode_as(w, reg, count, E_BF16, 0, x); break;
    case E_I8: decode_as(w, reg, count, E_I8, 0, x); break;
    case E_FP8: decode_as(w, reg, count, E_FP8, 0, x); break;
    case E_BF8: decode_as(w, reg, count, E_BF8, 0, x); break;
    case E_FP4: decode_as(w, reg, count, E_FP4, 0, x); break;
    case E_FP6: decode_as(w, reg, count, E_FP6, 0, x); break;
    default: decode_as(w, reg, count, E_BF6, 0, x);
    }
}

/* Where the numbers of each k begin among the items: at[k] = 64·item + first lane. A lane holds
   consecutive k; a split operand holds half of them in each half of K. */
static void find_rows(u16 *at, int rows, int blocks, int size, int split)
{
    int groups = LANES / (rows * blocks), halves = split ? 2 : 1, each = size / groups / halves;
    for (int half = 0; half < halves; half++)
        for (int g = 0; g < groups; g++)
            for (int j = 0; j < each; j++) *at++ = (u16)(LANES * (half * each + j) + g * rows * blocks);
}

/* Every item taken from another lane. */
static void permute_items(Items *x, int count, const u8 *from)
{
    for (int j = 0; j < count; j++) {
        f64 old[LANES];
        memcpy(old, x->item[j], sizeof old);
        for (int l = 0; l < LANES; l++) x->item[j][l] = old[from[l]];
    }
}

/* cbsz and abid: one group of lanes of A stands for all. blgp: what lanes of B stand for others. */
static void broadcast_a(Items *a, int count, u32 cbsz, u32 abid)
{
    u8 from[LANES];
    for (u32 l = 0, most = LANES >> cbsz; l < LANES; l++) from[l] = (u8)(l % most + most * abid);
    permute_items(a, count, from);
}
static void broadcast_b(Items *b, int count, u32 blgp)
{
    u8 from[LANES];
    for (u32 l = 0; l < LANES; l++)
        from[l] = (u8)(blgp == 3 ? (l + 16) % 64 : blgp < 3 ? l % 32 + 32 * (blgp - 1) : l % 16 + 16 * (blgp - 4));
    permute_items(b, count, from);
}

/* One E8M0 byte for 32 consecutive k: lane rows·b + r of the scales is for block b of row r. */
static void apply_scales(Items *x, const u32 *scales, u32 byte, int rows, int size, int split)
{
    f64 scale[LANES];
    for (int l = 0; l < LANES; l++) scale[l] = e8m0(scales[l] >> 8 * byte & 255);
    int halves = split ? 2 : 1, each = MOST_ITEMS / halves;
    for (int half = 0; half < halves; half++) {
        f64 own[LANES];
        for (int l = 0; l < LANES; l++) own[l] = scale[(l / rows * each / 32 + half * size / 64) * rows + l % rows];
        for (int j = half * each; j < (half + 1) * each; j++)
            for (int l = 0; l < LANES; l++) x->item[j][l] *= own[l];
    }
}
