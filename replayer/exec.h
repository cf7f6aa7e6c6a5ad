/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving bytes. A step is one record, or one staged input of a derive, with everything that moving it needs. Sessions
 * move bytes through these calls only, so that another executor has one place to step in.
 */
#ifndef LOADPLAN_EXEC_H
#define LOADPLAN_EXEC_H

#include "traces/base.h"

typedef struct lp_step {
    const lp_map *map;
    int64_t src_off, dst_off; /* added to the map's offsets */
    uint64_t fill_bits;
    uint32_t name;  /* catalogue index; LP_NAME_BEGIN for a fill of begin */
    uint32_t dest;  /* destination; LP_NONE for a staged input */
    uint32_t stage; /* staged input of the plan; LP_NONE for a record */
    uint8_t kind;   /* lp_kind */
    uint8_t src_dtype, dst_dtype;
} lp_step;

/* Does the part of a copy, cast or replicate whose source elements lie whole in bytes [lo, hi) of the tensor. `src` is
 * byte src_first of the tensor, `dst` the byte that dst_off 0 means. Returns the bytes written. Source and destination
 * must not overlap. */
int64_t lp_exec_part(const lp_step *step, uint8_t *dst, const uint8_t *src, int64_t src_first, int64_t lo, int64_t hi);

/* Does a fill. Returns the bytes written. */
int64_t lp_exec_fill(const lp_step *step, uint8_t *dst);

/* All of a byte map: dst[...] = src[...]. */
int64_t lp_exec_map(const lp_map *map, uint8_t *dst, const uint8_t *src);

/* Copies the bytes that a map writes from one image of its destination to another. */
void lp_exec_same_place(const lp_map *map, int64_t dst_off, uint8_t *to, const uint8_t *from);

#endif
