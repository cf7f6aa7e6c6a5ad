/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses what a picture of a layout shows. Everything follows from the layout's row of the table. */
#include "layouts/layout_picture.h"

/* Enough to see a repetition, few enough to stay legible. */
enum { LINES = 32, ROWS_OF_A_LONG_AXIS = 8 };

static bool is_row(const lp_layout *layout, int32_t a)
{
    return layout->axis[a].role == LP_AXIS_ROW;
}

static bool is_constant(const lp_layout *layout, int32_t a)
{
    return layout->axis[a].extent.symbol == LP_SIZE_ONE;
}

static void measure_steps(lp_picture *p)
{
    int64_t below_rows = 1, below_bytes = p->geometry.element;
    int32_t outer_row = -1, outer_column = -1;
    for (int32_t a = p->layout->axes - 1; a >= 0; a--) {
        const lp_axis_role role = p->layout->axis[a].role;
        p->axis[a] = (lp_picture_axis){1, 1, false};
        if (role == LP_AXIS_ROW) {
            p->axis[a].below = below_rows;
            below_rows *= p->geometry.extent[a];
            outer_row = a;
        } else if (role == LP_AXIS_COLUMN) {
            p->axis[a].below = below_bytes;
            below_bytes *= p->geometry.extent[a];
            outer_column = a;
        } else {
            p->axis[a].leading = true;
        }
    }
    if (outer_row >= 0)
        p->axis[outer_row].leading = true;
    if (outer_column >= 0)
        p->axis[outer_column].leading = true;
}

/* Columns that lie innermost in memory join a run; the others are shown at 0. */
static void measure_run(lp_picture *p)
{
    p->run_bytes = p->geometry.element;
    p->cells_a_line = 1;
    int32_t i = p->layout->axes - 1;
    for (; i >= 0; i--) {
        const int32_t a = p->layout->memory_order[i];
        if (p->layout->axis[a].role != LP_AXIS_COLUMN)
            break;
        p->run_bytes *= p->geometry.extent[a];
        p->axis[a].drawn = p->geometry.extent[a];
    }
    /* Runs of a word are too short for a line each. */
    if (i == p->layout->axes - 1 && is_constant(p->layout, p->layout->memory_order[i]))
        p->cells_a_line = (int32_t)p->geometry.extent[p->layout->memory_order[i]];
}

/* All values of the short axes, and of the long one as many as fit. */
static lp_status choose_rows(lp_picture *p, lp_error *err)
{
    int64_t cells = 1;
    for (int32_t a = 0; a < p->layout->axes; a++) {
        const bool is_short =
            p->layout->axis[a].role == LP_AXIS_HALF || (is_row(p->layout, a) && is_constant(p->layout, a));
        if (!is_short)
            continue;
        p->axis[a].drawn = p->geometry.extent[a];
        cells *= p->geometry.extent[a];
    }
    const int64_t lines = cells / p->cells_a_line;
    for (int32_t a = 0; a < p->layout->axes; a++) {
        if (!is_row(p->layout, a) || is_constant(p->layout, a))
            continue;
        int64_t shown = lines < LINES ? LINES / lines : 1;
        shown = shown < ROWS_OF_A_LONG_AXIS ? shown : ROWS_OF_A_LONG_AXIS;
        p->axis[a].drawn = shown < p->geometry.extent[a] ? shown : p->geometry.extent[a];
        cells *= p->axis[a].drawn;
    }
    /* Of a tile of many rows the first ones say it all: cut its outermost axis. */
    for (int32_t a = 0; a < p->layout->axes && cells > LP_PICTURE_CELLS; a++) {
        if (!is_row(p->layout, a) || !is_constant(p->layout, a))
            continue;
        const int64_t others = cells / p->axis[a].drawn, shown = LINES / others > 0 ? LINES / others : 1;
        p->axis[a].drawn = shown < p->axis[a].drawn ? shown : p->axis[a].drawn;
        cells = others * p->axis[a].drawn;
    }
    if (cells > LP_PICTURE_CELLS)
        return lp_fail(err, LP_E_INTERNAL, "layout '%s' has too many rows for a picture", p->layout->id);
    return LP_OK;
}

static void list_cells(lp_picture *p)
{
    const lp_layout *const layout = p->layout;
    int64_t digit[LP_LAYOUT_AXES] = {0};
    for (bool more = true; more;) {
        lp_picture_cell *const c = &p->cell[p->cells++];
        *c = (lp_picture_cell){0, 0, 0};
        for (int32_t a = 0; a < layout->axes; a++) {
            c->off += digit[a] * p->geometry.stride[a];
            if (is_row(layout, a))
                c->row += digit[a] * p->axis[a].below;
            else if (layout->axis[a].role == LP_AXIS_HALF)
                c->half = (int)(layout->up_first ? 1 - digit[a] : digit[a]);
        }
        more = false;
        for (int32_t i = layout->axes - 1; i >= 0 && !more; i--) {
            const int32_t a = layout->memory_order[i];
            if (layout->axis[a].role == LP_AXIS_COLUMN)
                continue;
            more = ++digit[a] < p->axis[a].drawn;
            if (!more)
                digit[a] = 0;
        }
    }
}

static void list_rows(lp_picture *p)
{
    for (int32_t c = 0; c < p->cells; c++)
        if (p->cell[c].half == 0) {
            int32_t at = p->rows++;
            for (; at > 0 && p->row[at - 1] > p->cell[c].row; at--)
                p->row[at] = p->row[at - 1];
            p->row[at] = p->cell[c].row;
        }
}

/* The axis that says most: the place in a line, or else the outermost one in memory of which a few values are shown. */
static void choose_shades(lp_picture *p)
{
    p->shade_axis = -1;
    for (int32_t i = 0; i < p->layout->axes; i++) {
        const int32_t a = p->layout->memory_order[i];
        if (!is_row(p->layout, a) || p->axis[a].drawn < 2 || p->axis[a].drawn > LP_PICTURE_SHADES)
            continue;
        if (p->shade_axis < 0 || p->cells_a_line > 1)
            p->shade_axis = a;
    }
}

lp_status lp_picture_plan(const lp_layout *layout, const lp_layout_sizes *sizes, lp_picture *out, lp_error *err)
{
    *out = (lp_picture){.layout = layout, .halves = lp_layout_axis_of(layout, LP_AXIS_HALF) < 0 ? 1 : 2};
    LP_TRY(lp_layout_resolve(layout, sizes, &out->geometry, err));
    measure_steps(out);
    measure_run(out);
    LP_TRY(choose_rows(out, err));
    list_cells(out);
    list_rows(out);
    choose_shades(out);
    return LP_OK;
}

int lp_picture_shade(const lp_picture *p, int64_t row)
{
    if (p->shade_axis < 0)
        return 0;
    return (int)(row / p->axis[p->shade_axis].below % p->geometry.extent[p->shade_axis] % LP_PICTURE_SHADES);
}
