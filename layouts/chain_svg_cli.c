/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan layout --format=svg` of a chain: above the axes as the source has them, below as memory runs through them,
 * and a line from each to itself. Parts of a dimension have a drawing each. With sizes, boxes say how far one step on
 * the axis goes on either side.
 */
#include "layouts/layout_cli.h"
#include "layouts/layout_svg.h"

enum {
    BOX_WIDTH_MOST = 110,
    BOX_HEIGHT = 38,
    BOX_GAP = 6,
    GROUP_GAP = 18, /* between dimensions */
    BETWEEN = 96,   /* rows of boxes */
    PART_HEIGHT = 2 * BOX_HEIGHT + BETWEEN + 96,
    LINE_LENGTH = 108, /* characters of a chain */
    HEAD = 72
};

typedef struct drawing {
    lp_svg svg;
    const lp_chain *chain;
    const lp_chain_form *form; /* NULL without sizes */
    int p;
    int x[2][LP_CHAIN_AXES], width; /* of the boxes above and below, by axis */
} drawing;

static const char *const fill_class[] = {"g1 r", "u1 r", "d1 r"}, *const line_class[] = {"g l", "u l", "d l"};

/* Where boxes stand: `count` of them, in groups that start where first[d] says. */
static void place_boxes(drawing *g, int row, int count, const int *group, const int *axis)
{
    int x = LP_SVG_MARGIN;
    for (int i = 0; i < count; i++) {
        if (i > 0)
            x += group[i] == group[i - 1] ? BOX_GAP : GROUP_GAP;
        g->x[row][axis[i]] = x;
        x += g->width;
    }
}

/* Axes of one row in order, and the dimension that each belongs to. */
static int list_row(const drawing *g, int row, int *group, int *axis)
{
    const lp_chain_part *const part = &g->chain->part[g->p];
    for (int i = 0, d = 0; i < part->axes; i++) {
        while (row == 1 && i >= part->out_first[d + 1])
            d++;
        axis[i] = row == 0 ? part->source[i] : part->memory[i].axis;
        group[i] = row == 0 ? g->chain->axis[axis[i]].dim : d;
    }
    return part->axes;
}

/* "~c^a", or "b[...]": the list itself stands in the chain. */
static void place_text(const drawing *g, const lp_chain_place *place, char *text, size_t bytes)
{
    lp_layout_writer w = lp_layout_writer_start(text, bytes);
    const bool listed = place->list_end > 0 || (lp_chain_joint_axes(g->chain, g->p) >> place->axis & 1) != 0;
    lp_layout_put(&w, "%s%s%s", place->backwards ? "~" : "", g->chain->axis[place->axis].name, listed ? "[...]" : "");
    for (int a = 0; a < g->chain->axes; a++)
        if ((lp_chain_turns(place) >> a & 1) != 0)
            lp_layout_put(&w, "%c%s", lp_chain_turn_sign(place, a), g->chain->axis[a].name);
}

/* Source elements from a step of the axis to the next one. */
static int64_t source_step(const drawing *g, int axis)
{
    const lp_chain_part *const part = &g->chain->part[g->p];
    const int dim = g->chain->axis[axis].dim;
    int64_t step = 1;
    for (int d = g->chain->ndim - 1; d > dim; d--)
        step *= g->form->shape[d];
    for (int i = part->axes - 1; part->source[i] != axis; i--)
        if (g->chain->axis[part->source[i]].dim == dim)
            step *= g->form->chain.axis[part->source[i]].extent;
    return step;
}

static void draw_box(const drawing *g, int row, int axis, int y, const char *name)
{
    const lp_chain_axis *const a = g->form != NULL ? &g->form->chain.axis[axis] : &g->chain->axis[axis];
    const int x = g->x[row][axis], middle = x + g->width / 2;
    fprintf(g->svg.out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"%s\"/>\n", x, y, g->width,
            BOX_HEIGHT, fill_class[a->dim % 3]);
    lp_svg_text(&g->svg, middle, y + 16, "b c", "%s", name);
    if (a->extent != 0)
        lp_svg_text(&g->svg, middle, y + 31, "c", "%" PRId64 " step%s", a->extent, a->extent == 1 ? "" : "s");
    else
        lp_svg_text(&g->svg, middle, y + 31, "c", "the rest");
    if (g->form != NULL)
        lp_svg_text(&g->svg, middle, row == 0 ? y - 6 : y + BOX_HEIGHT + 14, "c", "+%" PRId64,
                    row == 0 ? source_step(g, axis) : g->form->stride[g->p][axis]);
}

static void draw_part(drawing *g, int y)
{
    const lp_chain *const c = g->chain;
    const lp_chain_part *const part = &c->part[g->p];
    int group[LP_CHAIN_AXES], axis[LP_CHAIN_AXES];
    const int above = y + 40, below = above + BOX_HEIGHT + BETWEEN;
    const int space = LP_SVG_WIDTH - 2 * LP_SVG_MARGIN - (part->axes - 1) * GROUP_GAP;
    g->width = space / part->axes < BOX_WIDTH_MOST ? space / part->axes : BOX_WIDTH_MOST;
    for (int row = 0; row < 2; row++)
        place_boxes(g, row, list_row(g, row, group, axis), group, axis);
    list_row(g, 0, group, axis);
    for (int i = 0; i < part->axes; i++) {
        if (i == 0 || group[i] != group[i - 1])
            lp_svg_text(&g->svg, g->x[0][axis[i]], above - 20, "b", "%s%s", c->dim_name[group[i]],
                        group[i] == c->split_dim ? ", this part" : "");
        draw_box(g, 0, axis[i], above, c->axis[axis[i]].name);
    }
    for (int i = 0; i < part->axes; i++) {
        char name[LP_CHAIN_NAME * 4];
        const int a = part->memory[i].axis;
        const int from = g->x[0][a] + g->width / 2, to = g->x[1][a] + g->width / 2;
        place_text(g, &part->memory[i], name, sizeof name);
        draw_box(g, 1, a, below, name);
        fprintf(g->svg.out, "<path d=\"M%d %dC%d %d %d %d %d %d\" class=\"%s\"/>\n", from, above + BOX_HEIGHT, from,
                above + BOX_HEIGHT + BETWEEN / 2, to, below - BETWEEN / 2, to, below, line_class[c->axis[a].dim % 3]);
    }
    lp_svg_text(&g->svg, LP_SVG_MARGIN, below + BOX_HEIGHT + 30, "s", "memory%s, outermost first",
                g->p > 0 ? ", behind the part above in each block" : "");
}

int lp_chain_show_svg(lp_cli *cli, const lp_chain_request *request)
{
    char text[LP_CHAIN_TEXT_BYTES];
    lp_chain_form form;
    lp_error err;
    drawing g = {.svg = {.out = cli->out}, .chain = &request->chain, .form = request->sized ? &form : NULL};
    if (request->sized && lp_chain_resolve(&form, &request->chain, request->shape, request->pads, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    lp_chain_text(&request->chain, text, sizeof text);
    const char *const name = request->known != NULL ? request->known->id : "A chain";
    const int lines = (int)(strlen(text) / LINE_LENGTH) + 1, top = HEAD + lines * LP_SVG_TEXT_LINE;
    const int height = top + g.chain->parts * PART_HEIGHT;
    fprintf(cli->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
            "aria-labelledby=\"title\">\n<title id=\"title\">%s</title>\n",
            LP_SVG_WIDTH, height, LP_SVG_WIDTH, height, name);
    fputs(lp_svg_style, cli->out);
    fprintf(cli->out, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", LP_SVG_WIDTH, height);
    lp_svg_text(&g.svg, LP_SVG_MARGIN, 28, "t", "%s", name);
    lp_svg_text(&g.svg, LP_SVG_MARGIN, 47, "", "%s",
                request->known != NULL ? request->known->summary : "above: the source; below: memory");
    for (int i = 0; i < lines; i++)
        lp_svg_text(&g.svg, LP_SVG_MARGIN, 68 + i * LP_SVG_TEXT_LINE, "m", "%.*s", LINE_LENGTH,
                    text + (size_t)i * LINE_LENGTH);
    for (g.p = 0; g.p < g.chain->parts; g.p++)
        draw_part(&g, top + g.p * PART_HEIGHT);
    fputs("</svg>\n", cli->out);
    return LP_EXIT_DONE;
}
