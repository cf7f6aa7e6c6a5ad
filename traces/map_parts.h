/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of maps: what two of them share, and single bytes of their elements. Private to the project. */
#ifndef LOADPLAN_MAP_PARTS_H
#define LOADPLAN_MAP_PARTS_H

#include "traces/trace.h"

/* A map with what is to be added to its offsets. */
typedef struct lp_placed_map {
    const lp_map *map;
    int64_t src_off, dst_off;
} lp_placed_map;

/* Whether every destination byte that both write comes from the same source byte, as in the load of tied weights. Both
 * do the same deed (copy, or cast between the same dtypes, or fill) on one source. What cannot be told within the work
 * bound of maps counts as no. */
lp_status lp_maps_agree(bool *agree, const lp_placed_map *a, const lp_placed_map *b, const lp_alloc *alloc,
                        lp_error *err);

/* Byte number `byte` of every element that `map` writes, as a fill of single bytes. */
lp_status lp_map_element_byte(const lp_map **out, const lp_map *map, int64_t byte, const lp_alloc *alloc,
                              lp_error *err);

#endif
