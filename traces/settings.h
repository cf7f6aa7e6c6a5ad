/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: a text file of `key = value` lines. '#' begins a comment line; a value is the rest of its line without the
 * blanks around it. A key is letters, digits, '_', '-' and '.', and stands once. Private.
 */
#ifndef LOADPLAN_SETTINGS_H
#define LOADPLAN_SETTINGS_H

#include "traces/base.h"

enum { LP_SETTINGS_MAX = 1024, LP_SETTING_KEY_MAX = 96 };

typedef struct lp_setting {
    const char *key, *value;
    int32_t line;
} lp_setting;

typedef struct lp_settings {
    lp_arena arena;
    lp_setting item[LP_SETTINGS_MAX];
    int32_t count;
} lp_settings;

/* Reads a text of any bytes; `path` is for errors, which name the line: LP_E_FORMAT, LP_E_LIMIT. *out is freed with
 * lp_settings_free, NULL on failure. */
lp_status lp_settings_parse(lp_settings **out, const char *text, int64_t bytes, const char *path, const lp_alloc *alloc,
                            lp_error *err);
void lp_settings_free(lp_settings *s);
const char *lp_settings_find(const lp_settings *s, const char *key); /* NULL when absent, or s is NULL */

#endif
