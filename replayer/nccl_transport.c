/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads by NCCL. Sockets form the rounds, carry what is small, and know who failed; NCCL never waits for anybody:
 * its communicator does not block, and a stream is asked whether it is done while the sockets are asked whether the
 * round still stands. When it does not, the communicator is aborted, which ends what waits on the device.
 */
#include "replayer/nccl_transport.h"

#include "replayer/transport_lane.h"
#include "replayer/transport_wire.h"

#include <sched.h>
#include <stdio.h>

/* A frame takes a fraction of a millisecond on a fast link, so naps are for those who wait for somebody slow. */
enum { TICKETS = 8, SPIN_NS = 10000000, NAP_MS = 1 };

typedef struct nccl_ticket {
    int64_t number; /* 0: free */
    int64_t sockets;
    bool has_sockets, has_stream;
    int32_t peer; /* one that the stream exchanges with */
    void *event;
} nccl_ticket;

typedef struct over_nccl {
    const lp_alloc *alloc;
    lp_transport sockets;
    lp_nccl_device device;
    lp_lane lane;
    lp_nccl nccl;
    void *comm, *stream;
    uint64_t key;  /* of the ranks that comm is made of; 0: none */
    bool *has_met; /* by rank of comm */
    nccl_ticket ticket[TICKETS];
    int64_t last_ticket;
    lp_round round;
} over_nccl;

static lp_status check_device(const over_nccl *t, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, t->device.error_text(t->device.context, code));
}

static void drop_comm(over_nccl *t)
{
    if (t->comm != NULL)
        (void)t->nccl.ncclCommAbort(t->comm);
    t->comm = NULL;
    t->key = 0;
    lp_release(t->alloc, t->has_met);
    t->has_met = NULL;
}

static void rest(int64_t since)
{
    if (lp_clock_ns() - since > SPIN_NS)
        lp_sleep_ms(NAP_MS);
    else
        sched_yield();
}

/* Waits until the library has done what it was told, looking after the round. */
static lp_status settle(over_nccl *t, int result, const char *verb, lp_error *err)
{
    const int64_t since = lp_clock_ns();
    while (result == LP_NCCL_IN_PROGRESS) {
        const lp_status status = t->sockets.check(t->sockets.context, LP_WAITS_NOT, since, err);
        if (status != LP_OK)
            return status;
        const int asked = t->nccl.ncclCommGetAsyncError(t->comm, &result);
        if (asked != LP_NCCL_SUCCESS)
            return lp_nccl_check(&t->nccl, asked, verb, err);
        if (result == LP_NCCL_IN_PROGRESS)
            rest(since);
    }
    return lp_nccl_check(&t->nccl, result, verb, err);
}

/* ---- rounds ---- */

static uint64_t key_of(const over_nccl *t)
{
    uint64_t key = (uint64_t)t->round.rank * 2 + 1;
    for (int32_t i = 0; i < t->round.world; i++) {
        const char *name = t->sockets.name(t->sockets.context, i);
        key = (key ^ lp_hash(name, strlen(name))) * 0x9e3779b97f4a7c15u;
    }
    return key | 1;
}

static lp_status connect_ranks(over_nccl *t, const lp_nccl_id *id, lp_error *err)
{
    lp_nccl_config config = {
        .size = sizeof config, .magic = LP_NCCL_CONFIG_MAGIC, .version = LP_NCCL_LEAST, .blocking = 0};
    t->has_met = lp_allocate_zero(t->alloc, (size_t)t->round.world * sizeof *t->has_met);
    if (t->has_met == NULL)
        return lp_fail_memory(err);
    const int result = t->nccl.ncclCommInitRankConfig(&t->comm, t->round.world, *id, t->round.rank, &config);
    LP_TRY(lp_nccl_check(&t->nccl, result, "connect ranks", err));
    return settle(t, LP_NCCL_IN_PROGRESS, "connect ranks", err);
}

/* What ranks tell one another when they meet. */
typedef struct meeting {
    uint8_t is_good, has_id;
    lp_nccl_id id; /* of rank 0, which takes one where its communicator is not good: that starts threads and sockets */
} meeting;

/* *all_good: whether everybody's communicator is. */
static lp_status exchange_ids(over_nccl *t, meeting *mine, lp_nccl_id *id, bool *has_id, bool *all_good, lp_error *err)
{
    const lp_block *all = NULL;
    if (mine->has_id)
        LP_TRY(lp_nccl_check(&t->nccl, t->nccl.ncclGetUniqueId(&mine->id), "get an id for the ranks", err));
    LP_TRY(t->sockets.gather(t->sockets.context, mine, sizeof *mine, &all, err));
    *all_good = true;
    for (int32_t i = 0; i < t->round.world; i++) {
        if (all[i].bytes != sizeof *mine)
            return lp_fail(err, LP_E_PEER, "%s sends payloads another way", t->sockets.name(t->sockets.context, i));
        *all_good = *all_good && *(const uint8_t *)all[i].data == 1;
    }
    *has_id = ((const uint8_t *)all[0].data)[offsetof(meeting, has_id)] == 1;
    memcpy(id, (const uint8_t *)all[0].data + offsetof(meeting, id), sizeof *id);
    return LP_OK;
}

/* One communicator serves as long as the ranks stay the same and nothing fails: all say whether theirs is good. */
static lp_status meet(over_nccl *t, lp_error *err)
{
    const uint64_t key = key_of(t);
    lp_nccl_id id;
    bool has_id, all_good;
    meeting mine;
    memset(&mine, 0, sizeof mine);
    mine.is_good = t->comm != NULL && t->key == key;
    mine.has_id = t->round.rank == 0 && mine.is_good == 0;
    LP_TRY(exchange_ids(t, &mine, &id, &has_id, &all_good, err));
    if (all_good)
        return LP_OK;
    if (!has_id) { /* another rank's is not good */
        mine.has_id = t->round.rank == 0;
        LP_TRY(exchange_ids(t, &mine, &id, &has_id, &all_good, err));
    }
    drop_comm(t);
    LP_TRY(connect_ranks(t, &id, err));
    t->key = key;
    return LP_OK;
}

/* A message on the stream touches its memory until it is done, or until the communicator is aborted. What else is on
 * the stream waits for events of streams that go on without us. */
static void cancel(void *context)
{
    over_nccl *t = context;
    for (int i = 0; i < TICKETS; i++) {
        if (t->ticket[i].has_stream)
            drop_comm(t);
        t->ticket[i] = (nccl_ticket){.event = t->ticket[i].event};
    }
    if (t->device.stream_settle != NULL)
        (void)t->device.stream_settle(t->device.context, t->stream);
    t->sockets.cancel(t->sockets.context);
}

static lp_status join(void *context, lp_round *round, lp_error *err)
{
    over_nccl *t = context;
    cancel(t); /* what a failed round left behind */
    LP_TRY(t->sockets.join(t->sockets.context, &t->round, err));
    *round = t->round;
    LP_TRY(check_device(t, t->device.enter(t->device.context), "use the device", err));
    const lp_status status = meet(t, err);
    if (status != LP_OK && status != LP_E_PEER)
        t->sockets.fail(t->sockets.context, err->text);
    return status;
}

static lp_status gather(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err)
{
    over_nccl *t = context;
    return t->sockets.gather(t->sockets.context, mine, bytes, all, err);
}

/* ---- messages ---- */

/* Messages that go on at the same time. */
static lp_status launch_group(over_nccl *t, const lp_transfer *transfer, int64_t count, lp_error *err)
{
    lp_status status = lp_nccl_check(&t->nccl, t->nccl.ncclGroupStart(), "begin messages", err);
    if (status != LP_OK)
        return status;
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        const lp_transfer *x = &transfer[i];
        if (x->is_host)
            continue;
        const int result =
            x->is_send ? t->nccl.ncclSend(x->data, (size_t)x->bytes, LP_NCCL_UINT8, x->peer, t->comm, t->stream)
                       : t->nccl.ncclRecv(x->data, (size_t)x->bytes, LP_NCCL_UINT8, x->peer, t->comm, t->stream);
        status = lp_nccl_check(&t->nccl, result, "start a message", err);
    }
    const int end = t->nccl.ncclGroupEnd(); /* also after a failure: a group must not stay open */
    return status != LP_OK ? status : settle(t, end, "start messages", err);
}

static lp_status launch(over_nccl *t, const lp_transfer *transfer, int64_t count, lp_error *err)
{
    for (int64_t first = 0, end; first < count; first = end) {
        bool has_message = false;
        for (end = first; end < count && (end == first || !transfer[end].is_behind); end++)
            has_message = has_message || !transfer[end].is_host;
        if (has_message)
            LP_TRY(launch_group(t, &transfer[first], end - first, err));
    }
    return LP_OK;
}

static lp_status start(void *context, const lp_transfer *transfer, int64_t count, int64_t *number, lp_error *err)
{
    over_nccl *t = context;
    nccl_ticket *ticket = NULL;
    lp_transfer *host = lp_allocate(t->alloc, ((size_t)count + 1) * sizeof *host);
    int64_t hosts = 0;
    for (int i = 0; i < TICKETS && ticket == NULL; i++)
        ticket = t->ticket[i].number == 0 ? &t->ticket[i] : NULL;
    lp_status status = LP_OK;
    if (host == NULL)
        status = lp_fail_memory(err);
    else if (ticket == NULL)
        status = lp_fail(err, LP_E_LIMIT, "too many messages are under way");
    else if (t->comm == NULL)
        status = lp_fail(err, LP_E_MISUSE, "messages of this round were cancelled");
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        if (transfer[i].is_host) {
            host[hosts++] = transfer[i];
        } else {
            ticket->has_stream = true;
            ticket->peer = transfer[i].peer;
        }
    }
    if (status == LP_OK && hosts > 0) {
        status = t->sockets.start(t->sockets.context, host, hosts, &ticket->sockets, err);
        ticket->has_sockets = true;
    }
    if (status == LP_OK)
        ticket->number = *number = ++t->last_ticket;
    if (status == LP_OK && ticket->has_stream) {
        status = launch(t, transfer, count, err);
        if (status == LP_OK)
            status =
                check_device(t, t->device.event_set(t->device.context, ticket->event, t->stream), "mark a stream", err);
    }
    lp_release(t->alloc, host);
    if (status != LP_OK)
        cancel(t);
    return status;
}

static lp_status wait_event(over_nccl *t, void *event, int32_t peer, lp_error *err)
{
    const int64_t since = lp_clock_ns();
    for (;;) {
        bool done = false;
        int result = LP_NCCL_SUCCESS;
        LP_TRY(check_device(t, t->device.event_done(t->device.context, event, &done), "ask a stream", err));
        if (done)
            return LP_OK;
        LP_TRY(lp_nccl_check(&t->nccl, t->nccl.ncclCommGetAsyncError(t->comm, &result), "exchange messages", err));
        LP_TRY(lp_nccl_check(&t->nccl, result, "exchange messages", err));
        LP_TRY(t->sockets.check(t->sockets.context, peer, since, err));
        rest(since);
    }
}

static lp_status find_ticket(over_nccl *t, int64_t number, nccl_ticket **out, lp_error *err)
{
    for (int i = 0; i < TICKETS; i++)
        if (t->ticket[i].number == number && number > 0) {
            *out = &t->ticket[i];
            return LP_OK;
        }
    return lp_fail(err, LP_E_MISUSE, "there is no such ticket");
}

static lp_status wait_ticket(void *context, int64_t number, lp_error *err)
{
    over_nccl *t = context;
    nccl_ticket *ticket = NULL;
    LP_TRY(find_ticket(t, number, &ticket, err));
    lp_status status = LP_OK;
    if (ticket->has_sockets)
        status = t->sockets.wait(t->sockets.context, ticket->sockets, err);
    if (status == LP_OK && ticket->has_stream)
        status = wait_event(t, ticket->event, ticket->peer, err);
    if (status != LP_OK) {
        cancel(t);
        return status;
    }
    t->sockets.alive(t->sockets.context);
    *ticket = (nccl_ticket){.event = ticket->event};
    return LP_OK;
}

static void fail(void *context, const char *reason)
{
    over_nccl *t = context;
    t->sockets.fail(t->sockets.context, reason);
}

static lp_status check(void *context, int32_t peer, int64_t since_ns, lp_error *err)
{
    over_nccl *t = context;
    return t->sockets.check(t->sockets.context, peer, since_ns, err);
}

static void alive(void *context)
{
    over_nccl *t = context;
    t->sockets.alive(t->sockets.context);
}

static const char *name_of(void *context, int32_t rank)
{
    over_nccl *t = context;
    return t->sockets.name(t->sockets.context, rank);
}

/* A message of a byte to or from each, all of them at once. memory: a byte for each. */
static lp_status exchange_bytes(over_nccl *t, lp_transfer *transfer, int32_t count, uint8_t *memory, lp_error *err)
{
    int64_t ticket = 0;
    for (int32_t i = 0; i < count; i++)
        transfer[i].data = memory + i;
    LP_TRY(start(t, transfer, count, &ticket, err));
    return wait_ticket(t, ticket, err);
}

static lp_status meet_partners(void *context, const int32_t *peer, int32_t peers, bool is_send, lp_error *err)
{
    over_nccl *t = context;
    int32_t count = 0;
    void *memory = NULL;
    lp_transfer *transfer = lp_allocate(t->alloc, ((size_t)peers + 1) * sizeof *transfer);
    if (transfer == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < peers; i++)
        if (t->has_met != NULL && !t->has_met[peer[i]])
            transfer[count++] = (lp_transfer){.peer = peer[i], .is_send = is_send, .bytes = 1};
    lp_status status = LP_OK;
    if (count > 0)
        status = check_device(t, t->device.allocate(t->device.context, count, &memory), "take device memory", err);
    if (status == LP_OK && count > 0)
        status = exchange_bytes(t, transfer, count, memory, err);
    for (int32_t i = 0; i < count && status == LP_OK; i++)
        t->has_met[transfer[i].peer] = true;
    if (memory != NULL)
        t->device.release(t->device.context, memory);
    lp_release(t->alloc, transfer);
    return status;
}

/* ---- the order of streams ---- */

static lp_status after(void *context, void *event, lp_error *err)
{
    over_nccl *t = context;
    return check_device(t, t->device.stream_wait(t->device.context, t->stream, event), "order a message", err);
}

static lp_status follow(void *context, int64_t number, void *stream, lp_error *err)
{
    over_nccl *t = context;
    nccl_ticket *ticket = NULL;
    LP_TRY(find_ticket(t, number, &ticket, err));
    return check_device(t, t->device.stream_wait(t->device.context, stream, ticket->event), "order a stream", err);
}

static lp_status await_event(void *context, void *event, int32_t peer, lp_error *err)
{
    over_nccl *t = context;
    const lp_status status = wait_event(t, event, peer, err);
    if (status != LP_OK)
        cancel(t);
    return status;
}

/* ---- memory ---- */

static void *take(void *context, int64_t bytes)
{
    over_nccl *t = context;
    void *memory = NULL;
    return t->device.allocate(t->device.context, bytes, &memory) == 0 ? memory : NULL;
}

static void give_back(void *context, void *memory)
{
    over_nccl *t = context;
    t->device.release(t->device.context, memory);
}

static lp_status upload(void *context, void *to, const void *from, int64_t bytes, lp_error *err)
{
    over_nccl *t = context;
    return check_device(t, t->device.store(t->device.context, to, from, bytes), "copy to the device", err);
}

static lp_status download(void *context, void *to, const void *from, int64_t bytes, lp_error *err)
{
    over_nccl *t = context;
    return check_device(t, t->device.fetch(t->device.context, to, from, bytes), "copy from the device", err);
}

/* ---- open and close ---- */

static void close_nccl(void *context)
{
    over_nccl *t = context;
    cancel(t);
    drop_comm(t);
    for (int i = 0; i < TICKETS; i++)
        if (t->ticket[i].event != NULL)
            t->device.event_close(t->device.context, t->ticket[i].event);
    if (t->stream != NULL)
        t->device.stream_close(t->device.context, t->stream);
    lp_nccl_close(&t->nccl);
    lp_release(t->alloc, t);
}

static lp_status open_nccl(over_nccl *t, const char *library, lp_error *err)
{
    LP_TRY(lp_nccl_open(&t->nccl, library, err));
    LP_TRY(check_device(t, t->device.enter(t->device.context), "use the device", err));
    LP_TRY(check_device(t, t->device.stream_open(t->device.context, true, &t->stream), "open a stream", err));
    for (int i = 0; i < TICKETS; i++)
        LP_TRY(check_device(t, t->device.event_open(t->device.context, &t->ticket[i].event), "make an event", err));
    return LP_OK;
}

lp_status lp_transport_nccl_on(lp_transport *transport, const lp_transport *sockets, const lp_nccl_device *device,
                               const char *library, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    over_nccl *t = lp_allocate_zero(p.alloc, sizeof *t);
    *transport = (lp_transport){.size = 0};
    if (t == NULL)
        return lp_fail_memory(err);
    t->alloc = p.alloc;
    t->sockets = *sockets;
    t->device = *device;
    const lp_status status = open_nccl(t, library, err);
    if (status != LP_OK) {
        close_nccl(t);
        return status;
    }
    *transport = (lp_transport){.size = sizeof *transport,
                                .context = t,
                                .join = join,
                                .gather = gather,
                                .start = start,
                                .wait = wait_ticket,
                                .cancel = cancel,
                                .check = check,
                                .fail = fail,
                                .alive = alive,
                                .name = name_of,
                                .take = take,
                                .give_back = give_back,
                                .upload = upload,
                                .download = download,
                                .close = close_nccl};
    t->lane =
        (lp_lane){.device = &t->device, .after = after, .follow = follow, .meet = meet_partners, .await = await_event};
    if (device->stream_wait != NULL)
        transport->lane = &t->lane;
    return LP_OK;
}

lp_status lp_transport_nccl(lp_transport *transport, const lp_transport *sockets, int32_t device,
                            const lp_platform *platform, lp_error *err)
{
    lp_nccl_device cuda = {.context = NULL};
    *transport = (lp_transport){.size = 0};
    LP_TRY(lp_nccl_cuda(&cuda, device, err));
    return lp_transport_nccl_on(transport, sockets, &cuda, NULL, platform, err);
}

#ifndef LOADPLAN_HAVE_CUDA
lp_status lp_nccl_cuda(lp_nccl_device *out, int32_t device, lp_error *err)
{
    (void)out;
    (void)device;
    return lp_fail(err, LP_E_UNSUPPORTED, "this build has no CUDA, so ranks exchange bytes over sockets only");
}
#endif
