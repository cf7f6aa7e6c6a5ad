/* SPDX-License-Identifier: Apache-2.0 */
/* Settings files. Few keys, so a line is compared with all before it. */
#include "traces/settings.h"
#include "traces/text_lines.h"

#include <inttypes.h>

static bool is_key_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

static lp_status read_line(lp_settings *s, lp_lines *l, lp_error *err)
{
    const char *key = l->at;
    while (l->at < l->stop && is_key_byte(*l->at))
        l->at++;
    const size_t key_bytes = (size_t)(l->at - key);
    lp_lines_skip_blanks(l);
    if (key_bytes == 0 || key_bytes > LP_SETTING_KEY_MAX || l->at == l->stop || *l->at != '=')
        return lp_lines_wrong(l, "a line is 'key = value'", NULL, err);
    l->at++;
    lp_lines_skip_blanks(l);
    if (s->count == LP_SETTINGS_MAX)
        return lp_fail_at(err, LP_E_LIMIT, l->path, -1, "'%s' has more than %d settings", l->path, LP_SETTINGS_MAX);
    lp_setting *x = &s->item[s->count];
    x->line = l->line;
    x->key = lp_arena_text(&s->arena, key, key_bytes);
    x->value = lp_arena_text(&s->arena, l->at, (size_t)(l->stop - l->at));
    if (x->key == NULL || x->value == NULL)
        return lp_fail_memory(err);
    if (lp_settings_find(s, x->key) != NULL)
        return lp_fail_at(err, LP_E_FORMAT, l->path, -1, "'%s' line %" PRId32 ": '%s' is set twice", l->path, l->line,
                          x->key);
    s->count++;
    return LP_OK;
}

lp_status lp_settings_parse(lp_settings **out, const char *text, int64_t bytes, const char *path, const lp_alloc *alloc,
                            lp_error *err)
{
    lp_lines l = lp_lines_of(text, bytes, path);
    *out = NULL;
    lp_settings *s = lp_allocate_zero(alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(err);
    lp_arena_init(&s->arena, alloc);
    bool is_one;
    lp_status status = lp_lines_next(&l, &is_one, err);
    while (status == LP_OK && is_one) {
        status = read_line(s, &l, err);
        if (status == LP_OK)
            status = lp_lines_next(&l, &is_one, err);
    }
    if (status != LP_OK) {
        lp_settings_free(s);
        return status;
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
