/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of ranks, each with a device of its own in host memory, over a fake NCCL: epochs of any mode, and what their
 * ranks must hold afterwards. */
#ifndef LOADPLAN_SYNC_DEVICE_WORLD_H
#define LOADPLAN_SYNC_DEVICE_WORLD_H

#include "device_streams.h"
#include "sync_testing.h"
#include "tests/random_numbers.h"

#include <dlfcn.h>

enum { RANKS_MOST = 64 };

/* ---- ranks ---- */

struct member;

typedef struct world {
    lp_checkpoint *model;
    lp_trace *trainer, *server;
    payload epoch[4];                   /* 1 to 3 */
    int senders, receivers, epochs, tp; /* tp: of the server; 0: all receivers */
    int hosts;                          /* hosts: of the receivers, those whose plans are of host memory */
    lp_sync_options options;
    lp_load_mode load;
    uint64_t seed;
    int64_t staging;                 /* 0: plenty; -1: what bind takes by itself */
    bool is_sharded;                 /* senders hold what their rank of the trainer's trace loads, on their devices */
    bool over_host;                  /* messages go through host memory */
    bool is_apart;                   /* messages go through another device than that of the plans */
    bool is_torn;                    /* sender 0 fails in the middle of epoch 1 */
    bool finds_on_host;              /* changes of weights on a device */
    bool reopens;                    /* senders that hold parts make a new source for epoch 3 */
    void (*watch)(struct member *m); /* what becomes of the transport of each, by its own thread; NULL: nothing */
    int fault_rank;                  /* whose device fails, */
    int fault_at;                    /* at this call after bind, from 1; 0: none does */
} world;

typedef struct member {
    const world *w;
    int rank;
    gpu device, other; /* of messages; of the plan, where that is apart */
    lp_transport local, transport;
    const void *socket;        /* local.context: the others look for it while this rank closes */
    lp_destinations *host;     /* what the memory looks like */
    lp_destination_memory *on; /* the same on the device */
    int64_t count;
    lp_plan *plan;
    void *stream; /* of sessions */
    lp_sync_source source;
    lp_status status[4];
    lp_sync_report report[4];
    int gathers, gathered[4]; /* so far; in each epoch */
    lp_error err;
} member;

static member members[RANKS_MOST];
static lp_status (*plain_gather)(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err);

/* Whose sockets they are. */
static inline member *member_of(const void *local)
{
    member *m = &members[0];
    while (m->socket != local)
        m++;
    return m;
}

static inline lp_status count_gather(void *context, const void *mine, int64_t bytes, const lp_block **all,
                                     lp_error *err)
{
    member_of(context)->gathers++;
    return plain_gather(context, mine, bytes, all, err);
}

/* ---- a device goes on while its host waits for a header ---- */

typedef struct waiting {
    void *context;
    int64_t ticket;
    lp_error *err;
    lp_status status;
    atomic_bool is_over;
} waiting;

static lp_status (*plain_wait)(void *context, int64_t ticket, lp_error *err);

static inline void *wait_in_thread(void *context)
{
    waiting *x = context;
    x->status = plain_wait(x->context, x->ticket, x->err);
    atomic_store(&x->is_over, true);
    return NULL;
}

static inline bool is_idle(const gpu *g)
{
    for (int i = 0; i < GPU_STREAMS; i++)
        if (g->stream[i].first != NULL)
            return false;
    return true;
}

static inline lp_status wait_beside_device(void *context, int64_t ticket, lp_error *err)
{
    const struct timespec brief = {.tv_nsec = 2000};
    member *m = member_of(context);
    gpu_pump(&m->device, 300);
    if (is_idle(&m->device))
        return plain_wait(context, ticket, err);
    waiting x = {.context = context, .ticket = ticket, .err = err};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, &x), 0);
    while (!atomic_load(&x.is_over)) {
        gpu_pump(&m->device, 64);
        nanosleep(&brief, NULL);
    }
    pthread_join(thread, NULL);
    return x.status;
}

static void *library;

static inline void *entry(const char *name)
{
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

static inline bool is_host(const world *w, int rank)
{
    return rank >= w->senders && rank - w->senders < w->hosts;
}

static inline gpu *plan_device(member *m)
{
    return m->w->is_apart ? &m->other : &m->device;
}

/* Memory for all destinations of a rank, on its device unless it is one of the host's. */
static inline void bind_member(member *m, const lp_trace *t, int32_t rank)
{
    const lp_scope *scope = lp_trace_scope_at(t, lp_trace_scope_find(t, rank));
    assert_ok(lp_destinations_allocate(&m->host, t, scope, false, NULL, ERR));
    const lp_destination_memory *list = lp_destinations_list(m->host, &m->count);
    if (is_host(m->w, m->rank)) {
        assert_ok(lp_bind(&m->plan, t, scope, list, m->count, &(lp_bind_options){.threads = 1}, ERR));
        return;
    }
    m->on = calloc((size_t)m->count, sizeof *m->on);
    for (int64_t i = 0; i < m->count; i++) {
        void *block = NULL;
        assert_int_equal(fake_take_block(&plan_device(m)->f, list[i].storage_bytes, false, &block), 0);
        m->on[i] = list[i];
        m->on[i].storage = block;
        m->on[i].data = (uint8_t *)block + ((uint8_t *)list[i].data - (uint8_t *)list[i].storage);
    }
    const lp_bind_options o = {.threads = 1, .staging = m->w->staging > 0 ? m->w->staging : 0};
    assert_ok(lp_bind_with(&m->plan, t, scope, m->on, m->count, &o, &plan_device(m)->calls, ERR));
    plan_device(m)->f.is_bound = m->rank >= m->w->senders; /* sessions take none from now on, packing does */
}

static inline void open_member(member *m, const world *w, int rank)
{
    *m = (member){.w = w, .rank = rank};
    gpu_open(&m->device, w->seed * 31 + (uint64_t)rank);
    gpu_open(&m->other, w->seed * 37 + (uint64_t)rank);
    if (w->finds_on_host)
        m->device.nccl.compare = NULL;
    if (rank >= w->senders)
        bind_member(m, w->server, rank - w->senders);
    else if (w->is_sharded)
        bind_member(m, w->trainer, rank);
    if (m->on != NULL)
        assert_int_equal(m->device.nccl.stream_open(plan_device(m), false, &m->stream), 0);
    m->device.f.calls = 0;
    m->device.f.fail_at = w->fault_at > 0 && w->fault_rank == rank ? w->fault_at - 1 : -1;
}

static inline void close_member(member *m)
{
    m->device.f.fail_at = -1;
    lp_plan_close(m->plan);
    if (m->stream != NULL) {
        gpu_settle(plan_device(m), m->stream);
        m->device.nccl.stream_close(plan_device(m), m->stream);
    }
    for (int64_t i = 0; m->on != NULL && i < m->count; i++)
        fake_give(plan_device(m), m->on[i].storage);
    free(m->on);
    lp_destinations_free(m->host);
    gpu_close(&m->device);
    gpu_close(&m->other);
}

/* What the trainer's own loader does. */
static inline lp_status load_member(member *m, const payload *p, lp_error *err)
{
    lp_session *s = NULL;
    LP_TRY(lp_begin(&s, m->plan, &(lp_session_options){.mode = LP_COLD}, err));
    lp_status status = LP_OK;
    for (int64_t t = 0; t < lp_checkpoint_count(p->catalogue) && status == LP_OK; t++) {
        const lp_checkpoint_tensor *x = lp_checkpoint_at(p->catalogue, t);
        const lp_buffer b = {.data = p->data[t], .dtype = x->dtype, .ndim = x->ndim, .shape = x->shape};
        status = lp_push(s, x->name, &b, err);
    }
    if (status == LP_OK)
        status = lp_finish(s, NULL, err);
    lp_session_close(s);
    return status;
}

static inline lp_status send_one(member *m, lp_sync *s, int epoch)
{
    if (m->w->is_sharded) {
        LP_TRY(load_member(m, &m->w->epoch[epoch], &m->err));
        if (m->w->reopens && epoch == 3)
            lp_sync_source_close(&m->source);
        if (m->w->reopens && epoch == 3)
            m->source = (lp_sync_source){.context = NULL};
        if (m->source.context == NULL)
            LP_TRY(lp_sync_source_plan(&m->source, m->plan, &m->err));
        return lp_sync_send(s, &m->source, 0, &m->report[epoch], &m->err);
    }
    const lp_sync_source whole = {.context = (void *)(uintptr_t)&m->w->epoch[epoch], .read = read_payload};
    torn_payload torn = {.data = &m->w->epoch[epoch], .left = 12};
    const lp_sync_source source = {.context = &torn, .read = read_torn};
    const bool is_torn = m->w->is_torn && epoch == 1 && m->rank == 0;
    return lp_sync_send(s, is_torn ? &source : &whole, 0, &m->report[epoch], &m->err);
}

static inline lp_status recv_one(member *m, lp_sync *s, int epoch)
{
    const lp_session_options o = {.mode = m->w->load, .stream = m->stream};
    return lp_sync_recv(s, m->plan, &o, 0, &m->report[epoch], &m->err);
}

static inline void *run_member(void *context)
{
    member *m = context;
    const world *w = m->w;
    const bool is_sender = m->rank < w->senders;
    lp_sync *s = NULL;
    lp_sync_options o = w->options;
    o.is_sender = is_sender;
    if (!w->over_host)
        m->status[0] = lp_transport_nccl_on(&m->transport, &m->local, &m->device.nccl, FAKE_NCCL, NULL, &m->err);
    if (m->status[0] == LP_OK && w->watch != NULL)
        w->watch(m);
    if (m->status[0] == LP_OK)
        m->status[0] =
            lp_sync_open(&s, w->over_host ? &m->local : &m->transport, is_sender ? w->trainer : w->server, &o, &m->err);
    for (int e = 1; e <= w->epochs; e++) {
        const int before = m->gathers;
        if (m->status[e - 1] != LP_OK && !(w->is_torn && e == 2))
            m->status[e] = m->status[e - 1];
        else
            m->status[e] = is_sender ? send_one(m, s, e) : recv_one(m, s, e);
        m->gathered[e] = m->gathers - before;
    }
    lp_sync_close(s);
    lp_sync_source_close(&m->source);
    if (!w->over_host)
        lp_transport_close(&m->transport);
    lp_transport_close(&m->local); /* the others see that this rank is gone */
    return NULL;
}

static inline void open_members(const world *w)
{
    for (int i = 0; i < w->senders + w->receivers; i++)
        open_member(&members[i], w, i);
}

static inline void run_members(const world *w)
{
    const int size = w->senders + w->receivers;
    lp_transport local[RANKS_MOST];
    pthread_t thread[RANKS_MOST];
    assert_ok(lp_transport_local(local, size, w->senders, 0, NULL, ERR));
    for (int i = 0; i < size; i++) {
        members[i].local = local[i];
        members[i].socket = local[i].context;
        plain_gather = local[i].gather;
        plain_wait = local[i].wait;
        members[i].local.gather = count_gather;
        members[i].local.wait = wait_beside_device;
    }
    for (int i = 0; i < size; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_member, &members[i]), 0);
    for (int i = 0; i < size; i++)
        pthread_join(thread[i], NULL);
}

static inline void close_members(const world *w)
{
    fake_open open_comms;
    void *symbol = entry("fakeOpen");
    memcpy(&open_comms, &symbol, sizeof open_comms);
    for (int i = 0; i < w->senders + w->receivers; i++)
        close_member(&members[i]);
    assert_int_equal(open_comms(), 0);
}

static inline void assert_loaded(const world *w, const char *what)
{
    for (int i = 0; i < w->senders + w->receivers; i++)
        for (int e = 0; e <= w->epochs; e++)
            if (members[i].status[e] != LP_OK)
                fail_msg("%s, seed %llu: rank %d epoch %d: %s", what, (unsigned long long)w->seed, i, e,
                         members[i].err.text);
    for (int i = 0; i < w->receivers; i++) {
        const member *m = &members[w->senders + i];
        rank_memory want = bind_rank(w->server, i);
        load_whole(&want, &w->epoch[w->epochs]);
        int64_t count;
        const lp_destination_memory *right = lp_destinations_list(want.memory, &count);
        const lp_destination_memory *have = m->on != NULL ? m->on : lp_destinations_list(m->host, &count);
        for (int64_t k = 0; k < m->count; k++)
            if (memcmp(have[k].storage, right[k].storage, (size_t)right[k].storage_bytes) != 0)
                fail_msg("%s, seed %llu: rank %d: '%s' differs", what, (unsigned long long)w->seed, i, right[k].name);
        free_rank(&want);
    }
}

static inline void open_world(world *w, int epochs)
{
    w->model = make_model();
    w->epochs = epochs;
    for (int e = 1; e <= epochs; e++)
        w->epoch[e] = make_payload(w->model, e);
    w->trainer = w->server =
        record_layout(w->model, w->tp == 0 ? 1 : w->receivers / w->tp, w->tp == 0 ? w->receivers : w->tp, false);
    if (w->is_sharded)
        w->trainer = record_ranks(w->model, 1, w->senders, false, true);
    if (w->staging == 0)
        w->staging = 1 << 20;
}

static inline void close_world(world *w)
{
    for (int e = 1; e <= w->epochs; e++)
        free_payload(&w->epoch[e]);
    if (w->trainer != w->server)
        lp_trace_close(w->trainer);
    lp_trace_close(w->server);
    lp_checkpoint_close(w->model);
}

static inline void run_world(world *w, int epochs, const char *what)
{
    open_world(w, epochs);
    open_members(w);
    run_members(w);
    assert_loaded(w, what);
    close_members(w);
    close_world(w);
}

static inline uint64_t first_seed(void)
{
    return random_first_seed((uint64_t)time(NULL));
}

static inline int open_library(void **state)
{
    (void)state;
    fake_connects connects;
    library = dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL); /* stays, so that its counters do */
    void *symbol = library == NULL ? NULL : dlsym(library, "fakeConnects");
    if (symbol == NULL)
        return 1;
    memcpy(&connects, &symbol, sizeof connects);
    connects(true);
    return 0;
}

static inline int close_library(void **state)
{
    (void)state;
    return dlclose(library);
}

#endif
