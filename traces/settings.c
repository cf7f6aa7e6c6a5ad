/* SPDX-License-Identifier: Apache-2.0 */
/* Settings files. Few keys, so a line is compared with all before it. */
#include "traces/settings.h"
#include "traces/json_pull.h"

#include <inttypes.h>

static bool is_key_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static lp_status wrong(const char *path, int32_t line, lp_error *err, const char *what)
{
    return lp_fail_at(err, LP_E_FORMAT, path, -1, "'%s' line %" PRId32 ": %s", path, line, what);
}

static lp_status read_line(lp_settings *s, const char *p, const char *end, const char *path, int32_t line,
                           lp_error *err)
{
    size_t bad;
    while (end > p && is_blank(end[-1]))
        end--;
    while (p < end && is_blank(*p))
        p++;
    if (p == end || *p == '#')
        return LP_OK;
    if (memchr(p, '\0', (size_t)(end - p)) != NULL || !lp_utf8_is_valid(p, (size_t)(end - p), &bad))
        return wrong(path, line, err, "this is not text in UTF-8");
    const char *key = p;
    while (p < end && is_key_byte(*p))
        p++;
    const size_t key_bytes = (size_t)(p - key);
    while (p < end && is_blank(*p))
        p++;
    if (key_bytes == 0 || key_bytes > LP_SETTING_KEY_MAX || p == end || *p != '=')
        return wrong(path, line, err, "a line is 'key = value'");
    p++;
    while (p < end && is_blank(*p))
        p++;
    if (s->count == LP_SETTINGS_MAX)
        return lp_fail_at(err, LP_E_LIMIT, path, -1, "'%s' has more than %d settings", path, LP_SETTINGS_MAX);
    lp_setting *x = &s->item[s->count];
    x->line = line;
    x->key = lp_arena_text(&s->arena, key, key_bytes);
    x->value = lp_arena_text(&s->arena, p, (size_t)(end - p));
    if (x->key == NULL || x->value == NULL)
        return lp_fail_memory(err);
    if (lp_settings_find(s, x->key) != NULL)
        return lp_fail_at(err, LP_E_FORMAT, path, -1, "'%s' line %" PRId32 ": '%s' is set twice", path, line, x->key);
    s->count++;
    return LP_OK;
}

lp_status lp_settings_parse(lp_settings **out, const char *text, int64_t bytes, const char *path, const lp_alloc *alloc,
                            lp_error *err)
{
    const char *p = text, *const end = text + bytes;
    int32_t line = 0;
    *out = NULL;
    lp_settings *s = lp_allocate_zero(alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(err);
    lp_arena_init(&s->arena, alloc);
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        const char *next = stop != NULL ? stop + 1 : end;
        const lp_status status = line == INT32_MAX ? lp_fail(err, LP_E_LIMIT, "'%s' has too many lines", path)
                                                   : read_line(s, p, stop != NULL ? stop : end, path, ++line, err);
        if (status != LP_OK) {
            lp_settings_free(s);
            return status;
        }
        p = next;
    }
    *out = s;
    return LP_OK;
}

void lp_settings_free(lp_settings *s)
{
    if (s == NULL)
        return;
    const lp_alloc *alloc = s->arena.alloc;
    lp_arena_free(&s->arena);
    lp_release(alloc, s);
}

const char *lp_settings_find(const lp_settings *s, const char *key)
{
    for (int32_t i = 0; s != NULL && i < s->count; i++)
        if (strcmp(s->item[i].key, key) == 0)
            return s->item[i].value;
    return NULL;
}
