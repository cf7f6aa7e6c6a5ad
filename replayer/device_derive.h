/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derives on a device: the programs of a plan as flat tables, and what runs them. Private to the replayer.
 *
 *   code   one node of a derive, with the address at which its value lies
 *   move   bytes between a region and a dense array, as a counted loop of words
 *   job    one derive: gathers, codes, then the result goes to its place or a check leaves its outcome
 *
 * A job whose operations are all elementwise and whose regions are dense runs on as many thread blocks as it has work
 * for, element by element, and needs no scratch ("spread"). Any other job runs on one block, node after node, over
 * arrays in scratch that is its own: next to the processor where they are small ("near"). Everything but the bytes is
 * known at bind, so nothing is uploaded to run jobs and running them can be captured.
 *
 * Tables are plain data, the interpreter (device_derive_run.h) is one source for host and device.
 */
#ifndef LOADPLAN_DEVICE_DERIVE_H
#define LOADPLAN_DEVICE_DERIVE_H

#include "traces/base.h"

enum {
    LP_DERIVE_THREADS = 256,
    LP_DERIVE_SPREAD_NODES = 16,                      /* values that a thread keeps for one element */
    LP_DERIVE_BLOCK_ELEMENTS = 8 * LP_DERIVE_THREADS, /* of a spread job, for each block */
    LP_DERIVE_BLOCKS_MAX = 1024,
    LP_DERIVE_NEAR_CODES = 24,
    LP_DERIVE_NEAR_BYTES = 8 << 10, /* of scratch */
    LP_DERIVE_JOBS_MAX = 480 /* of one launch: they travel as kernel parameters, in the 4 KiB that every driver takes */
};

typedef struct lp_derive_code {
    uint64_t value;  /* address of the value; an offset in scratch while in_scratch is set and it is not placed, in a
                      * near job for ever */
    uint64_t work;   /* of a reduction: room for two arrays as long as its operand */
    uint64_t bits;   /* of a constant, and of a check its tolerance */
    int64_t count;   /* elements */
    int64_t group;   /* of a reduction: consecutive elements that make one */
    uint32_t arg[3]; /* codes of the same job */
    uint8_t op, dtype, from; /* from: dtype of the operand of a cast, LP_DTYPE_NONE where bytes stay as they are */
    uint8_t element;         /* bytes */
    bool in_scratch;
} lp_derive_code;

typedef struct lp_derive_move {
    uint64_t from, to; /* addresses of the first word; in scratch as with a code's value */
    int64_t words;
    uint32_t first_mode, rank; /* innermost first */
    uint32_t word;             /* bytes: 1, 2, 4 or 8 */
    bool from_scratch, to_scratch;
} lp_derive_move;

typedef struct lp_derive_job {
    uint32_t first_code, codes;
    uint32_t first_gather, gathers;
    uint32_t first_scatter, scatters;
    uint32_t outcome; /* of a check; LP_NONE */
    uint32_t blocks;
    uint64_t result;    /* of a spread job: address of its dense destination */
    int64_t near_bytes; /* of a near job: its scratch */
    bool is_spread, is_near;
} lp_derive_job;

/* What a check found the last time it ran. */
typedef struct lp_derive_outcome {
    int64_t index; /* first failing element; -1: none, or it has not run */
    float a, b;    /* its values */
} lp_derive_outcome;

typedef struct lp_derive_table {
    lp_derive_code *code;
    lp_derive_move *move;
    lp_mode *mode;
    lp_derive_job *job;
    int64_t codes, moves, modes, jobs, outcomes;
    int64_t code_capacity, move_capacity, mode_capacity, job_capacity;
    int64_t scratch_bytes; /* zeroed once before the first run */
    const lp_alloc *alloc;
} lp_derive_table;

/* Adds a derive as the next job. region[i] is the address that source offset 0 of the map of input i means, or for a
 * staged input that of its dense bytes; `dest` is the address that destination offset 0 of the derive's map means. */
lp_status lp_derive_table_add(lp_derive_table *t, const lp_derive *derive, const uint64_t *region, uint64_t dest,
                              lp_error *err);
/* Says where scratch is. Once, after all jobs were added. */
void lp_derive_table_place(lp_derive_table *t, uint64_t scratch);
void lp_derive_table_free(lp_derive_table *t);

/* ---- on the host, for tests and for devices in host memory ---- */

void lp_derive_run_host(const lp_derive_table *t, uint32_t job, lp_derive_outcome *outcome);

/* ---- on a GPU ---- */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lp_device_derives lp_device_derives;

/* Uploads the table and takes scratch; the table is placed by this call and may be freed afterwards. Calls return 0 or
 * a cudaError_t. */
int lp_device_derives_open(lp_device_derives **out, lp_derive_table *table);
void lp_device_derives_close(lp_device_derives *d);          /* NULL is allowed */
int64_t lp_device_derives_bytes(const lp_device_derives *d); /* device memory that it holds */

/* Starts jobs that do not wait for each other: one launch for every LP_DERIVE_JOBS_MAX. */
int lp_device_derives_run(const lp_device_derives *d, const uint32_t *job, uint32_t count, void *stream);

/* Forgets all outcomes, on the stream; copies them, when what was started on the stream is complete. */
int lp_device_derives_forget(const lp_device_derives *d, void *stream);
int lp_device_derives_outcomes(const lp_device_derives *d, lp_derive_outcome *out, void *stream);

#ifdef __cplusplus
}
#endif

#endif
