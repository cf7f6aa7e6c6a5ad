/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of transports and syncs: it may run out anywhere, at ranks and at the meeting point, and is what is stated. */
#include "counted_memory.h"
#include "sync_testing.h"

#include "replayer/transport_wire.h"

#include <fcntl.h>
#include <time.h>

static const int64_t PATIENCE_NS = 120LL * 1000000000; /* nothing that goes well waits for it */

/* ---- memory runs out ---- */

typedef struct poor {
    lp_transport transport;
    const lp_trace *trace;
    const payload *data;
    const lp_platform *platform;
    rank_memory memory;
    lp_sync_mode mode;
    int64_t bucket;
    bool is_sender;
    lp_status status;
} poor;

static void *run_poor(void *context)
{
    poor *p = context;
    lp_error err = {.code = LP_OK};
    lp_sync *s = NULL;
    const lp_sync_source source = {.context = (void *)(uintptr_t)p->data, .read = read_payload};
    const lp_sync_options o = {
        .is_sender = p->is_sender, .mode = p->mode, .bucket = p->bucket, .platform = p->platform};
    p->status = lp_sync_open(&s, &p->transport, p->trace, &o, &err);
    for (int e = 0; e < 2 && p->status == LP_OK; e++)
        p->status = p->is_sender
                        ? lp_sync_send(s, &source, 0, NULL, &err)
                        : lp_sync_recv(s, p->memory.plan, &(lp_session_options){.mode = LP_DIRECT}, 0, NULL, &err);
    lp_sync_close(s);
    lp_transport_close(&p->transport);
    return NULL;
}

/* The n-th allocation of one side fails: both end, nothing leaks, and success is that of both. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    lp_checkpoint *c = make_model();
    lp_trace *t = record_layout(c, 1, 1, false);
    payload data = make_payload(c, 1);
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_DELTA; mode++)
        for (int side = 0; side < 2; side++)
            for (long n = 0;; n += n < 60 ? 1 : 7) {
                scarce memory = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = n};
                const lp_alloc alloc = {.size = sizeof alloc, .context = &memory, .resize = scarce_resize};
                const lp_platform platform = {.alloc = &alloc};
                poor p[2];
                pthread_t thread[2];
                lp_transport local[2];
                assert_ok(lp_transport_local(local, 2, 1, PATIENCE_NS, NULL, ERR));
                for (int i = 0; i < 2; i++) {
                    p[i] = (poor){.transport = local[i],
                                  .trace = t,
                                  .data = &data,
                                  .platform = i == side ? &platform : NULL,
                                  .mode = (lp_sync_mode)mode,
                                  .bucket = 2048,
                                  .is_sender = i == 0};
                    if (i == 1)
                        p[i].memory = bind_rank(t, 0);
                }
                for (int i = 0; i < 2; i++)
                    assert_int_equal(pthread_create(&thread[i], NULL, run_poor, &p[i]), 0);
                for (int i = 0; i < 2; i++)
                    pthread_join(thread[i], NULL);
                free_rank(&p[1].memory);
                if (memory.blocks != 0)
                    fail_msg("%ld blocks are left after %ld allocations", memory.blocks, n);
                if ((p[0].status == LP_OK) != (p[1].status == LP_OK))
                    fail_msg("allocation %ld: one side ends with %d, the other with %d", n, p[0].status, p[1].status);
                if (p[0].status == LP_OK && memory.left > 0)
                    break;
            }
    free_payload(&data);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

typedef struct guest {
    lp_tcp_options options;
    lp_transport transport;
    lp_status status;
    lp_error err;
} guest;

/* Joins and gathers, and leaves. */
static void *visit(void *context)
{
    enum { BYTES = 100000 };
    guest *g = context;
    lp_round round;
    const lp_block *all = NULL;
    uint8_t *mine = calloc(1, BYTES);
    const lp_transport *t = &g->transport;
    g->status = t->join(t->context, &round, &g->err);
    for (int i = 0; i < 2 && g->status == LP_OK; i++)
        g->status = t->gather(t->context, mine, BYTES, &all, &g->err);
    lp_transport_close(&g->transport);
    free(mine);
    return NULL;
}

static void *arrive(void *context)
{
    guest *g = context;
    g->status = lp_transport_tcp(&g->transport, &g->options, &g->err);
    return g->status == LP_OK ? visit(g) : NULL;
}

/* Sender 0, which has the meeting point, gets more blocks of memory each time: nobody waits for what it cannot say. */
static void a_meeting_point_may_be_out_of_memory(void **state)
{
    (void)state;
    enum { GUESTS = 3, STEP = 3 };
    const long start = (long)(time(NULL) % STEP); /* all of them would take seconds */
    bool is_whole = false;
    printf("start %ld\n", start);
    for (long n = start; !is_whole; n += STEP) {
        scarce memory = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &memory, .resize = scarce_resize};
        const lp_platform platform = {.alloc = &alloc};
        guest g[GUESTS];
        pthread_t thread[GUESTS];
        int32_t port;
        lp_error err;
        const int listener = lp_socket_listen("127.0.0.1", 0, &port, &err);
        assert_true(listener >= 0);
        for (int i = 0; i < GUESTS; i++)
            g[i] = (guest){.options = {.host = "127.0.0.1",
                                       .port = port,
                                       .is_sender = i == 0,
                                       .rank = i == 0 ? 0 : i - 1,
                                       .size = i == 0 ? 1 : GUESTS - 1,
                                       .listener = i == 0 ? listener : 0,
                                       .stall_ns = PATIENCE_NS,
                                       .join_ns = 100000000,
                                       .platform = i == 0 ? &platform : NULL}};
        g[0].status = lp_transport_tcp(&g[0].transport, &g[0].options, &g[0].err);
        for (int i = 1; i < GUESTS && g[0].status == LP_OK; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, arrive, &g[i]), 0);
        const bool is_open = g[0].status == LP_OK;
        if (is_open)
            visit(&g[0]);
        for (int i = 1; i < GUESTS && is_open; i++) {
            pthread_join(thread[i], NULL);
            if (g[i].status != LP_OK && strstr(g[i].err.text, "answer") != NULL)
                fail_msg("block %ld: %s", n, g[i].err.text);
        }
        assert_int_equal(memory.blocks, 0);
        assert_int_equal(fcntl(listener, F_GETFD), -1); /* it was taken over, whatever came of that */
        is_whole = is_open && g[0].status == LP_OK && g[1].status == LP_OK && g[2].status == LP_OK;
    }
}

/* ---- memory is what is stated ---- */

/* Two buckets a side, and little else: the transport's memory and that of both syncs, together. */
static void a_sync_takes_two_buckets_a_side(void **state)
{
    enum { BUCKET = 1 << 20, LITTLE = 300 << 10 };
    (void)state;
    lp_checkpoint *c = make_model();
    lp_trace *t = record_layout(c, 1, 1, false);
    payload data = make_payload(c, 1);
    for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_SLICED; mode++) {
        meter m = {.lock = PTHREAD_MUTEX_INITIALIZER};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &m, .resize = metered_resize};
        const lp_platform platform = {.alloc = &alloc};
        lp_transport local[2];
        pthread_t thread[2];
        poor p[2];
        assert_ok(lp_transport_local(local, 2, 1, PATIENCE_NS, &platform, ERR));
        for (int i = 0; i < 2; i++) {
            p[i] = (poor){.transport = local[i],
                          .trace = t,
                          .data = &data,
                          .platform = &platform,
                          .mode = (lp_sync_mode)mode,
                          .bucket = BUCKET,
                          .is_sender = i == 0};
            if (i == 1)
                p[i].memory = bind_rank(t, 0);
            assert_int_equal(pthread_create(&thread[i], NULL, run_poor, &p[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(thread[i], NULL);
        assert_int_equal(p[0].status, LP_OK);
        assert_int_equal(p[1].status, LP_OK);
        print_message("%s: %lld bytes beside four buckets\n", lp_sync_mode_name((lp_sync_mode)mode),
                      (long long)m.peak - 4 * BUCKET);
        assert_true(m.peak >= 4 * BUCKET && m.peak < 4 * BUCKET + LITTLE);
        assert_int_equal(m.now, 0);
        free_rank(&p[1].memory);
    }
    free_payload(&data);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(a_meeting_point_may_be_out_of_memory),
        cmocka_unit_test(a_sync_takes_two_buckets_a_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
