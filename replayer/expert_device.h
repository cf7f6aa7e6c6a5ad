/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What moving experts in the memory of a device needs: the calls of a cold start, and copies inside that memory. A
 * table, so that tests run it in host memory. Private to the replayer.
 */
#ifndef LOADPLAN_EXPERT_DEVICE_H
#define LOADPLAN_EXPERT_DEVICE_H

#include "replayer/device_cold.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lp_expert_device {
    lp_cold_device table;
    /* `rows` rows of `bytes`, between places of the device, in the order of the lane. */
    int (*move)(void *context, void *lane, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                int64_t bytes, int64_t rows);
} lp_expert_device;

/* "cuda:0". LP_E_DEVICE: there is none, or this build has no CUDA. */
lp_status lp_expert_device_open(lp_expert_device *out, const char *name, lp_error *err);
void lp_expert_device_close(lp_expert_device *device);

/* lp_rebalance_begin with a table of the caller's, which must outlive the result; NULL: host memory. */
lp_status lp_rebalance_begin_with(lp_rebalance **out, lp_plan *plan, const lp_expert_map *to, int64_t staging,
                                  const lp_expert_device *device, lp_error *err);

/* expert_derives.c: runs the derives that read what lies in slots, directly or through others; or only says whether it
 * could. On the host, with what they read fetched from the device: they are few and small. LP_E_VALUE: a declared check
 * failed, after everything has run. */
lp_status lp_experts_derive(const lp_plan *plan, const lp_expert_device *device, bool only_check, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
