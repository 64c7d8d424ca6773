/* Instructions that move data between lanes, or between lanes and scalars. */
#pragma once
#include "operands.h"

static inline u32 first_lane(const Wave *w) { u64 exec = exec_of(w); return exec ? __builtin_ctzll(exec) : 0; }

static void read_first_lane(Wave *w, const Instruction *i)
{
    const Operand *o = &i->source[0];
    w->s[i->result[0].reg] = o->where == IN_VGPR ? w->v[o->reg][first_lane(w)] : scalar32(w, o);
}
static void read_lane(Wave *w, const Instruction *i)
{
    const Operand *o = &i->source[0];
    u32 lane = scalar32(w, &i->source[1]) & 63;
    w->s[i->result[0].reg] = o->where == IN_VGPR ? w->v[o->reg][lane] : scalar32(w, o);
}
static void write_lane(Wave *w, const Instruction *i)
{
    w->v[i->result[0].reg][scalar32(w, &i->source[1]) & 63] = scalar32(w, &i->source[0]);
}
/* The upper half of the first register changes place with the lower half of the second, and for 16
   lanes the odd rows of the first with the even rows of the second. */
static inline void swap_lanes(Wave *w, const Instruction *i, int width)
{
    u32 *a = w->v[i->result[0].reg], *b = w->v[i->source[0].reg];
    for (int l = 0; l < LANES; l++)
        if (l & width) {
            u32 t = a[l];
            a[l] = b[l - width];
            b[l - width] = t;
        }
}
static void swap_halves(Wave *w, const Instruction *i) { swap_lanes(w, i, 32); }
static void swap_rows(Wave *w, const Instruction *i) { swap_lanes(w, i, 16); }
static void swap_registers(Wave *w, const Instruction *i)
{
    u32 a[LANES], b[LANES];
    memcpy(a, w->v[i->result[0].reg], sizeof a);
    memcpy(b, w->v[i->source[0].reg], sizeof b);
    blend(w, i->result[0].reg, b);
    blend(w, i->source[0].reg, a);
}
