/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that all ranks reach, over a table of device calls, so that tests need no GPU. Private to the replayer. */
#ifndef LOADPLAN_PEER_MEMORY_H
#define LOADPLAN_PEER_MEMORY_H

#include "replayer/ipc_device.h"
#include "replayer/sync.h"

enum { LP_PEER_TERMS_MAX = 4000 };

/* lp_peer_memory_open with a table of the caller's, which must outlive the result. */
lp_status lp_peer_memory_open_on(lp_peer_memory **out, const lp_transport *transport, const lp_ipc_device *device,
                                 int64_t bytes, const char *terms, const lp_alloc *alloc, lp_error *err);

#endif
