/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for NCCL between ranks on one GPU, which NCCL itself refuses: processes, or threads of one. It has the
 * entry points of nccl_table.h and is found as libnccl.so.2. As with NCCL a communicator does not block, two ranks
 * connect with their first message, a group of messages is one kernel of each side on its stream, and aborting ends
 * what waits. Bytes go through a ring in the memory of the receiver. It tells what the code around messages loses, not
 * what a link can do.
 *
 *   NCCL_ONE_GBPS  what the messages of a sender's group move together at most, 10^9 bytes a second: its link; 0: as
 *                  fast as they go
 *   NCCL_ONE_LOG   path, to which .0, .1 and so on are added by rank: when each group began and ended on the device, a
 *                  line each: S or R (of its first message), rank, messages, bytes of the first, ns of the GPU's clock;
 *                  each communicator appends when it ends
 *
 * Processes take turns on a GPU, so only threads of one process come to speed. A receiver's kernel is not begun before
 * its sender's is due, so that it does not hold the GPU while the other process waits for its turn.
 */
#include "nccl_one_copy.h"
#include "replayer/nccl_table.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* NCCL's own headers declare what this exports */

#define EXPORT __attribute__((visibility("default")))

enum {
    CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID = 4,
    RANKS = 16,
    LOGGED = 1 << 14,
    ONE_ROUND = ONE_BLOCKS * ONE_CHUNK
};

/* From a sender to a receiver. */
typedef struct seat {
    atomic_int is_open, sender_came;
    uint32_t due; /* messages that the sender's stream has come to */
    pid_t pid;    /* of the receiver */
    one_ring *ring;
    cudaIpcMemHandle_t handle;
} seat;

/* Shared by the ranks of a communicator. */
typedef struct board {
    atomic_int joined;
    seat seat[RANKS][RANKS]; /* by receiver and sender */
} board;

typedef struct logged {
    uint64_t time[2];
    uint64_t bytes;
    uint32_t count;
    char kind;
} logged;

/* Device memory and what a kernel looks at are never given back: one may still be at it when a rank aborts. */
typedef struct comm {
    board *board;
    int rank, size, device;
    float ns_per_byte;
    uint32_t *stop;
    one_ring *in[RANKS], *out[RANKS]; /* by peer */
    uint32_t in_rounds[RANKS], out_rounds[RANKS], in_count[RANKS], out_count[RANKS];
    logged *log;
    int logged;
    bool is_pending; /* a group that waits until its ranks have connected */
    one_group group;
    int peer[ONE_OPS];
    void *stream;
} comm;

/* Of one thread: messages between group start and end. */
static _Thread_local comm *grouped;
static _Thread_local one_group group;
static _Thread_local int group_peer[ONE_OPS], depth;
static _Thread_local void *group_stream;
static atomic_int boards;

/* The driver's, which a library that stands in for another one must not link. */
static CUresult (*write_value)(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags);
static CUresult (*wait_value)(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags);

static bool find_driver(void)
{
    void *write = NULL, *wait = NULL;
    enum cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &write, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &wait, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        write == NULL || wait == NULL)
        return false;
    memcpy(&write_value, &write, sizeof write);
    memcpy(&wait_value, &wait, sizeof wait);
    return true;
}

EXPORT int ncclGetVersion(int *version)
{
    *version = LP_NCCL_LEAST;
    return LP_NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(int result)
{
    return result == CUDA_ERROR ? "a CUDA error (stand-in)" : "an error (stand-in)";
}

/* ---- ranks ---- */

EXPORT int ncclGetUniqueId(lp_nccl_id *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "/loadplan-one-%ld-%d", (long)getpid(), atomic_fetch_add(&boards, 1));
    const int file = shm_open(id->bytes, O_CREAT | O_EXCL | O_RDWR, 0600);
    const bool ok = file >= 0 && ftruncate(file, sizeof(board)) == 0;
    if (file >= 0)
        close(file);
    return ok ? LP_NCCL_SUCCESS : SYSTEM_ERROR;
}

/* Streams write to it and wait for it. */
static board *open_board(const char *name, int size)
{
    const int file = shm_open(name, O_RDWR, 0600);
    board *b = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (b == MAP_FAILED)
        return NULL;
    if (cudaHostRegister(b, sizeof *b, cudaHostRegisterDefault) != cudaSuccess) {
        munmap(b, sizeof *b);
        return NULL;
    }
    if (atomic_fetch_add(&b->joined, 1) + 1 == size)
        shm_unlink(name);
    return b;
}

EXPORT int ncclCommInitRankConfig(void **out, int size, lp_nccl_id id, int rank, lp_nccl_config *config)
{
    const char *rate = getenv("NCCL_ONE_GBPS");
    void *stop = NULL, *log = NULL;
    comm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL || size > RANKS || rank < 0 || rank >= size || config->magic != LP_NCCL_CONFIG_MAGIC) {
        free(c);
        return INVALID;
    }
    c->rank = rank;
    c->size = size;
    c->ns_per_byte = rate == NULL || strtof(rate, NULL) <= 0 ? 0 : 1 / strtof(rate, NULL);
    if (!find_driver() || cudaGetDevice(&c->device) != cudaSuccess ||
        cudaHostAlloc(&stop, sizeof *c->stop, 0) != cudaSuccess ||
        (getenv("NCCL_ONE_LOG") != NULL && cudaHostAlloc(&log, LOGGED * sizeof *c->log, 0) != cudaSuccess)) {
        free(c);
        return CUDA_ERROR;
    }
    c->stop = stop;
    *c->stop = 0;
    c->log = log;
    c->board = open_board(id.bytes, size);
    if (c->board == NULL) {
        free(c);
        return SYSTEM_ERROR;
    }
    *out = c;
    return LP_NCCL_IN_PROGRESS;
}

static void write_log(const comm *c)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", getenv("NCCL_ONE_LOG"), c->rank);
    FILE *f = fopen(path, "a");
    for (int i = 0; f != NULL && i < c->logged && i < LOGGED; i++)
        fprintf(f, "%c %d %u %llu %llu %llu\n", c->log[i].kind, c->rank, c->log[i].count,
                (unsigned long long)c->log[i].bytes, (unsigned long long)c->log[i].time[0],
                (unsigned long long)c->log[i].time[1]);
    if (f != NULL)
        fclose(f);
}

EXPORT int ncclCommAbort(void *communicator)
{
    comm *c = communicator;
    __atomic_store_n(c->stop, 1, __ATOMIC_RELEASE);
    /* A sender may still say what is due after that, so it is said again. */
    while (c->stream != NULL && cudaStreamQuery(c->stream) == cudaErrorNotReady)
        for (int i = 0; i < c->size; i++)
            __atomic_store_n(&c->board->seat[c->rank][i].due, INT32_MAX, __ATOMIC_RELEASE);
    if (c->log != NULL)
        write_log(c);
    cudaHostUnregister(c->board);
    munmap(c->board, sizeof *c->board);
    free(c);
    return LP_NCCL_SUCCESS;
}

/* ---- connections ---- */

/* Device memory for what comes from the peer, which is told where it is. */
static int open_ring(comm *c, int peer)
{
    seat *s = &c->board->seat[c->rank][peer];
    void *ring = NULL, *stream = NULL;
    if (c->in[peer] != NULL)
        return LP_NCCL_SUCCESS;
    /* A stream that waits for no other one: messages of this very rank may be waiting. */
    if (cudaMalloc(&ring, sizeof *c->in[peer]) != cudaSuccess ||
        cudaStreamCreateWithFlags((cudaStream_t *)&stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMemsetAsync(ring, 0, offsetof(one_ring, slot), stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess || cudaStreamDestroy(stream) != cudaSuccess ||
        cudaIpcGetMemHandle(&s->handle, ring) != cudaSuccess)
        return CUDA_ERROR;
    c->in[peer] = s->ring = ring;
    s->pid = getpid();
    atomic_store(&s->is_open, 1);
    return LP_NCCL_SUCCESS;
}

/* In progress until the peer has opened its ring. */
static int reach_ring(comm *c, int peer)
{
    seat *s = &c->board->seat[peer][c->rank];
    void *ring = s->ring;
    atomic_store(&s->sender_came, 1);
    if (c->out[peer] != NULL)
        return LP_NCCL_SUCCESS;
    if (atomic_load(&s->is_open) == 0)
        return LP_NCCL_IN_PROGRESS;
    if (s->pid != getpid() && cudaIpcOpenMemHandle(&ring, s->handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
        return CUDA_ERROR;
    c->out[peer] = s->pid == getpid() ? s->ring : ring;
    return LP_NCCL_SUCCESS;
}

static int connect_peer(comm *c, int peer, bool is_send)
{
    if (is_send)
        return reach_ring(c, peer);
    const int code = open_ring(c, peer);
    if (code != LP_NCCL_SUCCESS)
        return code;
    return atomic_load(&c->board->seat[c->rank][peer].sender_came) ? LP_NCCL_SUCCESS : LP_NCCL_IN_PROGRESS;
}

/* ---- messages ---- */

/* A receiver's stream waits for the senders of the group. */
static bool say_due(comm *c, bool is_send)
{
    CUresult code = CUDA_SUCCESS;
    for (uint32_t i = 0; i < c->group.count && code == CUDA_SUCCESS; i++) {
        const int peer = c->peer[i];
        if ((c->group.op[i].is_send != 0) != is_send)
            continue;
        uint32_t *due = is_send ? &c->board->seat[peer][c->rank].due : &c->board->seat[c->rank][peer].due;
        const uint32_t number = is_send ? ++c->out_count[peer] : ++c->in_count[peer];
        code = is_send ? write_value(c->stream, (CUdeviceptr)(uintptr_t)due, number, CU_STREAM_WRITE_VALUE_DEFAULT)
                       : wait_value(c->stream, (CUdeviceptr)(uintptr_t)due, number, CU_STREAM_WAIT_VALUE_GEQ);
    }
    return code == CUDA_SUCCESS;
}

static int launch(comm *c)
{
    one_group *g = &c->group;
    if (!say_due(c, true) || !say_due(c, false))
        return CUDA_ERROR;
    uint32_t sends = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        one_op *op = &g->op[i];
        const int peer = c->peer[i];
        sends += op->is_send;
        uint32_t *rounds = op->is_send ? &c->out_rounds[peer] : &c->in_rounds[peer];
        op->ring = op->is_send ? c->out[peer] : c->in[peer];
        op->first = *rounds;
        op->rounds = (uint32_t)((op->bytes + ONE_ROUND - 1) / ONE_ROUND);
        *rounds += op->rounds;
    }
    g->ns_per_byte = c->ns_per_byte * (float)sends;
    g->stop = c->stop;
    g->time = NULL;
    if (c->log != NULL && c->logged < LOGGED) {
        logged *l = &c->log[c->logged++];
        *l = (logged){.bytes = g->op[0].bytes, .count = g->count, .kind = g->op[0].is_send ? 'S' : 'R'};
        g->time = l->time;
    }
    return one_move(g, c->stream) == cudaSuccess ? LP_NCCL_SUCCESS : CUDA_ERROR;
}

/* Starts the group that waits for its ranks, when all of them have come. */
static int go_on(comm *c)
{
    int code = LP_NCCL_SUCCESS;
    for (uint32_t i = 0; i < c->group.count; i++) {
        const int one = connect_peer(c, c->peer[i], c->group.op[i].is_send != 0);
        if (one != LP_NCCL_SUCCESS && one != LP_NCCL_IN_PROGRESS)
            return one;
        code = one == LP_NCCL_SUCCESS ? code : one;
    }
    c->is_pending = code == LP_NCCL_IN_PROGRESS;
    return c->is_pending ? code : launch(c);
}

EXPORT int ncclCommGetAsyncError(void *communicator, int *result)
{
    comm *c = communicator;
    *result = atomic_load(&c->board->joined) < c->size ? LP_NCCL_IN_PROGRESS
              : c->is_pending                          ? go_on(c)
                                                       : LP_NCCL_SUCCESS;
    return LP_NCCL_SUCCESS;
}

EXPORT int ncclGroupStart(void)
{
    if (depth++ == 0)
        group.count = 0;
    return LP_NCCL_SUCCESS;
}

EXPORT int ncclGroupEnd(void)
{
    if (--depth > 0 || group.count == 0)
        return LP_NCCL_SUCCESS;
    comm *c = grouped;
    if (c->is_pending)
        return INVALID;
    c->group = group;
    memcpy(c->peer, group_peer, sizeof c->peer);
    c->stream = group_stream;
    return go_on(c);
}

static int queue(void *data, size_t count, int type, int peer, comm *c, void *stream, bool is_send)
{
    if (type != LP_NCCL_UINT8 || peer < 0 || peer >= c->size || group.count == ONE_OPS)
        return INVALID;
    if (depth == 0)
        group.count = 0;
    group_peer[group.count] = peer;
    group.op[group.count++] = (one_op){.data = data, .bytes = count, .is_send = is_send};
    grouped = c;
    group_stream = stream;
    if (depth > 0)
        return LP_NCCL_SUCCESS;
    depth = 1;
    return ncclGroupEnd();
}

EXPORT int ncclSend(const void *data, size_t count, int type, int peer, void *communicator, void *stream)
{
    void *from;
    memcpy(&from, &data, sizeof from);
    return queue(from, count, type, peer, communicator, stream, true);
}

EXPORT int ncclRecv(void *data, size_t count, int type, int peer, void *communicator, void *stream)
{
    return queue(data, count, type, peer, communicator, stream, false);
}
