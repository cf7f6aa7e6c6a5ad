/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of a cold start over devices share: reading and uploads (sync_cold_lane.c), messages of a chunk
 * that is up (sync_cold_step.c). */
#ifndef LOADPLAN_SYNC_COLD_STEP_H
#define LOADPLAN_SYNC_COLD_STEP_H

#include "replayer/device_session.h"
#include "replayer/sync_cold_read.h"
#include "replayer/sync_lane.h"
#include "replayer/sync_world.h"
#include "replayer/transport_wire.h"

/* Messages of one chunk, to one rank and from one. */
typedef struct lp_cold_step {
    bool is_open, sends, gets;
    int32_t to, from;
    int64_t chunk, out_bytes, in_bytes;
    int64_t payload, header_in, header_out; /* tickets */
    uint8_t mine[LP_FRAME_BYTES], theirs[LP_FRAME_BYTES];
} lp_cold_step;

typedef struct lp_cold_lane {
    lp_sync *s;
    const lp_cold_world *w;
    lp_session *session;
    void *stream;
    const lp_nccl_device *d;
    void *context;
    const lp_device_calls *calls;
    const lp_lane *lane;
    void *owner;
    lp_sync_lane *out, *in;
    lp_pieces own; /* of names that nobody else needs */
    lp_cold_reader *reader;
    uint8_t *pinned[LP_COLD_AHEAD];
    bool is_lent; /* pinned is the caller's */
    void *chunk[2], *got[2], *packed[2], *packed_here;
    void *up, *uploaded[2], *used[2]; /* used: what read the chunk on the session's stream */
    bool was_used[2];
    int64_t uploads, released, all; /* chunks of this rank: uploaded, given back to the reader, in all */
    lp_cold_step step[2];
    int64_t steps;
} lp_cold_lane;

/* Chunks are in two places by turns. */
static inline int lp_cold_slot_of(int64_t number)
{
    return (int)(number % 2);
}

/* Whether all of a chunk goes to the rank, so that it is sent from where it is. */
static inline bool lp_cold_is_direct(const lp_cold_lane *x, int32_t to, int64_t chunk)
{
    return x->w->out[to].frame[chunk].bytes == x->w->read.frame[chunk].bytes;
}

lp_status lp_cold_lane_check(const lp_cold_lane *x, int code, const char *verb, lp_error *err);

/* ---- sync_cold_step.c ---- */

/* Replays pieces that lie one after the other at `data`. */
lp_status lp_cold_lane_push(const lp_cold_lane *x, const lp_pieces *p, const lp_frame_span *f, const void *data,
                            lp_error *err);
/* What reads chunk `number` is on the session's stream. */
lp_status lp_cold_lane_used(lp_cold_lane *x, int64_t number, lp_error *err);
/* This rank's own part of a chunk that it has read. */
lp_status lp_cold_step_here(lp_cold_lane *x, int64_t chunk, lp_error *err);
/* Sends a chunk to all that need some of it, and replays what comes of theirs. */
lp_status lp_cold_step_all(lp_cold_lane *x, int64_t chunk, lp_error *err);

#endif
