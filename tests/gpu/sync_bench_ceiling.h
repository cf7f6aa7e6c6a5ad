/* SPDX-License-Identifier: Apache-2.0 */
/* The ceilings of syncs: bare messages from GPU 0 to GPU 1, one a bucket, two buckets; and one read of a sender's
 * weights. */
#ifndef SYNC_BENCH_CEILING_H
#define SYNC_BENCH_CEILING_H

#include "replayer/transport_wire.h"
#include "sync_bench_world.h"

#include <stdatomic.h>

int read_ceiling(const void *data, size_t bytes, void *out, void *stream);

static const char *link_name(const settings *o)
{
    return o->is_one ? "the stand-in's messages on one GPU" : "ncclSend/ncclRecv";
}

typedef struct ceiling {
    lp_nccl nccl;
    lp_nccl_id id;
    lp_nccl_device device[2];
    int64_t bytes, messages;
    double seconds;
    atomic_int failed;
} ceiling;

static ceiling bare;

static bool settle(void *comm, int result)
{
    while (result == LP_NCCL_IN_PROGRESS)
        if (bare.nccl.ncclCommGetAsyncError(comm, &result) != 0)
            return false;
    return result == LP_NCCL_SUCCESS;
}

static bool move_all(int rank, void *comm, void *stream, void *const memory[2])
{
    for (int64_t i = 0; i < bare.messages; i++) {
        const int code = rank == 0
                             ? bare.nccl.ncclSend(memory[i % 2], (size_t)bare.bytes, LP_NCCL_UINT8, 1, comm, stream)
                             : bare.nccl.ncclRecv(memory[i % 2], (size_t)bare.bytes, LP_NCCL_UINT8, 0, comm, stream);
        if (!settle(comm, code))
            return false;
    }
    return bare.device[rank].stream_settle(bare.device[rank].context, stream) == 0;
}

static void *run_bare(void *context)
{
    const int rank = *(const int *)context;
    const lp_nccl_device *d = &bare.device[rank];
    void *comm = NULL, *stream = NULL, *memory[2] = {NULL};
    lp_nccl_config config = {
        .size = sizeof config, .magic = LP_NCCL_CONFIG_MAGIC, .version = LP_NCCL_LEAST, .blocking = 0};
    bool ok = d->enter(d->context) == 0 && d->stream_open(d->context, true, &stream) == 0 &&
              d->allocate(d->context, bare.bytes, &memory[0]) == 0 &&
              d->allocate(d->context, bare.bytes, &memory[1]) == 0;
    if (ok) {
        ok = bare.nccl.ncclCommInitRankConfig(&comm, 2, bare.id, rank, &config) <= LP_NCCL_IN_PROGRESS;
        ok = ok && settle(comm, LP_NCCL_IN_PROGRESS) && move_all(rank, comm, stream, memory); /* warm */
        const int64_t since = lp_clock_ns();
        ok = ok && move_all(rank, comm, stream, memory);
        if (rank == 1)
            bare.seconds = (double)(lp_clock_ns() - since) / 1e9;
    }
    if (!ok)
        atomic_store(&bare.failed, 1);
    if (comm != NULL)
        (void)bare.nccl.ncclCommAbort(comm);
    for (int i = 0; i < 2; i++)
        if (memory[i] != NULL)
            d->release(d->context, memory[i]);
    if (stream != NULL)
        d->stream_close(d->context, stream);
    return NULL;
}

/* Bytes a second. */
static double measure_ceiling(const settings *o, int64_t bytes)
{
    static int number[2] = {0, 1};
    pthread_t thread[2];
    lp_error err;
    if (lp_nccl_open(&bare.nccl, NULL, &err) != LP_OK)
        give_up(&err);
    for (int i = 0; i < 2; i++)
        if (lp_nccl_cuda(&bare.device[i], gpu_of(o, i), &err) != LP_OK)
            give_up(&err);
    bare.bytes = o->bucket;
    bare.messages = (bytes + o->bucket - 1) / o->bucket;
    if (bare.nccl.ncclGetUniqueId(&bare.id) != 0)
        exit(2);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, run_bare, &number[i]) != 0)
            exit(2);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    lp_nccl_close(&bare.nccl);
    if (atomic_load(&bare.failed) || bare.seconds <= 0) {
        fprintf(stderr, "bare messages failed\n");
        exit(2);
    }
    return (double)(bare.bytes * bare.messages) / bare.seconds;
}

/* Seconds of one read of a sender's weights, twice: as much as those and the shadow. */
static double measure_read(bench_rank *r)
{
    const int64_t bytes = tensor_bytes(r->o) / r->o->senders;
    int64_t count;
    const lp_destination_memory *list = lp_destinations_list(r->memory, &count);
    void *stream = NULL, *out = NULL;
    double least = 1e9;
    check(r, r->device.enter(r->device.context));
    check(r, r->device.stream_open(r->device.context, false, &stream));
    check(r, r->device.allocate(r->device.context, 4096, &out));
    for (int n = 0; n < 4; n++) {
        const int64_t since = lp_clock_ns();
        for (int64_t i = 0; i < 2 * count; i++)
            check(r, read_ceiling(list[i % count].data, (size_t)bytes, out, stream));
        check(r, r->device.stream_settle(r->device.context, stream));
        const double seconds = (double)(lp_clock_ns() - since) / 1e9;
        least = seconds < least ? seconds : least;
    }
    r->device.stream_close(r->device.context, stream);
    r->device.release(r->device.context, out);
    return least;
}

#endif
