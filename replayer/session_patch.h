/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to what an earlier session loaded: a part of a name arrives, the rest of it stays. Private to the replayer.
 */
#ifndef LOADPLAN_SESSION_PATCH_H
#define LOADPLAN_SESSION_PATCH_H

#include "replayer/plan.h"

/* Whether parts of the name can be replaced: not where a derive stages it (its old bytes are gone), and not where a
 * cast reads elements that are wider than those of the checkpoint's dtype. Other names have to come whole. */
bool lp_patch_is_possible(const lp_plan *plan, uint32_t name);

/* Whether an earlier session ended unfinished, so that nothing may be kept. */
bool lp_patch_is_stale(const lp_plan *plan);

/* Writes bytes [off, off + bytes) of the name: whole elements of the checkpoint's dtype. LP_E_REFUSED where
 * lp_patch_is_possible is false. Errors else as of lp_push. */
lp_status lp_session_patch(lp_session *s, uint32_t name, int64_t off, const void *data, int64_t bytes, lp_error *err);

/* What has not come of the name stays as it is: the name is complete. */
lp_status lp_session_keep(lp_session *s, uint32_t name, lp_error *err);

#endif
