/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of reads by io_uring, where kernel and build have it. */
#include "replayer/read_queue.h"

#ifdef LOADPLAN_HAVE_URING

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <time.h>

typedef struct uring_queue {
    struct io_uring ring;
    int32_t under_way;
} uring_queue;

/* Kernels before 5.6 have rings that cannot read into plain memory. */
static bool can_read(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    const bool can = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    return can;
}

static int open_queue(void *context, int32_t depth, void **queue)
{
    (void)context;
    *queue = NULL;
    uring_queue *q = malloc(sizeof *q); /* the library behind it allocates in its own way too */
    if (q == NULL)
        return -ENOMEM;
    q->under_way = 0;
    const int code = io_uring_queue_init((unsigned)depth, &q->ring, 0);
    if (code == 0 && can_read(&q->ring)) {
        *queue = q;
        return 0;
    }
    if (code == 0)
        io_uring_queue_exit(&q->ring);
    free(q);
    return code == 0 ? -EOPNOTSUPP : code;
}

static int start(void *context, void *queue, int fd, void *to, int64_t bytes, int64_t off, void *tag)
{
    (void)context;
    uring_queue *q = queue;
    struct io_uring_sqe *entry = io_uring_get_sqe(&q->ring);
    if (entry == NULL)
        return -EBUSY;
    io_uring_prep_read(entry, fd, to, (unsigned)bytes, (uint64_t)off);
    io_uring_sqe_set_data(entry, tag);
    int code;
    do
        code = io_uring_submit(&q->ring);
    while (code == -EINTR);
    if (code != 1)
        return code < 0 ? code : -EAGAIN;
    q->under_way++;
    return 0;
}

static void wait_one(void *context, void *queue, void **tag, int64_t *got)
{
    (void)context;
    uring_queue *q = queue;
    struct io_uring_cqe *entry = NULL;
    /* Answers are seen in shared memory, so that a call that fails to wait delays them only. */
    while (io_uring_wait_cqe(&q->ring, &entry) != 0 && io_uring_peek_cqe(&q->ring, &entry) != 0)
        (void)nanosleep(&(const struct timespec){.tv_nsec = 100000}, NULL);
    *tag = io_uring_cqe_get_data(entry);
    *got = entry->res;
    io_uring_cqe_seen(&q->ring, entry);
    q->under_way--;
}

static void close_queue(void *context, void *queue)
{
    uring_queue *q = queue;
    void *tag;
    int64_t got;
    if (q == NULL)
        return;
    while (q->under_way > 0)
        wait_one(context, q, &tag, &got);
    io_uring_queue_exit(&q->ring);
    free(q);
}

const lp_read_queue *lp_read_queue_system(void)
{
    static const lp_read_queue queue = {NULL, open_queue, start, wait_one, close_queue};
    return &queue;
}

#else

const lp_read_queue *lp_read_queue_system(void)
{
    return NULL;
}

#endif
