/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suppressions: findings that were looked at and accepted, each with the reason why. Private.
 *
 * One a line:   RULE GLOB REASON...
 * GLOB matches the tensor (glob.h) and stands in double quotes where it holds blanks, with \" and \\ inside. REASON is
 * the rest of the line and has to be there. '#' begins a comment line.
 */
#ifndef LOADPLAN_SUPPRESS_H
#define LOADPLAN_SUPPRESS_H

#include "traces/findings.h"

enum { LP_SUPPRESSIONS_MAX = 4096 };

/* What --format=suppress prints in place of a reason; the parser refuses it. */
#define LP_SUPPRESS_TODO "TODO"

typedef struct lp_suppression {
    const lp_rule *rule;
    const char *glob, *reason;
    int32_t line;
    bool is_used; /* matched a tensor of a finding, whether or not that one was silenced as a whole */
} lp_suppression;

typedef struct lp_suppressions {
    lp_arena arena;
    lp_suppression *item;
    int64_t count, capacity;
} lp_suppressions;

/* Reads a text of any bytes; `path` is for errors, which name the line: LP_E_FORMAT, LP_E_LIMIT. Free also on failure.
 */
void lp_suppressions_init(lp_suppressions *s, const lp_alloc *alloc);
lp_status lp_suppressions_parse(lp_suppressions *s, const char *text, int64_t bytes, const char *path, lp_error *err);
void lp_suppressions_free(lp_suppressions *s);

/* Silences the findings whose every member is matched by a suppression of their rule; one member that is not keeps the
 * whole finding, since its text may speak of any. Sorts and sums up again. */
lp_status lp_findings_suppress(lp_findings *f, lp_suppressions *s, lp_error *err);

/* Appends the line that would suppress findings of `rule` at `glob`, for the reason (NULL: to be filled in). */
void lp_suppression_text(lp_text *out, const char *rule, const char *glob, const char *reason);

#endif
