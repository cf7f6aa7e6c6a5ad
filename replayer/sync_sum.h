/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Value sums of bytes that begin anywhere in a tensor, as jobs of the device's kernel. Private to the replayer.
 */
#ifndef LOADPLAN_SYNC_SUM_H
#define LOADPLAN_SYNC_SUM_H

#include "replayer/device_digest.h"

typedef struct lp_sum_part {
    lp_digest_job job;
    int64_t at; /* of its first byte, from that of the data */
} lp_sum_part;

/* Processors that what goes on beside messages leaves to them: a message has a block for each of its channels, of which
 * NCCL has up to 32, and a block needs most of a processor. It would wait for whoever stays there until he has ended.
 */
enum { LP_LANE_LEFT = 32 };

enum { LP_SUM_PARTS = 3 }; /* of whole packets, of the words behind them, of the bytes behind those */

/* The jobs whose sums, taken together, are those of lp_value_sum_add(sum, off, data, bytes). off is a multiple of 8;
 * `address` is that of the data, of which only the alignment matters. LP_E_LIMIT: more bytes than a job counts. */
lp_status lp_sum_parts(lp_sum_part part[LP_SUM_PARTS], int *count, int64_t off, uint64_t address, int64_t bytes,
                       lp_error *err);

#endif
