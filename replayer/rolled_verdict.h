/* SPDX-License-Identifier: Apache-2.0 */
/* Which destinations rolled sources (rolled_io.h) must change, judged from the plan and the payloads. Private to the
 * replayer. */
#ifndef LOADPLAN_ROLLED_VERDICT_H
#define LOADPLAN_ROLLED_VERDICT_H

#include "replayer/plan.h"

typedef enum lp_rolled_verdict {
    LP_ROLLED_NOT_LOADED = 0, /* no record reads anything for it: fills, derives, or no loader at all */
    LP_ROLLED_SAME = 1,       /* what it is loaded from is the same when rolled: constants, single elements */
    LP_ROLLED_OTHER = 2       /* must change */
} lp_rolled_verdict;

/* Judges the destinations for which verdict[i] is LP_ROLLED_OTHER at the call; only what they are loaded from is read,
 * through plan->platform, which must not be rolled now. Memory: the largest of those tensors. */
lp_status lp_rolled_judge(const lp_plan *plan, const lp_checkpoint *checkpoint, uint8_t *verdict, lp_error *err);

#endif
