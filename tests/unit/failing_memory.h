/* SPDX-License-Identifier: Apache-2.0 */
/* Allocators of tests: one that fails at the n-th request and counts what is not freed, and one that runs out. */
#ifndef FAILING_MEMORY_H
#define FAILING_MEMORY_H

#include "traces/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct failing_alloc {
    int64_t calls, fail_at; /* fail_at 0: never */
    int64_t live;
} failing_alloc;

static inline void *failing_resize(void *context, void *old, size_t bytes)
{
    failing_alloc *f = context;
    if (bytes == 0) {
        f->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (++f->calls == f->fail_at)
        return NULL;
    void *block = realloc(old, bytes);
    f->live += old == NULL && block != NULL;
    return block;
}

/* Requests that are still granted; every one after them fails. */
typedef struct scarce_alloc {
    int64_t left;
} scarce_alloc;

static inline void *scarce_resize(void *context, void *old, size_t bytes)
{
    scarce_alloc *s = context;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return s->left-- > 0 ? realloc(old, bytes) : NULL;
}

/* A step of a test that may be run again and again: it leaves nothing behind, whether it succeeds or not. */
typedef lp_status (*fallible_step)(void *context, lp_error *err);

/*
 * Runs the step with its first, second, ... allocation failing, until one run needs no more of them: each failure must
 * be LP_E_MEMORY with a text, and nothing may be left of it. `f` is the allocator that the step uses. Behind the first
 * hundred it takes larger and larger strides. Returns how many runs failed.
 */
static inline int64_t fail_every_allocation(failing_alloc *f, fallible_step step, void *context)
{
    const int64_t before = f->live;
    int64_t failed = 0;
    for (int64_t n = 1;; n += 1 + n / 100) {
        lp_error err = {0};
        f->calls = 0;
        f->fail_at = n;
        const lp_status status = step(context, &err);
        const bool is_reached = f->calls >= n;
        f->fail_at = 0;
        if (f->live != before)
            fail_msg("allocation %lld leaves %lld blocks: %s", (long long)n, (long long)(f->live - before), err.text);
        if (status != LP_OK && (status != LP_E_MEMORY || err.text[0] == '\0'))
            fail_msg("allocation %lld: %s: %s", (long long)n, lp_status_name(status), err.text);
        if (status == LP_OK && !is_reached)
            return failed;
        failed += status != LP_OK;
    }
}

#endif
