/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Value sums of bytes that begin anywhere in a tensor, out of jobs of the device's kernel, which begins at position 0.
 * A job with one more mode of two steps, both at the same bytes, adds them at position 0 and at position P; what it
 * adds at 0 is summed once more by itself and taken away. Private to the replayer.
 */
#ifndef LOADPLAN_SYNC_SUM_H
#define LOADPLAN_SYNC_SUM_H

#include "replayer/device_digest.h"

typedef struct lp_sum_part {
    lp_digest_job job;
    int64_t at;    /* of its first byte, from that of the data */
    bool is_minus; /* to be taken away */
} lp_sum_part;

enum { LP_SUM_PARTS = 6 };

/* The jobs whose sums, taken together, are those of lp_value_sum_add(sum, off, data, bytes). off is a multiple of 8;
 * `address` is that of the data, of which only the alignment matters. LP_E_LIMIT: more bytes than a job counts. */
lp_status lp_sum_parts(lp_sum_part part[LP_SUM_PARTS], int *count, int64_t off, uint64_t address, int64_t bytes,
                       lp_error *err);

/* Sums as the device leaves them: what was added and what is to be taken away. */
typedef struct lp_sum_pair {
    lp_value_sum plus, minus;
} lp_sum_pair;

static inline lp_value_sum lp_sum_of(const lp_sum_pair *pair)
{
    return (lp_value_sum){{pair->plus.lane[0] - pair->minus.lane[0], pair->plus.lane[1] - pair->minus.lane[1]}};
}

#endif
