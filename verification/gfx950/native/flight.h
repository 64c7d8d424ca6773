/* Loads and stores in flight: results that land when they are waited for. */
#pragma once
#include "access.h"

static inline void land(Wave *w, Flight *f)
{
    if (f->kind == TO_SGPR) {
        for (int k = 0; k < f->count; k++) w->s[f->reg + k] = f->data[0][k];
    } else if (f->kind == TO_LDS) {
        u8 *lds = w->group->lds;
        u32 size = w->group->launch->lds_bytes;
        for (u64 rest = f->mask; rest; rest &= rest - 1) {
            int l = __builtin_ctzll(rest);
            u32 at = f->lds + l * f->count * 4;
            if (at > size || f->count * 4u > size - at) continue; /* how Triton parks waves that must not write */
            for (int k = 0; k < f->count; k++) put(w->group->launch, lds + at + 4 * k, &f->data[k][l], 4);
        }
    } else if (f->kind != TO_NOTHING) {
        for (int k = 0; k < f->count; k++) {
            u32 *d = w->v[f->reg + k], *x = f->data[k];
            if (f->kind == TO_VGPR && f->mask == ~0ull) memcpy(d, x, 4 * LANES);
            else
                for (u64 rest = f->mask; rest; rest &= rest - 1) {
                    int l = __builtin_ctzll(rest);
                    d[l] = f->kind == TO_VGPR ? x[l]
                        : f->kind == TO_VGPR_LOW ? (d[l] & 0xFFFF0000u) | (x[l] & 0xFFFF) : (d[l] & 0xFFFF) | x[l] << 16;
                }
        }
    }
}

static inline void land_oldest(Wave *w, Flights *q)
{
    Flight *f = &q->entry[q->first % MOST_VECTOR];
    q->first++, q->count--;
    land(w, f);
    if (!q->count) q->first = 0;
}

static inline Flight *take_off(Wave *w, Flights *q)
{
    if (q->count == MOST_VECTOR - 1) land_oldest(w, q);
    Flight *f = &q->entry[(q->first + q->count++) % MOST_VECTOR];
    f->kind = TO_NOTHING;
    return f;
}

/* In the `early` model a result lands at once. */
static inline void flown(Wave *w, Flights *q)
{
    if (w->group->launch->early)
        while (q->count) land_oldest(w, q);
}

static inline void wait_vector(Wave *w, u32 most)
{
    while (w->vector.count > most) land_oldest(w, &w->vector);
}

/* LDS results come in order; scalar loads in any order, so only a wait for all is sure of them:
   a wait for some lands LDS results first. */
static inline void wait_local(Wave *w, u32 most)
{
    Flights *q = &w->local;
    while (q->count > most) {
        u32 k = 0;
        while (k < q->count && q->entry[(q->first + k) % MOST_VECTOR].kind == TO_SGPR) k++;
        if (k == 0 || k == q->count) {
            land_oldest(w, q);
            continue;
        }
        Flight chosen = q->entry[(q->first + k) % MOST_VECTOR];
        for (; k; k--) q->entry[(q->first + k) % MOST_VECTOR] = q->entry[(q->first + k - 1) % MOST_VECTOR];
        q->first++, q->count--;
        land(w, &chosen);
    }
}
