/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that draw a layout: the sheet, and who draws which part of it. */
#ifndef LOADPLAN_LAYOUT_SVG_H
#define LOADPLAN_LAYOUT_SVG_H

#include "layouts/layout_picture.h"

#include <inttypes.h>
#include <stdio.h>

/* Everything is in pixels of the sheet. */
enum {
    LP_SVG_WIDTH = 800,
    LP_SVG_MARGIN = 16,
    LP_SVG_TOP = 104 /* of the checkpoint and of memory */,
    LP_SVG_TEXT_LINE = 15
};

typedef struct lp_svg {
    FILE *out;
    const lp_picture *picture;
    int32_t lines; /* of memory */
    int row_height;
    int head;                       /* title and column names of a matrix */
    int row_y[2][LP_PICTURE_CELLS]; /* gate and up, or down */
    int line_y[LP_PICTURE_CELLS];
    int bottom;
} lp_svg;

/* The style sheet of all pictures. */
extern const char lp_svg_style[];

/* A text of one line at its baseline, `class` of the style sheet or "". */
void lp_svg_text(const lp_svg *svg, int x, int y, const char *class, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Where rows and lines of memory stand, and the bottom of them. */
void lp_svg_place(lp_svg *svg);

/* Rows of the checkpoint, lines of memory, and in between who goes where. */
void lp_svg_draw_map(const lp_svg *svg);

/* The axes in the order of memory, from y on. */
void lp_svg_draw_axes(const lp_svg *svg, int y);
int lp_svg_axes_height(const lp_picture *picture);

#endif
