/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads that share the work of one call. Nothing is started until work is large enough to be shared. */
#ifndef LOADPLAN_EXEC_POOL_H
#define LOADPLAN_EXEC_POOL_H

#include "traces/base.h"

typedef struct lp_pool lp_pool;

enum { LP_POOL_THREADS_MAX = 256 };

/* `threads` counts the caller; 0 means one for each physical core that this process may use. */
lp_status lp_pool_new(lp_pool **out, int32_t threads, const lp_alloc *alloc, lp_error *err);
void lp_pool_free(lp_pool *pool); /* NULL is allowed */

int32_t lp_pool_threads(const lp_pool *pool); /* 1 for NULL */

/* Calls task(context, i) once for every i in [0, tasks), on the calling thread and on the others, in no order. Returns
 * when all are done. One call at a time, never from inside a task; a NULL pool does everything on the calling thread.
 * Where threads cannot be started, fewer do the same work. */
typedef void (*lp_pool_task)(void *context, int64_t index);
void lp_pool_run(lp_pool *pool, int64_t tasks, lp_pool_task task, void *context);

/* Physical cores that this process may run on, at least 1. */
int32_t lp_pool_cores(void);

#endif
