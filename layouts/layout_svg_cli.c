/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan layout NAME --format=svg`: a picture. Left the rows of the checkpoint, right the memory that they go to, in
 * between who goes where; below the axes in the order of memory, and the formula. Whole numbers only and no fonts but
 * the reader's, so that equal layouts give equal files.
 */
#include "layouts/layout_cli.h"
#include "layouts/layout_svg.h"

enum { FORMULA_WIDTH = 112 /* characters */ };

const char lp_svg_style[] =
    "<style>"
    "svg{background:#fff}text{font:11px sans-serif;fill:#1f2328}"
    ".t{font-size:17px;font-weight:bold}.b{font-weight:bold}.s{font-size:10px;fill:#59636e}"
    ".m{font:11px monospace}.c{font-size:10px;text-anchor:middle}.e{text-anchor:end}"
    ".bg{fill:#fff}.r{stroke:#d1d9e0}.cell{stroke:#fff}"
    ".g0{fill:#dbe9fb}.g1{fill:#b9d5f7}.g2{fill:#94bff2}.g3{fill:#6ea8ec}"
    ".u0{fill:#fdebd3}.u1{fill:#fbd7a8}.u2{fill:#f8c27c}.u3{fill:#f4ab4c}"
    ".d0{fill:#d7f2e3}.d1{fill:#b0e4c8}.d2{fill:#87d4ab}.d3{fill:#5bc28d}"
    ".g{fill:#2f6fc4;stroke:#2f6fc4}.u{fill:#b86a00;stroke:#b86a00}.d{fill:#1c8552;stroke:#1c8552}"
    "text.x,path.w{stroke:none}.w{opacity:.24}.h{opacity:.6}"
    "path.l,rect.o{fill:none;stroke-width:1.5}rect.o{stroke-width:2}"
    ".f{opacity:.45}"
    "@media(prefers-color-scheme:dark){"
    "svg{background:#0d1117}text{fill:#e6edf3}.s{fill:#9198a1}.bg{fill:#0d1117}.r{stroke:#3d444d}.cell{stroke:#0d1117}"
    ".g0{fill:#16304f}.g1{fill:#1d4372}.g2{fill:#255896}.g3{fill:#2f6db9}"
    ".u0{fill:#45300f}.u1{fill:#644413}.u2{fill:#845916}.u3{fill:#a56e18}"
    ".d0{fill:#143a29}.d1{fill:#1a5439}.d2{fill:#206e4a}.d3{fill:#26895b}"
    ".g{fill:#6ea8ec;stroke:#6ea8ec}.u{fill:#f0a848;stroke:#f0a848}.d{fill:#5bc28d;stroke:#5bc28d}}"
    "</style>\n";

void lp_svg_text(const lp_svg *v, int x, int y, const char *class, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(v->out, "<text x=\"%d\" y=\"%d\"", x, y);
    if (class[0] != '\0')
        fprintf(v->out, " class=\"%s\"", class);
    fputc('>', v->out);
    for (const char *c = text; *c != '\0'; c++)
        if (*c == '<' || *c == '>' || *c == '&')
            fprintf(v->out, "&%s;", *c == '<' ? "lt" : *c == '>' ? "gt" : "amp");
        else
            fputc(*c, v->out);
    fputs("</text>\n", v->out);
}

/* How much of a formula fits on a line: up to a " + " or behind a comma. */
static size_t line_length(const char *text)
{
    const size_t all = strlen(text);
    if (all <= FORMULA_WIDTH)
        return all;
    for (size_t n = FORMULA_WIDTH; n > 1; n--)
        if (text[n - 1] == ' ' && (text[n] == '+' || text[n - 2] == ','))
            return n;
    return FORMULA_WIDTH;
}

static int formula_height(const char *text)
{
    int height = 0;
    for (; *text != '\0'; text += line_length(text))
        height += LP_SVG_TEXT_LINE;
    return height;
}

static void draw_formula(const lp_svg *v, int y, const char *text)
{
    for (size_t n; *text != '\0'; text += n, y += LP_SVG_TEXT_LINE) {
        n = line_length(text);
        lp_svg_text(v, LP_SVG_MARGIN, y, "m", "%.*s", (int)n, text);
    }
}

static void draw_title(const lp_svg *v, const lp_layout_sizes *sizes, const lp_layout_shape *shape)
{
    const lp_layout *const layout = v->picture->layout;
    char extents[128], strides[128], chain[512], experts[32] = "";
    lp_layout_chain_text(layout, chain, sizeof chain);
    if (layout->slot_dim >= 0)
        snprintf(experts, sizeof experts, "E = %" PRId64 ", ", sizes->experts);
    lp_svg_text(v, LP_SVG_MARGIN, 28, "t", "%s", layout->id);
    lp_svg_text(v, LP_SVG_MARGIN, 47, "", "%s (version %d)", layout->summary, (int)layout->version);
    lp_svg_text(v, LP_SVG_MARGIN, 65, "s", "for %sH = %" PRId64 ", I = %" PRId64 ": %s %s, strides %s bytes", experts,
                sizes->hidden, sizes->intermediate, lp_dtype_name(shape->dtype),
                lp_layout_list_text(extents, sizeof extents, shape->ndim, shape->shape),
                lp_layout_list_text(strides, sizeof strides, shape->ndim, shape->stride));
    lp_svg_text(v, LP_SVG_MARGIN, 84, "m", "%s", chain);
}

int lp_layout_show_svg(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes)
{
    lp_error err;
    lp_layout_shape shape;
    lp_picture picture;
    if (lp_layout_describe(layout, sizes, &shape, &err) != LP_OK ||
        lp_picture_plan(layout, sizes, &picture, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    lp_svg v = {.out = cli->out, .picture = &picture};
    lp_svg_place(&v);

    char forward[1024], inverse[1024];
    lp_layout_forward_text(layout, sizes, forward, sizeof forward);
    lp_layout_inverse_text(layout, sizes, inverse, sizeof inverse);
    const int axes_y = v.bottom + 32, forward_y = axes_y + lp_svg_axes_height(&picture) + 10;
    const int inverse_y = forward_y + formula_height(forward) + 3;
    const int words_y = inverse_y + formula_height(inverse) + 3;
    const int height = words_y + LP_SVG_MARGIN;

    fprintf(cli->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
            "aria-labelledby=\"title\">\n<title id=\"title\">Layout %s: %s</title>\n",
            LP_SVG_WIDTH, height, LP_SVG_WIDTH, height, layout->id, layout->summary);
    fputs(lp_svg_style, cli->out);
    fprintf(cli->out, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", LP_SVG_WIDTH, height);
    draw_title(&v, sizes, &shape);
    lp_svg_draw_map(&v);
    lp_svg_draw_axes(&v, axes_y);
    draw_formula(&v, forward_y, forward);
    draw_formula(&v, inverse_y, inverse);
    lp_svg_text(&v, LP_SVG_MARGIN, words_y, "s", "%s%st is the row of %s and c the byte in it. Divisions round down.",
                layout->slot_dim < 0 ? "" : "e is the expert, ",
                picture.halves == 1 ? "" : "half 0 for w1 and 1 for w3, ", picture.halves == 1 ? "w2" : "w1 or w3");
    fputs("</svg>\n", cli->out);
    return LP_EXIT_DONE;
}
