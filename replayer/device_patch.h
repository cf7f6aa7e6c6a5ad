/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to what a plan on a device holds: where bytes of a name go. Private to the replayer, which also takes short
 * changes of host memory there (session_patch.c). */
#ifndef LOADPLAN_DEVICE_PATCH_H
#define LOADPLAN_DEVICE_PATCH_H

#include "replayer/device_change.h"
#include "replayer/device_session.h"
#include "replayer/session.h"
#include "replayer/sync_piece.h"

enum { LP_PATCH_TARGETS = 32 };

/* The targets of a name that the plan loads, whose parts can be replaced one by one. False: they cannot, since
 * something is cast or staged, or goes to too many places or in too many steps. */
bool lp_device_patch_targets(const lp_plan *plan, uint32_t name, lp_change_target out[LP_PATCH_TARGETS], int *count);

/* The bytes of a piece that lie packed at `data`, memory of the device, to the places of its name, by copies in the
 * order of the stream. *written gets the bytes. Only where lp_device_place_targets says so. */
bool lp_device_place_targets(const lp_plan *plan, uint32_t entry, lp_change_target out[LP_PATCH_TARGETS], int *count);
int lp_device_place(const lp_device_calls *c, const lp_change_target *target, int count, const lp_piece *piece,
                    const void *data, void *stream, int64_t *written);

/* Something is going to write parts of the name: from here on what it holds belongs to this session. */
lp_status lp_device_patch_open(lp_session *s, uint32_t name, lp_error *err);

#endif
