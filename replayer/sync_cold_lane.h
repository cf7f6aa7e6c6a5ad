/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of a cold start whose chunks go by the memory of devices. Private to the replayer. */
#ifndef LOADPLAN_SYNC_COLD_LANE_H
#define LOADPLAN_SYNC_COLD_LANE_H

#include "replayer/sync_world.h"

/* Whether chunks of this rank can stay on the device of its plan. */
lp_status lp_cold_lane_is_there(lp_sync *s, const lp_plan *plan, bool *yes, lp_error *err);

/* Reads, exchanges and pushes everything that this rank needs, names of its own included. memory: LP_COLD_AHEAD buckets
 * of pinned memory, which stay the caller's; NULL: it takes them. The report gets what was read of files, and when
 * reading began. Nothing is under way afterwards. */
lp_status lp_cold_lane_load(lp_sync *s, const lp_cold_world *world, lp_session *session, void *stream,
                            const lp_sync_source *source, uint8_t *memory, int threads, lp_cold_world_report *report,
                            lp_error *err);

#endif
