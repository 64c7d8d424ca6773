/* Sparse matrix instructions: D += A·B, where of four numbers along a row of A two are held. */
#pragma once
#include "matrix.h"

/* The pairs of two-bit places, one for each number that a lane holds of A: 0 ≤ first < second < 4. */
static int read_places(Wave *w, const Instruction *i, int count, u8 (*place)[LANES])
{
    u32 bits = i->extra[6], chosen = i->immediate & 15 ? 0 : (i->immediate >> 4 & 15) % (32 / bits);
    const u32 *index = w->v[i->source[2].reg];
    u32 illegal = 0;
    for (int n = 0; n < count; n += 2)
        for (int l = 0; l < LANES; l++) {
            u32 pair = index[l] >> (bits * chosen + 2 * n), first = pair & 3, second = pair >> 2 & 3;
            place[n][l] = (u8)first, place[n + 1][l] = (u8)second;
            illegal |= first >= second;
        }
    if (illegal) fault(w, UNSUPPORTED, 0, 0, 0, 0);
    return !illegal;
}

/* extra: 0 rows, 1 K, 2 and 3 element types, 4 an integer result, 5 whether B is split between the
   halves of K, 6 bits of a set of places. immediate: cbsz and abid choose the set. */
static void matrix_multiply_sparse(Wave *w, const Instruction *i)
{
    int rows = i->extra[0], size = i->extra[1], dense = size * rows / LANES, count = dense / 2, beside = LANES / rows;
    int kind = i->extra[4] ? INTEGER_SUM : w->group->launch->matrix, saturate = w->saturate;
    u8 place[MOST_ITEMS][LANES];
    u16 b_rows[WIDEST];
    Items a, b;
    if (!read_places(w, i, count, place)) return;
    decode(w, i->source[0].reg, count, i->extra[2], 0, &a);
    decode(w, i->source[1].reg, dense, i->extra[3], 0, &b);
    find_rows(b_rows, rows, 1, size, i->extra[5]);
    for (int row = 0; row < rows; row++) {
        u32 *d = w->v[i->result[0].reg + 4 * (row / 4 / beside) + row % 4] + rows * (row / 4 % beside);
        f64 sum[32];
        for (int j = 0; j < rows; j++) sum[j] = kind == INTEGER_SUM ? 0 : as_f32(d[j]);
        for (int lane = row; lane < LANES; lane += rows)
            for (int n = 0; n < count; n++) {
                f64 x = a.item[n][lane];
                const f64 *y = b.item[0] + b_rows[lane / rows * dense + 4 * (n / 2) + place[n][lane]];
                for (int j = 0; j < rows; j++) sum[j] += x * y[j];
                if (kind == CHAINED_SUM)
                    for (int j = 0; j < rows; j++) sum[j] = float_sum(sum[j], saturate);
            }
        for (int j = 0; j < rows; j++)
            d[j] = kind == INTEGER_SUM ? integer_sum(d[j], sum[j], saturate) : as_u32(float_sum(sum[j], saturate));
    }
}
