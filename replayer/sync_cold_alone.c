/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a cold start that exchange nothing. */
#include "replayer/sync_cold_alone.h"

#include "replayer/device_cold.h"
#include "replayer/device_session.h"
#include "replayer/session.h"

bool lp_cold_world_is_apart(const lp_cold_world *world)
{
    for (int32_t i = 0; i < world->ranks; i++)
        if (world->chunks[i] > 0)
            return false;
    return true;
}

struct lp_cold_alone {
    const lp_alloc *alloc;
    const lp_device_calls *calls; /* of the plan */
    int before;                   /* the caller's device */
    lp_cold_device device;
    lp_cold_ring *ring;
};

#ifdef LOADPLAN_HAVE_CUDA

enum { LARGE = 1 << 30 }; /* bytes of a rank that fill the ring for longer than it takes to make it */

static int64_t bytes_of(const lp_plan *plan)
{
    int64_t bytes = 0;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        bytes += lp_checkpoint_at(plan->catalogue, plan->entry[e].name)->bytes;
    return bytes;
}

lp_status lp_cold_alone_open(lp_cold_alone **out, lp_plan *plan, lp_error *err)
{
    *out = NULL;
    if (plan->side == NULL || !plan->side->owns_calls)
        return LP_OK;
    lp_cold_alone *a = lp_allocate_zero(plan->platform.alloc, sizeof *a);
    if (a == NULL)
        return lp_fail_memory(err);
    a->alloc = plan->platform.alloc;
    const lp_device_calls *c = &plan->side->calls;
    lp_status status = lp_device_check(c, c->enter(c->context, &a->before), "use the device", err);
    if (status == LP_OK)
        a->calls = c;
    if (status == LP_OK)
        status = lp_cuda_device_open(&a->device, plan->side->name, err);
    if (status == LP_OK)
        status = lp_cold_ring_new(&a->ring, &a->device, &plan->platform, err);
    if (status != LP_OK) {
        lp_cold_alone_close(a);
        return status;
    }
    if (bytes_of(plan) >= LARGE)
        lp_cold_ring_start(a->ring, NULL);
    *out = a;
    return LP_OK;
}

uint8_t *lp_cold_alone_memory(lp_cold_alone *a, int64_t bytes)
{
    return a == NULL ? NULL : lp_cold_ring_memory(a->ring, bytes);
}

void lp_cold_alone_close(lp_cold_alone *a)
{
    if (a == NULL)
        return;
    lp_cold_ring_free(a->ring);
    if (a->device.context != NULL)
        lp_cuda_device_close(&a->device);
    if (a->calls != NULL)
        a->calls->leave(a->calls->context, a->before);
    lp_release(a->alloc, a);
}

#else

lp_status lp_cold_alone_open(lp_cold_alone **out, lp_plan *plan, lp_error *err)
{
    (void)plan, (void)err;
    *out = NULL;
    return LP_OK;
}

uint8_t *lp_cold_alone_memory(lp_cold_alone *a, int64_t bytes)
{
    (void)a, (void)bytes;
    return NULL;
}

void lp_cold_alone_close(lp_cold_alone *a)
{
    (void)a;
}

#endif

lp_status lp_cold_alone_load(lp_cold_alone *a, lp_plan *plan, const lp_checkpoint *checkpoint, bool allow_fallbacks,
                             int64_t begin_ns, lp_cold_world_report *report, lp_error *err)
{
    const lp_cold_options o = {.ring = a->ring, .allow_fallbacks = allow_fallbacks};
    const int64_t before = lp_session_clock() - begin_ns;
    lp_cold_report r;
    const lp_status status = lp_cold_load(&a->device, plan, checkpoint, &o, &r, err);
    report->bytes_read += r.bytes_read;
    report->setup_nanoseconds = before + r.setup_nanoseconds;
    lp_cold_report_load(&r, &report->load);
    return status;
}
