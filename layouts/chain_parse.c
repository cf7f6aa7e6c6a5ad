/* SPDX-License-Identifier: Apache-2.0 */
/* From text to a chain: names and the left side. lp_chain_text in chain_text.c is the way back. */
#include "layouts/chain_reader.h"

void lp_chain_skip_space(lp_chain_reader *r)
{
    while (r->text[r->at] == ' ')
        r->at++;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool lp_chain_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

lp_status lp_chain_wrong(lp_chain_reader *r, int64_t at, const char *what)
{
    const char *const here = r->text + at;
    const int length = (int)strcspn(here, " ()|,") + (strchr("()|,", here[0]) != NULL && here[0] != '\0');
    if (here[0] == '\0')
        return lp_fail_at(r->err, LP_E_ARGUMENT, "chain", at, "chain '%s': %s at the end", r->text, what);
    return lp_fail_at(r->err, LP_E_ARGUMENT, "chain", at, "chain '%s': %s at byte %lld: '%.*s'", r->text, what,
                      (long long)at, length < 24 ? length : 24, here);
}

lp_status lp_chain_read_name(lp_chain_reader *r, char name[LP_CHAIN_NAME])
{
    const int64_t begin = r->at;
    if (!is_letter(r->text[r->at]))
        return lp_chain_wrong(r, begin, "a name should stand");
    while (is_letter(r->text[r->at]) || lp_chain_is_digit(r->text[r->at]))
        r->at++;
    if (r->at - begin >= LP_CHAIN_NAME)
        return lp_chain_wrong(r, begin, "a name of more than 15 letters");
    memcpy(name, r->text + begin, (size_t)(r->at - begin));
    name[r->at - begin] = '\0';
    return LP_OK;
}

/* ---- the left side ---- */

lp_status lp_chain_read_extent(lp_chain_reader *r, int64_t *extent)
{
    *extent = 0;
    if (r->text[r->at] != '=')
        return LP_OK;
    const int64_t begin = ++r->at;
    int64_t value = 0;
    for (; lp_chain_is_digit(r->text[r->at]); r->at++)
        if (!lp_mul(value, 10, &value) || !lp_add(value, r->text[r->at] - '0', &value))
            return lp_chain_wrong(r, begin, "an extent that does not fit 64 bits");
    if (value < 1)
        return lp_chain_wrong(r, begin, "an extent of at least 1 should stand");
    *extent = value;
    return LP_OK;
}

bool lp_chain_lists(int32_t count, const int8_t *list, int32_t axis)
{
    for (int32_t i = 0; i < count; i++)
        if (list[i] == axis)
            return true;
    return false;
}

/* Adds an axis whose name starts at byte `at` and has been read, to the last part of the dimension. */
static lp_status add_axis(lp_chain_reader *r, int64_t at, const char name[LP_CHAIN_NAME])
{
    lp_chain *const c = r->chain;
    const int32_t part = r->now.parts - 1;
    int8_t *const list = r->now.axis[part];
    int64_t extent;
    int32_t a = lp_chain_axis_named(c, name);
    if (a >= 0 && (c->axis[a].dim != c->ndim || lp_chain_lists(r->now.count[part], list, a)))
        return lp_chain_wrong(r, at, "an axis that is there already");
    if (a < 0 && c->axes == LP_CHAIN_AXES)
        return lp_chain_wrong(r, at, "more than 24 axes");
    LP_TRY(lp_chain_read_extent(r, &extent));
    if (a < 0) {
        a = c->axes++;
        c->axis[a] = (lp_chain_axis){.dim = c->ndim};
        memcpy(c->axis[a].name, name, LP_CHAIN_NAME);
    }
    if (extent != 0 && c->axis[a].extent != 0 && c->axis[a].extent != extent)
        return lp_chain_wrong(r, at, "another extent than in the part before");
    if (extent != 0)
        c->axis[a].extent = extent;
    list[r->now.count[part]++] = (int8_t)a;
    return LP_OK;
}

/* "(r a=4 i=32)" or "(d=2 | q=16)", the bracket not yet read. */
static lp_status read_axes(lp_chain_reader *r)
{
    for (int64_t begin = r->at++;;) {
        char name[LP_CHAIN_NAME];
        lp_chain_skip_space(r);
        const int64_t at = r->at;
        if (r->text[at] != ')' && r->text[at] != '|') {
            LP_TRY(lp_chain_read_name(r, name));
            LP_TRY(add_axis(r, at, name));
            continue;
        }
        if (r->now.count[r->now.parts - 1] == 0)
            return lp_chain_wrong(r, begin, r->now.parts > 1 ? "a part without axes" : "a dimension without axes");
        r->at++;
        if (r->text[at] == ')')
            return LP_OK;
        if (r->now.parts == LP_CHAIN_PARTS)
            return lp_chain_wrong(r, at, "more than 8 parts");
        r->now.parts++;
        begin = at;
    }
}

/* Each part has the axes of all dimensions, of the one with bars its own. */
static void order_axes(const lp_chain_reader *r)
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

static lp_status read_source(lp_chain_reader *r)
{
    lp_chain *const c = r->chain;
    for (;; c->ndim++) {
        char name[LP_CHAIN_NAME] = "";
        lp_chain_skip_space(r);
        const int64_t at = r->at;
        if (strncmp(r->text + at, "->", 2) == 0)
            break;
        if (c->ndim == LP_CHAIN_DIMS)
            return lp_chain_wrong(r, at, "more than 8 dimensions");
        if (r->text[at] != '(')
            LP_TRY(lp_chain_read_name(r, name));
        memcpy(c->dim_name[c->ndim], name, LP_CHAIN_NAME);
        r->now = (lp_chain_lists_of){.parts = 1};
        LP_TRY(r->text[r->at] == '(' ? read_axes(r) : add_axis(r, at, name));
        if (r->now.parts == 1)
            continue;
        if (c->split_dim >= 0)
            return lp_chain_wrong(r, at, "a second dimension with bars");
        c->split_dim = c->ndim;
        c->parts = r->now.parts;
        r->split = r->now;
    }
    r->at += 2;
    order_axes(r);
    return c->ndim == 0 ? lp_chain_wrong(r, 0, "no dimension") : LP_OK;
}

lp_status lp_chain_parse(lp_chain *out, const char *text, lp_error *err)
{
    lp_chain chain = {.split_dim = -1, .split_out = -1, .parts = 1};
    lp_chain_reader r = {.text = text, .chain = &chain, .err = err, .turn_at = -1};
    LP_TRY(read_source(&r));
    LP_TRY(lp_chain_read_result(&r));
    *out = chain;
    return LP_OK;
}
