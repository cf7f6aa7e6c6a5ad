/* SPDX-License-Identifier: Apache-2.0 */
/* A device in host memory for cold starts: its copies and pushes happen at once, so that a slot that is written too
 * early, or pushed before its bytes are there, shows in the result. Any of its calls can fail. */
#ifndef LOADPLAN_COLD_DEVICE_H
#define LOADPLAN_COLD_DEVICE_H

#include "cold_testing.h"
#include "replayer/session.h"

#include <stdatomic.h>

typedef struct host_device {
    atomic_int calls, blocks; /* calls that may fail; blocks of memory that are out */
    int fail_at;              /* number of the call; -1: none */
} host_device;

enum { FAILED = 7 };

static inline int call_device(void *context)
{
    host_device *h = context;
    return atomic_fetch_add(&h->calls, 1) == h->fail_at ? FAILED : 0;
}

static inline const char *host_error_text(void *context, int code)
{
    (void)context;
    return code == FAILED ? "it fails on demand" : "?";
}

static inline int host_take(void *context, int64_t bytes, void **out)
{
    host_device *h = context;
    const int code = call_device(context);
    if (code != 0)
        return code;
    *out = malloc((size_t)bytes);
    assert_non_null(*out);
    memset(*out, 0xee, (size_t)bytes);
    atomic_fetch_add(&h->blocks, 1);
    return 0;
}

static inline void host_give_back(void *context, void *memory)
{
    host_device *h = context;
    if (memory != NULL)
        atomic_fetch_sub(&h->blocks, 1);
    free(memory);
}

static inline int host_pin(void *context, void *host, int64_t bytes)
{
    (void)host;
    (void)bytes;
    return call_device(context);
}

static inline void host_unpin(void *context, void *host)
{
    (void)context;
    (void)host;
}

static inline int host_move(void *context, void *to, const void *from, int64_t bytes)
{
    const int code = call_device(context);
    if (code == 0)
        memcpy(to, from, (size_t)bytes);
    return code;
}

static inline int host_make(void *context, void **out)
{
    return host_take(context, 1, out);
}

static inline int host_use(void *context, void *what)
{
    (void)what;
    return call_device(context);
}

/* Copies happen at once, but are not always seen to have. */
static inline int host_query(void *context, void *mark, bool *is_past)
{
    host_device *h = context;
    (void)mark;
    *is_past = atomic_load(&h->calls) % 3 != 0;
    return call_device(context);
}

static inline int host_use_both(void *context, void *a, void *b)
{
    (void)a;
    (void)b;
    return call_device(context);
}

static inline int host_clear(void *context, void *lane, void *device, int64_t bytes)
{
    (void)lane;
    memset(device, 0, (size_t)bytes);
    return call_device(context);
}

static inline int host_copy(void *context, void *lane, void *device, int64_t device_pitch, const void *host,
                            int64_t host_pitch, int64_t bytes, int64_t rows)
{
    (void)lane;
    for (int64_t i = 0; i < rows; i++)
        memcpy((uint8_t *)device + i * device_pitch, (const uint8_t *)host + i * host_pitch, (size_t)bytes);
    return call_device(context);
}

static inline lp_status host_program_open(void *context, void **program, const lp_plan *plan, lp_error *err)
{
    *program = (void *)(uintptr_t)plan;
    return call_device(context) == 0 ? LP_OK : lp_fail(err, LP_E_DEVICE, "cannot upload");
}

static inline void host_program_close(void *context, void *program)
{
    (void)context;
    (void)program;
}

static inline int64_t host_program_bytes(void *context, const void *program)
{
    (void)context;
    (void)program;
    return 0;
}

static inline lp_status host_program_fill(void *context, void *program, void *lane, lp_error *err)
{
    const lp_plan *plan = program;
    (void)lane;
    for (int64_t i = 0; i < plan->fill_count; i++)
        lp_exec_fill(&plan->fill[i], plan->address[plan->fill[i].dest]);
    return call_device(context) == 0 ? LP_OK : lp_fail(err, LP_E_DEVICE, "cannot fill");
}

static inline lp_status host_program_push(void *context, void *program, const lp_handle *handle,
                                          const void *const *data, int64_t count, void *lane, lp_error *err)
{
    const lp_plan *plan = program;
    (void)lane;
    for (int64_t n = 0; n < count; n++) {
        const lp_entry *e = &plan->entry[plan->entry_of[handle[n]]];
        for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
            const lp_step *step = &plan->step[i];
            if (step->stage != LP_NONE)
                continue;
            uint8_t *to = plan->address[step->dest];
            const int64_t lo = step->src_off + step->map->src_lo, hi = step->src_off + step->map->src_hi;
            if (step->kind == LP_KIND_FILL)
                lp_exec_fill(step, to);
            else
                lp_exec_part(step, to, (const uint8_t *)data[n] + lo, lo, lo, hi);
        }
    }
    return call_device(context) == 0 ? LP_OK : lp_fail(err, LP_E_DEVICE, "cannot push");
}

static inline lp_status host_digests(void *context, const lp_plan *plan, uint8_t (*digest)[LP_VALUE_DIGEST_BYTES],
                                     lp_error *err)
{
    (void)context;
    return lp_session_digests(plan, digest, err);
}

static inline lp_cold_device host_table(host_device *h)
{
    *h = (host_device){.fail_at = -1};
    return (lp_cold_device){h,
                            host_error_text,
                            call_device,
                            host_take,
                            host_give_back,
                            host_pin,
                            host_unpin,
                            host_move,
                            host_move,
                            host_make,
                            host_give_back,
                            host_use,
                            host_make,
                            host_give_back,
                            host_use_both,
                            host_use,
                            host_query,
                            host_use_both,
                            host_clear,
                            host_copy,
                            host_program_open,
                            host_program_close,
                            host_program_bytes,
                            host_program_fill,
                            host_program_push,
                            host_digests};
}

#endif
