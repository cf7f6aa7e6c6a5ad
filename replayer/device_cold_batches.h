/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cold start, planned: which bytes of which file go into which chunk of pinned memory, and from there to which place
 * in which slot. Flat tables. Those of the first batches are built before the first read, the others meanwhile.
 *
 * Which bytes are read. Through the page cache: exactly those that are needed; what follows one another in the file
 * comes with one call. Directly: the blocks of LP_COLD_BLOCK that hold them; needed bytes whose blocks touch come with
 * one call, no gap is read, and parts of one batch share no block.
 *
 *   batch   whole checkpoint tensors that share a slot of device memory; pushed together
 *   chunk   a buffer of pinned memory, copied at a time; of one batch
 *   part    what one reader reads at a time; of one chunk
 */
#ifndef LOADPLAN_DEVICE_COLD_BATCHES_H
#define LOADPLAN_DEVICE_COLD_BATCHES_H

#include "replayer/device_cold.h"
#include "replayer/read_names.h"

#include <stdatomic.h>

enum {
    LP_COLD_BLOCK = 4096,          /* of direct reads: offsets, sizes and addresses are multiples */
    LP_COLD_DIRECT_LEAST = 1 << 20 /* needed of a file, to be worth a look at what is cached */
};

typedef struct lp_cold_read {
    int32_t file;
    int64_t file_off, bytes; /* the last byte is needed */
    int64_t room;            /* of a direct read: bytes, rounded up to blocks; 0: through the page cache */
    int64_t at;              /* in the chunk */
} lp_cold_read;

/* Rows of a chunk. */
typedef struct lp_cold_copy {
    uint8_t *straight; /* where `to` counts from; NULL: the slot */
    int64_t to, at;    /* of the first row */
    int64_t bytes, rows, to_pitch, at_pitch;
} lp_cold_copy;

typedef struct lp_cold_part {
    int64_t first_read, reads;
    int64_t chunk, used; /* used: bytes of the part */
} lp_cold_part;

typedef struct lp_cold_chunk {
    int64_t first_part, parts, first_copy, copies;
    int64_t batch, used; /* used: bytes of the chunk */
} lp_cold_chunk;

typedef struct lp_cold_batch {
    int64_t first_item, items, first_chunk, chunks;
    int64_t used;  /* bytes of the slot */
    int64_t bytes; /* that are read */
} lp_cold_batch;

typedef struct lp_cold_batches {
    const lp_alloc *alloc;
    int64_t slot, chunk_bytes;
    int64_t target; /* bytes of a batch, unless one tensor has more */
    lp_cold_batch *batch;
    lp_cold_chunk *chunk;
    lp_cold_part *part;
    lp_cold_read *read;
    lp_cold_copy *copy;
    lp_handle *handle;  /* by item */
    int64_t *base;      /* by item: of the tensor's byte 0, in the slot; LP_COLD_NO_BYTES: nothing of it is read */
    int64_t most_items; /* of a batch */
    int64_t batches, chunks, parts, reads, copies, items;
    int64_t batch_capacity, chunk_capacity, part_capacity, read_capacity, copy_capacity, handle_capacity, base_capacity;
    int64_t bytes, straight_bytes; /* bytes: that are needed and go to the device */
    lp_read_name *name;            /* in file order */
    int64_t names, cut;            /* cut: names that are in a batch, or need none */
    int64_t *file_needed;          /* by file of the checkpoint: bytes at most; -1: the file is not needed */
    bool follows;                  /* what stands above belongs to the batches before these */
} lp_cold_batches;

#define LP_COLD_NO_BYTES INT64_MIN

/* ---- device_cold_files.c: the files that are read, all open ---- */

typedef struct lp_cold_file {
    int fd;                 /* -1: not needed */
    int direct_fd;          /* the same with O_DIRECT; -1: read through the page cache */
    atomic_bool is_refused; /* a direct read failed: no more of them */
    _Atomic int64_t bytes;  /* read */
    lp_file_stat opened;
} lp_cold_file;

typedef struct lp_cold_files {
    const lp_platform *platform;
    const lp_checkpoint *checkpoint;
    int32_t count;
    lp_cold_file *file;
} lp_cold_files;

/* Opens the files with needed[i] >= 0 and chooses for each how it is read. */
lp_status lp_cold_files_open(lp_cold_files *f, const lp_platform *platform, const lp_checkpoint *checkpoint,
                             const int64_t *needed, lp_cold_reading how, lp_error *err);
/* LP_E_CORRUPT when a file changed since it was opened. */
lp_status lp_cold_files_unchanged(const lp_cold_files *f, lp_error *err);
void lp_cold_files_count(const lp_cold_files *f, lp_cold_report *report); /* what was read so far */
void lp_cold_files_close(lp_cold_files *f);
/* Bytes that were read another way than by the call below; by any thread. */
void lp_cold_files_note(const lp_cold_files *f, int32_t file, int64_t bytes);
/* All of [off, off + bytes), by any thread. With room > 0, `to` has room for as many bytes, and a file that is read
 * directly may fill it. */
lp_status lp_cold_files_read(const lp_cold_files *f, int32_t file, int64_t off, void *to, int64_t bytes, int64_t room,
                             lp_error *err);

/* ---- device_cold_names.c: what is loaded ---- */

/* Fills name and file_needed. LP_E_STALE, LP_E_ARGUMENT (a catalogue without files), LP_E_MEMORY. */
lp_status lp_cold_names_list(lp_cold_batches *b, const lp_plan *plan, const lp_checkpoint *checkpoint, lp_error *err);

/* ---- device_cold_batches.c ---- */

/* Cuts the listed names into batches of at most `slot` bytes, unless one tensor has more, and those into chunks. Ends
 * behind `most` batches, or a name more; INT64_MAX: not before the last name. b->slot is enough for all names. */
lp_status lp_cold_batches_make(lp_cold_batches *b, const lp_plan *plan, const lp_cold_files *files, int64_t slot,
                               int64_t chunk_bytes, int64_t most, lp_error *err);
/* The batches behind those of `first`, which must outlive them. */
lp_status lp_cold_batches_rest(lp_cold_batches *rest, const lp_cold_batches *first, const lp_plan *plan,
                               const lp_cold_files *files, lp_error *err);
void lp_cold_batches_free(lp_cold_batches *b);

/* ---- device_cold_derives.c: on the host, after everything has arrived ---- */

lp_status lp_cold_derives(const lp_cold_device *device, const lp_plan *plan, const lp_cold_files *files,
                          lp_cold_report *report, lp_error *err);

#endif
