/* SPDX-License-Identifier: Apache-2.0 */
/* What a picture of a layout shows: the smallest stretch of memory that repeats, and the rows it comes from. */
#ifndef LOADPLAN_LAYOUT_PICTURE_H
#define LOADPLAN_LAYOUT_PICTURE_H

#include "layouts/layout_private.h"

enum { LP_PICTURE_CELLS = 128, LP_PICTURE_SHADES = 4 };

/* An axis of the table with its sizes filled in. */
typedef struct lp_picture_axis {
    int64_t below; /* one step in the checkpoint: rows, or bytes of a row */
    int64_t drawn; /* values shown, the first ones */
    bool leading;  /* nothing of the same dimension lies outside of it */
} lp_picture_axis;

/* A run of bytes of one row, in one piece on both sides. */
typedef struct lp_picture_cell {
    int half; /* 0 gate or down, 1 up */
    int64_t row, off;
} lp_picture_cell;

typedef struct lp_picture {
    const lp_layout *layout;
    lp_layout_geometry geometry;
    lp_picture_axis axis[LP_LAYOUT_AXES];
    int32_t cells, cells_a_line;            /* lines are neighbours in memory, of cells_a_line * run_bytes */
    lp_picture_cell cell[LP_PICTURE_CELLS]; /* in the order of memory */
    int64_t run_bytes;
    int32_t halves;
    int32_t rows; /* shown of each half */
    int64_t row[LP_PICTURE_CELLS];
    int32_t shade_axis; /* rows are shaded by their place on it; -1: all alike */
} lp_picture;

/* Fails like lp_layout_check. */
lp_status lp_picture_plan(const lp_layout *layout, const lp_layout_sizes *sizes, lp_picture *out, lp_error *err);

int lp_picture_shade(const lp_picture *picture, int64_t row);

#endif
