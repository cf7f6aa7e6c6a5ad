/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts of several ranks on GPUs of which none needs a byte that another one reads, as where experts are divided:
 * each loads its own as if it were alone, by the pipeline of device_cold.h. Private to the replayer.
 */
#ifndef LOADPLAN_SYNC_COLD_ALONE_H
#define LOADPLAN_SYNC_COLD_ALONE_H

#include "replayer/sync_world.h"

struct lp_cold_alone;
typedef struct lp_cold_alone lp_cold_alone;

/* *out: NULL where the plan is not on a GPU, which else is the calling thread's until the end. Where there is much to
 * load, pinned memory is taken by a thread of its own, while ranks agree and find out who needs what. */
lp_status lp_cold_alone_open(lp_cold_alone **out, lp_plan *plan, lp_error *err);
void lp_cold_alone_close(lp_cold_alone *a); /* NULL is allowed; before the plan is closed */

/* So many bytes of that pinned memory, where it is not needed to load alone. NULL: not to be had; also without a. */
uint8_t *lp_cold_alone_memory(lp_cold_alone *a, int64_t bytes);

/* Whether the world exchanges nothing. */
bool lp_cold_world_is_apart(const lp_cold_world *world);

/* Loads everything that the plan needs. The report gets what was loaded and read, and when reading began, behind
 * begin_ns. */
lp_status lp_cold_alone_load(lp_cold_alone *a, lp_plan *plan, const lp_checkpoint *checkpoint, bool allow_fallbacks,
                             int64_t begin_ns, lp_cold_world_report *report, lp_error *err);

#endif
