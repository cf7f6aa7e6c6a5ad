/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of row numbers. */
#include "traces/number_set.h"

static bool parse_number(const char **p, const char *end, int64_t *value)
{
    const char *start = *p;
    for (*value = 0; *p < end && **p >= '0' && **p <= '9'; ++*p)
        if (!lp_mul(*value, 10, value) || !lp_add(*value, **p - '0', value))
            return false;
    return *p > start;
}

static lp_status add_piece(lp_number_set *set, const char *piece, size_t bytes, lp_error *err)
{
    const char *p = piece, *const end = piece + bytes;
    lp_number_range r = {.step = 1};
    bool ok = parse_number(&p, end, &r.lo);
    r.hi = r.lo;
    if (ok && p < end && *p == '-') {
        p++;
        ok = parse_number(&p, end, &r.hi);
    }
    if (ok && p < end && *p == '/') {
        p++;
        ok = parse_number(&p, end, &r.step);
    }
    if (!ok || p != end || r.hi < r.lo || r.step < 1)
        return lp_fail(err, LP_E_ARGUMENT, "row numbers are such as 4, 0-100/2 or 3,7-9, not '%.*s'", (int)bytes,
                       piece);
    if (set->count == LP_NUMBER_RANGES_MAX)
        return lp_fail(err, LP_E_LIMIT, "more than %d ranges of row numbers", LP_NUMBER_RANGES_MAX);
    if (!lp_grow(set->alloc, (void **)&set->range, &set->capacity, set->count + 1, sizeof r))
        return lp_fail_memory(err);
    set->range[set->count++] = r;
    return LP_OK;
}

static lp_status add_pieces(lp_number_set *set, const char *text, const char *separators, lp_error *err)
{
    while (*text != '\0') {
        const size_t bytes = strcspn(text, separators);
        if (bytes > 0)
            LP_TRY(add_piece(set, text, bytes, err));
        text += bytes;
        text += strspn(text, separators);
    }
    return LP_OK;
}

lp_status lp_number_set_parse(lp_number_set *set, const char *text, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    char *file;
    int64_t bytes;
    *set = (lp_number_set){.alloc = p.alloc};
    if (text[strspn(text, ",")] == '\0') /* empty variables of a script; an empty file may be meant */
        return lp_fail(err, LP_E_ARGUMENT, "row numbers are such as 4, 0-100/2 or 3,7-9, not '%.40s'", text);
    if (text[0] != '@')
        return add_pieces(set, text, ",", err);
    LP_TRY(lp_read_file(&p, text + 1, LP_NUMBER_FILE_MAX, &file, &bytes, err));
    const lp_status status = strlen(file) == (size_t)bytes ? add_pieces(set, file, ", \t\r\n", err)
                                                           : lp_fail(err, LP_E_ARGUMENT, "'%s' is no text", text + 1);
    lp_release(p.alloc, file);
    return status;
}

bool lp_number_set_has(const lp_number_set *set, int64_t number)
{
    for (int64_t i = 0; i < set->count; i++) {
        const lp_number_range *r = &set->range[i];
        if (number >= r->lo && number <= r->hi && (number - r->lo) % r->step == 0)
            return true;
    }
    return false;
}

void lp_number_set_free(lp_number_set *set)
{
    lp_release(set->alloc, set->range);
    set->range = NULL;
}
