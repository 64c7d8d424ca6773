/* LDS: checked accesses, transposing reads, and exchanges between lanes through its hardware. */
#pragma once
#include "memory.h"

static inline int all_in_lds(Wave *w, u64 lanes, const u32 *address, u32 bytes, u32 store)
{
    u32 size = w->group->launch->lds_bytes, highest = 0;
    for (int l = 0; l < LANES; l++) {
        u32 x = lanes >> l & 1 ? address[l] : 0;
        highest = x > highest ? x : highest;
    }
    if (bytes <= size && highest <= size - bytes) return 1;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        if (address[l] > size || bytes > size - address[l]) {
            fault(w, BAD_LDS, l, address[l], bytes, store);
            return 0;
        }
    }
    return 1;
}

/* sources: 0 address, 3 first data, 4 second data. extra: 0 bytes, 1 sign, 2 half,
   4 and 5 offsets of the two-element forms (bytes), 6 elements (1 or 2). */
static inline const u32 *lds_addresses(Wave *w, const Instruction *i, u32 *out, u32 offset)
{
    u32 buffer[LANES];
    const u32 *base = source32(w, i, 0, buffer, 0);
    for (int l = 0; l < LANES; l++) out[l] = base[l] + offset;
    return out;
}

/* The addresses of each element in the machine's memory; 0 where one is outside LDS. */
static inline int lds_elements(Wave *w, const Instruction *i, u64 lanes, u32 store, u64 (*address)[LANES])
{
    for (int e = 0; e < i->extra[6]; e++) {
        u32 at[LANES];
        lds_addresses(w, i, at, i->extra[4 + e]);
        if (!all_in_lds(w, lanes, at, i->extra[0], store)) return 0;
        for (int l = 0; l < LANES; l++) address[e][l] = (u64)w->group->lds + at[l];
    }
    return 1;
}

static void load_lds(Wave *w, const Instruction *i)
{
    u64 address[2][LANES], lanes = exec_of(w);
    int words = i->extra[0] < 4 ? 1 : i->extra[0] / 4;
    if (!lds_elements(w, i, lanes, 0, address)) return;
    Flight *f = loading(w, i, &w->local, lanes);
    f->count = words * i->extra[6];
    for (int e = 0; e < i->extra[6]; e++) copy_in(f->data + e * words, lanes, address[e], i->extra[0], i->extra[1]);
    flown(w, &w->local);
}

static void store_lds(Wave *w, const Instruction *i)
{
    u64 address[2][LANES], lanes = exec_of(w);
    if (!lds_elements(w, i, lanes, 1, address)) return;
    for (int e = 0; e < i->extra[6]; e++)
        copy_out(w->group->launch, w->v + i->source[3 + e].reg, lanes, address[e], i->extra[0], i->extra[2] == 2 ? 16 : 0);
    take_off(w, &w->local);
    flown(w, &w->local);
}

/* Transposing reads: the n elements that each of 16 lanes points at are, lane after lane, n rows of 16;
   lane l gets column l. Elements have 16, 8, 6 or 4 bits. extra 1: bits. */
INLINE void transpose_row(u32 (*data)[LANES], int row, u64 lanes, const u64 *address, int bits, int bytes)
{
    int n = bytes * 8 / bits;
    u8 packed[16 * 12 + 2] = {0};
    u32 out[4][16] = {{0}};
    for (int l = 0; l < 16; l++)
        if (lanes >> (row + l) & 1) memcpy(packed + l * bytes, (const void *)address[row + l], bytes);
    for (int k = 0; k < n; k++)
        for (int l = 0; l < 16; l++) {
            int at = (k * 16 + l) * bits;
            u16 two;
            memcpy(&two, packed + at / 8, 2);
            u32 x = two >> at % 8 & ((1u << bits) - 1), to = k * bits;
            out[to / 32][l] |= x << to % 32;
            if (to % 32 + bits > 32) out[to / 32 + 1][l] |= x >> (32 - to % 32);
        }
    for (int k = 0; k < bytes / 4; k++) memcpy(data[k] + row, out[k], sizeof out[k]);
}

static void load_lds_transposed(Wave *w, const Instruction *i)
{
    u32 at[LANES];
    u64 lanes = exec_of(w), address[LANES];
    lds_addresses(w, i, at, i->extra[4]);
    if (!all_in_lds(w, lanes, at, i->extra[0], 0)) return;
    for (int l = 0; l < LANES; l++) address[l] = (u64)w->group->lds + at[l];
    Flight *f = loading(w, i, &w->local, lanes);
    f->count = i->extra[0] / 4;
    for (int row = 0; row < LANES; row += 16)
        switch (i->extra[1]) {
        case 16: transpose_row(f->data, row, lanes, address, 16, 8); break;
        case 8: transpose_row(f->data, row, lanes, address, 8, 8); break;
        case 6: transpose_row(f->data, row, lanes, address, 6, 12); break;
        case 4: transpose_row(f->data, row, lanes, address, 4, 8);
        }
    flown(w, &w->local);
}

/* ds_bpermute, ds_permute and ds_swizzle go through the LDS hardware, not its memory:
   each lane takes what another holds; 0 where that one is off, or is none. */
static inline void take_lanes(Wave *w, const Instruction *i, int k, const i8 *from)
{
    u64 lanes = exec_of(w);
    Flight *f = loading(w, i, &w->local, lanes);
    const u32 *x = w->v[i->source[k].reg];
    for (int l = 0; l < LANES; l++) f->data[0][l] = from[l] >= 0 && (lanes >> from[l] & 1) ? x[from[l]] : 0;
    flown(w, &w->local);
}

/* The lanes that addresses name, four bytes a lane. */
static inline void addressed_lanes(Wave *w, const Instruction *i, i8 *out)
{
    u32 at[LANES];
    lds_addresses(w, i, at, i->extra[4]);
    for (int l = 0; l < LANES; l++) out[l] = at[l] / 4 & 63;
}

static void lanes_pull(Wave *w, const Instruction *i)
{
    i8 from[LANES];
    addressed_lanes(w, i, from);
    take_lanes(w, i, 3, from);
}
static void lanes_push(Wave *w, const Instruction *i)
{
    i8 to[LANES], from[LANES];
    u64 lanes = exec_of(w);
    addressed_lanes(w, i, to);
    memset(from, -1, sizeof from);
    for (int l = 0; l < LANES; l++)
        if (lanes >> l & 1) from[to[l]] = l;
    take_lanes(w, i, 3, from);
}
static void lanes_swizzle(Wave *w, const Instruction *i) { take_lanes(w, i, 0, lanes_of(w, i)); }
