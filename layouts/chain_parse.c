/* SPDX-License-Identifier: Apache-2.0 */
/* From text to a chain. lp_chain_text in chain_text.c is the way back. */
#include "layouts/layout_private.h"

/* Axes of one dimension, part by part. */
typedef struct axis_lists {
    int32_t parts, count[LP_CHAIN_PARTS];
    int8_t axis[LP_CHAIN_PARTS][LP_CHAIN_AXES];
} axis_lists;

typedef struct reader {
    const char *text;
    int64_t at;
    lp_chain *chain;
    lp_error *err;
    axis_lists now, split;         /* of the dimension that is being read; of the one with bars */
    uint32_t seen[LP_CHAIN_PARTS]; /* axes of each part that stand on the right already, */
    int32_t count[LP_CHAIN_PARTS]; /* and how many those are */
    int64_t swizzle_at;            /* byte of the first '^' */
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

static bool has_axis(int32_t count, const int8_t *list, int32_t axis)
{
    for (int32_t i = 0; i < count; i++)
        if (list[i] == axis)
            return true;
    return false;
}

/* Adds an axis whose name starts at byte `at` and has been read, to the last part of the dimension. */
static lp_status add_axis(reader *r, int64_t at, const char name[LP_CHAIN_NAME])
{
    lp_chain *const c = r->chain;
    const int32_t part = r->now.parts - 1;
    int8_t *const list = r->now.axis[part];
    int64_t extent;
    int32_t a = lp_chain_axis_named(c, name);
    if (a >= 0 && (c->axis[a].dim != c->ndim || has_axis(r->now.count[part], list, a)))
        return wrong(r, at, "an axis that is there already");
    if (a < 0 && c->axes == LP_CHAIN_AXES)
        return wrong(r, at, "more than 24 axes");
    LP_TRY(read_extent(r, &extent));
    if (a < 0) {
        a = c->axes++;
        c->axis[a] = (lp_chain_axis){.dim = c->ndim};
        memcpy(c->axis[a].name, name, LP_CHAIN_NAME);
    }
    if (extent != 0 && c->axis[a].extent != 0 && c->axis[a].extent != extent)
        return wrong(r, at, "another extent than in the part before");
    if (extent != 0)
        c->axis[a].extent = extent;
    list[r->now.count[part]++] = (int8_t)a;
    return LP_OK;
}

/* "(r a=4 i=32)" or "(d=2 | q=16)", the bracket not yet read. */
static lp_status read_axes(reader *r)
{
    for (int64_t begin = r->at++;;) {
        char name[LP_CHAIN_NAME];
        skip_space(r);
        const int64_t at = r->at;
        if (r->text[at] != ')' && r->text[at] != '|') {
            LP_TRY(read_name(r, name));
            LP_TRY(add_axis(r, at, name));
            continue;
        }
        if (r->now.count[r->now.parts - 1] == 0)
            return wrong(r, begin, r->now.parts > 1 ? "a part without axes" : "a dimension without axes");
        r->at++;
        if (r->text[at] == ')')
            return LP_OK;
        if (r->now.parts == LP_CHAIN_PARTS)
            return wrong(r, at, "more than 8 parts");
        r->now.parts++;
        begin = at;
    }
}

/* Each part has the axes of all dimensions, of the one with bars its own. */
static void order_axes(const reader *r)
{
    lp_chain *const c = r->chain;
    for (int32_t p = 0; p < c->parts; p++) {
        lp_chain_part *const part = &c->part[p];
        for (int32_t d = 0; d < c->ndim; d++) {
            for (int32_t a = 0; a < c->axes && d != c->split_dim; a++)
                if (c->axis[a].dim == d)
                    part->source[part->axes++] = (int8_t)a;
            for (int32_t i = 0; d == c->split_dim && i < r->split.count[p]; i++)
                part->source[part->axes++] = r->split.axis[p][i];
        }
    }
}

static lp_status read_source(reader *r)
{
    lp_chain *const c = r->chain;
    for (;; c->ndim++) {
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
        r->now = (axis_lists){.parts = 1};
        LP_TRY(r->text[r->at] == '(' ? read_axes(r) : add_axis(r, at, name));
        if (r->now.parts == 1)
            continue;
        if (c->split_dim >= 0)
            return wrong(r, at, "a second dimension with bars");
        c->split_dim = c->ndim;
        c->parts = r->now.parts;
        r->split = r->now;
    }
    r->at += 2;
    order_axes(r);
    return c->ndim == 0 ? wrong(r, 0, "no dimension") : LP_OK;
}

/* ---- the right side ---- */

/* The axes behind "a": "^b^c" or nothing. */
static lp_status read_swizzle(reader *r, lp_chain_place *place)
{
    if (r->text[r->at] == '^' && place->list_end > 0)
        return wrong(r, r->at, "a swizzle of an axis with a list");
    while (r->text[r->at] == '^') {
        char name[LP_CHAIN_NAME];
        if (r->swizzle_at < 0)
            r->swizzle_at = r->at;
        const int64_t at = ++r->at;
        LP_TRY(read_name(r, name));
        const int32_t a = lp_chain_axis_named(r->chain, name);
        if (a < 0)
            return wrong(r, at, "an axis that does not stand on the left");
        if (a == place->axis || (place->swizzle >> a & 1) != 0)
            return wrong(r, at, "an axis that is there already");
        place->swizzle |= (uint32_t)1 << a;
    }
    return LP_OK;
}

/* The steps behind "a": "[2 0 1]" or nothing; as many as axis `a` has, each once. */
static lp_status read_list(reader *r, int32_t a, lp_chain_place *place)
{
    lp_chain *const c = r->chain;
    const int64_t begin = r->at;
    const int32_t first = c->listed;
    bool seen[LP_CHAIN_LISTS] = {false};
    if (r->text[begin] != '[')
        return LP_OK;
    if (place->backwards)
        return wrong(r, begin, "a list of an axis that runs backwards");
    r->at++;
    for (skip_space(r); is_digit(r->text[r->at]); skip_space(r)) {
        const int64_t at = r->at;
        int32_t step = 0;
        for (; is_digit(r->text[r->at]) && step < LP_CHAIN_LISTS; r->at++)
            step = step * 10 + (r->text[r->at] - '0');
        if (step >= LP_CHAIN_LISTS || c->listed == LP_CHAIN_LISTS)
            return wrong(r, at, "lists of more than 256 steps");
        if (seen[step])
            return wrong(r, at, "a step that is there already");
        seen[step] = true;
        c->list[c->listed++] = (uint8_t)step;
    }
    if (r->text[r->at] != ']')
        return wrong(r, r->at, "a step or ']' should stand");
    r->at++;
    const int32_t steps = c->listed - first;
    for (int32_t step = 0; step < steps; step++)
        if (!seen[step])
            return wrong(r, begin, "a list that leaves out steps");
    if (steps == 0 || (c->axis[a].extent != 0 && c->axis[a].extent != steps))
        return wrong(r, begin, "a list of another length than its axis");
    c->axis[a].extent = steps;
    place->list_end = (int16_t)c->listed;
    return LP_OK;
}

/* One axis of parts first .. end-1, with what stands before and behind it. */
static lp_status read_place(reader *r, int32_t first, int32_t end)
{
    lp_chain *const c = r->chain;
    char name[LP_CHAIN_NAME];
    lp_chain_place place = {.backwards = r->text[r->at] == '~'};
    if (place.backwards)
        r->at++;
    const int64_t at = r->at;
    LP_TRY(read_name(r, name));
    const int32_t a = lp_chain_axis_named(c, name);
    if (a < 0)
        return wrong(r, at, "an axis that does not stand on the left");
    place.axis = (int8_t)a;
    LP_TRY(read_list(r, a, &place));
    LP_TRY(read_swizzle(r, &place));
    for (int32_t p = first; p < end; p++) {
        if (!has_axis(c->part[p].axes, c->part[p].source, a))
            return wrong(r, at, end - first > 1 ? "an axis that not every part has" : "an axis of another part");
        if ((r->seen[p] >> a & 1) != 0)
            return wrong(r, at, "an axis that is there already");
        c->part[p].memory[r->count[p]++] = place;
        r->seen[p] |= (uint32_t)1 << a;
    }
    return LP_OK;
}

static void start_out_dim(reader *r)
{
    lp_chain *const c = r->chain;
    for (int32_t p = 0; p < c->parts; p++)
        c->part[p].out_first[c->out_ndim] = (int8_t)r->count[p];
}

/* "(i a k)" or "(i d | i q)", the bracket not yet read. */
static lp_status read_group(reader *r)
{
    lp_chain *const c = r->chain;
    const bool bars = memchr(r->text + r->at, '|', strcspn(r->text + r->at, ")")) != NULL;
    int64_t begin = r->at++;
    if (bars && c->split_out >= 0)
        return wrong(r, begin, "a second dimension with bars");
    if (bars)
        c->split_out = c->out_ndim;
    int32_t part = 0;
    for (bool empty = true;;) {
        skip_space(r);
        const int64_t at = r->at;
        if (r->text[at] != ')' && r->text[at] != '|') {
            LP_TRY(read_place(r, bars ? part : 0, bars ? part + 1 : c->parts));
            empty = false;
            continue;
        }
        if (empty)
            return wrong(r, begin, bars ? "a part without axes" : "a dimension without axes");
        r->at++;
        if (r->text[at] == ')')
            return bars && part + 1 != c->parts ? wrong(r, at, "fewer parts than on the left") : LP_OK;
        if (++part == c->parts)
            return wrong(r, at, "more parts than on the left");
        begin = at;
        empty = true;
    }
}

/* Axes that turn others stand plain themselves, in every part. */
static lp_status check_swizzles(reader *r)
{
    const lp_chain *const c = r->chain;
    for (int32_t p = 0; p < c->parts; p++) {
        const lp_chain_part *const part = &c->part[p];
        uint32_t swizzled = 0, turning = 0;
        for (int32_t i = 0; i < part->axes; i++) {
            turning |= part->memory[i].swizzle;
            if (part->memory[i].swizzle != 0)
                swizzled |= 1u << part->memory[i].axis;
        }
        if ((turning & swizzled) != 0)
            return wrong(r, r->swizzle_at, "an axis that is swizzled by a swizzled one");
        if ((turning & ~r->seen[p]) != 0)
            return wrong(r, r->swizzle_at, "an axis that is swizzled by one of another part");
    }
    return LP_OK;
}

static lp_status read_result(reader *r)
{
    lp_chain *const c = r->chain;
    for (;; c->out_ndim++) {
        skip_space(r);
        start_out_dim(r);
        if (r->text[r->at] == '\0')
            break;
        /* each dimension takes an axis of every part or fails: no more than LP_CHAIN_AXES */
        LP_TRY(r->text[r->at] == '(' ? read_group(r) : read_place(r, 0, c->parts));
    }
    if (c->parts > 1 && c->split_out < 0)
        return wrong(r, r->at, "no bars on the right");
    for (int32_t p = 0; p < c->parts; p++)
        for (int32_t i = 0; i < c->part[p].axes; i++)
            if ((r->seen[p] >> c->part[p].source[i] & 1) == 0)
                return lp_fail_at(r->err, LP_E_ARGUMENT, "chain", -1,
                                  "chain '%s': axis '%s' does not stand on the right%s", r->text,
                                  c->axis[c->part[p].source[i]].name, c->parts > 1 ? " in every part" : "");
    return check_swizzles(r);
}

lp_status lp_chain_parse(lp_chain *out, const char *text, lp_error *err)
{
    lp_chain chain = {.split_dim = -1, .split_out = -1, .parts = 1};
    reader r = {.text = text, .chain = &chain, .err = err, .swizzle_at = -1};
    LP_TRY(read_source(&r));
    LP_TRY(read_result(&r));
    *out = chain;
    return LP_OK;
}
