/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of row numbers as people write them: "4", "0-100/2" (every second one), "3,7-9", "@FILE" (a file of such).
 * Private. */
#ifndef LOADPLAN_NUMBER_SET_H
#define LOADPLAN_NUMBER_SET_H

#include "traces/base.h"

enum { LP_NUMBER_RANGES_MAX = 4096, LP_NUMBER_FILE_MAX = 1 << 20 };

typedef struct lp_number_range {
    int64_t lo, hi, step; /* lo, lo + step, ... up to hi */
} lp_number_range;

typedef struct lp_number_set {
    const lp_alloc *alloc;
    lp_number_range *range;
    int64_t count, capacity;
} lp_number_set;

/* LP_E_ARGUMENT names the piece that is wrong. Free also after a failure. Files do not name other files. */
lp_status lp_number_set_parse(lp_number_set *set, const char *text, const lp_platform *platform, lp_error *err);
bool lp_number_set_has(const lp_number_set *set, int64_t number);
void lp_number_set_free(lp_number_set *set);

#endif
