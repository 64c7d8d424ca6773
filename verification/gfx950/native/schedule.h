/* Who runs when: workgroups start in order, waves take turns, a spin without progress is a deadlock. */
#pragma once
#include "atomics.h"
#include "sparse.h"
#include "lanes.h"

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

static void pass_barrier(Group *g)
{
    u32 waiting = 0;
    for (u32 k = 0; k < g->launch->waves; k++) waiting += g->waves[k].state == AT_BARRIER;
    if (!waiting || waiting + g->ended < g->launch->waves) return;
    for (u32 k = 0; k < g->launch->waves; k++)
        if (g->waves[k].state == AT_BARRIER) g->waves[k].state = RUNNING, g->waves[k].barriers++;
}

static u64 hash_vectors(const Wave *w)
{
    u64 h = 0xCBF29CE484222325ull;
    const u32 *v = (const u32 *)w->v;
    for (u64 k = 0; k < (u64)w->group->launch->vgprs * LANES; k++) h = (h ^ v[k]) * 0x100000001B3ull;
    return h;
}

static u64 hash_scalars(const Wave *w)
{
    u64 h = 0xCBF29CE484222325ull ^ w->pc;
    for (int k = 0; k < 128; k++) h = (h ^ w->s[k]) * 0x100000001B3ull;
    return (h ^ w->scc ^ (u64)w->vector.count << 8 ^ (u64)w->local.count << 16) * 0x100000001B3ull;
}

/* Brent's cycle test at one instruction of a loop: the same registers there, with nothing written
   anywhere in between, mean that the loop can only go on as it did. */
static void look_for_spin(Wave *w)
{
    Launch *m = w->group->launch;
    if (w->seen_writes != m->writes || !w->seen_power) {
        w->seen_pc = w->pc, w->seen_power = 1, w->seen_count = 0;
        w->seen_hash = hash_scalars(w), w->seen_vectors = hash_vectors(w), w->seen_writes = m->writes;
        w->seen_barriers = w->barriers, w->spinning = 0;
        return;
    }
    if (w->pc != w->seen_pc) {
        if (++w->seen_count > 4096) w->seen_power = 0;
        return;
    }
    u64 h = hash_scalars(w);
    int same = h == w->seen_hash;
    u64 v = same || w->seen_count + 1 >= w->seen_power ? hash_vectors(w) : 0;
    if (same && v == w->seen_vectors) {
        w->spinning = 1;
        w->spins_through_barriers = w->barriers != w->seen_barriers;
        return;
    }
    if (++w->seen_count >= w->seen_power) w->seen_power *= 2, w->seen_count = 0, w->seen_hash = h, w->seen_vectors = v, w->seen_barriers = w->barriers;
}

#define SPIN_PATIENCE 4096

/* Runs one wave until it stops, or for `turn` instructions. */
static void run_wave(Wave *w, u64 turn)
{
    Launch *m = w->group->launch;
    const Instruction *code = m->code;
    u64 before = w->executed, last = turn, left = turn;
    while (left && w->state == RUNNING) {
        if (w->pc >= m->code_count) {
            fault(w, UNSUPPORTED, 0, 0, 0, 0);
            return;
        }
        u32 at = w->pc++;
        const Instruction *i = code + at;
        handlers[i->handler](w, i);
        left--;
        if (m->fault) {
            w->pc = at;
            break;
        }
        if (m->counts) m->counts[at]++;
        if (w->pc <= at && w->executed + (last - left) > SPIN_PATIENCE) {
            look_for_spin(w);
            if (w->spinning) break;
        }
    }
    w->executed = before + (turn - left);
    m->executed += turn - left;
}

static int running(const Group *g)
{
    for (u32 k = 0; k < g->launch->waves; k++)
        if (g->waves[k].state == RUNNING) return 1;
    return 0;
}

/* Waves of a group in turn until all have ended, or all have had their share of turns. */
static void run_group(Launch *m, Group *g)
{
    u64 shares = 1;
    for (u64 round = 0; g->ended < m->waves && !m->fault; round++) {
        u32 shift = m->seed ? (u32)(draw(m) % m->waves) : 0;
        int spinning = 1;
        for (u32 n = 0; n < m->waves && !m->fault; n++) {
            Wave *w = &g->waves[(n + shift) % m->waves];
            if (w->state != RUNNING) continue;
            u64 turn = m->seed ? 1 + draw(m) % m->quantum : m->quantum;
            u64 writes = m->writes;
            run_wave(w, turn);
            if (m->executed > m->limit && !m->fault) {
                w->pc++;
                fault(w, LIMIT, 0, 0, 0, 0);
                w->pc--;
                return;
            }
            if (w->state != RUNNING || !w->spinning || m->writes != writes) spinning = 0;
        }
        pass_barrier(g);
        if (spinning) return;
        if (running(g) && round >= shares) return;
    }
}

/* Every wave that could run spins with nothing written since: no schedule gets any further. One that
   waits at a barrier is stuck with the others, unless their loops pass that barrier: then it must
   spin itself. */
static int deadlocked(const Launch *m)
{
    for (const Group *g = m->resident; g; g = g->next) {
        int through = 0;
        for (u32 k = 0; k < m->waves; k++) through |= g->waves[k].spinning && g->waves[k].spins_through_barriers;
        for (u32 k = 0; k < m->waves; k++) {
            const Wave *w = &g->waves[k];
            int spins = w->spinning && w->seen_writes == m->writes;
            if (w->state != ENDED && !spins && (w->state == RUNNING || through)) return 0;
        }
    }
    return 1;
}

static void name_deadlock(Launch *m)
{
    for (Group *g = m->resident; g; g = g->next)
        for (u32 k = 0; k < m->waves; k++)
            if (g->waves[k].state != ENDED) {
                g->waves[k].pc++;
                fault(&g->waves[k], DEADLOCK, 0, 0, 0, 0);
                g->waves[k].pc--;
                return;
            }
}

static void release(Launch *m, Group *g)
{
    g->next = m->free_groups;
    m->free_groups = g;
    m->resident_count--;
}

/* Goes on until the grid is done (0) or a fault is told (its kind); after a bad global access that
   Python then allows, it can be called again. */
u32 run_launch(Launch *m)
{
    u64 total = m->grid[0] * m->grid[1] * m->grid[2];
    m->fault = CLEAN;
    for (;;) {
        /* The resident ones first, so that a workgroup that waits gets its turn after each newcomer's. */
        Group **link = &m->resident;
        while (*link) {
            Group *g = *link;
            run_group(m, g);
            if (m->fault) return m->fault;
            if (g->ended == m->waves) {
                *link = g->next;
                release(m, g);
            } else link = &g->next;
        }
        u64 sample = m->group_count, next = m->first_group + (m->started * m->order_step + m->order_first) % sample * m->group_step;
        if (m->started < sample && next < total && m->resident_count < m->resident_limit) {
            Group *g = new_group(m);
            if (!g) return m->fault = NO_MEMORY;
            begin(m, g, next);
            m->started++;
            m->resident_count++;
            g->next = 0;
            *link = g;
            continue;
        }
        if (!m->resident) return CLEAN;
        if (deadlocked(m)) {
            name_deadlock(m);
            return m->fault;
        }
    }
}

void end_launch(Launch *m)
{
    Group *all = __atomic_exchange_n(&spare, 0, __ATOMIC_ACQ_REL);
    for (Group *lists[2] = {m->resident, m->free_groups}, **list = lists; list < lists + 2; list++)
        while (*list) {
            Group *g = *list;
            *list = g->next;
            g->next = all;
            all = g;
        }
    m->resident = m->free_groups = 0;
    keep_spare(all);
}

/* Where each resident wave is, for the message of a deadlock: (group, wave, pc, state) rows. */
u64 list_waves(const Launch *m, u64 *out, u64 most)
{
    u64 n = 0;
    for (const Group *g = m->resident; g; g = g->next)
        for (u32 k = 0; k < m->waves && n < most; k++, n++) {
            out[4 * n] = g->linear, out[4 * n + 1] = k, out[4 * n + 2] = g->waves[k].pc, out[4 * n + 3] = g->waves[k].state;
        }
    return n;
}
