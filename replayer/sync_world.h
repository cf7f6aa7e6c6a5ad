/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole worlds from their traces, without a byte of payload: what every rank needs and holds, what a sliced sync moves,
 * and how the ranks of a cold start share the reading. Private to the replayer.
 */
#ifndef LOADPLAN_SYNC_WORLD_H
#define LOADPLAN_SYNC_WORLD_H

#include "replayer/plan.h"
#include "replayer/sync.h"
#include "replayer/sync_piece.h"

/* Source bytes by rank, in order of names: what plans read, or what loaded memory holds. */
typedef struct lp_world_bytes {
    const lp_alloc *alloc;
    const lp_checkpoint *catalogue;
    lp_pieces *rank; /* by scope of the trace */
    int32_t ranks;
} lp_world_bytes;

/* holds: what the destinations hold after a load, else what the load reads. Fallback names are neither. */
lp_status lp_world_bytes_make(lp_world_bytes *out, const lp_trace *trace, bool holds, const lp_platform *platform,
                              lp_error *err);
void lp_world_bytes_free(lp_world_bytes *w);

/* Goes through the names in rising order, once: the ranges of one name on one rank, normalised. cursor is 0 at first,
 * one for each rank. */
lp_status lp_world_ranges(const lp_world_bytes *w, int32_t rank, uint32_t name, int64_t *cursor, lp_ranges *out,
                          lp_error *err);

/* The same as pieces, which live as long as w. */
const lp_piece *lp_world_pieces(const lp_world_bytes *w, int32_t rank, uint32_t name, int64_t *cursor, int64_t *count);

/* What the destinations of a plan hold of a name: adds to *out, not normalised. */
lp_status lp_gather_ranges(const lp_plan *plan, uint32_t name, lp_ranges *out, lp_error *err);

/* ---- cold starts ---- */

/* How one rank of a cold start takes part: pieces are cut into frames, one for each chunk of a reader's share, some of
 * them empty. */
typedef struct lp_cold_world {
    const lp_alloc *alloc;
    int32_t rank, ranks;
    lp_pieces read;         /* of this rank, a frame for each chunk */
    lp_pieces *out;         /* by receiver: of the chunks of this rank */
    lp_pieces *in;          /* by reader: of that reader's chunks */
    int64_t *chunks;        /* by reader */
    bool *is_shared;        /* by name */
    int64_t *needed, *once; /* by name: bytes of all ranks added up, and counted once */
    lp_cold_costs costs;
} lp_cold_world;

/* rank -1: costs only. */
lp_status lp_cold_world_make(lp_cold_world *out, const lp_world_bytes *needs, int32_t rank, int64_t bucket,
                             const lp_cold_rates *rates, lp_error *err);
void lp_cold_world_free(lp_cold_world *c);

#endif
