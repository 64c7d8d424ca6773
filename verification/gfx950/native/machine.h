/* The machine: instructions as decoded by Python, waves, workgroups, a launch. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef float f32;
typedef double f64;

#define LANES 64
#define INLINE static inline __attribute__((always_inline))
#define VCC 106
#define M0 124
#define EXEC 126
#define SOURCES 5
#define CODE_BASE 0x100000000000ull

enum { IN_VGPR, IN_SGPR, CONSTANT, NOTHING };
enum { NEG = 1, ABS = 2, SEXT = 4, FLUSH = 8, CROSS = 16 };
enum { DWORD, BYTE0, BYTE1, BYTE2, BYTE3, WORD0, WORD1 };
enum { PAD, SIGN_EXTEND, PRESERVE };

/* One operand; field by field the same as OPERAND in encoding.py. */
typedef struct {
    u8 where, modifiers, select, width;
    u32 reg;
    u64 value;
} Operand;

/* One instruction; field by field the same as INSTRUCTION in encoding.py. */
typedef struct {
    u32 handler;
    u8 clamp, multiply, result_select, result_unused, flush, op_sel, op_sel_hi, packed_neg_lo, packed_neg_hi;
    u8 cross, cross_zero, returns;
    i32 lanes;      /* row of the launch's table of source lanes (DPP, swizzle) */
    i64 immediate;  /* offset, branch target, wait counts */
    i32 extra[8];
    u64 write_mask; /* lanes that DPP's row_mask and bank_mask let through */
    Operand result[2];
    Operand source[SOURCES];
} Instruction;

typedef struct Wave Wave;
typedef struct Group Group;
typedef struct Launch Launch;
typedef void (*Handler)(Wave *, const Instruction *);

enum { RUNNING, AT_BARRIER, ENDED };
enum { CLEAN, BAD_GLOBAL, BAD_LDS, BAD_SCRATCH, DEADLOCK, LIMIT, TRAP, UNSUPPORTED, NO_MEMORY };

/* Loads and stores in flight: a result lands in its registers when it is waited for, not before. */
enum { TO_NOTHING, TO_VGPR, TO_VGPR_LOW, TO_VGPR_HIGH, TO_LDS, TO_SGPR };
typedef struct {
    u8 kind, count;
    u32 reg;
    u64 mask;
    u32 lds;
    u32 data[4][LANES];
} Flight;

#define MOST_VECTOR 64
#define MOST_SCALAR 16
typedef struct {
    u32 first, count;
    Flight entry[MOST_VECTOR];
} Flights;

struct Wave {
    u32 (*v)[LANES];
    u32 s[128];
    u8 scc, state, saturate; /* the mode bit FP16_OVFL */
    u32 pc, index;
    u64 expanded;         /* the exec mask that `active` was made from */
    u32 active[LANES];    /* exec as all-ones or zero, lane by lane */
    Group *group;
    u8 *scratch;
    u64 executed;
    u64 seen_hash, seen_vectors, seen_writes; /* the state at a backward branch, to tell a spin */
    u32 seen_pc;
    u64 seen_power, seen_count;
    u64 barriers, seen_barriers;
    u8 spinning, spins_through_barriers;
    Flights vector, local;
};

struct Group {
    u32 id[3];
    u64 linear;
    u8 *lds;
    Wave *waves;
    u32 ended;
    Launch *launch;
    Group *next;
    u32 waves_held, vgprs, lds_bytes, scratch_bytes; /* what there is memory for */
};

typedef struct {
    u64 start, end;
    u32 writable, tensor;
} Range;

/* What Python hands over and reads back; field by field the same as Launch in machine.py. */
struct Launch {
    const Instruction *code;
    u64 code_count;
    const i8 *lanes;        /* rows of 64 source lanes; -1 is no lane */
    Range *ranges;          /* sorted by start, disjoint */
    u64 range_count;
    u64 grid[3];
    u32 waves, vgprs, lds_bytes, scratch_bytes, user_sgprs;
    u32 id_sgprs[3];        /* register of each workgroup id, or 255 */
    u32 sgpr_values[32];
    u64 seed;               /* 0: workgroups, waves and lanes in ascending order */
    u64 quantum, limit, resident_limit;
    u32 transcendental, matrix, early, saturate; /* models of the hardware; the declared FP16_OVFL */
    u64 first_group, group_step, group_count; /* a sample of the grid: group_count of them */
    u64 order_step, order_first;              /* and the order in which they start */
    u64 *counts;            /* executions of each instruction, or null */
    /* state and answers */
    u64 executed, writes, clock;
    u32 fault, fault_pc, fault_wave, fault_lane, fault_bytes, fault_store;
    u64 fault_group, fault_address;
    u64 started;
    Group *resident, *free_groups;
    u64 resident_count;
    u64 last_range;
    u64 random;
};

static inline f32 as_f32(u32 x) { f32 y; memcpy(&y, &x, 4); return y; }
static inline u32 as_u32(f32 x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline f64 as_f64(u64 x) { f64 y; memcpy(&y, &x, 8); return y; }
static inline u64 as_u64(f64 x) { u64 y; memcpy(&y, &x, 8); return y; }

static inline u64 sgpr64(const Wave *w, u32 reg) { return w->s[reg] | (u64)w->s[reg + 1] << 32; }
static inline void set_sgpr64(Wave *w, u32 reg, u64 x) { w->s[reg] = (u32)x; w->s[reg + 1] = (u32)(x >> 32); }
static inline u64 exec_of(const Wave *w) { return sgpr64(w, EXEC); }

static inline void fault(Wave *w, u32 kind, u32 lane, u64 address, u32 bytes, u32 store)
{
    Launch *launch = w->group->launch;
    if (launch->fault) return;
    launch->fault = kind;
    launch->fault_pc = w->pc - 1;
    launch->fault_wave = w->index;
    launch->fault_group = w->group->linear;
    launch->fault_lane = lane;
    launch->fault_address = address;
    launch->fault_bytes = bytes;
    launch->fault_store = store;
}

/* A generator of our own for seeded orders (splitmix64). */
static inline u64 draw(Launch *launch)
{
    u64 x = launch->random += 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}
