/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a query for people, for other programs, and as JSON. */
#include "traces/query_print.h"

#include "traces/cli.h"

#include <math.h>
#include <stdlib.h>

enum { HELD_ROWS = 1000, WIDTH_MAX = 80 };

/* Columns on a terminal: code points, which is right for all names that anyone uses. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* A cell with everything escaped that would disturb a terminal or a table. */
static void add_clean(lp_text *out, const char *text)
{
    const size_t bytes = strlen(text), room = lp_sanitise(NULL, 0, text, bytes) + 1;
    char small[1024], *clean = room <= sizeof small ? small : malloc(room);
    if (clean == NULL) {
        out->failed = true;
        return;
    }
    lp_sanitise(clean, room, text, bytes);
    lp_text_add(out, clean, strlen(clean));
    if (clean != small)
        free(clean);
}

static void print_aligned(lp_row_printer *p, const char *const *cell)
{
    for (int c = 0; c < p->columns; c++) {
        const bool is_last = c + 1 == p->columns;
        const int pad = is_last ? 0 : p->width[c] - width_of(cell[c]);
        fprintf(p->out, "%s%*s%s", cell[c], pad > 0 ? pad : 0, "", is_last ? "\n" : "  ");
    }
}

/* Prints the rows held back, now that the widths are known. */
static void release_held(lp_row_printer *p)
{
    const char **cell = malloc((size_t)(p->columns > 0 ? p->columns : 1) * sizeof *cell);
    const char *at = p->held.data;
    if (cell == NULL || p->held.failed) {
        p->failed = true;
        free(cell);
        return;
    }
    for (int64_t r = 0; r < p->held_rows; r++) {
        for (int c = 0; c < p->columns; c++) {
            cell[c] = at;
            at += strlen(at) + 1;
        }
        print_aligned(p, cell);
    }
    free(cell);
    p->held.bytes = 0;
    p->held_rows = 0;
}

static void hold(lp_row_printer *p, const char *const *values)
{
    for (int c = 0; c < p->columns; c++) {
        const int64_t start = p->held.bytes;
        add_clean(&p->held, values[c] != NULL ? values[c] : "");
        lp_text_add(&p->held, "", 1);
        if (p->held.failed)
            return;
        const int width = width_of(p->held.data + start);
        if (width > p->width[c] && p->rows <= HELD_ROWS)
            p->width[c] = width < WIDTH_MAX ? width : WIDTH_MAX;
    }
    p->held_rows++;
}

static void print_tsv(lp_row_printer *p, const char *const *values)
{
    lp_text line;
    lp_text_init(&line, NULL);
    for (int c = 0; c < p->columns; c++) {
        if (c > 0)
            lp_text_add(&line, "\t", 1);
        if (values[c] == NULL)
            lp_text_add(&line, "\\N", 2);
        else
            add_clean(&line, values[c]);
    }
    lp_text_add(&line, "\n", 1);
    if (line.failed)
        p->failed = true;
    else
        fwrite(line.data, 1, (size_t)line.bytes, p->out);
    lp_text_free(&line);
}

static json_t *json_cell(const char *value, lp_cell_type type)
{
    switch (type) {
    case LP_CELL_NULL:
        return json_null();
    case LP_CELL_INTEGER:
        return json_integer(strtoll(value, NULL, 10));
    case LP_CELL_REAL: {
        const double real = strtod(value, NULL);
        return isfinite(real) ? json_real(real) : json_null(); /* JSON has no infinity */
    }
    case LP_CELL_TEXT:
        break;
    }
    json_t *text = json_string(value);
    if (text != NULL)
        return text;
    lp_text clean; /* not UTF-8: a blob */
    lp_text_init(&clean, NULL);
    add_clean(&clean, value);
    text = clean.failed || clean.data == NULL ? NULL : json_string(clean.data);
    lp_text_free(&clean);
    return text;
}

static void print_json(lp_row_printer *p, const char *const *values, const lp_cell_type *types, bool is_header)
{
    json_t *row = json_array();
    for (int c = 0; c < p->columns; c++)
        if (json_array_append_new(row, json_cell(values[c], types[c])) != 0)
            p->failed = true;
    fputs(is_header ? "{\"format\":1,\"columns\":" : p->rows == 1 ? "\n" : ",\n", p->out);
    if (row == NULL || !lp_cli_dump_json(p->out, row, JSON_COMPACT))
        p->failed = true;
    if (is_header)
        fputs(",\"rows\":[", p->out);
    json_decref(row);
}

int lp_print_row(void *context, int columns, const char *const *values, const lp_cell_type *types, bool is_header)
{
    lp_row_printer *p = context;
    if (is_header) {
        p->columns = columns;
        lp_text_init(&p->held, NULL);
        p->width = calloc((size_t)columns + 1, sizeof *p->width);
        p->failed = p->width == NULL;
    } else {
        p->rows++;
    }
    if (p->failed)
        return 1;
    switch (p->format) {
    case LP_PRINT_TEXT:
        hold(p, values);
        if (p->held_rows > HELD_ROWS)
            release_held(p);
        break;
    case LP_PRINT_TSV:
        print_tsv(p, values);
        break;
    case LP_PRINT_JSON:
        print_json(p, values, types, is_header);
        break;
    }
    return p->failed || ferror(p->out) ? 1 : 0;
}

bool lp_print_end(lp_row_printer *p)
{
    if (p->width != NULL && p->format == LP_PRINT_TEXT && p->held_rows > 0)
        release_held(p);
    if (p->width != NULL && p->format == LP_PRINT_JSON)
        fputs("]}\n", p->out);
    free(p->width);
    lp_text_free(&p->held);
    return !p->failed && !ferror(p->out);
}
