/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of a file that people write, such as settings and suppressions: without the blanks around them, without empty
 * lines and comments ('#' comes first), and checked to be UTF-8. Private.
 */
#ifndef LOADPLAN_TEXT_LINES_H
#define LOADPLAN_TEXT_LINES_H

#include "traces/base.h"

typedef struct lp_lines {
    const char *path;      /* for errors */
    const char *at, *stop; /* of the line: [at, stop), never empty; the caller may move `at` on */
    int32_t line;          /* its number, from 1 */
    const char *next, *start, *end;
} lp_lines;

lp_lines lp_lines_of(const char *text, int64_t bytes, const char *path);

/* Moves to the next line; *is_one is false behind the last. LP_E_FORMAT: no text; LP_E_LIMIT: more than 2^31 - 1. */
lp_status lp_lines_next(lp_lines *l, bool *is_one, lp_error *err);

/* LP_E_FORMAT: "'path' line 3: WHAT", or "... WHAT 'SUBJECT'" where that is not NULL. */
lp_status lp_lines_wrong(const lp_lines *l, const char *what, const char *subject, lp_error *err);

/* A space, a tab or a carriage return. */
bool lp_is_blank(char c);
void lp_lines_skip_blanks(lp_lines *l);

#endif
