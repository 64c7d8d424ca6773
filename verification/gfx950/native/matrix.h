/* Matrix instructions: D = A·B + C over the 64 lanes of a wave. */
#pragma once
#include "operands.h"

/* Numbers of the element types, as matrix.py spells them. */
enum { E_F32, E_F16, E_BF16, E_I8, E_FP8, E_BF8, E_FP4 };
enum { FUSED_SUM, CHAINED_SUM };

#define WIDEST 128
typedef struct { f64 x[WIDEST][32]; } Matrix; /* by k, then by row of A or column of B */

static inline u32 bits_of_element(int type) { return type == E_F32 ? 32 : type <= E_BF16 ? 16 : type == E_FP4 ? 4 : 8; }

static f32 fp8_table[256], bf8_table[256], fp4_table[16];
static void make_element_tables(void)
{
    for (int c = 0; c < 256; c++) fp8_table[c] = from_small(c, FP8), bf8_table[c] = from_small(c, BF8);
    for (int c = 0; c < 16; c++) fp4_table[c] = from_small(c, FP4);
}

static inline f32 element(u32 bits, int type)
{
    switch (type) {
    case E_F32: return as_f32(bits);
    case E_F16: return from_f16((u16)bits);
    case E_BF16: return from_bf16((u16)bits);
    case E_I8: return (f32)(i8)bits;
    case E_FP8: return fp8_table[bits & 255];
    case E_BF8: return bf8_table[bits & 255];
    default: return fp4_table[bits & 15];
    }
}

/* Which k the j-th element of a lane is. An fp8 operand of the f8f6f4 forms is split: its first 16
   bytes belong to the first half of K, the other 16 to the second. */
static inline int k_of(int j, int group, int per, int size, int type, int wide_form)
{
    if (wide_form && type != E_FP4) return 16 * group + j % 16 + (j / 16) * (size / 2);
    return per * group + j;
}

static inline __attribute__((always_inline)) void gather_as(
    Wave *w, const Operand *o, int size, int rows, int type, int wide_form, Matrix *m)
{
    int per = size * rows / LANES;
    u32 bits = bits_of_element(type), in_word = 32 / bits, field = bits == 32 ? ~0u : (1u << bits) - 1;
    for (int j = 0; j < per; j++) {
        const u32 *words = w->v[o->reg + j / in_word];
        u32 shift = j % in_word * bits;
        for (int group = 0; group < LANES / rows; group++) {
            f64 *x = m->x[k_of(j, group, per, size, type, wide_form)];
            for (int c = 0; c < rows; c++) x[c] = element(words[group * rows + c] >> shift & field, type);
        }
    }
}

static void gather(Wave *w, const Operand *o, int size, int rows, int type, int wide_form, Matrix *m)
{
    switch (type) {
    case E_F32: gather_as(w, o, size, rows, E_F32, wide_form, m); break;
    case E_F16: gather_as(w, o, size, rows, E_F16, wide_form, m); break;
    case E_BF16: gather_as(w, o, size, rows, E_BF16, wide_form, m); break;
    case E_I8: gather_as(w, o, size, rows, E_I8, wide_form, m); break;
    case E_FP8: gather_as(w, o, size, rows, E_FP8, wide_form, m); break;
    case E_BF8: gather_as(w, o, size, rows, E_BF8, wide_form, m); break;
    default: gather_as(w, o, size, rows, E_FP4, wide_form, m);
    }
}

/* One E8M0 byte for 32 elements of K: block l / rows of row l mod rows. */
static void apply_scales(Wave *w, const Instruction *i, int k, u32 byte, int rows, Matrix *m)
{
    u32 buffer[LANES];
    const u32 *scales = source32(w, i, k, buffer, 0);
    for (int l = 0; l < LANES; l++) {
        f64 scale = e8m0(scales[l] >> 8 * byte & 255);
        for (int j = 0; j < 32; j++) m->x[32 * (l / rows) + j][l % rows] *= scale;
    }
}

static inline int result_row(int r, int lane, int rows)
{
    return rows == 32 ? 8 * (r / 4) + r % 4 + 4 * (lane / 32) : r + 4 * (lane / 16);
}

static inline __attribute__((always_inline)) void multiply_as(
    const Matrix *a, const Matrix *b, f32 (*c)[32], int rows, int size, u32 model)
{
    for (int r = 0; r < rows; r++) {
        f64 sum[32];
        for (int j = 0; j < rows; j++) sum[j] = c[r][j];
        for (int k = 0; k < size; k++) {
            f64 x = a->x[k][r];
            if (model == FUSED_SUM)
                for (int j = 0; j < rows; j++) sum[j] += x * b->x[k][j];
            else
                for (int j = 0; j < rows; j++) sum[j] = (f32)(x * b->x[k][j] + sum[j]);
        }
        for (int j = 0; j < rows; j++) c[r][j] = (f32)sum[j];
    }
}

static void multiply_rows(const Matrix *a, const Matrix *b, f32 (*c)[32], int rows, int size, u32 model)
{
    if (rows == 32) multiply_as(a, b, c, 32, size, model);
    else multiply_as(a, b, c, 16, size, model);
}

static void multiply_integers(const Matrix *a, const Matrix *b, u32 (*c)[32], int rows, int size)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < rows; j++) {
            i64 sum = (i32)c[r][j];
            for (int k = 0; k < size; k++) sum += (i64)a->x[k][r] * (i64)b->x[k][j];
            c[r][j] = (u32)sum;
        }
}

/* extra: 0 rows (= columns), 1 K, 2 and 3 element types, 4 an integer result, 5 the f8f6f4 forms,
   6 scaled. op_sel and op_sel_hi choose the byte of each scale. Exec is not looked at. */
static void matrix_multiply(Wave *w, const Instruction *i)
{
    static _Thread_local Matrix a, b;
    int rows = i->extra[0], size = i->extra[1], per = rows * rows / LANES;
    union { f32 f[32][32]; u32 u[32][32]; } c;
    gather(w, &i->source[0], size, rows, i->extra[2], i->extra[5], &a);
    gather(w, &i->source[1], size, rows, i->extra[3], i->extra[5], &b);
    if (i->extra[6]) {
        apply_scales(w, i, 3, (i->op_sel & 1) + 2 * (i->op_sel_hi & 1), rows, &a);
        apply_scales(w, i, 4, (i->op_sel >> 1 & 1) + 2 * (i->op_sel_hi >> 1 & 1), rows, &b);
    }
    const Operand *start = &i->source[2];
    for (int r = 0; r < per; r++)
        for (int l = 0; l < LANES; l++)
            c.u[result_row(r, l, rows)][l % rows] = start->where == IN_VGPR ? w->v[start->reg + r][l] : (u32)start->value;
    if (i->extra[4]) multiply_integers(&a, &b, c.u, rows, size);
    else multiply_rows(&a, &b, c.f, rows, size, w->group->launch->matrix);
    for (int r = 0; r < per; r++)
        for (int l = 0; l < LANES; l++) w->v[i->result[0].reg + r][l] = c.u[result_row(r, l, rows)][l % rows];
}

/* Sixteen independent 4×4 products, one for each four lanes. */
static void matrix_multiply_4x4(Wave *w, const Instruction *i)
{
    int type = i->extra[2], per = i->extra[1];
    u32 bits = bits_of_element(type), in_word = 32 / bits, field = bits == 32 ? ~0u : (1u << bits) - 1;
    u32 d[4][LANES];
    for (int l = 0; l < LANES; l++)
        for (int r = 0; r < 4; r++) {
            const Operand *start = &i->source[2];
            u32 first = start->where == IN_VGPR ? w->v[start->reg + r][l] : (u32)start->value;
            f64 sum = as_f32(first);
            for (int k = 0; k < per; k++) {
                u32 x = w->v[i->source[0].reg + k / in_word][(l & ~3) + r] >> k % in_word * bits & field;
                u32 y = w->v[i->source[1].reg + k / in_word][l] >> k % in_word * bits & field;
                sum += (f64)element(x, type) * element(y, type);
                if (w->group->launch->matrix == CHAINED_SUM) sum = (f32)sum;
            }
            d[r][l] = as_u32((f32)sum);
        }
    for (int r = 0; r < 4; r++) memcpy(w->v[i->result[0].reg + r], d[r], sizeof d[r]);
}
