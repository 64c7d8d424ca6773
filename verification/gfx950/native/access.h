/* Memory as a wave reaches it: what it may touch, and copies lane by lane. */
#pragma once
#include "operands.h"

static inline int within(const Range *r, u64 address, u32 bytes)
{
    return address >= r->start && address < r->end && bytes <= r->end - address;
}

static inline int allowed(Launch *m, u64 address, u32 bytes, u32 store)
{
    const Range *r = m->ranges + m->last_range;
    if (m->range_count && within(r, address, bytes)) return !store || r->writable;
    u64 low = 0, high = m->range_count;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (m->ranges[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    if (low == m->range_count) return 0;
    r = m->ranges + low;
    if (!within(r, address, bytes)) return 0;
    m->last_range = low;
    return !store || r->writable;
}

/* Every active lane's address is looked at before anything is read or written, so that an access
   that Python may still allow (a tensor reached through a table of pointers) can be taken again.
   Where the lowest and the highest address lie in one range, so do the others. */
static inline int all_allowed(Wave *w, u64 lanes, const u64 *address, u32 bytes, u32 store)
{
    Launch *m = w->group->launch;
    if (!lanes) return 1;
    u64 first = address[__builtin_ctzll(lanes)], low = first, high = first;
    for (int l = 0; l < LANES; l++) {
        u64 x = lanes >> l & 1 ? address[l] : first;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    if (allowed(m, low, bytes, store) && within(m->ranges + m->last_range, high, bytes)) return 1;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        if (!allowed(m, address[l], bytes, store)) {
            fault(w, BAD_GLOBAL, l, address[l], bytes, store);
            return 0;
        }
    }
    return 1;
}

/* ── copies, lane by lane ──────────────────────────────────────────────── */
#define EACH_LANE(l, lanes, body) \
    do { \
        if ((lanes) == ~0ull) for (int l = 0; l < LANES; l++) body \
        else for (u64 rest_ = (lanes); rest_; rest_ &= rest_ - 1) { int l = __builtin_ctzll(rest_); body } \
    } while (0)

static inline u32 small_value(const void *from, int bytes, int sign)
{
    u32 x = 0;
    memcpy(&x, from, bytes);
    if (sign) x = bytes == 1 ? (u32)(i32)(i8)x : bytes == 2 ? (u32)(i32)(i16)x : x;
    return x;
}

INLINE void copy_words_in(u32 (*data)[LANES], u64 lanes, const u64 *address, int words)
{
    EACH_LANE(l, lanes, {
        u32 x[4];
        memcpy(x, (const void *)address[l], 4 * words);
        for (int k = 0; k < words; k++) data[k][l] = x[k];
    });
}

static void copy_in(u32 (*data)[LANES], u64 lanes, const u64 *address, int bytes, int sign)
{
    switch (bytes) {
    case 1: EACH_LANE(l, lanes, { data[0][l] = small_value((const void *)address[l], 1, sign); }); break;
    case 2: EACH_LANE(l, lanes, { data[0][l] = small_value((const void *)address[l], 2, sign); }); break;
    case 4: copy_words_in(data, lanes, address, 1); break;
    case 8: copy_words_in(data, lanes, address, 2); break;
    case 12: copy_words_in(data, lanes, address, 3); break;
    case 16: copy_words_in(data, lanes, address, 4);
    }
}

/* Writes count only where they change something: what tells a spin from progress. */
INLINE void put(Launch *m, void *to, const void *x, int bytes)
{
    if (memcmp(to, x, bytes)) {
        memcpy(to, x, bytes);
        m->writes++;
    }
}

/* In ascending order of the lanes: the last one that writes to an address wins. */
INLINE void copy_out_as(Launch *m, u32 (*data)[LANES], u64 lanes, const u64 *address, int bytes, int shift)
{
    EACH_LANE(l, lanes, {
        u32 x[4];
        x[0] = data[0][l] >> shift;
        for (int k = 1; k < bytes / 4; k++) x[k] = data[k][l];
        put(m, (void *)address[l], x, bytes);
    });
}

static void copy_out(Launch *m, u32 (*data)[LANES], u64 lanes, const u64 *address, int bytes, int shift)
{
    switch (bytes) {
    case 1: copy_out_as(m, data, lanes, address, 1, shift); break;
    case 2: copy_out_as(m, data, lanes, address, 2, shift); break;
    case 4: copy_out_as(m, data, lanes, address, 4, shift); break;
    case 8: copy_out_as(m, data, lanes, address, 8, shift); break;
    case 12: copy_out_as(m, data, lanes, address, 12, shift); break;
    case 16: copy_out_as(m, data, lanes, address, 16, shift);
    }
}
