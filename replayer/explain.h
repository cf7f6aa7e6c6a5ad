/* SPDX-License-Identifier: Apache-2.0 */
/* Explaining by other keys than families. Private. */
#ifndef LOADPLAN_EXPLAIN_H
#define LOADPLAN_EXPLAIN_H

#include "replayer/replayer.h"

/* Like lp_explain_families, by layer: names up to their outermost index ("model.layers.12"), "root" for names without
 * one; in the order of the layers. */
lp_status lp_explain_layers(lp_family_costs **out, const lp_trace *trace, int32_t scope_index, lp_error *err);

/* The most launches that the move of one whole push takes on a device, whatever the number of tensors. */
enum { LP_DEVICE_LAUNCHES_MAX = 3 };

#endif
