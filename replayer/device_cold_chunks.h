/* SPDX-License-Identifier: Apache-2.0 */
/* The pipe of a cold start, as its own files see it: chunks (device_cold_chunks.c), readers (device_cold_readers.c) and
 * the owner (device_cold_pipe.c). */
#ifndef LOADPLAN_DEVICE_COLD_CHUNKS_H
#define LOADPLAN_DEVICE_COLD_CHUNKS_H

#include "replayer/device_cold_pipe.h"

typedef struct lp_cold_reader {
    lp_cold_pipe *pipe;
    pthread_t thread;
} lp_cold_reader;

/* A chunk under way. */
typedef struct lp_cold_flight {
    atomic_int buffer; /* -1: none yet */
    int64_t missing;   /* parts; under the pipe's lock */
} lp_cold_flight;

/* Batches that were planned together. Parts, chunks and batches are numbered through all sections. */
typedef struct lp_cold_section {
    const lp_cold_batches *b;
    int64_t first_part, first_chunk, first_batch;
    lp_cold_flight *flight; /* by chunk of the section */
    int64_t *unsent;        /* by batch of the section: chunks */
} lp_cold_section;

struct lp_cold_pipe {
    const lp_cold_device *device;
    const lp_plan *plan;
    const lp_alloc *alloc;
    lp_cold_section section[2]; /* the second one is planned while the first is read */
    const lp_cold_options *options;
    const lp_cold_files *files;
    lp_cold_ring *ring;
    lp_cold_program *maker;
    void *program; /* NULL: not made yet */
    lp_cold_reader reader[LP_COLD_READERS_MOST];
    int32_t started;
    atomic_int queues;    /* of readers that have one */
    atomic_bool has_told; /* how direct reads are made */
    const void **data;    /* of a push */
    int64_t data_room;

    pthread_mutex_t lane_lock;                              /* of the lane of copies, and of */
    int64_t followed[LP_COLD_SLOTS];                        /* by slot: batch whose copies follow the push before; -1 */
    bool follows_cleared;                                   /* so do straight copies the clearing */
    int free[LP_COLD_BUFFERS_MOST], free_count;             /* a stack */
    int busy[LP_COLD_BUFFERS_MOST], busy_first, busy_count; /* a queue, in the order of copies */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t planned, assigned, sent, pushed;
    int32_t sections; /* that are planned */
    bool is_planned;  /* there are no more to come */
    int64_t next_part;
    int64_t assigned_count; /* chunks that have, or had, a buffer */
    int64_t pushed_count;   /* batches */
    bool is_cleared;        /* the mark behind the clearing is set */
    atomic_bool is_ending;
    lp_status status; /* the first failure */
    lp_error error;
};

/* ---- device_cold_chunks.c: called by readers ---- */

/* The section of something that was planned: what is in the second one was handed out after it was. */
lp_cold_section *lp_cold_section_of_part(lp_cold_pipe *p, int64_t part);
lp_cold_section *lp_cold_section_of_batch(lp_cold_pipe *p, int64_t batch);

uint8_t *lp_cold_slot_at(const lp_cold_pipe *p, int64_t batch);
/* The number of the next part in the order of the plan; -1: there is none, or none is planned yet and the caller does
 * not wait, or the pipe is ending. */
int64_t lp_cold_part_next(lp_cold_pipe *p, bool waits);
/* Where the part is read to. *out is NULL when its chunk has no buffer yet and the caller does not wait, or when the
 * pipe is ending. */
lp_status lp_cold_part_buffer(lp_cold_pipe *p, int64_t part, bool waits, uint8_t **out, lp_error *err);
/* The part is in its buffer. True when it was the last one of its chunk, which is then to be sent. */
bool lp_cold_part_read(lp_cold_pipe *p, int64_t part, int64_t *chunk);
/* Copies a chunk to its slot. *is_sent is false when the slot is not free yet and the caller does not wait, or when the
 * pipe is ending. */
lp_status lp_cold_chunk_send(lp_cold_pipe *p, int64_t chunk, bool waits, bool *is_sent, lp_error *err);
/* Ends the pipe; the first failure stays. */
void lp_cold_pipe_fail(lp_cold_pipe *p, lp_status status, const lp_error *err);

/* ---- device_cold_readers.c ---- */

/* The thread of one reader, until there are no parts. */
void *lp_cold_reader_run(void *reader);

#endif
