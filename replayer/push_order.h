/* SPDX-License-Identifier: Apache-2.0 */
/* An order of pushes for layerwise sessions. Private. */
#ifndef LOADPLAN_PUSH_ORDER_H
#define LOADPLAN_PUSH_ORDER_H

#include "replayer/device_session.h"

struct lp_push_order {
    const lp_alloc *alloc;
    lp_push_step *step;
    int64_t count;
    int64_t host_peak, device_peak;
};

/* Of a plan that may be of meta tensors. */
lp_status lp_push_order_of(lp_push_order **out, const lp_plan *plan, lp_error *err);

/* Zeroed memory for count + 1 elements of so many bytes, into the pointer at `out`; the caller releases it. */
lp_status lp_push_order_take(const lp_push_order *o, size_t count, size_t bytes, void *out, lp_error *err);

/* Fills in the staging after each step, and the peaks (push_order_play.c). */
lp_status lp_push_order_play(lp_push_order *o, const lp_plan *plan, const lp_device_side *side, lp_error *err);

#endif
