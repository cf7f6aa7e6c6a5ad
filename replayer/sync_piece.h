/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces: which source bytes travel, in which order, cut into frames. Sender and receiver make the same list, so the
 * bytes themselves travel without any description. Private to the replayer.
 */
#ifndef LOADPLAN_SYNC_PIECE_H
#define LOADPLAN_SYNC_PIECE_H

#include "replayer/source_ranges.h"

/* `count` runs of `run` bytes of tensor `name`, the first at lo, `stride` apart; packed one after the other. A tensor
 * without bytes is a piece with run 0. stride is 0 where count is 1. */
typedef struct lp_piece {
    uint32_t name;
    int64_t lo, run, stride, count;
} lp_piece;

typedef struct lp_frame_span {
    int64_t first, count; /* pieces */
    int64_t bytes;
} lp_frame_span;

typedef struct lp_pieces {
    const lp_alloc *alloc;
    lp_piece *piece;
    int64_t count, capacity, bytes;
    lp_frame_span *frame; /* after lp_pieces_cut */
    int64_t frame_count, frame_capacity;
} lp_pieces;

void lp_pieces_init(lp_pieces *p, const lp_alloc *alloc);
void lp_pieces_free(lp_pieces *p);
lp_status lp_pieces_add(lp_pieces *p, const lp_piece *piece, lp_error *err);
/* A range; joins the last piece where it continues it, or repeats its step. */
lp_status lp_pieces_add_range(lp_pieces *p, uint32_t name, int64_t lo, int64_t hi, lp_error *err);
/* A piece; joins the last one where it goes on with its steps. */
lp_status lp_pieces_join(lp_pieces *p, const lp_piece *piece, lp_error *err);
/* Cuts into frames of at most `bucket` payload bytes, in the same order; pieces that cross a bound are split, at a
 * multiple of 64 bytes of the tensor where they are whole ranges. */
lp_status lp_pieces_cut(lp_pieces *p, int64_t bucket, lp_error *err);

/* Puts the pieces of each frame that are multiples of 16 bytes before the others, so that they lie at such multiples in
 * a bucket, where devices move them fastest. */
lp_status lp_pieces_align(lp_pieces *p, lp_error *err);

static inline int64_t lp_piece_bytes(const lp_piece *p)
{
    return p->run * p->count;
}

/* A frame of a list that was cut, and the payload bytes of the one after it; -1: it is the last. */
static inline const lp_frame_span *lp_pieces_frame(const lp_pieces *p, int64_t number)
{
    return &p->frame[number];
}
static inline int64_t lp_pieces_next_bytes(const lp_pieces *p, int64_t number)
{
    return number + 1 < p->frame_count ? p->frame[number + 1].bytes : -1;
}

/* As bytes, for the wire: little endian. get checks names, bounds and order against the sizes of the catalogue's
 * tensors; LP_E_CORRUPT. */
lp_status lp_pieces_put(const lp_pieces *p, lp_text *out, lp_error *err);
lp_status lp_pieces_get(lp_pieces *p, const uint8_t *data, int64_t bytes, const lp_checkpoint *catalogue,
                        lp_error *err);

/* Adds the bytes of the pieces of one name to a set of ranges. */
lp_status lp_piece_ranges(const lp_piece *piece, lp_ranges *out, lp_error *err);

#endif
