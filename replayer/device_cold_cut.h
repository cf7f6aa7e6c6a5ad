/* SPDX-License-Identifier: Apache-2.0 */
/* How the tables of a cold start grow: names (device_cold_batches.c) cut bytes of files into parts and chunks
 * (device_cold_cut.c). */
#ifndef LOADPLAN_DEVICE_COLD_CUT_H
#define LOADPLAN_DEVICE_COLD_CUT_H

#include "replayer/device_cold_batches.h"
#include "replayer/source_ranges.h"

enum { LP_COLD_GAP_MOST = 512 }; /* bytes between tensors that are carried along */

typedef struct lp_cold_cut {
    lp_cold_batches *b;
    const lp_plan *plan;
    const lp_cold_files *files;
    lp_ranges ranges; /* of the name at hand */
    int64_t target;   /* bytes of a batch, unless one tensor has more */
    bool has_batch, has_chunk, has_part;
    int32_t file;  /* of the tensor before in the batch, or -1, and */
    int64_t shift; /* how far its place in the slot is from that in the file */
} lp_cold_cut;

static inline int64_t lp_cold_align(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Opens a batch where none is open, or the open one has as many items as a push takes. */
lp_status lp_cold_cut_batch(lp_cold_cut *m, lp_error *err);
void lp_cold_cut_close(lp_cold_cut *m);
/* A name of the open batch, with the place of its byte 0 in the slot. */
lp_status lp_cold_cut_item(lp_cold_cut *m, lp_handle handle, int64_t base, lp_error *err);
/* Bytes of a file to place `to` of the slot, or from `straight` on; part by part, chunk by chunk. */
lp_status lp_cold_cut_bytes(lp_cold_cut *m, int32_t file, int64_t file_off, uint8_t *straight, int64_t to,
                            int64_t bytes, lp_error *err);

#endif
