/* SPDX-License-Identifier: Apache-2.0 */
/* Chains as text: reading and writing, and axes that get their extent later. */
#include "layouts/layout_private.h"

#include <stdio.h>

typedef struct reader {
    const char *text;
    int64_t at;
    lp_chain *chain;
    lp_error *err;
} reader;

static void skip_space(reader *r)
{
    while (r->text[r->at] == ' ')
        r->at++;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static lp_status wrong(reader *r, int64_t at, const char *what)
{
    return lp_fail_at(r->err, LP_E_ARGUMENT, "chain", at, "chain '%s': %s at byte %lld", r->text, what, (long long)at);
}

static lp_status read_name(reader *r, char name[LP_CHAIN_NAME])
{
    const int64_t begin = r->at;
    if (!is_letter(r->text[r->at]))
        return wrong(r, begin, "a name should stand");
    while (is_letter(r->text[r->at]) || is_digit(r->text[r->at]))
        r->at++;
    if (r->at - begin >= LP_CHAIN_NAME)
        return wrong(r, begin, "a name of more than 15 letters");
    memcpy(name, r->text + begin, (size_t)(r->at - begin));
    name[r->at - begin] = '\0';
    return LP_OK;
}

static int32_t axis_named(const lp_chain *chain, const char *name)
{
    for (int32_t a = 0; a < chain->axes; a++)
        if (strcmp(chain->axis[a].name, name) == 0)
            return a;
    return -1;
}

/* ---- the left side ---- */

/* The part of an axis behind its name: "=32" or nothing. */
static lp_status read_extent(reader *r, int64_t *extent)
{
    *extent = 0;
    if (r->text[r->at] != '=')
        return LP_OK;
    const int64_t begin = ++r->at;
    int64_t value = 0;
    for (; is_digit(r->text[r->at]); r->at++)
        if (!lp_mul(value, 10, &value) || !lp_add(value, r->text[r->at] - '0', &value))
            return wrong(r, begin, "an extent that does not fit 64 bits");
    if (value < 1)
        return wrong(r, begin, "an extent of at least 1 should stand");
    *extent = value;
    return LP_OK;
}

/* Adds an axis whose name starts at byte `at` and has been read. */
static lp_status add_axis(reader *r, int64_t at, const char name[LP_CHAIN_NAME])
{
    lp_chain *const c = r->chain;
    int64_t extent;
    if (c->axes == LP_CHAIN_AXES)
        return wrong(r, at, "more than 24 axes");
    if (axis_named(c, name) >= 0)
        return wrong(r, at, "an axis that is there already");
    LP_TRY(read_extent(r, &extent));
    lp_chain_axis *const axis = &c->axis[c->axes++];
    *axis = (lp_chain_axis){.dim = c->ndim, .extent = extent};
    memcpy(axis->name, name, LP_CHAIN_NAME);
    return LP_OK;
}

/* "(r a=4 i=32)", the bracket not yet read. */
static lp_status read_axes(reader *r)
{
    const int64_t begin = r->at++;
    const int32_t before = r->chain->axes;
    for (;;) {
        char name[LP_CHAIN_NAME];
        skip_space(r);
        if (r->text[r->at] == ')')
            break;
        const int64_t at = r->at;
        LP_TRY(read_name(r, name));
        LP_TRY(add_axis(r, at, name));
    }
    r->at++;
    return r->chain->axes == before ? wrong(r, begin, "a dimension without axes") : LP_OK;
}

static lp_status read_source(reader *r)
{
    lp_chain *const c = r->chain;
    for (;;) {
        char name[LP_CHAIN_NAME] = "";
        skip_space(r);
        const int64_t at = r->at;
        if (strncmp(r->text + at, "->", 2) == 0)
            break;
        if (c->ndim == LP_CHAIN_DIMS)
            return wrong(r, at, "more than 8 dimensions");
        if (r->text[at] != '(')
            LP_TRY(read_name(r, name));
        memcpy(c->dim_name[c->ndim], name, LP_CHAIN_NAME);
        if (r->text[r->at] == '(')
            LP_TRY(read_axes(r));
        else
            LP_TRY(add_axis(r, at, name));
        c->ndim++;
    }
    r->at += 2;
    return c->ndim == 0 ? wrong(r, 0, "no dimension") : LP_OK;
}

/* ---- the right side ---- */

static lp_status read_place(reader *r, bool seen[LP_CHAIN_AXES], int32_t *count)
{
    char name[LP_CHAIN_NAME];
    const bool backwards = r->text[r->at] == '~';
    if (backwards)
        r->at++;
    const int64_t at = r->at;
    LP_TRY(read_name(r, name));
    const int32_t a = axis_named(r->chain, name);
    if (a < 0)
        return wrong(r, at, "an axis that does not stand on the left");
    if (seen[a])
        return wrong(r, at, "an axis that is there already");
    seen[a] = true;
    r->chain->axis[a].backwards = backwards;
    r->chain->memory_order[(*count)++] = (int8_t)a;
    return LP_OK;
}

static lp_status read_result(reader *r)
{
    lp_chain *const c = r->chain;
    bool seen[LP_CHAIN_AXES] = {false};
    int32_t count = 0;
    for (;;) {
        skip_space(r);
        if (r->text[r->at] == '\0')
            break;
        c->out_first[c->out_ndim++] = (int8_t)count; /* each holds at least one axis: no more than LP_CHAIN_AXES */
        if (r->text[r->at] != '(') {
            LP_TRY(read_place(r, seen, &count));
            continue;
        }
        const int64_t begin = r->at++;
        const int32_t before = count;
        for (skip_space(r); r->text[r->at] != ')'; skip_space(r))
            LP_TRY(read_place(r, seen, &count));
        r->at++;
        if (count == before)
            return wrong(r, begin, "a dimension without axes");
    }
    c->out_first[c->out_ndim] = (int8_t)count;
    for (int32_t a = 0; a < c->axes; a++)
        if (!seen[a])
            return lp_fail_at(r->err, LP_E_ARGUMENT, "chain", -1, "chain '%s': axis '%s' does not stand on the right",
                              r->text, c->axis[a].name);
    return LP_OK;
}

lp_status lp_chain_parse(lp_chain *out, const char *text, lp_error *err)
{
    lp_chain chain = {0};
    reader r = {text, 0, &chain, err};
    LP_TRY(read_source(&r));
    LP_TRY(read_result(&r));
    *out = chain;
    return LP_OK;
}

/* ---- writing ---- */

static void put_axis(lp_layout_writer *w, const lp_chain_axis *axis)
{
    lp_layout_put(w, "%s", axis->name);
    if (axis->extent != 0)
        lp_layout_put(w, "=%lld", (long long)axis->extent);
}

size_t lp_chain_text(const lp_chain *chain, char *buffer, size_t buffer_bytes)
{
    lp_layout_writer w = lp_layout_writer_start(buffer, buffer_bytes);
    for (int32_t a = 0; a < chain->axes;) {
        const int32_t d = chain->axis[a].dim, first = a;
        while (a < chain->axes && chain->axis[a].dim == d)
            a++;
        const bool alone = a - first == 1 && strcmp(chain->dim_name[d], chain->axis[first].name) == 0;
        if (!alone)
            lp_layout_put(&w, "%s(", chain->dim_name[d]);
        for (int32_t i = first; i < a; i++) {
            lp_layout_put(&w, "%s", i == first ? "" : " ");
            put_axis(&w, &chain->axis[i]);
        }
        lp_layout_put(&w, alone ? " " : ") ");
    }
    lp_layout_put(&w, "->");
    for (int32_t d = 0; d < chain->out_ndim; d++) {
        const int32_t first = chain->out_first[d], end = chain->out_first[d + 1];
        for (int32_t i = first; i < end; i++) {
            const lp_chain_axis *const axis = &chain->axis[chain->memory_order[i]];
            lp_layout_put(&w, "%s%s%s",
                          i > first         ? " "
                          : end - first > 1 ? " ("
                                            : " ",
                          axis->backwards ? "~" : "", axis->name);
        }
        lp_layout_put(&w, end - first > 1 ? ")" : "");
    }
    return w.used;
}

/* ---- extents that come later ---- */

lp_status lp_chain_set(lp_chain *chain, const char *name, int64_t extent, lp_error *err)
{
    const int32_t a = axis_named(chain, name);
    if (a < 0)
        return lp_fail(err, LP_E_ARGUMENT, "the chain has no axis '%s'", name);
    if (extent < 1)
        return lp_fail(err, LP_E_ARGUMENT, "axis '%s' must have at least 1 step, not %lld", name, (long long)extent);
    if (chain->axis[a].extent != 0 && chain->axis[a].extent != extent)
        return lp_fail(err, LP_E_ARGUMENT, "axis '%s' has %lld steps, not %lld", name, (long long)chain->axis[a].extent,
                       (long long)extent);
    chain->axis[a].extent = extent;
    return LP_OK;
}

/* ---- stacked tensors ---- */

lp_status lp_chain_stack(lp_chain *chain, const char *name, lp_error *err)
{
    lp_chain c = *chain;
    const size_t letters = strlen(name);
    if (letters == 0 || letters >= LP_CHAIN_NAME || axis_named(chain, name) >= 0)
        return lp_fail(err, LP_E_ARGUMENT, "a stack cannot have the name '%s'", name);
    if (c.axes == LP_CHAIN_AXES || c.ndim == LP_CHAIN_DIMS)
        return lp_fail(err, LP_E_LIMIT, "the chain has no room for a stack");
    for (int32_t a = c.axes; a > 0; a--) {
        c.axis[a] = c.axis[a - 1];
        c.axis[a].dim++;
        c.memory_order[a] = (int8_t)(c.memory_order[a - 1] + 1);
    }
    for (int32_t d = c.ndim; d > 0; d--)
        memcpy(c.dim_name[d], c.dim_name[d - 1], LP_CHAIN_NAME);
    for (int32_t d = c.out_ndim + 1; d > 0; d--)
        c.out_first[d] = (int8_t)(c.out_first[d - 1] + 1);
    c.axis[0] = (lp_chain_axis){.dim = 0};
    memset(c.dim_name[0], 0, LP_CHAIN_NAME);
    memcpy(c.axis[0].name, name, letters);
    memcpy(c.dim_name[0], name, letters);
    c.memory_order[0] = 0;
    c.out_first[0] = 0;
    c.axes++;
    c.ndim++;
    c.out_ndim++;
    *chain = c;
    return LP_OK;
}
