/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts in words: the chain of the table, and the index formula both ways with the numbers of given sizes. */
#include "layouts/layout_private.h"

#include <stdio.h>

void lp_layout_put(lp_layout_writer *w, const char *format, ...)
{
    char *const at = w->used < w->capacity ? w->buffer + w->used : NULL;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(at, at == NULL ? 0 : w->capacity - w->used, format, args);
    va_end(args);
    if (n > 0)
        w->used += (size_t)n;
}

lp_layout_writer lp_layout_writer_start(char *buffer, size_t buffer_bytes)
{
    if (buffer_bytes > 0)
        buffer[0] = '\0';
    return (lp_layout_writer){buffer, buffer_bytes, 0};
}

/* ---- the chain ---- */

static void put_extent(lp_layout_writer *w, lp_extent e)
{
    static const char *const letter[] = {"", "E", "H", "I"};
    if (e.symbol == LP_SIZE_ONE || e.times != 1)
        lp_layout_put(w, "%d", (int)e.times);
    lp_layout_put(w, "%s", letter[e.symbol]);
    if (e.over != 1)
        lp_layout_put(w, "/%d", (int)e.over);
}

size_t lp_layout_chain_text(const lp_layout *layout, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    for (int32_t a = 0; a < layout->axes; a++) {
        lp_layout_put(&w, a == 0 ? "[" : ",");
        put_extent(&w, layout->axis[a].extent);
    }
    lp_layout_put(&w, "] as (");
    for (int32_t a = 0; a < layout->axes; a++)
        lp_layout_put(&w, "%s%s", a == 0 ? "" : ",", layout->axis[a].name);
    lp_layout_put(&w, ") -> memory (");
    for (int32_t i = 0; i < layout->axes; i++)
        lp_layout_put(&w, "%s%s", i == 0 ? "" : ",", layout->axis[layout->memory_order[i]].name);
    lp_layout_put(&w, layout->up_first ? "), up first" : ")");
    return w.used;
}

/* ---- the formula ---- */

/* A part of a variable: variable / below % extent, found at off / stride % extent. */
typedef struct digit {
    int64_t below, extent, stride;
    bool leading; /* nothing of the variable lies above: no % is needed */
} digit;

enum { DIGITS = LP_LAYOUT_AXES + 1 };

/* Digits of a role, outermost first; the bytes of an element are the last digit of the columns. */
static int digits_of(const lp_layout *layout, const lp_layout_geometry *g, lp_axis_role role, digit out[DIGITS])
{
    int count = 0;
    const bool is_column = role == LP_AXIS_COLUMN;
    for (int32_t a = 0; a <= layout->axes; a++) {
        const bool is_element = a == layout->axes;
        if (is_element ? !is_column : layout->axis[a].role != role)
            continue;
        const int64_t extent = is_element ? g->element : g->extent[a], stride = is_element ? 1 : g->stride[a];
        if (extent == 1)
            continue;
        if (count > 0 && out[count - 1].stride == extent * stride) {
            out[count - 1].extent *= extent;
            out[count - 1].stride = stride;
        } else {
            out[count] = (digit){0, extent, stride, count == 0};
            count++;
        }
    }
    int64_t below = 1;
    for (int i = count - 1; i >= 0; i--) {
        out[i].below = below;
        below *= out[i].extent;
    }
    return count;
}

static const struct {
    lp_axis_role role;
    const char *name;
} variables[] = {{LP_AXIS_EXPERT, "e"}, {LP_AXIS_HALF, "half"}, {LP_AXIS_ROW, "t"}, {LP_AXIS_COLUMN, "c"}};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

static void put_factor(lp_layout_writer *w, int64_t factor)
{
    if (factor != 1)
        lp_layout_put(w, "%lld*", (long long)factor);
}

size_t lp_layout_forward_text(const lp_layout *layout, const lp_layout_sizes *sizes, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    lp_layout_geometry g;
    if (lp_layout_resolve(layout, sizes, &g, NULL) != LP_OK)
        return 0;
    lp_layout_put(&w, "off = ");
    const char *plus = "";
    for (int v = 0; v < VARIABLES; v++) {
        digit d[DIGITS];
        const int count = digits_of(layout, &g, variables[v].role, d);
        for (int i = 0; i < count; i++, plus = " + ") {
            const bool divides = d[i].below > 1, reduces = !d[i].leading;
            lp_layout_put(&w, "%s", plus);
            put_factor(&w, d[i].stride);
            if (variables[v].role == LP_AXIS_HALF && layout->up_first)
                lp_layout_put(&w, "(1-half)");
            else if (!divides && !reduces)
                lp_layout_put(&w, "%s", variables[v].name);
            else if (divides && reduces)
                lp_layout_put(&w, "(%s/%lld%%%lld)", variables[v].name, (long long)d[i].below, (long long)d[i].extent);
            else
                lp_layout_put(&w, "(%s%c%lld)", variables[v].name, divides ? '/' : '%',
                              (long long)(divides ? d[i].below : d[i].extent));
        }
    }
    return w.used;
}

size_t lp_layout_inverse_text(const lp_layout *layout, const lp_layout_sizes *sizes, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    lp_layout_geometry g;
    if (lp_layout_resolve(layout, sizes, &g, NULL) != LP_OK)
        return 0;
    const char *comma = "";
    for (int v = 0; v < VARIABLES; v++) {
        digit d[DIGITS];
        const int count = digits_of(layout, &g, variables[v].role, d);
        if (count == 0)
            continue;
        const bool flips = variables[v].role == LP_AXIS_HALF && layout->up_first;
        lp_layout_put(&w, "%s%s = %s", comma, variables[v].name, flips ? "1 - " : "");
        comma = ", ";
        for (int i = 0; i < count; i++) {
            const bool reduces = d[i].stride * d[i].extent != g.bytes, scaled = d[i].below != 1;
            lp_layout_put(&w, "%s", i == 0 ? "" : " + ");
            put_factor(&w, d[i].below);
            lp_layout_put(&w, "%soff", scaled ? "(" : "");
            if (d[i].stride != 1)
                lp_layout_put(&w, "/%lld", (long long)d[i].stride);
            if (reduces)
                lp_layout_put(&w, "%%%lld", (long long)d[i].extent);
            lp_layout_put(&w, "%s", scaled ? ")" : "");
        }
    }
    return w.used;
}
