/* SPDX-License-Identifier: Apache-2.0 */
/* check, bytes: the writers of each destination, and what is said about them. */
#ifndef LOADPLAN_CHECK_WRITERS_H
#define LOADPLAN_CHECK_WRITERS_H

#include "traces/check_private.h"

typedef enum lp_writer_kind { LP_BY_RECORD, LP_BY_DERIVE, LP_BY_REFUSAL } lp_writer_kind;

/* Something that writes bytes of a destination. */
typedef struct lp_writer {
    lp_writer_kind kind;
    uint32_t row; /* of the scope's records, derives or refusals */
    uint32_t dest;
    const lp_map *map; /* NULL: a refusal of the whole destination */
    int64_t off;       /* of the map, from the destination's first element */
} lp_writer;

/* Where a destination lies; those of one storage whose extents touch are looked at together. */
typedef struct lp_extent {
    const char *storage;
    int64_t lo, hi; /* in the storage: logical bytes and everything that is written through it */
    uint32_t dest;
} lp_extent;

typedef struct lp_cover_pass {
    lp_checker *c;
    const lp_rows *rows;
    lp_writer *writer; /* by destination */
    int64_t writers;
    int64_t *first;    /* writers of destination d: first[d] .. first[d + 1] - 1 */
    lp_extent *extent; /* by storage, then lo */
    lp_cover_item *item;
    const lp_writer **item_writer;
    lp_cover_target *target; /* per destination */
    bool *is_nested;
} lp_cover_pass;

/* Fills writer, first, item and item_writer of the pass. */
lp_status lp_cover_list_writers(lp_cover_pass *p, lp_error *err);

/* Findings. Bytes are relative to the destination's first element, except those of an alias: of the storage. */
lp_status lp_cover_note_undecided(lp_cover_pass *p, const lp_destination *d, lp_error *err);
lp_status lp_cover_note_uncovered(lp_cover_pass *p, const lp_destination *d, const lp_cover_report *r, lp_error *err);
lp_status lp_cover_note_outside(lp_cover_pass *p, const lp_destination *d, const lp_writer *w, int64_t lo, int64_t hi,
                                lp_error *err);
lp_status lp_cover_note_pair(lp_cover_pass *p, const lp_writer *a, const lp_writer *b, int64_t lo, int64_t hi,
                             lp_error *err);
lp_status lp_cover_note_unloaded(lp_cover_pass *p, const lp_writer *w, lp_error *err);
lp_status lp_cover_note_alias(lp_cover_pass *p, uint32_t a, uint32_t b, int64_t lo, int64_t hi, lp_error *err);

#endif
