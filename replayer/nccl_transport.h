/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads by NCCL, everything else by sockets. Private to the replayer. */
#ifndef LOADPLAN_NCCL_TRANSPORT_H
#define LOADPLAN_NCCL_TRANSPORT_H

#include "replayer/nccl_table.h"
#include "replayer/sync.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lp_digest_job;
struct lp_change_compare;
struct lp_change_table;
struct lp_change_apply;

/* What NCCL needs of a device, and from stream_wait on what a sync needs of it whose payloads stay in its memory: NULL
 * on devices whose payloads pass through host memory. Calls return 0 or a code for error_text. */
typedef struct lp_nccl_device {
    void *context;
    const char *(*error_text)(void *context, int code);
    int (*enter)(void *context); /* makes the device the calling thread's */
    int (*allocate)(void *context, int64_t bytes, void **out);
    void (*release)(void *context, void *memory);
    int (*store)(void *context, void *device, const void *host, int64_t bytes); /* returns when it is done */
    int (*fetch)(void *context, void *host, const void *device, int64_t bytes);
    /* is_urgent: what is on it comes first where two streams want the device. */
    int (*stream_open)(void *context, bool is_urgent, void **stream);
    void (*stream_close)(void *context, void *stream);
    int (*event_open)(void *context, void **event);
    void (*event_close)(void *context, void *event);
    int (*event_set)(void *context, void *event, void *stream);
    int (*event_done)(void *context, void *event, bool *done); /* asks, does not wait; an event never set is done */

    int (*stream_wait)(void *context, void *stream, void *event); /* what the stream is given next comes behind it */
    int (*stream_settle)(void *context, void *stream);            /* returns when everything on it is done */
    int (*take_pinned)(void *context, int64_t bytes, void **out); /* host memory that `copy` does not wait for */
    void (*give_pinned)(void *context, void *memory);
    /* In the order of the stream, under way when they return. */
    int (*copy)(void *context, void *to, const void *from, int64_t bytes, void *stream);
    int (*clear)(void *context, void *memory, int64_t bytes, void *stream);
    /* Adds the sums of the job at `data` to the two words at `sum` (lp_device_value_sum). */
    int (*sum)(void *context, const struct lp_digest_job *job, const void *data, void *sum, void *stream);
    /* Changes (device_change.h). NULL: they are not looked for there. */
    int (*compare)(void *context, const struct lp_change_compare *work, void *stream);
    int (*table)(void *context, const struct lp_change_table *work, void *stream);
    int (*apply)(void *context, const struct lp_change_apply *work, void *stream);
} lp_nccl_device;

/* LP_E_UNSUPPORTED in builds without CUDA, LP_E_DEVICE where there is no such device. */
lp_status lp_nccl_cuda(lp_nccl_device *out, int32_t device, lp_error *err);

/* The transport over a given device and library; `sockets` must outlive it and is not closed with it. */
lp_status lp_transport_nccl_on(lp_transport *transport, const lp_transport *sockets, const lp_nccl_device *device,
                               const char *library, const lp_platform *platform, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
