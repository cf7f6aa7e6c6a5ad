/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a transport offers besides whose messages lie in the memory of a device: they take their place in the order of
 * streams, so that nobody waits for them on the host. Private to the replayer.
 *
 * Messages of a lane are started one after the other, and are on the device when start returns. `context` is the
 * transport's. Calls are of the thread that uses the transport.
 */
#ifndef LOADPLAN_TRANSPORT_LANE_H
#define LOADPLAN_TRANSPORT_LANE_H

#include "replayer/nccl_transport.h"

typedef struct lp_lane {
    const lp_nccl_device *device; /* of the messages' memory; lives as long as the transport */
    /* Messages that are started from now on come behind the event, as it was last set. */
    lp_status (*after)(void *context, void *event, lp_error *err);
    /* What the stream is given from now on comes behind the ticket's messages. They still have to be waited for. */
    lp_status (*follow)(void *context, int64_t ticket, void *stream, lp_error *err);
    /* Before messages that go between all senders and receivers of a pass: two ranks connect with their first message,
     * and starting that waits until the other one has come so far, which may wait for a third. So all connect here, at
     * once. Each rank calls it with its partners of the pass; those that it has met so before cost nothing. */
    lp_status (*meet)(void *context, const int32_t *peer, int32_t peers, bool is_send, lp_error *err);
    /* Waits on the host for an event behind messages with `peer`, which is named when that takes too long. LP_E_PEER:
     * the round is over, and the event may never come. */
    lp_status (*await)(void *context, void *event, int32_t peer, lp_error *err);
} lp_lane;

#endif
