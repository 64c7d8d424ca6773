/* Global memory and scratch: checked accesses, and results that land when they are waited for. */
#pragma once
#include "operands.h"

/* ── what is allowed ───────────────────────────────────────────────────── */
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

/* ── in flight ─────────────────────────────────────────────────────────── */
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

/* ── addresses ─────────────────────────────────────────────────────────── */
/* source 0: 64-bit VGPRs, or a 32-bit offset where source 1 is an SGPR base. */
static inline void global_addresses(Wave *w, const Instruction *i, u64 *address)
{
    const Operand *base = &i->source[1];
    if (base->where == NOTHING) {
        source64(w, i, 0, address, 0);
        for (int l = 0; l < LANES; l++) address[l] += i->immediate;
        return;
    }
    u32 buffer[LANES];
    const u32 *offset = source32(w, i, 0, buffer, 0);
    u64 start = sgpr64(w, base->reg) + i->immediate;
    for (int l = 0; l < LANES; l++) address[l] = start + offset[l];
}

/* sources: 0 vector offset, 1 resource (4 SGPRs), 2 scalar offset. The lanes in range, component by
   component; hardware reads 0 and drops stores elsewhere. */
typedef struct { u64 address[LANES]; u64 offset[LANES]; u64 records; } Buffer;
static inline int buffer_addresses(Wave *w, const Instruction *i, Buffer *b)
{
    const u32 *resource = w->s + i->source[1].reg;
    if (resource[1] >> 31) { /* swizzled: not met in compiled kernels, so not guessed */
        fault(w, UNSUPPORTED, 0, 0, 0, 0);
        return 0;
    }
    u64 base = resource[0] | (u64)(resource[1] & 0xFFFF) << 32;
    u32 scalar = scalar32(w, &i->source[2]), buffer[LANES];
    b->records = resource[2];
    const u32 *vector = source32(w, i, 0, buffer, 0);
    for (int l = 0; l < LANES; l++) {
        b->offset[l] = (u64)(u32)(vector[l] + (u32)i->immediate) + scalar;
        b->address[l] = base + b->offset[l];
    }
    return 1;
}
static inline u64 in_buffer(const Buffer *b, u64 lanes, u32 at, u32 bytes)
{
    u32 inside[LANES];
    for (int l = 0; l < LANES; l++) inside[l] = b->offset[l] + at + bytes <= b->records ? 0xFFFFFFFFu : 0;
    return packed_mask(inside) & lanes;
}

/* ── loads and stores ──────────────────────────────────────────────────── */
/* extra: 0 bytes, 1 sign, 2 half of the register (0 whole, 1 low, 2 high), 3 to LDS. */
static inline Flight *loading(Wave *w, const Instruction *i, Flights *q, u64 lanes)
{
    int bytes = i->extra[0];
    Flight *f = take_off(w, q);
    f->count = bytes > 4 ? bytes / 4 : 1;
    f->mask = lanes;
    f->reg = i->result[0].reg;
    f->kind = i->extra[3] ? TO_LDS : i->extra[2] == 1 ? TO_VGPR_LOW : i->extra[2] == 2 ? TO_VGPR_HIGH : TO_VGPR;
    if (i->extra[3]) f->lds = w->s[M0] + (u32)i->immediate;
    return f;
}

static void load_global(Wave *w, const Instruction *i)
{
    u64 address[LANES], lanes = exec_of(w);
    global_addresses(w, i, address);
    if (!all_allowed(w, lanes, address, i->extra[0], 0)) return;
    copy_in(loading(w, i, &w->vector, lanes)->data, lanes, address, i->extra[0], i->extra[1]);
    flown(w, &w->vector);
}

/* The data's registers follow the address: source 3. extra: 0 bytes, 2 high half. */
static void store_global(Wave *w, const Instruction *i)
{
    u64 address[LANES], lanes = exec_of(w);
    global_addresses(w, i, address);
    if (!all_allowed(w, lanes, address, i->extra[0], 1)) return;
    copy_out(w->group->launch, w->v + i->source[3].reg, lanes, address, i->extra[0], i->extra[2] == 2 ? 16 : 0);
    take_off(w, &w->vector);
    flown(w, &w->vector);
}

/* Each dword is in range or not by itself: runs of dwords that the same lanes may reach are one access. */
typedef struct { int count, first[4], bytes[4]; u64 lanes[4]; } Parts;
static inline int buffer_parts(Wave *w, const Instruction *i, const Buffer *b, u64 lanes, u32 store, Parts *parts)
{
    int bytes = i->extra[0], step = bytes < 4 ? bytes : 4;
    parts->count = 0;
    for (int at = 0; at < bytes; at += step) {
        u64 inside = in_buffer(b, lanes, at, step);
        int last = parts->count - 1;
        if (last >= 0 && parts->lanes[last] == inside) parts->bytes[last] += step;
        else parts->first[parts->count] = at, parts->bytes[parts->count] = step, parts->lanes[parts->count++] = inside;
    }
    for (int n = 0; n < parts->count; n++) {
        u64 address[LANES];
        for (int l = 0; l < LANES; l++) address[l] = b->address[l] + parts->first[n];
        if (!all_allowed(w, parts->lanes[n], address, parts->bytes[n], store)) return 0;
    }
    return 1;
}

static void load_buffer(Wave *w, const Instruction *i)
{
    Buffer b;
    Parts parts;
    u64 lanes = exec_of(w);
    if (!buffer_addresses(w, i, &b) || !buffer_parts(w, i, &b, lanes, 0, &parts)) return;
    Flight *f = loading(w, i, &w->vector, lanes);
    for (int n = 0; n < parts.count; n++) {
        u64 address[LANES];
        for (int l = 0; l < LANES; l++) address[l] = b.address[l] + parts.first[n];
        u32 (*data)[LANES] = f->data + parts.first[n] / 4;
        if (parts.lanes[n] != lanes) memset(data, 0, (parts.bytes[n] + 3) / 4 * sizeof *data);
        copy_in(data, parts.lanes[n], address, parts.bytes[n], i->extra[1]);
    }
    flown(w, &w->vector);
}

static void store_buffer(Wave *w, const Instruction *i)
{
    Buffer b;
    Parts parts;
    if (!buffer_addresses(w, i, &b) || !buffer_parts(w, i, &b, exec_of(w), 1, &parts)) return;
    for (int n = 0; n < parts.count; n++) {
        u64 address[LANES];
        for (int l = 0; l < LANES; l++) address[l] = b.address[l] + parts.first[n];
        copy_out(w->group->launch, w->v + i->source[3].reg + parts.first[n] / 4, parts.lanes[n], address,
                 parts.bytes[n], i->extra[2] == 2 ? 16 : 0);
    }
    take_off(w, &w->vector);
    flown(w, &w->vector);
}

/* ── scratch: each lane has its own bytes ──────────────────────────────── */
static inline int scratch_addresses(Wave *w, const Instruction *i, u64 *address)
{
    u32 buffer[LANES], offset[LANES], size = w->group->launch->scratch_bytes, bytes = i->extra[0];
    const Operand *vector = &i->source[0], *base = &i->source[1];
    u32 start = (base->where == NOTHING ? 0 : scalar32(w, base)) + (u32)i->immediate;
    const u32 *x = vector->where == NOTHING ? 0 : source32(w, i, 0, buffer, 0);
    for (int l = 0; l < LANES; l++) {
        offset[l] = start + (x ? x[l] : 0);
        address[l] = (u64)w->scratch + (u64)l * size + offset[l];
    }
    for (u64 rest = exec_of(w); rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        if (offset[l] > size || bytes > size - offset[l]) {
            fault(w, BAD_SCRATCH, l, offset[l], bytes, 0);
            return 0;
        }
    }
    return 1;
}
static void load_scratch(Wave *w, const Instruction *i)
{
    u64 address[LANES], lanes = exec_of(w);
    if (!scratch_addresses(w, i, address)) return;
    copy_in(loading(w, i, &w->vector, lanes)->data, lanes, address, i->extra[0], i->extra[1]);
    flown(w, &w->vector);
}
static void store_scratch(Wave *w, const Instruction *i)
{
    u64 address[LANES];
    if (!scratch_addresses(w, i, address)) return;
    copy_out(w->group->launch, w->v + i->source[3].reg, exec_of(w), address, i->extra[0], i->extra[2] == 2 ? 16 : 0);
    take_off(w, &w->vector);
    flown(w, &w->vector);
}

/* ── scalar memory ─────────────────────────────────────────────────────── */
/* sources: 0 base (2 SGPRs), 1 offset (SGPR or constant); extra 0: dwords. */
static void load_scalar(Wave *w, const Instruction *i)
{
    u64 address = (sgpr64(w, i->source[0].reg) + scalar32(w, &i->source[1]) + i->immediate) & ~3ull;
    u32 bytes = 4 * i->extra[0];
    if (!allowed(w->group->launch, address, bytes, 0)) {
        fault(w, BAD_GLOBAL, 0, address, bytes, 0);
        return;
    }
    Flight *f = take_off(w, &w->local);
    f->kind = TO_SGPR;
    f->count = i->extra[0];
    f->reg = i->result[0].reg;
    memcpy(f->data[0], (const void *)address, bytes);
    flown(w, &w->local);
}
