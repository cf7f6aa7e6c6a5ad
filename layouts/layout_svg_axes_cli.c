/* SPDX-License-Identifier: Apache-2.0 */
/* Below a picture: the axes in the order of memory, what each counts, and how far one step on it goes on both sides. */
#include "layouts/layout_svg.h"

enum { TITLE_LINE = 19 };

static void draw_extent(const lp_svg *v, int x, int y, lp_extent e, int64_t value)
{
    static const char letter[] = "?EHI";
    char times[16] = "", over[16] = "";
    if (e.symbol == LP_SIZE_ONE) {
        lp_svg_text(v, x, y, "m e", "%" PRId64, value);
        return;
    }
    if (e.times != 1)
        snprintf(times, sizeof times, "%d", (int)e.times);
    if (e.over != 1)
        snprintf(over, sizeof over, "/%d", (int)e.over);
    lp_svg_text(v, x, y, "m e", "%s%c%s = %" PRId64, times, letter[e.symbol], over, value);
}

/* The digit of row t or byte c that an axis counts. */
static void draw_digit(const lp_svg *v, int x, int y, char variable, int64_t below, int64_t extent, bool leading)
{
    char over[32] = "", of[32] = "";
    if (below != 1)
        snprintf(over, sizeof over, "/%" PRId64, below);
    if (!leading)
        snprintf(of, sizeof of, " %% %" PRId64, extent);
    lp_svg_text(v, x, y, "m", "%c%s%s", variable, over, of);
}

static const int axis_x[] = {LP_SVG_MARGIN, 84, 300, 330, 640};

static void draw_axis(const lp_svg *v, int y, int32_t a)
{
    const lp_picture *const p = v->picture;
    const lp_axis *const axis = &p->layout->axis[a];
    const int64_t below = p->axis[a].below, extent = p->geometry.extent[a];
    lp_svg_text(v, axis_x[0], y, "m b", "%s", axis->name);
    draw_extent(v, axis_x[2], y, axis->extent, extent);
    lp_svg_text(v, axis_x[4], y, "m e", "%" PRId64 " byte%s", p->geometry.stride[a],
                p->geometry.stride[a] == 1 ? "" : "s");
    switch (axis->role) {
    case LP_AXIS_EXPERT:
        lp_svg_text(v, axis_x[1], y, "m", "e");
        lp_svg_text(v, axis_x[3], y, "", "the next expert");
        break;
    case LP_AXIS_HALF:
        lp_svg_text(v, axis_x[1], y, "m", "%s", p->layout->up_first ? "1 - half" : "half");
        lp_svg_text(v, axis_x[3], y, "", p->layout->up_first ? "from w3 to w1" : "from w1 to w3");
        break;
    case LP_AXIS_ROW:
        draw_digit(v, axis_x[1], y, 't', below, extent, p->axis[a].leading);
        lp_svg_text(v, axis_x[3], y, "", "%" PRId64 " row%s down", below, below == 1 ? "" : "s");
        break;
    case LP_AXIS_COLUMN:
        draw_digit(v, axis_x[1], y, 'c', below, extent, p->axis[a].leading);
        lp_svg_text(v, axis_x[3], y, "", "%" PRId64 " byte%s on in the row", below, below == 1 ? "" : "s");
        break;
    }
}

void lp_svg_draw_axes(const lp_svg *v, int y)
{
    static const char *const title[] = {"axis", "counts", "values", "one step in the checkpoint", "one step in memory"};
    const lp_picture *const p = v->picture;
    for (int i = 0; i < 5; i++)
        lp_svg_text(v, axis_x[i], y, i == 2 || i == 4 ? "s e" : "s", "%s", title[i]);
    fprintf(v->out, "<path class=\"r\" d=\"M%d %dH%d\"/>\n", LP_SVG_MARGIN, y + 5, axis_x[4]);
    y += TITLE_LINE;
    for (int32_t i = 0; i < p->layout->axes; i++, y += LP_SVG_TEXT_LINE)
        draw_axis(v, y, p->layout->memory_order[i]);
    if (p->geometry.element > 1) {
        lp_svg_text(v, axis_x[0], y, "m", "(byte)");
        draw_digit(v, axis_x[1], y, 'c', 1, p->geometry.element, false);
        lp_svg_text(v, axis_x[2], y, "m e", "%" PRId64, p->geometry.element);
        lp_svg_text(v, axis_x[3], y, "", "1 byte on in the row");
        lp_svg_text(v, axis_x[4], y, "m e", "1 byte");
    }
}

int lp_svg_axes_height(const lp_picture *p)
{
    return TITLE_LINE + LP_SVG_TEXT_LINE * (p->layout->axes + (p->geometry.element > 1));
}
