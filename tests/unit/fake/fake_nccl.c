/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with the entry points of NCCL that ranks use, over the memory of one process: messages meet, are copied,
 * and the streams that they are on are told. Any call can be made to fail. Built as a shared object and found by its
 * path, as the real one is.
 */
#include "../fake_nccl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 4, IN_PROGRESS = 7, SYSTEM = 2, WORLDS = 64, RANKS = 64, GROUP = 64, PENDING = 2048 };

#define EXPORT __attribute__((visibility("default")))

typedef struct id {
    char bytes[128];
} id;

typedef struct message {
    bool is_used, is_send;
    void *data;
    size_t bytes;
    int rank, peer;
    fake_stream *stream;
    unsigned long order;
    bool *is_done; /* of an operation; NULL on simple streams */
} message;

typedef struct world {
    int size, joined, left;
    bool is_aborted, has_gone[RANKS];
    bool sends[RANKS][RANKS], receives[RANKS][RANKS]; /* by rank and peer: it has told the library so */
    message pending[PENDING];
} world;

/* Ranks that exchange their first message connect, for which both have to come: until then the call is in progress. */
typedef struct comm {
    world *w;
    int rank, awaited_count;
    struct {
        int peer;
        bool is_send;
    } awaited[GROUP];
} comm;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static world worlds[WORLDS];
static int world_count;
static long fail_at, calls, open_count, flip_at;
static unsigned long order;
static bool connects;

/* Of one thread: messages between group start and end. */
static _Thread_local message group[GROUP];
static _Thread_local comm *group_comm[GROUP];
static _Thread_local int group_count;

EXPORT void fakeFailAt(long n);
EXPORT long fakeCalls(void);
EXPORT long fakeOpen(void);
EXPORT long fakeIds(void);
EXPORT void fakeFlip(long n);
EXPORT void fakeConnects(bool yes);
EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetUniqueId(id *out);
EXPORT int ncclCommInitRankConfig(void **out, int size, id key, int rank, void *config);
EXPORT int ncclCommGetAsyncError(void *c, int *result);
EXPORT int ncclCommAbort(void *c);
EXPORT const char *ncclGetErrorString(int result);
EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);
EXPORT int ncclSend(const void *data, size_t count, int type, int peer, void *c, void *stream);
EXPORT int ncclRecv(void *data, size_t count, int type, int peer, void *c, void *stream);

static bool fails(void)
{
    pthread_mutex_lock(&lock);
    const bool now = ++calls == fail_at;
    pthread_mutex_unlock(&lock);
    return now;
}

void fakeFailAt(long n)
{
    pthread_mutex_lock(&lock);
    calls = 0;
    fail_at = n;
    pthread_mutex_unlock(&lock);
}

long fakeCalls(void)
{
    return calls;
}

long fakeOpen(void)
{
    return open_count;
}

long fakeIds(void)
{
    return world_count;
}

void fakeConnects(bool yes)
{
    connects = yes;
}

void fakeFlip(long n)
{
    pthread_mutex_lock(&lock);
    flip_at = n;
    pthread_mutex_unlock(&lock);
}

int ncclGetVersion(int *version)
{
    *version = 22809;
    return fails() ? SYSTEM : SUCCESS;
}

int ncclGetUniqueId(id *out)
{
    if (fails())
        return SYSTEM;
    pthread_mutex_lock(&lock);
    const int number = world_count++ % WORLDS;
    worlds[number] = (world){.size = 0};
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, &number, sizeof number);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int ncclCommInitRankConfig(void **out, int size, id key, int rank, void *config)
{
    unsigned magic;
    int number;
    comm *c = malloc(sizeof *c);
    memcpy(&magic, (const char *)config + sizeof(size_t), sizeof magic);
    memcpy(&number, key.bytes, sizeof number);
    if (fails() || c == NULL || magic != 0xcafebeefu || number < 0 || number >= WORLDS || rank >= size ||
        size > RANKS) {
        free(c);
        *out = NULL;
        return INVALID;
    }
    pthread_mutex_lock(&lock);
    worlds[number].size = size;
    worlds[number].joined++;
    *c = (comm){.w = &worlds[number], .rank = rank, .awaited_count = 0};
    open_count++;
    pthread_mutex_unlock(&lock);
    *out = c;
    return IN_PROGRESS;
}

static bool are_connected(const comm *c)
{
    const world *w = c->w;
    for (int i = 0; i < c->awaited_count && connects; i++) {
        const int peer = c->awaited[i].peer;
        if (c->awaited[i].is_send ? !w->receives[peer][c->rank] : !w->sends[peer][c->rank])
            return false;
    }
    return true;
}

/* The lock is held. */
static void connect_group(void)
{
    for (int i = 0; i < group_count; i++) {
        comm *c = group_comm[i];
        const message *m = &group[i];
        bool *told = m->is_send ? &c->w->sends[c->rank][m->peer] : &c->w->receives[c->rank][m->peer];
        if (i == 0)
            c->awaited_count = 0;
        c->awaited[c->awaited_count].peer = m->peer;
        c->awaited[c->awaited_count++].is_send = m->is_send;
        *told = true;
    }
}

int ncclCommGetAsyncError(void *c, int *result)
{
    const comm *x = c;
    if (fails())
        return SYSTEM;
    pthread_mutex_lock(&lock);
    *result = x->w->is_aborted                                 ? 6 /* a remote process is gone */
              : x->w->joined < x->w->size || !are_connected(x) ? IN_PROGRESS
                                                               : SUCCESS;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static void finish(message *m)
{
    if (m->is_done != NULL)
        *m->is_done = true;
    else
        atomic_fetch_sub(&m->stream->waiting, 1);
}

/* What waits on the streams of this rank is over. */
int ncclCommAbort(void *c)
{
    comm *x = c;
    pthread_mutex_lock(&lock);
    x->w->is_aborted = true;
    x->w->has_gone[x->rank] = true;
    for (size_t i = 0; i < sizeof x->w->pending / sizeof *x->w->pending; i++) {
        message *m = &x->w->pending[i];
        if (m->is_used && m->rank == x->rank) {
            finish(m);
            m->is_used = false;
        }
    }
    open_count--;
    pthread_mutex_unlock(&lock);
    free(x);
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return result == SYSTEM ? "a system error that was asked for" : result == 6 ? "remote process exited" : "error";
}

int ncclGroupStart(void)
{
    group_count = 0;
    return fails() ? SYSTEM : SUCCESS;
}

static int queue(bool is_send, void *data, size_t bytes, int type, int peer, comm *c, void *stream)
{
    if (fails())
        return SYSTEM;
    if (type != 1 || group_count == GROUP || peer < 0 || peer >= c->w->size)
        return INVALID;
    group_comm[group_count] = c;
    group[group_count++] = (message){.is_used = true,
                                     .is_send = is_send,
                                     .data = data,
                                     .bytes = bytes,
                                     .rank = c->rank,
                                     .peer = peer,
                                     .stream = stream};
    return SUCCESS;
}

int ncclSend(const void *data, size_t count, int type, int peer, void *c, void *stream)
{
    void *writable;
    memcpy(&writable, &data, sizeof writable);
    return queue(true, writable, count, type, peer, c, stream);
}

int ncclRecv(void *data, size_t count, int type, int peer, void *c, void *stream)
{
    return queue(false, data, count, type, peer, c, stream);
}

/* The oldest message that goes the other way. */
static message *find_match(world *w, const message *m)
{
    message *best = NULL;
    for (size_t i = 0; i < sizeof w->pending / sizeof *w->pending; i++) {
        message *o = &w->pending[i];
        if (o->is_used && o->rank == m->peer && o->peer == m->rank && o->is_send != m->is_send &&
            (best == NULL || o->order < best->order))
            best = o;
    }
    return best;
}

static void copy(const message *from, const message *to)
{
    memcpy(to->data, from->data, to->bytes);
    if (flip_at > 0 && --flip_at == 0 && to->bytes > 0)
        ((unsigned char *)to->data)[to->bytes / 2] ^= 4;
}

/* Whether the message could be posted; it may have been done at once. */
static bool post(world *w, const message *m)
{
    message *o = find_match(w, m);
    if (o != NULL) {
        if (o->bytes != m->bytes)
            return false;
        copy(m->is_send ? m : o, m->is_send ? o : m);
        finish(o);
        o->is_used = false;
        if (m->is_done != NULL)
            *m->is_done = true;
        return true;
    }
    for (size_t i = 0; i < sizeof w->pending / sizeof *w->pending; i++)
        if (!w->pending[i].is_used) {
            w->pending[i] = *m;
            w->pending[i].order = ++order;
            if (m->is_done == NULL)
                atomic_fetch_add(&m->stream->waiting, 1);
            return true;
        }
    return false;
}

/* ---- groups on streams that work in order ---- */

typedef struct group_op {
    fake_op base;
    world *w;
    int rank, count;
    bool is_posted, is_done[GROUP];
    message message[GROUP];
} group_op;

static bool step_group(fake_op *base)
{
    group_op *op = (group_op *)base;
    pthread_mutex_lock(&lock);
    bool is_over = op->w->has_gone[op->rank], ok = true;
    for (int i = 0; i < op->count && !op->is_posted && !is_over && ok; i++)
        ok = post(op->w, &op->message[i]);
    op->is_posted = true;
    if (!ok)
        op->w->is_aborted = true; /* and it stays where it is until its rank aborts */
    bool is_done = ok;
    for (int i = 0; i < op->count; i++)
        is_done = is_done && op->is_done[i];
    pthread_mutex_unlock(&lock);
    is_over = is_over || is_done;
    if (is_over)
        free(op);
    return is_over;
}

static void enqueue_group(void)
{
    group_op *op = calloc(1, sizeof *op);
    if (op == NULL)
        abort();
    op->base.step = step_group;
    op->w = group_comm[0]->w;
    op->rank = group_comm[0]->rank;
    op->count = group_count;
    for (int i = 0; i < group_count; i++) {
        op->message[i] = group[i];
        op->message[i].is_done = &op->is_done[i];
    }
    group[0].stream->enqueue(group[0].stream, &op->base);
}

int ncclGroupEnd(void)
{
    bool ok = !fails();
    pthread_mutex_lock(&lock);
    if (ok)
        connect_group();
    if (ok && group_count > 0 && group[0].stream->enqueue != NULL) {
        pthread_mutex_unlock(&lock); /* the stream may go on at once, up to this very group */
        enqueue_group();
        group_count = 0;
        return connects ? IN_PROGRESS : SUCCESS;
    }
    for (int i = 0; i < group_count && ok; i++)
        ok = post(group_comm[i]->w, &group[i]);
    const bool had_any = group_count > 0;
    group_count = 0;
    pthread_mutex_unlock(&lock);
    return !ok ? SYSTEM : had_any && connects ? IN_PROGRESS : SUCCESS;
}
