/* SPDX-License-Identifier: Apache-2.0 */
/* A device in host memory for cold starts: its copies and pushes happen at once, so that a slot that is written too
 * early, or pushed before its bytes are there, shows in the result. What a real device would be free to do in another
 * order shows too: whoever touches bytes must follow, by marks, what touched them before on the other lane. Any of its
 * calls can fail. */
#ifndef LOADPLAN_COLD_DEVICE_H
#define LOADPLAN_COLD_DEVICE_H

#include "cold_testing.h"
#include "replayer/session.h"

#include <stdatomic.h>

enum { FAILED = 7, TOUCHES_MOST = 1 << 14 };

/* A lane, or a mark: a point in one. */
typedef struct host_point {
    const void *lane;
    int64_t own, other; /* work that is before it, on its lane and on the other one */
} host_point;

/* What work on a lane read or wrote. */
typedef struct host_touch {
    const host_point *lane;
    int64_t number;
    const uint8_t *lo, *hi;
} host_touch;

typedef struct host_device {
    atomic_int calls, blocks; /* calls that may fail; blocks of memory that are out */
    int64_t cleared;          /* bytes, by the owner */
    int fail_at;              /* number of the call; -1: none */
    pthread_mutex_t lock;     /* of what follows */
    int touches;
    host_touch touch[TOUCHES_MOST];
} host_device;

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
    const int code = host_take(context, sizeof(host_point), out);
    if (code == 0)
        *(host_point *)*out = (host_point){.lane = *out};
    return code;
}

/* Notes that the newest work of a lane touches bytes, behind all other work on them. The lock is held. */
static inline void host_touches(host_device *h, const host_point *lane, const uint8_t *lo, const uint8_t *hi)
{
    for (int i = 0; i < h->touches; i++) {
        const host_touch *t = &h->touch[i];
        if (t->lane != lane && t->lo < hi && lo < t->hi && t->number > lane->other) {
            fputs("work on one lane does not follow that on the other\n", stderr);
            abort();
        }
    }
    if (h->touches == TOUCHES_MOST)
        abort();
    h->touch[h->touches++] = (host_touch){lane, lane->own, lo, hi};
}

/* A lane is waited for: its work is before all that comes. */
static inline int host_lane_wait(void *context, void *lane)
{
    host_device *h = context;
    int kept = 0;
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < h->touches; i++)
        if (h->touch[i].lane != lane)
            h->touch[kept++] = h->touch[i];
    h->touches = kept;
    pthread_mutex_unlock(&h->lock);
    return call_device(context);
}

static inline int host_mark_set(void *context, void *mark, void *lane)
{
    host_device *h = context;
    pthread_mutex_lock(&h->lock);
    *(host_point *)mark = *(const host_point *)lane;
    pthread_mutex_unlock(&h->lock);
    return call_device(context);
}

static inline int host_lane_follow(void *context, void *lane, void *mark)
{
    host_device *h = context;
    host_point *follower = lane;
    const host_point *point = mark;
    pthread_mutex_lock(&h->lock);
    if (point->lane != lane && follower->other < point->own)
        follower->other = point->own;
    pthread_mutex_unlock(&h->lock);
    return call_device(context);
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

static inline int host_clear(void *context, void *lane, void *device, int64_t bytes)
{
    host_device *h = context;
    host_point *at = lane;
    pthread_mutex_lock(&h->lock);
    at->own++;
    host_touches(h, at, device, (const uint8_t *)device + bytes);
    pthread_mutex_unlock(&h->lock);
    memset(device, 0, (size_t)bytes);
    h->cleared += bytes;
    return call_device(context);
}

static inline int host_copy(void *context, void *lane, void *device, int64_t device_pitch, const void *host,
                            int64_t host_pitch, int64_t bytes, int64_t rows)
{
    host_device *h = context;
    host_point *at = lane;
    pthread_mutex_lock(&h->lock);
    at->own++;
    host_touches(h, at, device, (const uint8_t *)device + (rows - 1) * device_pitch + bytes);
    pthread_mutex_unlock(&h->lock);
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
    host_device *h = context;
    host_point *at = lane;
    pthread_mutex_lock(&h->lock);
    at->own++;
    pthread_mutex_unlock(&h->lock);
    for (int64_t n = 0; n < count; n++) {
        const lp_entry *e = &plan->entry[plan->entry_of[handle[n]]];
        for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
            const lp_step *step = &plan->step[i];
            if (step->stage != LP_NONE)
                continue;
            uint8_t *to = plan->address[step->dest];
            const int64_t lo = step->src_off + step->map->src_lo, hi = step->src_off + step->map->src_hi;
            if (step->kind == LP_KIND_FILL) {
                lp_exec_fill(step, to);
                continue;
            }
            if (lo == hi)
                continue;
            pthread_mutex_lock(&h->lock);
            host_touches(h, at, (const uint8_t *)data[n] + lo, (const uint8_t *)data[n] + hi);
            pthread_mutex_unlock(&h->lock);
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
    *h = (host_device){.fail_at = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
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
                            host_lane_wait,
                            host_make,
                            host_give_back,
                            host_mark_set,
                            host_use,
                            host_query,
                            host_lane_follow,
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
