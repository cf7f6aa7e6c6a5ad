/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact coverage of a destination: which byte sets overlap, which bytes of the target nobody writes, which bytes fall
 * outside it. Private to the project. docs/check.md says how the sweep works and why it is exact.
 *
 * Everything is about destination bytes only: sources play no part. Cost is O(n log n) in the boxes where their strides
 * divide each other, which is so for every real layout; elsewhere it grows with the number of runs up to a stated
 * limit, and beyond it the verdict is `undecided`.
 */
#ifndef LOADPLAN_COVER_H
#define LOADPLAN_COVER_H

#include "traces/trace.h"

enum {
    LP_COVER_PAIRS_MAX = 65536,    /* overlapping pairs that are listed */
    LP_COVER_PIECES_MAX = 4194304, /* grid pieces (runs, where strides do not divide) in one problem */
    LP_COVER_WORK_MAX = 1 << 27    /* piece visits of one memo's life; each costs a few nanoseconds */
};

/* A set of destination bytes: those that `map` writes, moved by dst_off. */
typedef struct lp_cover_item {
    const lp_map *map;
    int64_t dst_off;
    uint32_t tag; /* the caller's number; two items of one tag are never reported as a pair */
    bool loose;   /* fills gaps, but neither overlaps anything nor lies outside: the region of a fallback */
    bool brief;   /* the map may end before the memo does: not to be remembered */
} lp_cover_item;

/* Two tags that share bytes, with a range of bytes that they share: the lowest one. a < b. */
typedef struct lp_cover_pair {
    uint32_t a, b;
    int64_t byte_lo, byte_hi;
} lp_cover_pair;

typedef struct lp_cover_report {
    bool undecided;       /* a limit was hit: whatever is said below is true, but more may be wrong */
    bool pairs_truncated; /* more than LP_COVER_PAIRS_MAX pairs overlap */
    int64_t npair;
    lp_cover_pair *pair; /* sorted by (a, b) */
    int64_t uncovered_bytes;
    int64_t gap_lo, gap_hi;         /* a range that starts at the first uncovered byte, or -1, -1 */
    bool outside;                   /* some item writes outside the target: a range that starts at the lowest such */
    uint32_t outside_tag;           /* byte, which may be negative, and who writes it */
    int64_t outside_lo, outside_hi; /* -1, -1 when there is none */
} lp_cover_report;

/* Remembers problems that were clean (no pair, no gap, nothing outside) so that the same one costs only its key the
 * next time: layers and ranks repeat each other. Keys hold the addresses of maps, so maps must be interned and outlive
 * the memo, and the whole key is compared. It also carries the work limit and scratch memory. Not thread-safe. */
typedef struct lp_cover_memo lp_cover_memo;

lp_status lp_cover_memo_new(lp_cover_memo **out, const lp_alloc *alloc, lp_error *err);
void lp_cover_memo_free(lp_cover_memo *memo); /* NULL is allowed */
/* At most so many visits from now on, for callers to whom `undecided` is better than an answer that is late. */
void lp_cover_memo_limit(lp_cover_memo *memo, int64_t visits);

/* Answers about `count` items. `target` holds the bytes that must be written (its boxes nested, sources ignored; see
 * lp_cover_target_of); NULL asks for overlaps only. `memo` may be NULL, else it was made with the same `alloc`. The
 * report is filled on LP_OK and freed with lp_cover_report_free. LP_E_ARGUMENT: offsets that overflow. */
lp_status lp_cover(lp_cover_report *out, const lp_map *target, const lp_cover_item *item, int64_t count,
                   lp_cover_memo *memo, const lp_alloc *alloc, lp_error *err);
void lp_cover_report_free(lp_cover_report *report, const lp_alloc *alloc);

/* The logical bytes of a destination as one box, relative to its element [0, ..., 0]. Plain data that must not be
 * copied (map points into it). */
typedef struct lp_cover_target {
    lp_map map;
    lp_box box;
    lp_mode mode[LP_VIEW_DIMS];
} lp_cover_target;

/* LP_E_UNSUPPORTED: strides by which elements overlap each other, so that no nested box exists. A destination without
 * elements gives a map without boxes. */
lp_status lp_cover_target_of(lp_cover_target *out, const lp_destination *dest, lp_error *err);

#endif
