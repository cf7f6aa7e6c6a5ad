/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the coverage sweep share: boxes over one destination, and the mixed-radix grid that they live on.
 */
#ifndef LOADPLAN_COVER_PRIVATE_H
#define LOADPLAN_COVER_PRIVATE_H

#include "traces/base.h"
#include "traces/cover.h"

enum {
    LP_COVER_LEVELS = 64,             /* strides of one divisibility chain in int64 */
    LP_COVER_INTERVALS_MAX = 1 << 22, /* pieces times levels: 64 MiB of intervals */
    LP_COVER_CALL_WORK_MAX = 1 << 26  /* piece visits of one call */
};

typedef enum lp_cover_class { LP_COVER_STRICT, LP_COVER_LOOSE, LP_COVER_WANTED } lp_cover_class;

/* One box of an item (or of the target: class wanted), placed: it writes `bytes` bytes of [lo, hi). */
typedef struct lp_cover_box {
    int64_t lo, hi, bytes;
    int64_t run; /* bytes */
    int32_t rank;
    const lp_mode *mode;
    uint32_t item, tag;
    lp_cover_class class;
} lp_cover_box;

/* A product of digit intervals: bytes base + sum(digit[k] * stride[k]) with lo[k] <= digit[k] < hi[k]. */
typedef struct lp_cover_span {
    int64_t lo, hi;
} lp_cover_span;

typedef struct lp_cover_piece {
    uint32_t item, tag;
    lp_cover_class class;
} lp_cover_piece;

typedef struct lp_cover_grid {
    const lp_alloc *alloc;
    int64_t base;
    int levels; /* stride[0] == 1; each stride divides the next */
    int64_t stride[LP_COVER_LEVELS];
    int64_t radix[LP_COVER_LEVELS]; /* stride[k + 1] / stride[k]; INT64_MAX at the top */
    int64_t npiece, piece_capacity, span_capacity;
    lp_cover_piece *piece;
    lp_cover_span *span; /* span[piece * levels + level] */
} lp_cover_grid;

/* Chooses the strides for these boxes and cuts the boxes into pieces relative to `base`. *fits is false when they would
 * be more than the limits allow. The grid's memory is kept for the next call. */
lp_status lp_cover_grid_build(lp_cover_grid *g, const lp_cover_box *box, int64_t count, int64_t base, bool *fits,
                              lp_error *err);
void lp_cover_grid_free(lp_cover_grid *g);

typedef struct lp_cover_entry {
    int64_t lo, hi;
    uint32_t piece;
} lp_cover_entry;

/* The state of one call of lp_cover. */
typedef struct lp_cover_sweep {
    const lp_alloc *alloc;
    lp_cover_grid *grid;
    bool has_target;
    bool same_tag_overlap; /* an overlap that was not reported because both tags are one */
    int64_t work_left;
    lp_cover_report *report;
    int64_t pair_capacity;
    uint32_t *pair_table; /* index + 1 of report->pair, open addressing */
    int64_t pair_table_size;
    lp_cover_entry *entry; /* scratch: npiece per level */
    uint32_t *active;
    int64_t entry_capacity, active_capacity;
} lp_cover_sweep;

/* Sweeps the pieces of s->grid and adds what it finds to s->report, in rising order of addresses. */
lp_status lp_cover_sweep_grid(lp_cover_sweep *s, lp_error *err);

/* Notes uncovered bytes [lo, hi) as the first gap, or as more of it; counting them is the caller's affair. */
void lp_cover_note_gap(lp_cover_report *r, int64_t lo, int64_t hi);

/* ---- the memo, and the scratch memory of a call ---- */

typedef struct lp_cover_key {
    const int64_t *word;
    int64_t words;
    uint64_t hash;
} lp_cover_key;

struct lp_cover_memo {
    const lp_alloc *alloc;
    lp_arena arena;
    int64_t stored_bytes;
    int64_t count, capacity; /* capacity: a power of two */
    lp_cover_key *table;
    int64_t work_left;
    /* scratch of one call */
    lp_cover_grid grid;
    lp_cover_entry *entry;
    uint32_t *active;
    int64_t entry_capacity, active_capacity;
    lp_cover_item *item;
    lp_cover_box *box;
    int64_t *word;
    int64_t item_capacity, box_capacity, word_capacity;
};

/* A fixed order, so that the same problem has the same key however its items were listed. */
void lp_cover_sort_items(lp_cover_item *item, int64_t count);

/* The key of m->item[0 .. count - 1] and the target, in the memo's scratch memory. It says everything that the answer
 * depends on, except tags: those matter only where two items overlap, and such problems are not remembered. */
lp_status lp_cover_build_key(lp_cover_memo *m, lp_cover_key *key, const lp_map *target, int64_t count, lp_error *err);
bool lp_cover_memo_has(const lp_cover_memo *m, const lp_cover_key *key);
lp_status lp_cover_memo_add(lp_cover_memo *m, const lp_cover_key *key, lp_error *err);

#endif
