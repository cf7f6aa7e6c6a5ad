/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of one block of memory: which are free. Offsets only; sizes are multiples of what the caller aligns to. */
#ifndef LOADPLAN_DEVICE_ARENA_H
#define LOADPLAN_DEVICE_ARENA_H

#include "traces/base.h"

typedef struct lp_arena_part {
    int64_t off, bytes;
} lp_arena_part;

typedef struct lp_arena_map {
    const lp_alloc *alloc;
    lp_arena_part *part; /* free ones, sorted, not touching */
    int64_t count, capacity;
    int64_t parts_out; /* that are taken */
    int64_t bytes, used;
} lp_arena_map;

lp_status lp_arena_map_init(lp_arena_map *m, int64_t bytes, const lp_alloc *alloc, lp_error *err);
void lp_arena_map_free(lp_arena_map *m);

/* The lowest part of `bytes`; *off is -1 where none is large enough. LP_E_MEMORY: no room in the list. */
lp_status lp_arena_map_take(lp_arena_map *m, int64_t bytes, int64_t *off, lp_error *err);
void lp_arena_map_give(lp_arena_map *m, int64_t off, int64_t bytes); /* cannot fail */
void lp_arena_map_join(lp_arena_map *m, int64_t end); /* all that is taken lies before `end` now, without gaps */
bool lp_arena_map_fits(const lp_arena_map *m, int64_t bytes);

#endif
