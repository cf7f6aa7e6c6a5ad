/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture proper: left the rows of the checkpoint, right the memory that they go to, in between ribbons for rows
 * that move whole, or arrows for the words of a few of them.
 */
#include "layouts/layout_svg.h"

enum {
    HEAD = 32, /* of a matrix: its title and the names of its columns */
    HEAD_WITH_ARROWS = 48,
    ROW_LABELS = 40, /* left of the checkpoint's matrices */
    LEFT = LP_SVG_MARGIN + ROW_LABELS,
    LEFT_WIDTH = 196,
    RIGHT = 436,
    RIGHT_WIDTH = 244,
    ADDRESS = RIGHT + RIGHT_WIDTH + 6,
    TALL = 13, /* a row with its number in it */
    THIN = 3,  /* a row without */
    TALL_ROWS_MOST = 32,
    GAP = 13,
    ARROW_LANE = 15, /* above memory, for arrows that come from above */
    COLUMNS_SHOWN = 3
};

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

static int place_rows(lp_svg *v, int half, int y)
{
    const lp_picture *const p = v->picture;
    for (int32_t i = 0; i < p->rows; i++, y += v->row_height) {
        if (i > 0 && p->row[i] != p->row[i - 1] + 1)
            y += GAP;
        v->row_y[half][i] = y;
    }
    return y + (p->row[p->rows - 1] + 1 < p->geometry.rows ? GAP : 0);
}

void lp_svg_place(lp_svg *v)
{
    const lp_picture *const p = v->picture;
    v->lines = p->cells / p->cells_a_line;
    v->head = p->cells_a_line > 1 ? HEAD_WITH_ARROWS : HEAD;
    v->row_height = p->rows > TALL_ROWS_MOST ? THIN : TALL;
    int y = LP_SVG_TOP + v->head;
    for (int half = 0; half < p->halves; half++)
        y = place_rows(v, half, y + (half > 0 ? v->head : 0));
    const int left_bottom = y;

    y = LP_SVG_TOP + v->head;
    const int64_t line_bytes = p->cells_a_line * p->run_bytes;
    for (int32_t i = 0; i < v->lines; i++, y += TALL) {
        const lp_picture_cell *const first = &p->cell[i * p->cells_a_line];
        if (i > 0 && first->off != first[-p->cells_a_line].off + line_bytes)
            y += GAP;
        v->line_y[i] = y;
    }
    v->bottom = (left_bottom > y + GAP ? left_bottom : y + GAP);
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

static void draw_columns(const lp_svg *v, int y)
{
    const lp_picture *const p = v->picture;
    const int width = run_width(p);
    const int64_t row_bytes = p->geometry.columns * p->geometry.element;
    if (width == LEFT_WIDTH) {
        lp_svg_text(v, LEFT + LEFT_WIDTH / 2, y - 4, "s c", "bytes 0-%" PRId64, row_bytes - 1);
        return;
    }
    const int boxes = column_boxes(p);
    for (int i = 0; i < boxes; i++) {
        const int64_t first = i * p->run_bytes;
        if (i == COLUMNS_SHOWN)
            lp_svg_text(v, LEFT + i * width + width / 2, y - 4, "s c", "to %" PRId64, row_bytes - 1);
        else
            lp_svg_text(v, LEFT + i * width + width / 2, y - 4, i == 0 ? "c b" : "s c", "%" PRId64 "-%" PRId64, first,
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

static void draw_rows(const lp_svg *v, int half)
{
    const lp_picture *const p = v->picture;
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
        lp_svg_text(v, LEFT - 5, y + 10, "s e", "%" PRId64, p->row[first]);
        if (first > 0 && p->row[first] != p->row[first - 1] + 1)
            lp_svg_text(v, LEFT - 5, y - 3, "s e", "...");
    }
    const int bottom = v->row_y[half][p->rows - 1] + v->row_height;
    if (p->row[p->rows - 1] + 1 < p->geometry.rows)
        lp_svg_text(v, LEFT - 5, bottom + 9, "s e", "...");
}

static void draw_checkpoint(const lp_svg *v)
{
    const lp_picture *const p = v->picture;
    for (int half = 0; half < p->halves; half++) {
        const int y = v->row_y[half][0];
        char class[] = "b x ?";
        class[4] = shard_class(p, half);
        lp_svg_text(v, LEFT, y - v->head + 14, class, "%s, %s: %" PRId64 " rows of %" PRId64 " bytes",
                    shard_text(p, half),
                    is_down(p)  ? "down"
                    : half == 0 ? "gate"
                                : "up",
                    p->geometry.rows, p->geometry.columns * p->geometry.element);
        if (half == 0)
            draw_columns(v, y);
        draw_rows(v, half);
        lp_svg_text(v, LEFT - 5, y - 4, "s e", "row t");
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

/* What follows the part shown: "g = 2 at 2048, k = 1 at 16384". Three axes have room; the drawing of axes has them all.
 */
static void next_text(const lp_picture *p, char *buffer, size_t buffer_bytes)
{
    size_t used = 0;
    int named = 0;
    buffer[0] = '\0';
    for (int32_t i = p->layout->axes - 1; i >= 0 && used < buffer_bytes && named < 3; i--) {
        const int32_t a = p->layout->memory_order[i];
        if (p->axis[a].drawn == p->geometry.extent[a])
            continue;
        named++;
        used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%s = %" PRId64 " at %" PRId64,
                                 used == 0 ? "" : ", ", p->layout->axis[a].name, p->axis[a].drawn,
                                 p->axis[a].drawn * p->geometry.stride[a]);
    }
}

static void draw_memory(const lp_svg *v)
{
    const lp_picture *const p = v->picture;
    char text[256];
    const int width = RIGHT_WIDTH / p->cells_a_line;
    place_text(p, text, sizeof text);
    lp_svg_text(v, RIGHT, LP_SVG_TOP + 14, "b", "memory%s%s: %" PRId64 " bytes a %s", text[0] == '\0' ? "" : ", ", text,
                p->run_bytes, p->cells_a_line > 1 ? "cell" : "line");
    lp_svg_text(v, ADDRESS, LP_SVG_TOP + v->head - 4, "s", "off, bytes");
    for (int32_t i = 0; p->cells_a_line > 1 && i < p->cells_a_line; i++)
        lp_svg_text(v, RIGHT + i * width + width / 2, LP_SVG_TOP + v->head - ARROW_LANE, "s c", "+%" PRId64,
                    i * p->run_bytes);
    for (int32_t c = 0; c < p->cells; c++) {
        const lp_picture_cell *const cell = &p->cell[c];
        const int x = RIGHT + c % p->cells_a_line * width, y = v->line_y[c / p->cells_a_line];
        fprintf(v->out, "<rect class=\"cell %c%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                shard_class(p, cell->half), lp_picture_shade(p, cell->row), x, y, width, TALL);
        lp_svg_text(v, x + width / 2, y + 10, "c", p->cells_a_line > 1 ? "%s %" PRId64 : "%s row %" PRId64,
                    shard_text(p, cell->half), cell->row);
        if (c % p->cells_a_line == 0)
            lp_svg_text(v, ADDRESS, y + 10, "s", "%" PRId64, cell->off);
    }
    for (int32_t i = 1; i < v->lines; i++)
        if (v->line_y[i] > v->line_y[i - 1] + TALL)
            lp_svg_text(v, RIGHT + RIGHT_WIDTH / 2, v->line_y[i] - 4, "s c", "...");
    next_text(p, text, sizeof text);
    if (text[0] != '\0')
        lp_svg_text(v, RIGHT, v->line_y[v->lines - 1] + TALL + GAP, "s", "then %s", text);
}

/* ---- who goes where ---- */

/* The rest of a path, from (x0, y0) to (x1, y1), level at both ends. */
static void put_curve(const lp_svg *v, int x0, int y0, int x1, int y1)
{
    const int middle = (x0 + x1) / 2;
    fprintf(v->out, "C%d %d %d %d %d %d", middle, y0, middle, y1, x1, y1);
}

/* Rows that stay together, as one ribbon each. */
static void draw_ribbons(const lp_svg *v)
{
    const lp_picture *const p = v->picture;
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

static void draw_arrow(const lp_svg *v, int32_t c)
{
    const lp_picture *const p = v->picture;
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
static void draw_arrows(const lp_svg *v)
{
    const lp_picture *const p = v->picture;
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

void lp_svg_draw_map(const lp_svg *v)
{
    draw_checkpoint(v);
    draw_memory(v);
    if (v->picture->cells_a_line == 1)
        draw_ribbons(v);
    else
        draw_arrows(v);
}
