/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz entry point insists on: a broken demand aborts, which a fuzzer reports with its input. */
#ifndef LOADPLAN_TESTS_FUZZ_DEMAND_H
#define LOADPLAN_TESTS_FUZZ_DEMAND_H

#include "traces/trace.h"

#include <stdlib.h>

static inline void demand(bool is_kept)
{
    if (!is_kept)
        abort();
}

/* A failure fills its error, and with nothing that a terminal would obey. */
static inline void demand_error(lp_status status, const lp_error *err)
{
    demand(status != LP_OK && err->code == status && err->text[0] != '\0');
    for (const char *p = err->text; *p != '\0'; p++)
        demand((unsigned char)*p >= 0x20);
}

#endif
