/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cold start, planned: which bytes of which file go into which chunk of pinned memory, and from there to which place
 * in which slot. Flat tables, built once before the first read.
 *
 *   batch   whole checkpoint tensors that share a slot of device memory; pushed together
 *   chunk   what one reader reads and copies at a time; of one batch
 */
#ifndef LOADPLAN_DEVICE_COLD_BATCHES_H
#define LOADPLAN_DEVICE_COLD_BATCHES_H

#include "replayer/device_cold.h"

typedef struct lp_cold_read {
    int32_t file;
    int64_t file_off, bytes;
    int64_t at; /* in the chunk */
} lp_cold_read;

/* Rows of a chunk. */
typedef struct lp_cold_copy {
    uint8_t *straight; /* where `to` counts from; NULL: the slot */
    int64_t to, at;    /* of the first row */
    int64_t bytes, rows, to_pitch, at_pitch;
} lp_cold_copy;

typedef struct lp_cold_chunk {
    int64_t first_read, reads, first_copy, copies;
    int64_t batch, used; /* used: bytes of the chunk */
} lp_cold_chunk;

typedef struct lp_cold_batch {
    int64_t first_item, items, first_chunk, chunks;
    int64_t used;  /* bytes of the slot */
    int64_t bytes; /* that are read */
} lp_cold_batch;

typedef struct lp_cold_batches {
    const lp_alloc *alloc;
    int64_t slot; /* bytes */
    lp_cold_batch *batch;
    lp_cold_chunk *chunk;
    lp_cold_read *read;
    lp_cold_copy *copy;
    lp_handle *handle;  /* by item */
    int64_t *base;      /* by item: of the tensor's byte 0, in the slot; LP_COLD_NO_BYTES: nothing of it is read */
    int64_t most_items; /* of a batch */
    int64_t batches, chunks, reads, copies, items;
    int64_t batch_capacity, chunk_capacity, read_capacity, copy_capacity, handle_capacity, base_capacity;
    int64_t bytes, straight_bytes, names;
    int64_t *file_uses; /* by file of the checkpoint: reads */
} lp_cold_batches;

#define LP_COLD_NO_BYTES INT64_MIN

/* LP_E_STALE, LP_E_ARGUMENT (a catalogue without files), LP_E_MEMORY. */
lp_status lp_cold_batches_make(lp_cold_batches *b, const lp_plan *plan, const lp_checkpoint *checkpoint, int64_t slot,
                               lp_error *err);
void lp_cold_batches_free(lp_cold_batches *b);

/* ---- device_cold_files.c: the files that are read, all open ---- */

typedef struct lp_cold_files {
    const lp_platform *platform;
    const lp_checkpoint *checkpoint;
    int32_t count;
    int *fd; /* by file; -1: not needed */
    lp_file_stat *opened;
} lp_cold_files;

lp_status lp_cold_files_open(lp_cold_files *f, const lp_platform *platform, const lp_checkpoint *checkpoint,
                             const int64_t *uses, lp_error *err);
/* LP_E_CORRUPT when a file changed since it was opened. */
lp_status lp_cold_files_unchanged(const lp_cold_files *f, lp_error *err);
void lp_cold_files_close(lp_cold_files *f);
/* All of [off, off + bytes), by any thread. */
lp_status lp_cold_files_read(const lp_cold_files *f, int32_t file, int64_t off, void *to, int64_t bytes, lp_error *err);

/* ---- device_cold_derives.c: on the host, after everything has arrived ---- */

lp_status lp_cold_derives(const lp_cold_device *device, const lp_plan *plan, const lp_cold_files *files,
                          lp_cold_report *report, lp_error *err);

#endif
