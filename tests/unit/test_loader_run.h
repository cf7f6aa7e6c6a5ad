/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of built-in loaders share. */
#ifndef LOADPLAN_TEST_LOADER_RUN_H
#define LOADPLAN_TEST_LOADER_RUN_H

#include "test_recorder_run.h"

static inline void add_named(lp_checkpoint *c, lp_dtype dtype, size_t ndim, const int64_t *shape, const char *format,
                             ...) __attribute__((format(printf, 5, 6)));
static inline void add_named(lp_checkpoint *c, lp_dtype dtype, size_t ndim, const int64_t *shape, const char *format,
                             ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    add_tensor(c, name, dtype, (int)ndim, shape);
}

/* A static ring of names, for use inside one call. */
static inline const char *named(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const char *named(const char *format, ...)
{
    static char ring[4][256];
    static int next;
    char *name = ring[next++ % 4];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof ring[0], format, args);
    va_end(args);
    return name;
}

static inline lp_trace *load(const lp_checkpoint *c, lp_loader_options o, const char *config)
{
    lp_trace *t = NULL;
    lp_error err;
    o.config = config;
    o.config_bytes = config != NULL ? (int64_t)strlen(config) : 0;
    if (lp_load_checkpoint(&t, c, &o, &err) != LP_OK)
        fail_msg("%s", err.text);
    return t;
}

/* The failure that a load ends in; the text must contain `part`. */
static inline void assert_load_fails(const lp_checkpoint *c, lp_loader_options o, const char *config, lp_status wanted,
                                     const char *part)
{
    lp_trace *t = NULL;
    lp_error err = {0};
    o.config = config;
    o.config_bytes = config != NULL ? (int64_t)strlen(config) : 0;
    const lp_status status = lp_load_checkpoint(&t, c, &o, &err);
    if (status != wanted || strstr(err.text, part) == NULL)
        fail_msg("%s '%s', wanted %s '%s'", lp_status_name(status), err.text, lp_status_name(wanted), part);
    assert_null(t);
}

/* Every byte of every storage was written once, unless no loader writes it or a derive does. */
static inline void assert_all_written_once(run *x)
{
    for (uint32_t i = 0; i < x->rows->ndest; i++) {
        const lp_destination *d = &x->rows->dest[i];
        const storage *s = storage_of(x, d);
        bool derived = false;
        for (uint32_t k = 0; k < x->rows->nderive; k++)
            derived = derived || x->rows->derive[k].dest == i;
        const int wanted = derived || (d->flags & LP_DEST_NO_LOADER) ? 0 : 1;
        for (int64_t b = 0; b < s->bytes; b++) {
            if (s->written[b] != wanted)
                fail_msg("byte %lld of '%s' was written %d times", (long long)b, d->name, s->written[b]);
        }
    }
}

/* The verdict of check has no deny, and no name that the loader forgot: what it does not load, it declines. */
static inline void assert_complete(const lp_trace *t)
{
    lp_findings *f = NULL;
    lp_error err;
    assert_checked(t);
    assert_int_equal(lp_check(&f, t, &err), LP_OK);
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        if (strcmp(lp_findings_at(f, i)->rule->id, "checkpoint_name_unused") == 0)
            fail_msg("%s", lp_findings_at(f, i)->text);
    }
    lp_findings_free(f);
}

#endif
