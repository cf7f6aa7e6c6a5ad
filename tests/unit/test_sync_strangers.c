/* SPDX-License-Identifier: Apache-2.0 */
/* One rank has another trace, or another epoch in mind, than the others: all hear of it, nothing moves, and everybody
 * believes what it holds as before. */
#include "epoch_worlds.h"

#include <unistd.h>

typedef struct stranger {
    lp_transport transport;
    const lp_trace *trace;
    rank_memory memory;
    const payload *data;
    bool is_sender;
    int64_t epoch;
    lp_status status;
    lp_error err;
} stranger;

static void *run_stranger(void *context)
{
    stranger *x = context;
    lp_sync *s = NULL;
    const lp_sync_options o = {.is_sender = x->is_sender, .bucket = 4096};
    const lp_sync_source whole = {.context = (void *)(uintptr_t)x->data, .read = read_payload};
    x->status = lp_sync_open(&s, &x->transport, x->trace, &o, &x->err);
    if (x->status == LP_OK)
        x->status = x->is_sender ? lp_sync_send(s, &whole, x->epoch, NULL, &x->err)
                                 : lp_sync_recv(s, x->memory.plan, NULL, x->epoch, NULL, &x->err);
    lp_sync_close(s);
    lp_transport_close(&x->transport);
    return NULL;
}

enum { STRANGERS = 8, STRANGE_SENDERS = 2 };

/* odd: the rank that has `other` instead of `trace`, or asks for another epoch than the others. */
static void assert_nothing_moves(const world *w, const lp_trace *other, int odd)
{
    static stranger x[STRANGERS];
    lp_transport transport[STRANGERS];
    pthread_t thread[STRANGERS];
    assert_ok(lp_transport_local(transport, STRANGERS, STRANGE_SENDERS, LONG_NS, NULL, ERR));
    alarm(LONG_S);
    for (int i = 0; i < STRANGERS; i++) {
        x[i] = (stranger){.transport = transport[i],
                          .trace = i == odd && other != NULL ? other : w->trace,
                          .data = &w->epoch[FAULTY],
                          .is_sender = i < STRANGE_SENDERS,
                          .epoch = other != NULL ? 0
                                   : i == odd    ? 5
                                                 : 6};
        if (i < STRANGE_SENDERS)
            continue;
        x[i].memory = bind_rank(x[i].trace, i - STRANGE_SENDERS);
        load_whole(&x[i].memory, &w->epoch[GOOD]);
    }
    for (int i = 0; i < STRANGERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_stranger, &x[i]), 0);
    for (int i = 0; i < STRANGERS; i++)
        pthread_join(thread[i], NULL);
    alarm(0);
    for (int i = 0; i < STRANGERS; i++) {
        if (x[i].status != LP_E_MISMATCH)
            fail_msg("rank %d, where rank %d is odd: %s '%s'", i, odd, lp_status_name(x[i].status), x[i].err.text);
        if (i < STRANGE_SENDERS)
            continue;
        if (x[i].trace == w->trace)
            assert_same_memory(&x[i].memory, &w->want[GOOD][(i - STRANGE_SENDERS) % 2], "nothing moves", i);
        if (!trusts(x[i].memory.plan))
            fail_msg("rank %d does not believe what it holds any more", i);
        free_rank(&x[i].memory);
    }
}

static void one_rank_of_another_trace_stops_everybody(void **state)
{
    world w;
    (void)state;
    open_world(&w, STRANGE_SENDERS, 3, 2);
    lp_trace *other = record_layout(w.model, 3, 2, true);
    for (int odd = STRANGE_SENDERS; odd < STRANGERS; odd += 5)
        assert_nothing_moves(&w, other, odd);
    for (int odd = 0; odd < STRANGERS; odd += 3)
        assert_nothing_moves(&w, NULL, odd);
    lp_trace_close(other);
    close_world(&w, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_of_another_trace_stops_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
