/* Who runs when: workgroups start in order, waves take turns, a spin without progress is a deadlock. */
#pragma once
#include "groups.h"
#include "operands.h"

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
