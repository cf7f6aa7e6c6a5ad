/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory that several processes use: what a device must be able to do, as a table, so that tests run the whole
 * protocol without one. Private to the replayer. Calls return 0 or a code for error_text.
 */
#ifndef LOADPLAN_IPC_DEVICE_H
#define LOADPLAN_IPC_DEVICE_H

#include "replayer/ipc_protocol.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lp_ipc_device {
    void *context;
    char name[LP_IPC_DEVICE_BYTES]; /* the same in every process: "GPU-" and its UUID */
    const char *(*error_text)(void *context, int code);
    int (*enter)(void *context); /* by every thread, before its first call */
    int (*allocate)(void *context, int64_t bytes, void **out);
    void (*release)(void *context, void *memory);
    /* The handle of the allocation that holds this address, and where that allocation lies. */
    int (*give)(void *context, void *memory, uint8_t handle[LP_IPC_HANDLE_BYTES], void **base, int64_t *bytes);
    int (*take)(void *context, const uint8_t handle[LP_IPC_HANDLE_BYTES], void **base);
    void (*put_back)(void *context, void *base); /* what take gave */
    /* Makes memory that this process has on another device usable on this one. NULL: it is. */
    int (*reach)(void *context, void *memory);
} lp_ipc_device;

/* "cuda:0". LP_E_DEVICE: there is none, or this build has no CUDA. */
lp_status lp_ipc_device_open(lp_ipc_device *out, const char *name, const lp_alloc *alloc, lp_error *err);
void lp_ipc_device_close(lp_ipc_device *device, const lp_alloc *alloc);

lp_status lp_ipc_device_check(const lp_ipc_device *device, int code, const char *verb, lp_error *err);

/* lp_shared_allocate, lp_shared_of and lp_attach with a table of the caller's, which must outlive the result. */
lp_status lp_shared_allocate_on(lp_shared **out, const lp_trace *trace, const lp_scope *scope,
                                const lp_ipc_device *device, const lp_alloc *alloc, lp_error *err);
lp_status lp_shared_of_on(lp_shared **out, const lp_plan *plan, const lp_ipc_device *device, lp_error *err);
lp_status lp_attach_on(lp_attachment **out, const char *path, const lp_trace *trace, const lp_scope *scope,
                       const lp_attach_options *options, const lp_ipc_device *device, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
