/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that are under way at the same time, for one thread: a disk is asked for more than the thread would have the
 * patience to wait for one after another. A table, so that tests give answers in any order, and faults.
 */
#ifndef LOADPLAN_READ_QUEUE_H
#define LOADPLAN_READ_QUEUE_H

#include "traces/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lp_read_queue {
    void *context;
    /* A queue of at most `depth` reads; -errno when there are none here. */
    int (*open)(void *context, int32_t depth, void **queue);
    /* Starts what pread(fd, to, bytes, off) does; `to` belongs to the queue until wait returns the tag. -errno: this
     * one was not started, and no other may be. */
    int (*start)(void *context, void *queue, int fd, void *to, int64_t bytes, int64_t off, void *tag);
    /* Waits for any one that is under way. *got: as pread returns it, or -errno. */
    void (*wait)(void *context, void *queue, void **tag, int64_t *got);
    void (*close)(void *context, void *queue); /* waits for all that are under way; NULL is allowed */
} lp_read_queue;

/* io_uring; NULL in a build without liburing. Source of the interface: io_uring(7). */
const lp_read_queue *lp_read_queue_system(void);

#ifdef __cplusplus
}
#endif

#endif
