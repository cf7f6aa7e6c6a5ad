/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan whose destinations lie in device memory: its steps as a device program, pushed by handles, as cold starts use
 * it; sessions have their own (device_session.h). The plan is bound as always, with device addresses.
 *
 * Bytes only: which names have arrived, commit groups and derives are the caller's.
 */
#ifndef LOADPLAN_DEVICE_PLAN_H
#define LOADPLAN_DEVICE_PLAN_H

#include "replayer/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lp_device_plan lp_device_plan;

/* Whether a program reads bytes of a name. What only derives read is staged on the host. */
static inline bool lp_device_plan_reads(const lp_plan *plan, const lp_entry *e)
{
    for (uint32_t i = 0; i < e->step_count; i++) {
        const lp_step *step = &plan->step[e->first_step + i];
        if (step->stage == LP_NONE && step->kind != LP_KIND_FILL && step->map->src_lo < step->map->src_hi)
            return true;
    }
    return false;
}

/* Compiles and uploads; all device memory is taken here. most: tensors of one push, 0: any number. The plan must
 * outlive it. LP_E_UNSUPPORTED: meta plans. */
lp_status lp_device_plan_open(lp_device_plan **out, const lp_plan *plan, uint32_t most, lp_error *err);
void lp_device_plan_close(lp_device_plan *d);          /* NULL is allowed; what it launched must be complete */
int64_t lp_device_plan_bytes(const lp_device_plan *d); /* device memory that it holds */

/* The fills of begin. */
lp_status lp_device_plan_begin(lp_device_plan *d, void *stream, lp_error *err);

/* Says what the next run moves: `count` whole tensors in device memory, row-major without gaps, in any order. Names
 * that this scope does not load are ignored; data is NULL for those of which no byte is read. LP_E_UNKNOWN_NAME,
 * LP_E_REFUSED (a fallback), LP_E_DUPLICATE, LP_E_ARGUMENT (no address) leave the last setting as it was. */
lp_status lp_device_plan_set(lp_device_plan *d, const lp_handle *handle, const void *const *data, int64_t count,
                             void *stream, lp_error *err);

/* Moves it. Can be captured into a CUDA graph, which reads the tensors anew at every launch. */
lp_status lp_device_plan_run(lp_device_plan *d, void *stream, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
