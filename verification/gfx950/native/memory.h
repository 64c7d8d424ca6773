/* Global memory, buffers and scratch. */
#pragma once
#include "flight.h"

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
