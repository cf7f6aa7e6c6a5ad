/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan layout NAME --format=svg`: a picture. Left the rows of the checkpoint, right the memory that they go to, in
 * between who goes where; below the axes in the order of memory, and the formula. Whole numbers only and no fonts but
 * the reader's, so that equal layouts give equal files.
 */
#include "layouts/layout_cli.h"
#include "layouts/layout_picture.h"

#include <inttypes.h>

enum {
    WIDTH = 800,
    MARGIN = 16,
    TOP = 104, /* of both halves of the picture */
    HEAD = 32,
    HEAD_WITH_ARROWS = 48, /* title and column names of a matrix */
    ROW_LABELS = 40,       /* left of the checkpoint's matrices */
    LEFT = MARGIN + ROW_LABELS,
    LEFT_WIDTH = 196,
    RIGHT = 436,
    RIGHT_WIDTH = 244,
    ADDRESS = RIGHT + RIGHT_WIDTH + 6,
    TALL = 13, /* a row with its number in it */
    THIN = 3,  /* a row without */
    TALL_ROWS_MOST = 32,
    GAP = 13,
    ARROW_LANE = 15, /* above memory, for arrows that come from above */
    COLUMNS_SHOWN = 3,
    FORMULA_WIDTH = 112 /* characters */
};

typedef struct canvas {
    FILE *out;
    const lp_picture *p;
    int32_t lines;
    int row_height;
    int head; /* title and column names of a matrix */
    int row_y[2][LP_PICTURE_CELLS];
    int line_y[LP_PICTURE_CELLS];
    int left_bottom, right_bottom;
} canvas;

static const char style[] =
    "<style>"
    "svg{background:#fff}text{font:11px sans-serif;fill:#1f2328}"
    ".t{font-size:17px;font-weight:bold}.b{font-weight:bold}.s{font-size:10px;fill:#59636e}"
    ".m{font:11px monospace}.c{font-size:10px;text-anchor:middle}.e{text-anchor:end}"
    ".bg{fill:#fff}.r{stroke:#d1d9e0}.cell{stroke:#fff}"
    ".g0{fill:#dbe9fb}.g1{fill:#b9d5f7}.g2{fill:#94bff2}.g3{fill:#6ea8ec}"
    ".u0{fill:#fdebd3}.u1{fill:#fbd7a8}.u2{fill:#f8c27c}.u3{fill:#f4ab4c}"
    ".d0{fill:#d7f2e3}.d1{fill:#b0e4c8}.d2{fill:#87d4ab}.d3{fill:#5bc28d}"
    ".g{fill:#2f6fc4;stroke:#2f6fc4}.u{fill:#b86a00;stroke:#b86a00}.d{fill:#1c8552;stroke:#1c8552}"
    "text.x,path.w{stroke:none}.w{opacity:.24}.h{opacity:.6}path.l,rect.o{fill:none;stroke-width:1.5}rect.o{stroke-"
    "width:2}"
    ".f{opacity:.45}"
    "@media(prefers-color-scheme:dark){"
    "svg{background:#0d1117}text{fill:#e6edf3}.s{fill:#9198a1}.bg{fill:#0d1117}.r{stroke:#3d444d}.cell{stroke:#0d1117}"
    ".g0{fill:#16304f}.g1{fill:#1d4372}.g2{fill:#255896}.g3{fill:#2f6db9}"
    ".u0{fill:#45300f}.u1{fill:#644413}.u2{fill:#845916}.u3{fill:#a56e18}"
    ".d0{fill:#143a29}.d1{fill:#1a5439}.d2{fill:#206e4a}.d3{fill:#26895b}"
    ".g{fill:#6ea8ec;stroke:#6ea8ec}.u{fill:#f0a848;stroke:#f0a848}.d{fill:#5bc28d;stroke:#5bc28d}}"
    "</style>\n";

/* ---- words ---- */

static void put_text(const canvas *v, int x, int y, const char *class, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A text of one line, with the characters that XML wants otherwise. */
static void put_text(const canvas *v, int x, int y, const char *class, const char *format, ...)
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

static bool is_down(const lp_picture *p)
{
    return p->halves == 1;
}

static char shard_class(const lp_picture *p, int half)
{
    return is_down(p) ? 'd' : half == 0 ? 'g' : 'u';
}

static const char *shard_text(const lp_picture *p, int half)
{
    return is_down(p) ? "w2" : half == 0 ? "w1" : "w3";
}

/* ---- geometry ---- */

static int place_rows(canvas *v, int half, int y)
{
    const lp_picture *const p = v->p;
    for (int32_t i = 0; i < p->rows; i++, y += v->row_height) {
        if (i > 0 && p->row[i] != p->row[i - 1] + 1)
            y += GAP;
        v->row_y[half][i] = y;
    }
    return y + (p->row[p->rows - 1] + 1 < p->geometry.rows ? GAP : 0);
}

static void place(canvas *v)
{
    const lp_picture *const p = v->p;
    v->lines = p->cells / p->cells_a_line;
    v->head = p->cells_a_line > 1 ? HEAD_WITH_ARROWS : HEAD;
    v->row_height = p->rows > TALL_ROWS_MOST ? THIN : TALL;
    int y = TOP + v->head;
    for (int half = 0; half < p->halves; half++)
        y = place_rows(v, half, y + (half > 0 ? v->head : 0));
    v->left_bottom = y;

    y = TOP + v->head;
    const int64_t line_bytes = p->cells_a_line * p->run_bytes;
    for (int32_t i = 0; i < v->lines; i++, y += TALL) {
        const lp_picture_cell *const first = &p->cell[i * p->cells_a_line];
        if (i > 0 && first->off != first[-p->cells_a_line].off + line_bytes)
            y += GAP;
        v->line_y[i] = y;
    }
    v->right_bottom = y + GAP;
}

static int32_t row_index(const lp_picture *p, int64_t row)
{
    int32_t low = 0;
    while (p->row[low] != row)
        low++;
    return low;
}

/* The outermost axis of columns that is shown at 0 only, or -1: the matrix is then divided into its values. */
static int32_t split_axis(const lp_picture *p)
{
    for (int32_t a = 0; a < p->layout->axes; a++)
        if (p->layout->axis[a].role == LP_AXIS_COLUMN && p->axis[a].drawn < p->geometry.extent[a])
            return a;
    return -1;
}

/* Width of the part of a checkpoint row that is shown in memory. */
static int run_width(const lp_picture *p)
{
    return split_axis(p) < 0 ? LEFT_WIDTH : LEFT_WIDTH / (COLUMNS_SHOWN + 1);
}

/* Boxes that a row is divided into: the first columns, and one for the rest. */
static int column_boxes(const lp_picture *p)
{
    const int64_t runs = p->geometry.columns * p->geometry.element / p->run_bytes;
    return runs <= COLUMNS_SHOWN ? (int)runs : COLUMNS_SHOWN + 1;
}

/* ---- the checkpoint ---- */

static void draw_columns(const canvas *v, int y)
{
    const lp_picture *const p = v->p;
    const int width = run_width(p);
    const int64_t row_bytes = p->geometry.columns * p->geometry.element;
    if (width == LEFT_WIDTH) {
        put_text(v, LEFT + LEFT_WIDTH / 2, y - 4, "s c", "bytes 0-%" PRId64, row_bytes - 1);
        return;
    }
    const int boxes = column_boxes(p);
    for (int i = 0; i < boxes; i++) {
        const int64_t first = i * p->run_bytes;
        if (i == COLUMNS_SHOWN)
            put_text(v, LEFT + i * width + width / 2, y - 4, "s c", "to %" PRId64, row_bytes - 1);
        else
            put_text(v, LEFT + i * width + width / 2, y - 4, i == 0 ? "c b" : "s c", "%" PRId64 "-%" PRId64, first,
                     first + p->run_bytes - 1);
    }
}

/* Rows of one shade that follow each other. */
static int32_t band_end(const lp_picture *p, int32_t first)
{
    int32_t end = first + 1;
    while (end < p->rows && p->row[end] == p->row[end - 1] + 1 &&
           lp_picture_shade(p, p->row[end]) == lp_picture_shade(p, p->row[first]))
        end++;
    return end;
}

static void draw_rows(const canvas *v, int half)
{
    const lp_picture *const p = v->p;
    const int width = run_width(p);
    const char shard = shard_class(p, half);
    const bool tall = v->row_height == TALL;
    for (int32_t first = 0, end; first < p->rows; first = end) {
        end = tall ? first + 1 : band_end(p, first);
        const int y = v->row_y[half][first], height = (end - first) * v->row_height;
        fprintf(v->out, "<rect class=\"cell %c%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", shard,
                lp_picture_shade(p, p->row[first]), LEFT, y, width, height);
        if (width < LEFT_WIDTH && (first == 0 || !tall || p->row[first] != p->row[first - 1] + 1)) {
            const int32_t last = tall ? p->rows : end;
            for (int i = 1; i < column_boxes(p); i++)
                fprintf(v->out, "<rect class=\"cell f %c0\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", shard,
                        LEFT + i * width, y, width, (last - first) * v->row_height);
        }
        put_text(v, LEFT - 5, y + 10, "s e", "%" PRId64, p->row[first]);
        if (first > 0 && p->row[first] != p->row[first - 1] + 1)
            put_text(v, LEFT - 5, y - 3, "s e", "...");
    }
    const int bottom = v->row_y[half][p->rows - 1] + v->row_height;
    if (p->row[p->rows - 1] + 1 < p->geometry.rows)
        put_text(v, LEFT - 5, bottom + 9, "s e", "...");
}

static void draw_checkpoint(const canvas *v)
{
    const lp_picture *const p = v->p;
    static const char *const role[] = {"gate", "up"};
    for (int half = 0; half < p->halves; half++) {
        const int y = v->row_y[half][0];
        char class[] = "b x ?";
        class[4] = shard_class(p, half);
        put_text(v, LEFT, y - v->head + 14, class, "%s, %s: %" PRId64 " rows of %" PRId64 " bytes", shard_text(p, half),
                 is_down(p) ? "down" : role[half], p->geometry.rows, p->geometry.columns * p->geometry.element);
        if (half == 0)
            draw_columns(v, y);
        draw_rows(v, half);
        put_text(v, LEFT - 5, y - 4, "s e", "row t");
    }
}

/* ---- memory ---- */

/* "e = 0, g = 0-1": where in memory the picture is. */
static void place_text(const lp_picture *p, char *buffer, size_t buffer_bytes)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int32_t i = 0; i < p->layout->axes; i++) {
        const int32_t a = p->layout->memory_order[i];
        if (p->axis[a].drawn == p->geometry.extent[a] || used >= buffer_bytes)
            continue;
        used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%s = 0", used == 0 ? "" : ", ",
                                 p->layout->axis[a].name);
        if (p->axis[a].drawn > 1 && used < buffer_bytes)
            used += (size_t)snprintf(buffer + used, buffer_bytes - used, "-%" PRId64, p->axis[a].drawn - 1);
    }
}

/* What follows the part shown: "then b + 512, w + 16384". */
static void next_text(const lp_picture *p, char *buffer, size_t buffer_bytes)
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int32_t i = p->layout->axes - 1; i >= 0 && used < buffer_bytes; i--) {
        const int32_t a = p->layout->memory_order[i];
        if (p->axis[a].drawn < p->geometry.extent[a])
            used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%s = %" PRId64 " at %" PRId64,
                                     used == 0 ? "" : ", ", p->layout->axis[a].name, p->axis[a].drawn,
                                     p->axis[a].drawn * p->geometry.stride[a]);
    }
}

static void draw_memory(const canvas *v)
{
    const lp_picture *const p = v->p;
    char text[256];
    const int width = RIGHT_WIDTH / p->cells_a_line;
    place_text(p, text, sizeof text);
    put_text(v, RIGHT, TOP + 14, "b", "memory%s%s: %" PRId64 " bytes a %s", text[0] == '\0' ? "" : ", ", text,
             p->run_bytes, p->cells_a_line > 1 ? "cell" : "line");
    put_text(v, ADDRESS, TOP + v->head - 4, "s", "off, bytes");
    for (int32_t i = 0; p->cells_a_line > 1 && i < p->cells_a_line; i++)
        put_text(v, RIGHT + i * width + width / 2, TOP + v->head - ARROW_LANE, "s c", "+%" PRId64, i * p->run_bytes);
    for (int32_t c = 0; c < p->cells; c++) {
        const lp_picture_cell *const cell = &p->cell[c];
        const int x = RIGHT + c % p->cells_a_line * width, y = v->line_y[c / p->cells_a_line];
        fprintf(v->out, "<rect class=\"cell %c%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                shard_class(p, cell->half), lp_picture_shade(p, cell->row), x, y, width, TALL);
        put_text(v, x + width / 2, y + 10, "c", p->cells_a_line > 1 ? "%s %" PRId64 : "%s row %" PRId64,
                 shard_text(p, cell->half), cell->row);
        if (c % p->cells_a_line == 0)
            put_text(v, ADDRESS, y + 10, "s", "%" PRId64, cell->off);
    }
    for (int32_t i = 1; i < v->lines; i++)
        if (v->line_y[i] > v->line_y[i - 1] + TALL)
            put_text(v, RIGHT + RIGHT_WIDTH / 2, v->line_y[i] - 4, "s c", "...");
    next_text(p, text, sizeof text);
    if (text[0] != '\0')
        put_text(v, RIGHT, v->right_bottom, "s", "then %s", text);
}

/* ---- who goes where ---- */

/* The rest of a path, from (x0, y0) to (x1, y1), level at both ends. */
static void put_curve(const canvas *v, int x0, int y0, int x1, int y1)
{
    const int middle = (x0 + x1) / 2;
    fprintf(v->out, "C%d %d %d %d %d %d", middle, y0, middle, y1, x1, y1);
}

/* Rows that stay together, as one ribbon each. */
static void draw_ribbons(const canvas *v)
{
    const lp_picture *const p = v->p;
    const int from = LEFT + run_width(p) + 2, edge = LEFT + LEFT_WIDTH + 2, to = RIGHT - 3;
    for (int32_t first = 0, end; first < p->cells; first = end) {
        const lp_picture_cell *const c = &p->cell[first];
        for (end = first + 1; end < p->cells; end++) {
            const lp_picture_cell *const next = &p->cell[end];
            if (next->half != c->half || next->row != next[-1].row + 1 || next->off != next[-1].off + p->run_bytes)
                break;
        }
        const int left = v->row_y[c->half][row_index(p, c->row)] + 1, right = v->line_y[first] + 1;
        const int height = (end - first) * TALL - 2;
        if (from < edge) /* only a part of the row: a line past the rest of it */
            fprintf(v->out, "<path class=\"%c l h\" d=\"M%d %dH%d\"/>\n", shard_class(p, c->half), from,
                    left + height / 2, edge);
        fprintf(v->out, "<path class=\"%c w\" d=\"M%d %d", shard_class(p, c->half), edge, left);
        put_curve(v, edge, left, to, right);
        fprintf(v->out, "V%d", right + height);
        put_curve(v, to, right + height, edge, left + height);
        fputs("Z\"/>\n", v->out);
    }
}

static void draw_arrow(const canvas *v, int32_t c)
{
    const lp_picture *const p = v->p;
    const lp_picture_cell *const cell = &p->cell[c];
    const char shard = shard_class(p, cell->half);
    const int width = RIGHT_WIDTH / p->cells_a_line, column = c % p->cells_a_line;
    const int x0 = LEFT + run_width(p), y0 = v->row_y[cell->half][row_index(p, cell->row)] + v->row_height / 2;
    const int x1 = RIGHT + column * width, y1 = v->line_y[c / p->cells_a_line];
    fprintf(v->out, "<circle class=\"%c\" cx=\"%d\" cy=\"%d\" r=\"2\"/>\n", shard, x0 - 3, y0);
    fprintf(v->out, "<path class=\"%c l\" d=\"M%d %dH%d", shard, x0 - 3, y0, LEFT + LEFT_WIDTH);
    if (column == 0) {
        put_curve(v, LEFT + LEFT_WIDTH, y0, x1 - 2, y1 + TALL / 2);
    } else {
        put_curve(v, LEFT + LEFT_WIDTH, y0, RIGHT - 2, y1 - ARROW_LANE / 2);
        fprintf(v->out, "H%dQ%d %d %d %d", x1 + 2, x1 + 10, y1 - ARROW_LANE / 2, x1 + 10, y1 - 1);
    }
    fputs("\"/>\n", v->out);
    fprintf(v->out, "<rect class=\"%c o\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", shard, x1, y1, width,
            TALL);
}

/* Where the first row goes, and the row one step further on each axis. */
static void draw_arrows(const canvas *v)
{
    const lp_picture *const p = v->p;
    const lp_picture_cell *const first = &p->cell[0];
    for (int32_t c = 0; c < p->cells; c++) {
        const lp_picture_cell *const cell = &p->cell[c];
        const int64_t step = cell->row - first->row;
        bool arrow = step == 0;
        for (int32_t a = 0; a < p->layout->axes; a++)
            if (p->layout->axis[a].role == LP_AXIS_ROW && p->axis[a].drawn > 1 && step == p->axis[a].below)
                arrow = arrow || cell->half == first->half;
        if (arrow)
            draw_arrow(v, c);
    }
}

/* ---- the axes ---- */

static void draw_extent(const canvas *v, int x, int y, lp_extent e, int64_t value)
{
    static const char letter[] = "?EHI";
    char times[16] = "", over[16] = "";
    if (e.symbol == LP_SIZE_ONE) {
        put_text(v, x, y, "m e", "%" PRId64, value);
        return;
    }
    if (e.times != 1)
        snprintf(times, sizeof times, "%d", (int)e.times);
    if (e.over != 1)
        snprintf(over, sizeof over, "/%d", (int)e.over);
    put_text(v, x, y, "m e", "%s%c%s = %" PRId64, times, letter[e.symbol], over, value);
}

/* The digit of row t or byte c that an axis counts. */
static void draw_digit(const canvas *v, int x, int y, char variable, int64_t below, int64_t extent, bool leading)
{
    char over[32] = "", of[32] = "";
    if (below != 1)
        snprintf(over, sizeof over, "/%" PRId64, below);
    if (!leading)
        snprintf(of, sizeof of, " %% %" PRId64, extent);
    put_text(v, x, y, "m", "%c%s%s", variable, over, of);
}

static const int axis_x[] = {MARGIN, 84, 300, 330, 640};

static void draw_axis(const canvas *v, int y, int32_t a)
{
    const lp_picture *const p = v->p;
    const lp_axis *const axis = &p->layout->axis[a];
    const int64_t below = p->axis[a].below, extent = p->geometry.extent[a];
    put_text(v, axis_x[0], y, "m b", "%s", axis->name);
    draw_extent(v, axis_x[2], y, axis->extent, extent);
    put_text(v, axis_x[4], y, "m e", "%" PRId64 " byte%s", p->geometry.stride[a],
             p->geometry.stride[a] == 1 ? "" : "s");
    switch (axis->role) {
    case LP_AXIS_EXPERT:
        put_text(v, axis_x[1], y, "m", "e");
        put_text(v, axis_x[3], y, "", "the next expert");
        break;
    case LP_AXIS_HALF:
        put_text(v, axis_x[1], y, "m", "%s", p->layout->up_first ? "1 - half" : "half");
        put_text(v, axis_x[3], y, "", p->layout->up_first ? "from w3 to w1" : "from w1 to w3");
        break;
    case LP_AXIS_ROW:
        draw_digit(v, axis_x[1], y, 't', below, extent, p->axis[a].leading);
        put_text(v, axis_x[3], y, "", "%" PRId64 " row%s down", below, below == 1 ? "" : "s");
        break;
    case LP_AXIS_COLUMN:
        draw_digit(v, axis_x[1], y, 'c', below, extent, p->axis[a].leading);
        put_text(v, axis_x[3], y, "", "%" PRId64 " byte%s on in the row", below, below == 1 ? "" : "s");
        break;
    }
}

static int draw_axes(const canvas *v, int y)
{
    static const char *const title[] = {"axis", "counts", "values", "one step in the checkpoint", "one step in memory"};
    const lp_picture *const p = v->p;
    for (int i = 0; i < 5; i++)
        put_text(v, axis_x[i], y, i == 2 || i == 4 ? "s e" : "s", "%s", title[i]);
    fprintf(v->out, "<path class=\"r\" d=\"M%d %dH%d\"/>\n", MARGIN, y + 5, axis_x[4]);
    y += 19;
    for (int32_t i = 0; i < p->layout->axes; i++, y += 15)
        draw_axis(v, y, p->layout->memory_order[i]);
    if (p->geometry.element > 1) {
        put_text(v, axis_x[0], y, "m", "(byte)");
        draw_digit(v, axis_x[1], y, 'c', 1, p->geometry.element, false);
        put_text(v, axis_x[2], y, "m e", "%" PRId64, p->geometry.element);
        put_text(v, axis_x[3], y, "", "1 byte on in the row");
        put_text(v, axis_x[4], y, "m e", "1 byte");
        y += 15;
    }
    return y;
}

/* ---- the whole ---- */

/* A formula, broken before a " + " or after a comma where it is too long. */
static int draw_formula(const canvas *v, int y, const char *text)
{
    while (*text != '\0') {
        size_t length = strlen(text);
        if (length > FORMULA_WIDTH) {
            for (length = FORMULA_WIDTH; length > 1; length--)
                if (text[length - 1] == ' ' && (text[length] == '+' || text[length - 2] == ','))
                    break;
        }
        put_text(v, MARGIN, y, "m", "%.*s", (int)length, text);
        text += length;
        y += 15;
    }
    return y;
}

static void draw_title(const canvas *v, const lp_layout_sizes *sizes, const lp_layout_shape *shape)
{
    const lp_layout *const layout = v->p->layout;
    char extents[128], strides[128], chain[512], experts[32] = "";
    lp_layout_chain_text(layout, chain, sizeof chain);
    if (layout->slot_dim >= 0)
        snprintf(experts, sizeof experts, "E = %" PRId64 ", ", sizes->experts);
    put_text(v, MARGIN, 28, "t", "%s", layout->id);
    put_text(v, MARGIN, 47, "", "%s (version %d)", layout->summary, (int)layout->version);
    put_text(v, MARGIN, 65, "s", "for %sH = %" PRId64 ", I = %" PRId64 ": %s %s, strides %s bytes", experts,
             sizes->hidden, sizes->intermediate, lp_dtype_name(shape->dtype),
             lp_layout_list_text(extents, sizeof extents, shape->ndim, shape->shape),
             lp_layout_list_text(strides, sizeof strides, shape->ndim, shape->stride));
    put_text(v, MARGIN, 84, "m", "%s", chain);
}

int lp_layout_show_svg(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes)
{
    lp_error err;
    lp_layout_shape shape;
    lp_picture picture;
    if (lp_layout_describe(layout, sizes, &shape, &err) != LP_OK ||
        lp_picture_plan(layout, sizes, &picture, &err) != LP_OK)
        return lp_cli_usage(cli, "%s", err.text);
    canvas v = {.out = cli->out, .p = &picture};
    place(&v);

    char forward[1024], inverse[1024];
    lp_layout_forward_text(layout, sizes, forward, sizeof forward);
    lp_layout_inverse_text(layout, sizes, inverse, sizeof inverse);
    const int axes_y = (v.left_bottom > v.right_bottom ? v.left_bottom : v.right_bottom) + 32;
    const int axes_bottom = axes_y + 19 + 15 * (layout->axes + (picture.geometry.element > 1));
    const int lines = (int)((strlen(forward) + FORMULA_WIDTH - 1) / FORMULA_WIDTH +
                            (strlen(inverse) + FORMULA_WIDTH - 1) / FORMULA_WIDTH);
    const int height = axes_bottom + 15 * (lines + 2) + 10;

    fprintf(cli->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
            "aria-labelledby=\"title\">\n<title id=\"title\">Layout %s: %s</title>\n",
            WIDTH, height, WIDTH, height, layout->id, layout->summary);
    fputs(style, cli->out);
    fprintf(cli->out, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", WIDTH, height);
    draw_title(&v, sizes, &shape);
    draw_checkpoint(&v);
    draw_memory(&v);
    if (picture.cells_a_line == 1)
        draw_ribbons(&v);
    else
        draw_arrows(&v);
    int y = draw_axes(&v, axes_y);
    y = draw_formula(&v, y + 10, forward);
    y = draw_formula(&v, y + 3, inverse);
    put_text(&v, MARGIN, y + 3, "s", "%s%st is the row of %s and c the byte in it. Divisions round down.",
             layout->slot_dim < 0 ? "" : "e is the expert, ", picture.halves == 1 ? "" : "half 0 for w1 and 1 for w3, ",
             picture.halves == 1 ? "w2" : "w1 or w3");
    fputs("</svg>\n", cli->out);
    return LP_EXIT_DONE;
}
