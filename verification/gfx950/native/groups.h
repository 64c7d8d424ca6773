/* Workgroups: their memory, and the state in which they begin. */
#pragma once
#include "machine.h"

#define POISON 0x7FE5A5E5u
#define VECTOR_BYTES(m) ((u64)(m)->vgprs * LANES * 4)

/* A group's memory is kept for the next one, of this launch or of a later one: its registers stay in
   the cache. A launch takes the spare groups whole, so that threads never share one. */
#define MOST_SPARE (64u << 20)
static Group *spare;

static u64 bytes_of(const Group *g)
{
    return g->waves_held * (sizeof(Wave) + (u64)g->vgprs * LANES * 4 + (u64)g->scratch_bytes * LANES) + g->lds_bytes;
}

static void free_group(Group *g)
{
    for (u32 k = 0; g->waves && k < g->waves_held; k++) free(g->waves[k].v), free(g->waves[k].scratch);
    free(g->waves);
    free(g->lds);
    free(g);
}

/* The first groups of a list, as many as fit; the others are freed. */
static void keep_spare(Group *list)
{
    u64 bytes = 0;
    for (Group **link = &list; *link;) {
        Group *g = *link;
        if ((bytes += bytes_of(g)) <= MOST_SPARE) link = &g->next;
        else *link = g->next, free_group(g);
    }
    for (Group *other = __atomic_exchange_n(&spare, list, __ATOMIC_ACQ_REL), *next; other; other = next) {
        next = other->next;
        free_group(other);
    }
}

__attribute__((destructor)) static void free_spare(void) { keep_spare(0); }

static int holds(const Group *g, const Launch *m)
{
    return g->waves_held >= m->waves && g->vgprs >= m->vgprs && g->lds_bytes >= m->lds_bytes && g->scratch_bytes >= m->scratch_bytes;
}

static Group *take_spare(const Launch *m)
{
    Group *list = __atomic_exchange_n(&spare, 0, __ATOMIC_ACQ_REL), *found = 0;
    for (Group **link = &list; *link && !found; link = found ? link : &(*link)->next)
        if (holds(*link, m)) found = *link, *link = found->next;
    keep_spare(list);
    return found;
}

static Group *new_group(Launch *m)
{
    Group *g = m->free_groups;
    if (g) {
        m->free_groups = g->next;
        return g;
    }
    g = take_spare(m);
    if (g) return g;
    g = calloc(1, sizeof *g);
    if (!g) return 0;
    g->waves_held = m->waves, g->vgprs = m->vgprs, g->lds_bytes = m->lds_bytes, g->scratch_bytes = m->scratch_bytes;
    g->lds = malloc(m->lds_bytes + 16);
    g->waves = calloc(m->waves, sizeof *g->waves);
    int whole = g->lds && g->waves;
    for (u32 k = 0; g->waves && k < m->waves; k++) {
        if (posix_memalign((void **)&g->waves[k].v, 64, VECTOR_BYTES(m) + 64)) g->waves[k].v = 0;
        g->waves[k].scratch = malloc((u64)m->scratch_bytes * LANES + 16);
        whole &= g->waves[k].v && g->waves[k].scratch;
    }
    if (whole) return g;
    free_group(g);
    return 0;
}

static void fill_poison(void *to, u64 bytes)
{
    u32 *x = to;
    for (u64 k = 0; k < bytes / 4; k++) x[k] = POISON;
}

static void begin(Launch *m, Group *g, u64 linear)
{
    g->launch = m;
    g->linear = linear;
    g->ended = 0;
    g->id[0] = linear % m->grid[0];
    g->id[1] = linear / m->grid[0] % m->grid[1];
    g->id[2] = linear / m->grid[0] / m->grid[1];
    fill_poison(g->lds, m->lds_bytes);
    for (u32 k = 0; k < m->waves; k++) {
        Wave *w = &g->waves[k];
        fill_poison(w->v, VECTOR_BYTES(m));
        fill_poison(w->s, sizeof w->s);
        fill_poison(w->scratch, (u64)m->scratch_bytes * LANES);
        for (u32 s = 0; s < m->user_sgprs; s++) w->s[s] = m->sgpr_values[s];
        for (int d = 0; d < 3; d++)
            if (m->id_sgprs[d] != 255) w->s[m->id_sgprs[d]] = g->id[d];
        for (int l = 0; l < LANES; l++) w->v[0][l] = k * LANES + l;
        set_sgpr64(w, EXEC, ~0ull);
        w->scc = 0;
        w->saturate = (u8)m->saturate;
        w->state = RUNNING;
        w->pc = 0;
        w->index = k;
        w->group = g;
        w->expanded = 0;
        memset(w->active, 0, sizeof w->active);
        w->executed = 0;
        w->seen_power = w->seen_count = 0;
        w->spinning = 0;
        w->vector.first = w->vector.count = w->local.first = w->local.count = 0;
    }
}
