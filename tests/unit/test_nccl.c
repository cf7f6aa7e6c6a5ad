/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs whose payloads go by NCCL, over a fake library and host memory: equal to a load, and clean when any call of
 * the library, or of the device, fails. */
#include "fake_nccl.h"
#include "sync_testing.h"

#include "replayer/nccl_transport.h"
#include "replayer/transport_wire.h"

#include <dlfcn.h>

enum { SENDERS = 2, RECEIVERS = 2, RANKS = SENDERS + RECEIVERS };

/* ---- a device that is the host ---- */

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static long device_calls, device_fails_at;

static int device_call(void)
{
    pthread_mutex_lock(&device_lock);
    const int code = ++device_calls == device_fails_at ? 7 : 0;
    pthread_mutex_unlock(&device_lock);
    return code;
}

static const char *device_error(void *context, int code)
{
    (void)context;
    return code == 7 ? "a fault that was asked for" : "no fault";
}

static int device_enter(void *context)
{
    (void)context;
    return device_call();
}

static int device_allocate(void *context, int64_t bytes, void **out)
{
    (void)context;
    const int code = device_call();
    *out = code == 0 ? malloc((size_t)bytes) : NULL;
    return code;
}

static void device_release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static int device_copy(void *context, void *to, const void *from, int64_t bytes)
{
    (void)context;
    memcpy(to, from, (size_t)bytes);
    return device_call();
}

static int stream_open(void *context, bool is_urgent, void **stream)
{
    (void)is_urgent;
    (void)context;
    *stream = device_call() == 0 ? calloc(1, sizeof(fake_stream)) : NULL;
    return *stream == NULL ? 7 : 0;
}

static void stream_close(void *context, void *stream)
{
    (void)context;
    free(stream);
}

/* An event is the stream that it was last set on. */
static int event_open(void *context, void **event)
{
    (void)context;
    *event = device_call() == 0 ? calloc(1, sizeof(void *)) : NULL;
    return *event == NULL ? 7 : 0;
}

static int event_set(void *context, void *event, void *stream)
{
    (void)context;
    *(void **)event = stream;
    return device_call();
}

static int event_done(void *context, void *event, bool *done)
{
    (void)context;
    const fake_stream *s = *(void **)event;
    *done = atomic_load(&s->waiting) == 0;
    return 0; /* how often it is asked depends on the weather */
}

static const lp_nccl_device host_device = {.error_text = device_error,
                                           .enter = device_enter,
                                           .allocate = device_allocate,
                                           .release = device_release,
                                           .store = device_copy,
                                           .fetch = device_copy,
                                           .stream_open = stream_open,
                                           .stream_close = stream_close,
                                           .event_open = event_open,
                                           .event_close = stream_close,
                                           .event_set = event_set,
                                           .event_done = event_done};

/* ---- ranks ---- */

typedef struct member {
    lp_transport local, transport;
    lp_trace *trace;
    const payload *data;
    int rank, epochs;
    rank_memory memory;
    lp_status status;
    lp_sync_report report;
    lp_error err;
} member;

static void *run_member(void *context)
{
    member *m = context;
    lp_sync *s = NULL;
    const bool is_sender = m->rank < SENDERS;
    const lp_sync_options o = {.is_sender = is_sender, .mode = LP_SYNC_SLICED, .bucket = 1024};
    const lp_sync_source source = {.context = (void *)(uintptr_t)m->data, .read = read_payload};
    m->status = lp_transport_nccl_on(&m->transport, &m->local, &host_device, FAKE_NCCL, NULL, &m->err);
    if (m->status == LP_OK)
        m->status = lp_sync_open(&s, &m->transport, m->trace, &o, &m->err);
    for (int e = 0; e < m->epochs && m->status == LP_OK; e++)
        m->status = is_sender ? lp_sync_send(s, &source, 0, &m->report, &m->err)
                              : lp_sync_recv(s, m->memory.plan, NULL, 0, &m->report, &m->err);
    lp_sync_close(s);
    lp_transport_close(&m->transport);
    lp_transport_close(&m->local); /* the others see that this rank is gone */
    return NULL;
}

static member members[RANKS];

static void run_world(lp_trace *t, const payload *data, int epochs)
{
    lp_transport local[RANKS];
    pthread_t thread[RANKS];
    assert_ok(lp_transport_local(local, RANKS, SENDERS, 120000000000, NULL, ERR));
    for (int i = 0; i < RANKS; i++) {
        members[i] = (member){.local = local[i], .trace = t, .data = data, .rank = i, .epochs = epochs};
        if (i >= SENDERS)
            members[i].memory = bind_rank(t, i - SENDERS);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_member, &members[i]), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
}

static void free_members(void)
{
    for (int i = SENDERS; i < RANKS; i++)
        free_rank(&members[i].memory);
}

static void assert_loaded(const lp_trace *t, const payload *data)
{
    for (int i = 0; i < RANKS; i++)
        if (members[i].status != LP_OK)
            fail_msg("rank %d: %s", i, members[i].err.text);
    for (int i = 0; i < RECEIVERS; i++) {
        rank_memory want = bind_rank(t, i);
        load_whole(&want, data);
        assert_same_memory(&members[SENDERS + i].memory, &want, "nccl", i);
        free_rank(&want);
    }
}

static void *library;

static void *entry(const char *name)
{
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    return symbol;
}

static int open_library(void **state)
{
    (void)state;
    library = dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL); /* stays, so that its counters do */
    return library == NULL;
}

static int close_library(void **state)
{
    (void)state;
    return dlclose(library);
}

static void epochs_by_nccl_equal_a_load(void **state)
{
    (void)state;
    fake_fail_at fail_at;
    fake_open open_comms;
    void *symbol = entry("fakeFailAt");
    memcpy(&fail_at, &symbol, sizeof fail_at);
    symbol = entry("fakeOpen");
    memcpy(&open_comms, &symbol, sizeof open_comms);
    fake_ids ids;
    symbol = entry("fakeIds");
    memcpy(&ids, &symbol, sizeof ids);
    lp_checkpoint *c = make_model();
    lp_trace *t = record_layout(c, 1, RECEIVERS, false);
    payload data = make_payload(c, 1);
    device_fails_at = 0;
    fail_at(0);
    const long before = ids();
    run_world(t, &data, 3); /* one communicator for all three */
    assert_int_equal(ids() - before, 1);
    assert_loaded(t, &data);
    free_members();
    assert_int_equal(open_comms(), 0);
    free_payload(&data);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* Whichever call fails: no rank hangs, and none but those that had everything reports success. */
static void every_call_may_fail(void **state)
{
    (void)state;
    fake_fail_at fail_at;
    fake_calls calls;
    fake_open open_comms;
    void *symbol = entry("fakeFailAt");
    memcpy(&fail_at, &symbol, sizeof fail_at);
    symbol = entry("fakeCalls");
    memcpy(&calls, &symbol, sizeof calls);
    symbol = entry("fakeOpen");
    memcpy(&open_comms, &symbol, sizeof open_comms);
    lp_checkpoint *c = make_model();
    lp_trace *t = record_layout(c, 1, RECEIVERS, false);
    payload data = make_payload(c, 1);
    int failures = 0;
    for (int of_device = 0; of_device < 2; of_device++)
        for (long n = 1;; n += n < 40 ? 1 : 23) {
            device_calls = 0;
            device_fails_at = of_device ? n : 0;
            fail_at(of_device ? 0 : n);
            run_world(t, &data, 1);
            int bad = 0;
            for (int i = 0; i < RANKS; i++)
                bad += members[i].status != LP_OK;
            const bool hit = (of_device ? device_calls : calls()) >= n;
            if (hit && bad == 0)
                fail_msg("call %ld of the %s failed and nobody saw it", n, of_device ? "device" : "library");
            if (bad > 0 && bad < RANKS)
                fail_msg("call %ld: %d of %d ranks failed", n, bad, RANKS);
            if (bad == 0)
                assert_loaded(t, &data);
            failures += bad > 0;
            free_members();
            assert_int_equal(open_comms(), 0);
            if (!hit)
                break;
        }
    print_message("%d failing calls\n", failures);
    assert_true(failures > 50);
    free_payload(&data);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* One rank takes its messages back: nothing is sent by a communicator that is not there. */
static void *cancel_and_go_on(void *context)
{
    member *m = context;
    lp_round round;
    lp_error err;
    const lp_block *all;
    uint8_t data[2][64];
    int64_t ticket = 0;
    const lp_transfer x[2] = {{.peer = 1 - m->rank, .is_send = true, .data = data[0], .bytes = sizeof data[0]},
                              {.peer = 1 - m->rank, .data = data[1], .bytes = sizeof data[1]}};
    memset(data, m->rank, sizeof data);
    m->status = lp_transport_nccl_on(&m->transport, &m->local, &host_device, FAKE_NCCL, NULL, &m->err);
    const lp_transport *t = &m->transport;
    if (m->status == LP_OK)
        m->status = t->join(t->context, &round, &m->err);
    if (m->status == LP_OK)
        m->status = t->gather(t->context, NULL, 0, &all, &m->err); /* both have joined */
    if (m->status == LP_OK && m->rank == 0) {
        m->status = t->start(t->context, x, 2, &ticket, &m->err);
        t->cancel(t->context);
        const lp_status again = t->start(t->context, x, 2, &ticket, &err);
        m->status = m->status == LP_OK && again == LP_E_MISUSE ? LP_OK : LP_E_INTERNAL;
        (t->fail)(t->context, "it has enough");
    }
    if (m->status == LP_OK && t->gather(t->context, NULL, 0, &all, &err) != LP_E_PEER)
        m->status = LP_E_INTERNAL;
    lp_transport_close(&m->transport);
    lp_transport_close(&m->local);
    return NULL;
}

static void no_message_goes_after_a_cancel(void **state)
{
    (void)state;
    lp_transport local[2];
    pthread_t thread[2];
    device_fails_at = 0;
    assert_ok(lp_transport_local(local, 2, 1, 120000000000, NULL, ERR));
    for (int i = 0; i < 2; i++) {
        members[i] = (member){.local = local[i], .rank = i};
        assert_int_equal(pthread_create(&thread[i], NULL, cancel_and_go_on, &members[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++)
        if (members[i].status != LP_OK)
            fail_msg("rank %d: %s", i, members[i].err.text);
}

/* How long rank 1 waits before its message: by then rank 0 has given up, and the ranks do not connect any more. */
static int begins_late_ms;

/* The library tells rank 1 that the other one is gone, and not who, before the sockets do. */
static void *lose_the_other(void *context)
{
    member *m = context;
    lp_round round;
    const lp_block *all;
    uint8_t data[64] = {0};
    int64_t ticket = 0;
    const lp_transfer x = {.peer = 0, .data = data, .bytes = sizeof data};
    m->status = lp_transport_nccl_on(&m->transport, &m->local, &host_device, FAKE_NCCL, NULL, &m->err);
    const lp_transport *t = &m->transport;
    if (m->status == LP_OK)
        m->status = t->join(t->context, &round, &m->err);
    if (m->status == LP_OK)
        m->status = t->gather(t->context, NULL, 0, &all, &m->err);
    if (m->rank == 1 && begins_late_ms > 0)
        lp_sleep_ms(begins_late_ms);
    if (m->status == LP_OK && m->rank == 1)
        m->status = t->start(t->context, &x, 1, &ticket, &m->err);
    if (m->status == LP_OK && m->rank == 1)
        m->status = t->wait(t->context, ticket, &m->err);
    lp_transport_close(&m->transport); /* of rank 0: it aborts, and has sent nothing */
    if (m->rank == 0)
        lp_sleep_ms(30); /* by now rank 1 has seen that, most likely */
    lp_transport_close(&m->local);
    return NULL;
}

static void lose_one(int late_ms)
{
    lp_transport local[2];
    pthread_t thread[2];
    device_fails_at = 0;
    begins_late_ms = late_ms;
    assert_ok(lp_transport_local(local, 2, 1, 120000000000, NULL, ERR));
    for (int i = 0; i < 2; i++) {
        members[i] = (member){.local = local[i], .rank = i};
        assert_int_equal(pthread_create(&thread[i], NULL, lose_the_other, &members[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    if (members[1].status != LP_E_PEER)
        fail_msg("rank 1: %s", members[1].err.text);
    assert_string_equal(members[1].err.text, "sender 0 is gone");
}

static void a_lost_rank_is_named_by_the_sockets(void **state)
{
    (void)state;
    lose_one(0);
    lose_one(15); /* the ranks are not connected yet */
}

static void what_cannot_be_loaded_is_named(void **state)
{
    (void)state;
    lp_nccl n;
    lp_error err = {.code = LP_OK};
    assert_int_equal(lp_nccl_open(&n, "/nowhere/libnccl.so.2", &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "cannot load '/nowhere/libnccl.so.2'");
    assert_int_equal(lp_nccl_open(&n, "libm.so.6", &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "NCCL has no 'ncclGetVersion'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_by_nccl_equal_a_load),    cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(no_message_goes_after_a_cancel), cmocka_unit_test(a_lost_rank_is_named_by_the_sockets),
        cmocka_unit_test(what_cannot_be_loaded_is_named),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
