/* Atomics on global memory, buffers and LDS, lane by lane in a seeded order. */
#pragma once
#include "lds.h"

typedef u64 (*Update)(u64 old, u64 x, u64 compare);

/* Any order of the lanes is legal; seed 0 takes them ascending. */
static inline void lane_order(Launch *m, u8 *order)
{
    for (int l = 0; l < LANES; l++) order[l] = (u8)l;
    if (!m->seed) return;
    for (int l = LANES - 1; l > 0; l--) {
        int k = (int)(draw(m) % (u64)(l + 1));
        u8 t = order[l];
        order[l] = order[k], order[k] = t;
    }
}

static inline u64 wide(Wave *w, u32 reg, int l, int bytes)
{
    return w->v[reg][l] | (bytes == 8 ? (u64)w->v[reg + 1][l] << 32 : 0);
}

/* source 3: data (a compare-and-swap: new value, then what it is compared with). extra 0: bytes,
   7: a compare-and-swap. */
static inline void update_lanes(
    Wave *w, const Instruction *i, Flights *q, u64 lanes, u64 on, u8 *const *at, Update update, u32 data, u32 compare)
{
    Launch *m = w->group->launch;
    u8 order[LANES];
    int bytes = i->extra[0];
    Flight *f = take_off(w, q);
    if (i->returns) f->kind = TO_VGPR, f->count = bytes / 4, f->mask = lanes, f->reg = i->result[0].reg;
    lane_order(m, order);
    for (int n = 0; n < LANES; n++) {
        int l = order[n];
        u64 old = 0;
        if (on >> l & 1) {
            memcpy(&old, at[l], bytes);
            u64 x = update(old, wide(w, data, l, bytes), i->extra[7] ? wide(w, compare, l, bytes) : 0);
            put(m, at[l], &x, bytes);
        }
        if (i->returns)
            for (int k = 0; k < bytes / 4; k++) f->data[k][l] = (u32)(old >> 32 * k);
    }
    flown(w, q);
}

static inline void atomic_global(Wave *w, const Instruction *i, Update update)
{
    u64 address[LANES], lanes = exec_of(w);
    u8 *at[LANES];
    global_addresses(w, i, address);
    if (!all_allowed(w, lanes, address, i->extra[0], 1)) return;
    for (int l = 0; l < LANES; l++) at[l] = (u8 *)address[l];
    u32 data = i->source[3].reg;
    update_lanes(w, i, &w->vector, lanes, lanes, at, update, data, data + i->extra[0] / 4);
}

static inline void atomic_buffer(Wave *w, const Instruction *i, Update update)
{
    Buffer b;
    u8 *at[LANES];
    if (!buffer_addresses(w, i, &b)) return;
    u64 lanes = exec_of(w), inside = in_buffer(&b, lanes, 0, i->extra[0]);
    if (!all_allowed(w, inside, b.address, i->extra[0], 1)) return;
    for (int l = 0; l < LANES; l++) at[l] = (u8 *)b.address[l];
    u32 data = i->source[3].reg;
    update_lanes(w, i, &w->vector, lanes, inside, at, update, data, data + i->extra[0] / 4);
}

/* A compare-and-swap in LDS: source 3 is compared, source 4 is the new value. */
static inline void atomic_lds(Wave *w, const Instruction *i, Update update)
{
    u32 offset[LANES];
    u8 *at[LANES];
    u64 lanes = exec_of(w);
    lds_addresses(w, i, offset, i->extra[4]);
    if (!all_in_lds(w, lanes, offset, i->extra[0], 1)) return;
    for (int l = 0; l < LANES; l++) at[l] = w->group->lds + offset[l];
    u32 first = i->source[3].reg, second = i->source[4].reg;
    update_lanes(w, i, &w->local, lanes, lanes, at, update, i->extra[7] ? second : first, first);
}

static inline u64 two_f32(u64 old, u64 x) { return as_u32(as_f32((u32)old) + as_f32((u32)x)); }
static inline u64 two_bf16(u64 old, u64 x)
{
    u32 low = to_bf16(from_bf16((u16)old) + from_bf16((u16)x));
    u32 high = to_bf16(from_bf16((u16)(old >> 16)) + from_bf16((u16)(x >> 16)));
    return low | high << 16;
}
static inline u64 two_f16(u64 old, u64 x)
{
    u32 low = to_f16(from_f16((u16)old) + from_f16((u16)x));
    u32 high = to_f16(from_f16((u16)(old >> 16)) + from_f16((u16)(x >> 16)));
    return low | high << 16;
}
