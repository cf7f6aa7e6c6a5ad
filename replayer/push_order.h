/* SPDX-License-Identifier: Apache-2.0 */
/* An order of pushes for layerwise sessions. Private. */
#ifndef LOADPLAN_PUSH_ORDER_H
#define LOADPLAN_PUSH_ORDER_H

#include "replayer/device_session.h"

/* Of a plan that may be of meta tensors. */
lp_status lp_push_order_of(lp_push_order **out, const lp_plan *plan, lp_error *err);

#endif
