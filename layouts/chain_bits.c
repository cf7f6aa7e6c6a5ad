/* SPDX-License-Identifier: Apache-2.0 */
/* Inverting matrices of bits, and finding a bit of its own for each row. */
#include "layouts/chain_bits.h"

static void swap(uint64_t *a, uint64_t *b)
{
    const uint64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Gauss and Jordan's elimination. */
int32_t lp_bits_invert(int32_t count, uint64_t *row, uint64_t *inverse)
{
    for (int32_t i = 0; i < count; i++)
        inverse[i] = (uint64_t)1 << i;
    for (int32_t j = 0; j < count; j++) {
        int32_t from = j;
        while (from < count && (row[from] >> j & 1) == 0)
            from++;
        if (from == count)
            return j;
        swap(&row[j], &row[from]);
        swap(&inverse[j], &inverse[from]);
        for (int32_t i = 0; i < count; i++)
            if (i != j && (row[i] >> j & 1) != 0) {
                row[i] ^= row[j];
                inverse[i] ^= inverse[j];
            }
    }
    return -1;
}

typedef struct matching {
    int32_t count;
    const uint64_t *row;
    int32_t owner[LP_BITS_MOST]; /* row that has bit j, or -1 */
    uint64_t tried;              /* bits, for the row that chooses now */
} matching;

/* Finds a bit for row i, moving others to theirs where it must: Kuhn's augmenting paths. No deeper than `count`. */
static int choose(matching *m, int32_t i)
{
    for (int moves = 0; moves < 2; moves++) /* a free bit if there is one */
        for (int32_t j = 0; j < m->count; j++) {
            const uint64_t bit = (uint64_t)1 << j;
            if ((m->row[i] & bit) == 0 || (m->tried & bit) != 0 || (m->owner[j] >= 0 && moves == 0))
                continue;
            m->tried |= bit;
            if (m->owner[j] >= 0 && !choose(m, m->owner[j]))
                continue;
            m->owner[j] = i;
            return 1;
        }
    return 0;
}

int32_t lp_bits_match(int32_t count, const uint64_t *row, int32_t *of)
{
    matching m = {.count = count, .row = row};
    for (int32_t j = 0; j < count; j++)
        m.owner[j] = -1;
    for (int bits = 0; bits <= count; bits++)
        for (int32_t i = 0; i < count; i++) {
            m.tried = 0;
            if (__builtin_popcountll(row[i]) == bits && !choose(&m, i))
                return i;
        }
    for (int32_t j = 0; j < count; j++)
        of[m.owner[j]] = j;
    return -1;
}
