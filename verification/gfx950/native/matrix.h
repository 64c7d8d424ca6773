/* Matrix instructions: D = A·B + C over the 64 lanes of a wave, in one or more blocks. */
#pragma once
#include "elements.h"
#if defined __AVX512F__ || (defined __AVX2__ && defined __FMA__)
#include <immintrin.h>
#elif defined __ARM_NEON && defined __aarch64__
#include <arm_neon.h>
#endif

/* extra: 0 rows (= columns), 1 K, 2 and 3 element types, 4 an integer result, 5 the f8f6f4 forms,
   6 scaled, 7 blocks. Exec is not looked at. */
enum { FUSED_SUM, CHAINED_SUM, INTEGER_SUM };

/* As many doubles as a register of this machine holds. A product of two elements is exact in double
   (24 and 24 bits at most), so that a fused multiply-add gives what a product and a sum give. */
#if defined __AVX512F__
#define ACROSS 8
#elif defined __AVX2__ && defined __FMA__
#define ACROSS 4
#else
#define ACROSS 2
#endif
typedef f64 Doubles __attribute__((vector_size(8 * ACROSS)));
typedef f32 Floats __attribute__((vector_size(4 * ACROSS)));
typedef i32 Integers __attribute__((vector_size(4 * ACROSS)));

/* x in every place: a difference from +0 leaves -0 as it is. */
INLINE Doubles everywhere(f64 x) { return x - (Doubles){0}; }

INLINE Doubles multiply_add(Doubles x, Doubles y, Doubles sum)
{
#if defined __AVX512F__
    return (Doubles)_mm512_fmadd_pd((__m512d)x, (__m512d)y, (__m512d)sum);
#elif defined __AVX2__ && defined __FMA__
    return (Doubles)_mm256_fmadd_pd((__m256d)x, (__m256d)y, (__m256d)sum);
#elif defined __ARM_NEON && defined __aarch64__
    return (Doubles)vfmaq_f64((float64x2_t)sum, (float64x2_t)x, (float64x2_t)y);
#else
    return x * y + sum;
#endif
}

/* With the mode bit FP16_OVFL a sum that is too large becomes the largest number. */
static inline f64 bounded(f64 sum, f64 least, f64 most)
{
    return !isfinite(sum) ? sum : sum < least ? least : sum > most ? most : sum;
}
static inline f64 bounded_float(f64 sum) { return bounded(sum, -0x1.fffffep127, 0x1.fffffep127); }
static inline f32 float_sum(f64 sum, int saturate) { return (f32)(saturate ? bounded_float(sum) : sum); }
static inline u32 integer_sum(u32 start, f64 sum, int saturate)
{
    return saturate ? (u32)(i32)bounded((i32)start + sum, -0x1p31, 0x1p31 - 1) : start + (u32)(i32)sum;
}
static __attribute__((noinline)) Doubles rounded_apart(Doubles sum)
{
    for (int j = 0; j < ACROSS; j++) sum[j] = float_sum(sum[j], 1);
    return sum;
}
INLINE Doubles rounded(Doubles sum, int saturate)
{
    return saturate ? rounded_apart(sum) : __builtin_convertvector(__builtin_convertvector(sum, Floats), Doubles);
}

typedef struct {
    const Items *a, *b;
    u16 a_rows[WIDEST], b_rows[WIDEST]; /* where each k begins */
    int size, saturate;
} Product;

/* Four rows of D by 2·ACROSS columns; its rows are registers that follow each other. */
INLINE void multiply_tile(const Product *p, int row, int column, u32 *d, int kind)
{
    const f64 *a = p->a->item[0] + row, *b = p->b->item[0] + column;
    Doubles sum[4][2];
    for (int r = 0; r < 4; r++)
        for (int h = 0; h < 2; h++) {
            Floats start = *(const Floats *)(d + LANES * r + ACROSS * h);
            sum[r][h] = kind == INTEGER_SUM ? (Doubles){0} : __builtin_convertvector(start, Doubles);
        }
    for (int k = 0; k < p->size; k++) {
        const f64 *x = a + p->a_rows[k];
        const Doubles *y = (const Doubles *)(b + p->b_rows[k]);
        for (int r = 0; r < 4; r++)
            for (int h = 0; h < 2; h++) {
                sum[r][h] = multiply_add(everywhere(x[r]), y[h], sum[r][h]);
                if (kind == CHAINED_SUM) sum[r][h] = rounded(sum[r][h], p->saturate);
            }
    }
    for (int r = 0; r < 4; r++)
        for (int h = 0; h < 2; h++) {
            u32 *to = d + LANES * r + ACROSS * h;
            if (kind != INTEGER_SUM) *(Floats *)to = __builtin_convertvector(p->saturate ? rounded(sum[r][h], 1) : sum[r][h], Floats);
            else if (!p->saturate) *(Integers *)to += __builtin_convertvector(sum[r][h], Integers);
            else for (int j = 0; j < ACROSS; j++) to[j] = integer_sum(to[j], sum[r][h][j], 1);
        }
}

INLINE void multiply_as(const Product *p, int block, int rows, u32 (*d)[LANES], int kind)
{
    int beside = LANES / rows; /* groups of four rows in the same registers */
    for (int group = 0; group < rows / 4; group++)
        for (int column = 0; column < rows; column += 2 * ACROSS)
            multiply_tile(p, block * rows + 4 * group, block * rows + column,
                          d[4 * (group / beside)] + rows * (group % beside) + column, kind);
}

static void multiply_block(const Product *p, int block, int rows, u32 (*d)[LANES], int kind)
{
    switch (kind) {
    case FUSED_SUM: multiply_as(p, block, rows, d, FUSED_SUM); break;
    case CHAINED_SUM: multiply_as(p, block, rows, d, CHAINED_SUM); break;
    default: multiply_as(p, block, rows, d, INTEGER_SUM);
    }
}

/* Sixteen blocks of four rows: the lanes of a register are the blocks' rows one after the other. */
static void multiply_small(const Product *p, u32 (*d)[LANES], int kind)
{
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < LANES; l++) {
            f64 sum = kind == INTEGER_SUM ? 0 : as_f32(d[r][l]);
            for (int k = 0; k < p->size; k++) {
                sum += p->a->item[k][(l & ~3) + r] * p->b->item[k][l];
                if (kind == CHAINED_SUM) sum = float_sum(sum, p->saturate);
            }
            d[r][l] = kind == INTEGER_SUM ? integer_sum(d[r][l], sum, p->saturate) : as_u32(float_sum(sum, p->saturate));
        }
}

/* C is put where D will be. */
static void begin_sum(Wave *w, const Instruction *i, int registers)
{
    const Operand *c = &i->source[2];
    u32 *d = (u32 *)(w->v + i->result[0].reg), words = registers * LANES;
    if (c->where == IN_VGPR) memmove(d, w->v + c->reg, words * sizeof *d);
    else for (u32 k = 0; k < words; k++) d[k] = (u32)c->value;
}

static void scale_operand(Wave *w, const Instruction *i, int k, Items *x, int rows, int size, int split)
{
    u32 buffer[LANES], byte = (i->op_sel >> k & 1) + 2 * (i->op_sel_hi >> k & 1);
    apply_scales(x, source32(w, i, 3 + k, buffer, 0), byte, rows, size, split);
}

/* immediate: cbsz, abid and blgp, four bits each. */
static void matrix_multiply(Wave *w, const Instruction *i)
{
    int rows = i->extra[0], size = i->extra[1], blocks = i->extra[7], count = size * rows * blocks / LANES;
    u32 cbsz = i->immediate & 15, abid = i->immediate >> 4 & 15, blgp = i->immediate >> 8 & 15;
    int kind = i->extra[4] ? INTEGER_SUM : w->group->launch->matrix;
    Items a, b;
    Product p = {.a = &a, .b = &b, .size = size, .saturate = w->saturate};
    int split_a = i->extra[5] && element_bits[i->extra[2]] == 8, split_b = i->extra[5] && element_bits[i->extra[3]] == 8;
    decode(w, i->source[0].reg, count, i->extra[2], i->flush, &a);
    decode(w, i->source[1].reg, count, i->extra[3], i->flush, &b);
    if (cbsz) broadcast_a(&a, count, cbsz, abid);
    if (blgp) broadcast_b(&b, count, blgp);
    if (i->extra[6]) {
        scale_operand(w, i, 0, &a, rows, size, split_a);
        scale_operand(w, i, 1, &b, rows, size, split_b);
    }
    find_rows(p.a_rows, rows, blocks, size, split_a);
    find_rows(p.b_rows, rows, blocks, size, split_b);
    int registers = rows * rows * blocks / LANES;
    u32 (*d)[LANES] = w->v + i->result[0].reg;
    begin_sum(w, i, registers);
    if (rows == 4) multiply_small(&p, d, kind);
    else for (int block = 0; block < blocks; block++) multiply_block(&p, block, rows, d + block * registers / blocks, kind);
}

/* Numbers of 64 bits: one fused multiply-add a product, in the order of k. A register pair holds four
   rows, the blocks side by side. packed_neg_lo: which of A, B and C are negated. */
static void matrix_multiply_doubles(Wave *w, const Instruction *i)
{
    int rows = i->extra[0], size = i->extra[1], pairs = rows * rows * i->extra[7] / LANES;
    f64 a[LANES], b[LANES], sum[4][LANES];
    u64 sign = 1ull << 63, negated[3];
    for (int k = 0; k < 3; k++) negated[k] = i->packed_neg_lo >> k & 1 ? sign : 0;
    u32 (*x)[LANES] = w->v + i->source[0].reg, (*y)[LANES] = w->v + i->source[1].reg, (*d)[LANES] = w->v + i->result[0].reg;
    const Operand *c = &i->source[2];
    for (int l = 0; l < LANES; l++) {
        a[l] = as_f64((x[0][l] | (u64)x[1][l] << 32) ^ negated[0]);
        b[l] = as_f64((y[0][l] | (u64)y[1][l] << 32) ^ negated[1]);
        for (int n = 0; n < pairs; n++) {
            u32 (*from)[LANES] = w->v + c->reg + 2 * n;
            u64 start = c->where == IN_VGPR ? from[0][l] | (u64)from[1][l] << 32 : c->value;
            sum[n][l] = as_f64(start ^ negated[2]);
        }
    }
    for (int n = 0; n < pairs; n++)
        for (int l = 0; l < LANES; l++) {
            int block = l % 16 / rows, row = 4 * n + l / 16;
            for (int k = 0; k < size; k++)
                sum[n][l] = fma(a[16 * k + block * rows + row], b[16 * k + l % 16], sum[n][l]);
            d[2 * n][l] = (u32)as_u64(sum[n][l]);
            d[2 * n + 1][l] = (u32)(as_u64(sum[n][l]) >> 32);
        }
}
