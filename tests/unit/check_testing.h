/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that are sealed and checked, while each allocation on the way fails once. */
#ifndef LOADPLAN_CHECK_TESTING_H
#define LOADPLAN_CHECK_TESTING_H

#include "findings_testing.h"

static inline lp_status check_once(void *t, lp_error *err)
{
    lp_findings *f = NULL;
    const lp_status status = lp_check(&f, t, err);
    assert_true((status == LP_OK) == (f != NULL));
    lp_findings_free(f);
    return status;
}

/* Whatever is found, no allocation on the way to it is relied on. */
static inline void check_without_memory(lp_trace *t)
{
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize, .exact = true};
    const lp_alloc *usual = t->platform.alloc;
    t->platform.alloc = &alloc;
    assert_true(fail_every_allocation(&faults, check_once, t) > 3);
    t->platform.alloc = usual;
}

/* Seals and checks; the trace lives on until `end`. */
static inline lp_findings *check(lp_trace *t)
{
    lp_findings *f;
    assert_ok(lp_trace_seal(t, ERR));
    check_without_memory(t);
    assert_ok(lp_check(&f, t, ERR));
    return f;
}

static inline void end(lp_trace *t, lp_findings *f)
{
    lp_findings_free(f);
    lp_trace_close(t);
}

#endif
