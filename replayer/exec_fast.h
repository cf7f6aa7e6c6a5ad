/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast CPU executor: the same bytes as the reference executor (exec_cpu.c), by other means.
 *
 *   clip     a part of a map is cut into pieces: whole boxes, of which every source byte is at hand     exec_fast.c
 *   batch    pieces of one or of many steps are gathered and split into tasks of about equal bytes      exec_fast.c
 *   rows     long runs: memcpy, or stores that bypass the cache where much is written exec_fast_rows.c words    short
 * runs: tiles in which both sides stay in the cache, transposed in registers           exec_fast_words.c casts gathered
 * into dense blocks, cast, scattered                                                exec_fast_words.c
 *
 * Which thread writes which byte never matters: pieces are disjoint in the destination.
 */
#ifndef LOADPLAN_EXEC_FAST_H
#define LOADPLAN_EXEC_FAST_H

#include "replayer/exec.h"
#include "replayer/exec_pool.h"

enum {
    LP_PIECE_RANK = 12, /* boxes of more modes go to the reference */
    LP_BATCH_PIECES = 64,
    LP_TABLE_WORDS = 1024 /* offsets that one tile of short runs knows at a time */
};

struct lp_piece;
/* Does units [first, end) of a piece. */
typedef void (*lp_piece_move)(const struct lp_piece *p, int64_t first, int64_t end);

/* A whole box with addresses. Modes are outermost first, as in the map; extents may be narrower. */
typedef struct lp_piece {
    uint8_t *dst;
    const uint8_t *src; /* NULL for a fill */
    int64_t run;        /* elements */
    int64_t bytes;      /* written */
    int64_t units;      /* into which its work can be split */
    lp_piece_move move;
    lp_mode column;            /* of short runs: the mode along which the source runs on; extent 1: none */
    int64_t words;             /* of short runs: steps of the inner modes */
    int64_t dense;             /* of those, how many lie in a row in the destination */
    int64_t segment, segments; /* of long runs; of short ones the columns of a tile, tiles */
    uint64_t fill_bits;
    int32_t src_elem, dst_elem;
    int32_t rank, outer; /* modes; outer: those around a tile */
    int32_t lanes;       /* of short runs: words in 16 bytes where they can be transposed in registers, else 0 */
    uint8_t src_dtype, dst_dtype;
    bool is_cast, streams;
    lp_mode mode[LP_PIECE_RANK];
} lp_piece;

/* Gathers work. Zero-initialise count and bytes through lp_batch_init. */
typedef struct lp_batch {
    lp_pool *pool;
    int64_t count, bytes; /* of the gathered pieces */
    lp_piece piece[LP_BATCH_PIECES];
} lp_batch;

void lp_batch_init(lp_batch *b, lp_pool *pool);
/* As lp_exec_part and lp_exec_fill, but the bytes are there after lp_batch_flush only. Memory must stay until then. */
int64_t lp_batch_part(lp_batch *b, const lp_step *step, uint8_t *dst, const uint8_t *src, int64_t src_first, int64_t lo,
                      int64_t hi);
int64_t lp_batch_fill(lp_batch *b, const lp_step *step, uint8_t *dst);
void lp_batch_flush(lp_batch *b);

/* Sets bytes to zero. */
void lp_exec_clear(lp_pool *pool, uint8_t *base, int64_t bytes);

/* exec_fast_rows.c, exec_fast_words.c: choose how a piece moves, set move, units and what goes with them. */
void lp_piece_plan_rows(lp_piece *p);
void lp_piece_plan_fill(lp_piece *p);
void lp_piece_plan_words(lp_piece *p);
void lp_piece_plan_cast(lp_piece *p);

/* Copies a run around the cache; asks for as many bytes at `next`, an address that need not be valid, meanwhile. */
void lp_stream_copy(uint8_t *dst, const uint8_t *src, size_t bytes, const uint8_t *next);
/* Makes streamed bytes visible to other threads in order. */
void lp_stream_end(void);

/* ---- counting through modes ---- */

typedef struct lp_odometer {
    int32_t rank;
    const lp_mode *mode;
    int64_t src, dst; /* offsets of the current step */
    int64_t index[LP_PIECE_RANK];
} lp_odometer;

static inline void lp_odometer_set(lp_odometer *o, const lp_mode *mode, int32_t rank, int64_t linear)
{
    o->rank = rank;
    o->mode = mode;
    o->src = o->dst = 0;
    for (int32_t m = rank - 1; m >= 0; m--) {
        o->index[m] = linear % mode[m].extent;
        linear /= mode[m].extent;
        o->src += o->index[m] * mode[m].src_stride;
        o->dst += o->index[m] * mode[m].dst_stride;
    }
}

static inline void lp_odometer_next(lp_odometer *o)
{
    for (int32_t m = o->rank - 1; m >= 0; m--) {
        o->src += o->mode[m].src_stride;
        o->dst += o->mode[m].dst_stride;
        if (++o->index[m] < o->mode[m].extent)
            return;
        o->src -= o->mode[m].extent * o->mode[m].src_stride;
        o->dst -= o->mode[m].extent * o->mode[m].dst_stride;
        o->index[m] = 0;
    }
}

#endif
