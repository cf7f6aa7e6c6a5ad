/* SPDX-License-Identifier: Apache-2.0 */
/* The device program of a cold start, made by a thread of its own: reading begins before it is done. */
#include "replayer/device_cold_pipe.h"
#include "replayer/quiet_thread.h"

struct lp_cold_program {
    const lp_cold_device *device;
    const lp_plan *plan;
    const lp_alloc *alloc;
    void *program;
    pthread_t thread;
    bool is_running; /* the thread is to be joined */
    lp_status status;
    lp_error error;
};

static void *make(void *argument)
{
    lp_cold_program *p = argument;
    const lp_cold_device *d = p->device;
    p->status = lp_cold_check(d, d->enter(d->context), "use the device", &p->error);
    if (p->status == LP_OK)
        p->status = d->program_open(d->context, &p->program, p->plan, &p->error);
    return NULL;
}

lp_status lp_cold_program_start(lp_cold_program **out, const lp_cold_device *device, const lp_plan *plan, lp_error *err)
{
    lp_cold_program *p = lp_allocate_zero(plan->platform.alloc, sizeof *p);
    if (p == NULL)
        return lp_fail_memory(err);
    p->device = device;
    p->plan = plan;
    p->alloc = plan->platform.alloc;
    p->is_running = lp_quiet_thread(&p->thread, make, p) == 0;
    if (!p->is_running)
        make(p);
    *out = p;
    return LP_OK;
}

lp_status lp_cold_program_wait(lp_cold_program *p, void **program, lp_error *err)
{
    if (p->is_running)
        pthread_join(p->thread, NULL);
    p->is_running = false;
    *program = p->program;
    if (p->status != LP_OK && err != NULL)
        *err = p->error;
    return p->status;
}

void lp_cold_program_close(lp_cold_program *p)
{
    void *program;
    if (p == NULL)
        return;
    (void)lp_cold_program_wait(p, &program, NULL);
    p->device->program_close(p->device->context, program);
    lp_release(p->alloc, p);
}
