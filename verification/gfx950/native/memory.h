/* Global memory, LDS and scratch: checked accesses, and results that land when they are waited for. */
#pragma once
#include "operands.h"

/* ── what is allowed ───────────────────────────────────────────────────── */
static inline int allowed(Launch *m, u64 address, u32 bytes, u32 store)
{
    const Range *r = m->ranges + m->last_range;
    if (m->range_count && address >= r->start && address + bytes <= r->end) return !store || r->writable;
    u64 low = 0, high = m->range_count;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (m->ranges[middle].end <= address) low = middle + 1;
        else high = middle;
    }
    if (low == m->range_count) return 0;
    r = m->ranges + low;
    if (address < r->start || address + bytes > r->end) return 0;
    m->last_range = low;
    return !store || r->writable;
}

/* Every active lane's address is looked at before anything is read or written, so that an access
   that Python may still allow (a tensor reached through a table of pointers) can be taken again. */
static inline int all_allowed(Wave *w, u64 lanes, const u64 *address, u32 bytes, u32 store)
{
    Launch *m = w->group->launch;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        if (!allowed(m, address[l], bytes, store)) {
            fault(w, BAD_GLOBAL, l, address[l], bytes, store);
            return 0;
        }
    }
    return 1;
}

static inline int all_in_lds(Wave *w, u64 lanes, const u32 *address, u32 bytes, u32 store)
{
    u32 size = w->group->launch->lds_bytes;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        if (address[l] > size || bytes > size - address[l]) {
            fault(w, BAD_LDS, l, address[l], bytes, store);
            return 0;
        }
    }
    return 1;
}

/* Writes count only where they change something: what tells a spin from progress. */
static inline void put(Launch *m, u8 *to, const void *x, int bytes)
{
    if (memcmp(to, x, bytes)) {
        memcpy(to, x, bytes);
        m->writes++;
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
    u64 inside = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        if (b->offset[l] + at + bytes <= b->records) inside |= 1ull << l;
    }
    return inside;
}

/* ── loads ─────────────────────────────────────────────────────────────── */
/* extra: 0 bytes, 1 sign, 2 half of the register (0 whole, 1 low, 2 high), 3 to LDS. */
static inline u32 small_value(const void *from, int bytes, int sign)
{
    u32 x = 0;
    memcpy(&x, from, bytes);
    if (sign) x = bytes == 1 ? (u32)(i32)(i8)x : bytes == 2 ? (u32)(i32)(i16)x : x;
    return x;
}

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
    int bytes = i->extra[0];
    global_addresses(w, i, address);
    if (!all_allowed(w, lanes, address, bytes, 0)) return;
    Flight *f = loading(w, i, &w->vector, lanes);
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        const u8 *from = (const u8 *)address[l];
        if (bytes < 4) f->data[0][l] = small_value(from, bytes, i->extra[1]);
        else for (int k = 0; k < bytes / 4; k++) memcpy(&f->data[k][l], from + 4 * k, 4);
    }
    flown(w, &w->vector);
}

static void load_buffer(Wave *w, const Instruction *i)
{
    Buffer b;
    u64 lanes = exec_of(w);
    int bytes = i->extra[0], step = bytes < 4 ? bytes : 4, count = bytes < 4 ? 1 : bytes / 4;
    if (!buffer_addresses(w, i, &b)) return;
    u64 inside[4], address[LANES];
    for (int k = 0; k < count; k++) {
        inside[k] = in_buffer(&b, lanes, 4 * k, step);
        for (int l = 0; l < LANES; l++) address[l] = b.address[l] + 4 * k;
        if (!all_allowed(w, inside[k], address, step, 0)) return;
    }
    Flight *f = loading(w, i, &w->vector, lanes);
    for (int k = 0; k < count; k++)
        for (u64 rest = lanes; rest; rest &= rest - 1) {
            int l = __builtin_ctzll(rest);
            f->data[k][l] = inside[k] >> l & 1 ? small_value((const u8 *)b.address[l] + 4 * k, step, i->extra[1]) : 0;
        }
    flown(w, &w->vector);
}

/* ── stores ────────────────────────────────────────────────────────────── */
/* The data's registers follow the address: source 3. extra: 0 bytes, 2 high half. */
static inline void store_lane(Wave *w, const Instruction *i, int l, u8 *to, int k)
{
    const Operand *data = &i->source[3];
    u32 x = w->v[data->reg + k][l];
    if (i->extra[2] == 2) x >>= 16;
    put(w->group->launch, to + 4 * k, &x, i->extra[0] < 4 ? i->extra[0] : 4);
}

static void store_global(Wave *w, const Instruction *i)
{
    u64 address[LANES], lanes = exec_of(w);
    int bytes = i->extra[0], count = bytes < 4 ? 1 : bytes / 4;
    global_addresses(w, i, address);
    if (!all_allowed(w, lanes, address, bytes, 1)) return;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        for (int k = 0; k < count; k++) store_lane(w, i, l, (u8 *)address[l], k);
    }
    take_off(w, &w->vector);
    flown(w, &w->vector);
}

static void store_buffer(Wave *w, const Instruction *i)
{
    Buffer b;
    u64 lanes = exec_of(w), inside[4], address[LANES];
    int bytes = i->extra[0], step = bytes < 4 ? bytes : 4, count = bytes < 4 ? 1 : bytes / 4;
    if (!buffer_addresses(w, i, &b)) return;
    for (int k = 0; k < count; k++) {
        inside[k] = in_buffer(&b, lanes, 4 * k, step);
        for (int l = 0; l < LANES; l++) address[l] = b.address[l] + 4 * k;
        if (!all_allowed(w, inside[k], address, step, 1)) return;
    }
    for (int k = 0; k < count; k++)
        for (u64 rest = inside[k]; rest; rest &= rest - 1) {
            int l = __builtin_ctzll(rest);
            store_lane(w, i, l, (u8 *)b.address[l], k);
        }
    take_off(w, &w->vector);
    flown(w, &w->vector);
}

/* ── scratch: each lane has its own bytes ──────────────────────────────── */
static inline int scratch_addresses(Wave *w, const Instruction *i, u32 *address)
{
    u32 buffer[LANES], size = w->group->launch->scratch_bytes, bytes = i->extra[0];
    const Operand *vector = &i->source[0], *base = &i->source[1];
    u32 start = (base->where == NOTHING ? 0 : scalar32(w, base)) + (u32)i->immediate;
    if (vector->where == NOTHING) for (int l = 0; l < LANES; l++) address[l] = start;
    else {
        const u32 *offset = source32(w, i, 0, buffer, 0);
        for (int l = 0; l < LANES; l++) address[l] = start + offset[l];
    }
    for (u64 rest = exec_of(w); rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        if (address[l] > size || bytes > size - address[l]) {
            fault(w, BAD_SCRATCH, l, address[l], bytes, 0);
            return 0;
        }
    }
    return 1;
}
static void load_scratch(Wave *w, const Instruction *i)
{
    u32 address[LANES], size = w->group->launch->scratch_bytes;
    u64 lanes = exec_of(w);
    int bytes = i->extra[0];
    if (!scratch_addresses(w, i, address)) return;
    Flight *f = loading(w, i, &w->vector, lanes);
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        const u8 *from = w->scratch + (u64)l * size + address[l];
        if (bytes < 4) f->data[0][l] = small_value(from, bytes, i->extra[1]);
        else for (int k = 0; k < bytes / 4; k++) memcpy(&f->data[k][l], from + 4 * k, 4);
    }
    flown(w, &w->vector);
}
static void store_scratch(Wave *w, const Instruction *i)
{
    u32 address[LANES], size = w->group->launch->scratch_bytes;
    int bytes = i->extra[0], count = bytes < 4 ? 1 : bytes / 4;
    if (!scratch_addresses(w, i, address)) return;
    for (u64 rest = exec_of(w); rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest);
        for (int k = 0; k < count; k++) store_lane(w, i, l, w->scratch + (u64)l * size + address[l], k);
    }
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

/* ── LDS ───────────────────────────────────────────────────────────────── */
/* sources: 0 address, 3 first data, 4 second data. extra: 0 bytes, 1 sign, 2 half,
   4 and 5 offsets of the two-element forms (bytes), 6 elements (1 or 2). */
static inline const u32 *lds_addresses(Wave *w, const Instruction *i, u32 *out, u32 offset)
{
    u32 buffer[LANES];
    const u32 *base = source32(w, i, 0, buffer, 0);
    for (int l = 0; l < LANES; l++) out[l] = base[l] + offset;
    return out;
}

static void load_lds(Wave *w, const Instruction *i)
{
    u32 at[2][LANES];
    u64 lanes = exec_of(w);
    int bytes = i->extra[0], words = bytes < 4 ? 1 : bytes / 4;
    u8 *lds = w->group->lds;
    for (int e = 0; e < i->extra[6]; e++) {
        lds_addresses(w, i, at[e], i->extra[4 + e]);
        if (!all_in_lds(w, lanes, at[e], bytes, 0)) return;
    }
    Flight *f = loading(w, i, &w->local, lanes);
    f->count = words * i->extra[6];
    for (int e = 0; e < i->extra[6]; e++)
        for (u64 rest = lanes; rest; rest &= rest - 1) {
            int l = __builtin_ctzll(rest);
            const u8 *from = lds + at[e][l];
            if (bytes < 4) f->data[0][l] = small_value(from, bytes, i->extra[1]);
            else for (int k = 0; k < words; k++) memcpy(&f->data[e * words + k][l], from + 4 * k, 4);
        }
    flown(w, &w->local);
}

static void store_lds(Wave *w, const Instruction *i)
{
    u32 at[2][LANES];
    u64 lanes = exec_of(w);
    int bytes = i->extra[0], words = bytes < 4 ? 1 : bytes / 4;
    for (int e = 0; e < i->extra[6]; e++) {
        lds_addresses(w, i, at[e], i->extra[4 + e]);
        if (!all_in_lds(w, lanes, at[e], bytes, 1)) return;
    }
    for (int e = 0; e < i->extra[6]; e++) {
        u32 reg = i->source[3 + e].reg;
        for (u64 rest = lanes; rest; rest &= rest - 1) {
            int l = __builtin_ctzll(rest);
            u8 *to = w->group->lds + at[e][l];
            for (int k = 0; k < words; k++) {
                u32 x = w->v[reg + k][l] >> (i->extra[2] == 2 ? 16 : 0);
                put(w->group->launch, to + 4 * k, &x, bytes < 4 ? bytes : 4);
            }
        }
    }
    take_off(w, &w->local);
    flown(w, &w->local);
}

/* Transposing reads: within each 16 lanes, element k of lane l is element l mod n of lane
   k·(16/n) + l/n, n elements of 16, 8, 6 or 4 bits a lane. extra 1: bits. */
static void load_lds_transposed(Wave *w, const Instruction *i)
{
    u32 at[LANES];
    int bits = i->extra[1], bytes = i->extra[0], n = bytes * 8 / bits, step = 16 / n;
    u64 lanes = exec_of(w);
    lds_addresses(w, i, at, i->extra[4]);
    if (!all_in_lds(w, lanes, at, bytes, 0)) return;
    Flight *f = loading(w, i, &w->local, lanes);
    f->count = bytes / 4;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctzll(rest), row = l & ~15, column = l & 15;
        unsigned __int128 out = 0;
        for (int k = 0; k < n; k++) {
            int from = row + k * step + column / n, bit = column % n * bits;
            u32 x = 0;
            if (!(lanes >> from & 1)) continue;
            memcpy(&x, w->group->lds + at[from] + bit / 8, bytes - bit / 8 < 2 ? 1 : 2);
            out |= (unsigned __int128)(x >> bit % 8 & ((1u << bits) - 1)) << k * bits;
        }
        for (int k = 0; k < f->count; k++) f->data[k][l] = (u32)(out >> 32 * k);
    }
    flown(w, &w->local);
}

/* ds_bpermute, ds_permute, ds_swizzle: lanes exchange through the LDS hardware, not its memory. */
static void lanes_pull(Wave *w, const Instruction *i)
{
    u32 at[LANES];
    u64 lanes = exec_of(w);
    lds_addresses(w, i, at, i->extra[4]);
    Flight *f = loading(w, i, &w->local, lanes);
    const u32 *x = w->v[i->source[3].reg];
    for (int l = 0; l < LANES; l++) {
        int from = at[l] / 4 & 63;
        f->data[0][l] = lanes >> from & 1 ? x[from] : 0;
    }
    flown(w, &w->local);
}
static void lanes_push(Wave *w, const Instruction *i)
{
    u32 at[LANES];
    u64 lanes = exec_of(w);
    lds_addresses(w, i, at, i->extra[4]);
    Flight *f = loading(w, i, &w->local, lanes);
    const u32 *x = w->v[i->source[3].reg];
    for (int l = 0; l < LANES; l++) f->data[0][l] = 0;
    for (int l = 0; l < LANES; l++)
        if (lanes >> l & 1) f->data[0][at[l] / 4 & 63] = x[l];
    flown(w, &w->local);
}
static void lanes_swizzle(Wave *w, const Instruction *i)
{
    u64 lanes = exec_of(w);
    Flight *f = loading(w, i, &w->local, lanes);
    const u32 *x = w->v[i->source[0].reg];
    const i8 *from = lanes_of(w, i);
    for (int l = 0; l < LANES; l++) f->data[0][l] = from[l] >= 0 && (lanes >> from[l] & 1) ? x[from[l]] : 0;
    flown(w, &w->local);
}
