/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a checkpoint as if every tensor's elements had moved on by one place and the last one stood first: other
 * values under the same names, shapes and dtypes, without a second checkpoint. Private to the replayer.
 *
 * A table of file calls over another one; whoever reads through it sees rolled payloads while `is_rolled` is set.
 * Elements of less than a byte move by the least number of whole bytes: one for F4, three for F6.
 */
#ifndef LOADPLAN_ROLLED_IO_H
#define LOADPLAN_ROLLED_IO_H

#include "traces/base.h"

typedef struct lp_rolled_tensor {
    int64_t off, bytes, step; /* in the file; step: how far elements move */
} lp_rolled_tensor;

typedef struct lp_rolled_io {
    lp_io table; /* for the platform of a plan */
    const lp_io *real;
    const lp_alloc *alloc;
    const lp_checkpoint *checkpoint;
    lp_rolled_tensor *tensor; /* with bytes, by file and place */
    int64_t *first;           /* by file: its first tensor; one more at the end */
    int32_t *file_of;         /* by descriptor: file + 1, or 0 */
    bool is_rolled;           /* changed between loads only */
} lp_rolled_io;

/* The checkpoint and the platform's tables must outlive it. Direct reads are refused, since rolled ranges are aligned
 * to nothing; readers then use buffered ones. */
lp_status lp_rolled_io_make(lp_rolled_io *r, const lp_checkpoint *checkpoint, const lp_platform *platform,
                            lp_error *err);
void lp_rolled_io_free(lp_rolled_io *r);

/* How far an element of this dtype moves, in bytes. */
int64_t lp_rolled_step(lp_dtype dtype);

#endif
