/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of files on their way into a session on a device. */
#ifndef LOADPLAN_DEVICE_SESSION_FILL_H
#define LOADPLAN_DEVICE_SESSION_FILL_H

#include "replayer/device_cold_batches.h"
#include "replayer/device_session.h"

/* Ranges are gathered until half of a block of host memory is full; then the plan's threads read all of them, and they
 * are pushed in the order in which they were added. The device copies out of one half while the other one is read into.
 * One thread at a time. */
typedef struct lp_device_fill lp_device_fill;

/* Room for `bytes`, all that will be added, or for as much of it as makes sense at a time. Session and files outlive
 * it. progress (NULL: none) is told what was pushed, of `bytes`. */
lp_status lp_device_fill_open(lp_device_fill **out, struct lp_session *s, const lp_cold_files *files, int64_t bytes,
                              int (*progress)(void *context, int64_t done, int64_t total), void *context,
                              lp_error *err);
/* Bytes [lo, lo + bytes) of a name, which lie at file_off of a file; 0 bytes are pushed too. Errors are those of
 * reading and of pushes, also of what was added before. */
lp_status lp_device_fill_add(lp_device_fill *f, lp_handle handle, int64_t lo, int64_t bytes, int32_t file,
                             int64_t file_off, lp_error *err);
/* Until everything that was added is pushed. After a read that failed, what comes before it has been. */
lp_status lp_device_fill_flush(lp_device_fill *f, lp_error *err);
int64_t lp_device_fill_read(const lp_device_fill *f); /* bytes, so far */
/* NULL is allowed. What was not pushed is dropped; waits for the device. */
void lp_device_fill_close(lp_device_fill *f);

#endif
