/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs among ranks of one process: every mode leaves what a load of whole tensors leaves, and moves what it says. */
#include "sync_testing.h"

#include "traces/base.h"

#include <unistd.h>

enum { RANKS_MAX = 80 };

typedef struct world {
    lp_checkpoint *model;
    lp_trace *trainer, *server;
    payload epoch[4]; /* 1 to 3 */
    int senders, receivers;
    bool is_sharded; /* senders hold what their own rank of the trainer's trace loads */
    lp_sync_options options;
    int epochs;
    lp_load_mode load;
    int64_t timeout_ns;
    int torn_epoch; /* sender 0 fails in the middle of it; 0: never */
} world;

typedef struct member {
    const world *w;
    lp_transport transport;
    int rank;
    rank_memory memory; /* of receivers, and of sharded senders */
    lp_sync_report report[4];
    lp_status status[4];
    lp_error err;
} member;

static member members[RANKS_MAX];

static lp_status send_one(member *m, lp_sync *s, int epoch)
{
    const world *w = m->w;
    const lp_sync_source whole = {.context = (void *)(uintptr_t)&w->epoch[epoch], .read = read_payload};
    lp_sync_source part;
    if (epoch == w->torn_epoch && m->rank == 0) {
        torn_payload torn = {.data = &w->epoch[epoch], .left = 20};
        const lp_sync_source source = {.context = &torn, .read = read_torn};
        return lp_sync_send(s, &source, 0, &m->report[epoch], &m->err);
    }
    if (!w->is_sharded)
        return lp_sync_send(s, &whole, 0, &m->report[epoch], &m->err);
    load_whole(&m->memory, &w->epoch[epoch]);
    if (lp_sync_source_plan(&part, m->memory.plan, &m->err) != LP_OK)
        return m->err.code;
    const lp_status status = lp_sync_send(s, &part, 0, &m->report[epoch], &m->err);
    lp_sync_source_close(&part);
    return status;
}

static void *run_member(void *context)
{
    member *m = context;
    const world *w = m->w;
    const bool is_sender = m->rank < w->senders;
    lp_sync *s = NULL;
    lp_sync_options o = w->options;
    o.is_sender = is_sender;
    m->status[0] = lp_sync_open(&s, &m->transport, is_sender ? w->trainer : w->server, &o, &m->err);
    for (int e = 1; e <= w->epochs && m->status[0] == LP_OK; e++)
        m->status[e] = is_sender ? send_one(m, s, e)
                                 : lp_sync_recv(s, m->memory.plan, &(lp_session_options){.mode = w->load}, 0,
                                                &m->report[e], &m->err);
    lp_sync_close(s);
    lp_transport_close(&m->transport);
    return NULL;
}

static void run_world(const world *w)
{
    const int size = w->senders + w->receivers;
    lp_transport transport[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    assert_true(size <= RANKS_MAX);
    assert_ok(lp_transport_local(transport, size, w->senders, w->timeout_ns, NULL, ERR));
    for (int i = 0; i < size; i++) {
        members[i] = (member){.w = w, .transport = transport[i], .rank = i};
        if (i >= w->senders)
            members[i].memory = bind_rank(w->server, i - w->senders);
        else if (w->is_sharded)
            members[i].memory = bind_rank(w->trainer, i);
    }
    for (int i = 0; i < size; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_member, &members[i]), 0);
    for (int i = 0; i < size; i++)
        pthread_join(thread[i], NULL);
}

static void free_members(const world *w)
{
    for (int i = 0; i < w->senders + w->receivers; i++)
        if (members[i].memory.plan != NULL)
            free_rank(&members[i].memory);
}

/* Every rank says yes, and every receiver holds the last epoch. */
static void assert_loaded(const world *w, const char *what)
{
    for (int i = 0; i < w->senders + w->receivers; i++)
        for (int e = 0; e <= w->epochs; e++)
            if (members[i].status[e] != LP_OK)
                fail_msg("%s: rank %d epoch %d: %s", what, i, e, members[i].err.text);
    for (int i = 0; i < w->receivers; i++) {
        rank_memory want = bind_rank(w->server, i);
        load_whole(&want, &w->epoch[w->epochs]);
        assert_same_memory(&members[w->senders + i].memory, &want, what, i);
        free_rank(&want);
    }
}

static void open_world(world *w, int epochs)
{
    w->model = make_model();
    w->epochs = epochs;
    for (int e = 1; e <= epochs; e++)
        w->epoch[e] = make_payload(w->model, e);
}

static void close_world(world *w)
{
    free_members(w);
    for (int e = 1; e <= w->epochs; e++)
        free_payload(&w->epoch[e]);
    if (w->trainer != w->server)
        lp_trace_close(w->trainer);
    lp_trace_close(w->server);
    lp_checkpoint_close(w->model);
}

static int64_t bytes_sent(const world *w, int epoch)
{
    int64_t bytes = 0;
    for (int i = 0; i < w->senders; i++)
        bytes += members[i].report[epoch].bytes_moved;
    return bytes;
}

static int64_t bytes_needed(const world *w, int epoch)
{
    int64_t bytes = 0;
    for (int i = 0; i < w->receivers; i++)
        bytes += members[w->senders + i].report[epoch].bytes_needed;
    return bytes;
}

/* ---- tests ---- */

static void packed_epochs_equal_a_load(void **state)
{
    (void)state;
    for (int senders = 1; senders <= 3; senders++)
        for (int64_t bucket = 256; bucket <= 65536; bucket *= 16) {
            world w = {.senders = senders, .receivers = 4, .options = {.bucket = bucket}, .load = LP_COLD};
            open_world(&w, 2);
            w.trainer = w.server = record_layout(w.model, 1, 4, false);
            run_world(&w);
            assert_loaded(&w, "packed");
            for (int i = 0; i < senders + 4; i++) /* two buckets a side, no more */
                assert_int_equal(members[i].report[2].buffer_bytes, 2 * bucket);
            close_world(&w);
        }
}

static void layerwise_receivers_take_packed_epochs(void **state)
{
    (void)state;
    world w = {.senders = 2, .receivers = 2, .options = {.bucket = 4096}, .load = LP_LAYERWISE};
    open_world(&w, 2);
    w.trainer = w.server = record_layout(w.model, 1, 2, false);
    run_world(&w);
    assert_loaded(&w, "layerwise");
    close_world(&w);
}

/* dp x tp of the trainer and of the servers; 0 x 0: senders that hold everything. */
typedef struct sharding {
    int from_dp, from_tp, to_dp, to_tp;
    bool from_ep, to_ep;
} sharding;

static void sliced_epochs_move_what_must_move(void **state)
{
    static const sharding shape[] = {
        {1, 2, 1, 4, false, false}, {1, 4, 1, 2, false, false}, {1, 2, 1, 2, false, false}, {2, 1, 4, 2, true, true},
        {1, 2, 8, 1, true, true},   {2, 2, 1, 1, true, false},  {4, 2, 2, 4, false, true},  {1, 1, 1, 8, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int64_t bucket = 512; bucket <= 1 << 20; bucket *= 2048) {
            const sharding *x = &shape[i];
            char what[96];
            snprintf(what, sizeof what, "dp %d tp %d to dp %d tp %d, buckets of %lld", x->from_dp, x->from_tp, x->to_dp,
                     x->to_tp, (long long)bucket);
            world w = {.senders = x->from_dp * x->from_tp,
                       .receivers = x->to_dp * x->to_tp,
                       .is_sharded = true,
                       .options = {.mode = LP_SYNC_SLICED, .bucket = bucket},
                       .load = LP_COLD};
            open_world(&w, 2);
            w.trainer = record_ranks(w.model, x->from_dp, x->from_tp, x->from_ep, true);
            w.server = record_layout(w.model, x->to_dp, x->to_tp, x->to_ep);
            run_world(&w);
            assert_loaded(&w, what);
            for (int e = 1; e <= 2; e++)
                assert_int_equal(bytes_sent(&w, e), bytes_needed(&w, e));
            close_world(&w);
        }
}

static void sliced_epochs_from_replicas(void **state)
{
    (void)state;
    for (int senders = 1; senders <= 5; senders += 2) {
        world w = {
            .senders = senders, .receivers = 8, .options = {.mode = LP_SYNC_SLICED, .bucket = 1024}, .load = LP_DIRECT};
        open_world(&w, 3);
        w.trainer = w.server = record_layout(w.model, 4, 2, true);
        run_world(&w);
        assert_loaded(&w, "replicas");
        assert_int_equal(bytes_sent(&w, 3), bytes_needed(&w, 3));
        close_world(&w);
    }
}

static void a_world_of_64_ranks(void **state)
{
    (void)state;
    world w = {.senders = 16,
               .receivers = 64,
               .is_sharded = true,
               .options = {.mode = LP_SYNC_SLICED, .bucket = 4096},
               .load = LP_COLD};
    open_world(&w, 1);
    w.trainer = record_ranks(w.model, 8, 2, false, true);
    w.server = record_layout(w.model, 16, 4, false);
    run_world(&w);
    assert_loaded(&w, "64 ranks");
    assert_int_equal(bytes_sent(&w, 1), bytes_needed(&w, 1));
    close_world(&w);
}

static void deltas_equal_a_load(void **state)
{
    (void)state;
    for (int senders = 1; senders <= 3; senders += 2)
        for (int64_t bucket = 256; bucket <= 1 << 20; bucket *= 64) {
            world w = {.senders = senders,
                       .receivers = 4,
                       .options = {.mode = LP_SYNC_DELTA, .bucket = bucket},
                       .load = LP_DIRECT};
            open_world(&w, 3);
            w.trainer = w.server = record_layout(w.model, 2, 2, true);
            run_world(&w);
            assert_loaded(&w, "delta");
            for (int i = senders; i < senders + 4; i++) {
                assert_int_equal(members[i].report[1].mode, LP_SYNC_PACKED); /* nothing to change yet */
                assert_int_equal(members[i].report[2].mode, LP_SYNC_DELTA);
                assert_int_equal(members[i].report[3].mode, LP_SYNC_DELTA);
            }
            assert_true(bytes_sent(&w, 2) < bytes_sent(&w, 1));
            assert_true(bytes_sent(&w, 3) < bytes_sent(&w, 1));
            close_world(&w);
        }
}

/* A trainer whose ranks hold parts sends whole tensors, and changes, all the same. */
static void shards_send_whole_tensors_and_changes(void **state)
{
    static const sharding shape[] = {{1, 2, 1, 4, false, false}, {2, 2, 4, 2, true, true}, {1, 4, 1, 1, false, false}};
    (void)state;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int mode = LP_SYNC_PACKED; mode <= LP_SYNC_DELTA; mode += 2)
            for (int64_t bucket = 512; bucket <= 1 << 20; bucket *= 32) {
                const sharding *x = &shape[i];
                world w = {.senders = x->from_dp * x->from_tp,
                           .receivers = x->to_dp * x->to_tp,
                           .is_sharded = true,
                           .options = {.mode = (lp_sync_mode)mode, .bucket = bucket},
                           .load = LP_DIRECT};
                open_world(&w, 3);
                w.trainer = record_ranks(w.model, x->from_dp, x->from_tp, x->from_ep, true);
                w.server = record_layout(w.model, x->to_dp, x->to_tp, x->to_ep);
                run_world(&w);
                assert_loaded(&w, "shards");
                if (mode == LP_SYNC_DELTA) {
                    assert_int_equal(members[w.senders].report[3].mode, LP_SYNC_DELTA);
                    if (bucket > 512)
                        assert_true(bytes_sent(&w, 3) < bytes_sent(&w, 1));
                }
                close_world(&w);
            }
}

/* An epoch of changes that fails leaves nobody where he was: the next one brings everything. */
static void a_torn_delta_is_followed_by_everything(void **state)
{
    (void)state;
    world w = {.senders = 2,
               .receivers = 2,
               .options = {.mode = LP_SYNC_DELTA, .bucket = 1024, .no_content_id = true},
               .load = LP_DIRECT,
               .torn_epoch = 2};
    open_world(&w, 3);
    w.trainer = w.server = record_layout(w.model, 1, 2, false);
    run_world(&w);
    for (int i = 0; i < 4; i++) {
        assert_int_not_equal(members[i].status[2], LP_OK);
        assert_int_equal(members[i].report[3].epoch, 3);
        members[i].status[2] = LP_OK; /* as it should be */
        if (i >= 2)
            assert_int_equal(members[i].report[3].mode, LP_SYNC_PACKED);
    }
    assert_loaded(&w, "after a torn delta");
    close_world(&w);
}

static void an_unchanged_epoch_moves_only_what_derives_stage(void **state)
{
    (void)state;
    world w = {.senders = 1, .receivers = 2, .options = {.mode = LP_SYNC_DELTA, .bucket = 1 << 20}, .load = LP_DIRECT};
    open_world(&w, 3);
    free_payload(&w.epoch[3]);
    w.epoch[3] = make_payload(w.model, 2);
    w.trainer = w.server = record_layout(w.model, 1, 2, false);
    run_world(&w);
    assert_loaded(&w, "unchanged");
    /* "log" is staged and comes whole, behind a header of 24 bytes; then come the places of all tensors, and two
     * numbers. */
    assert_int_equal(bytes_sent(&w, 3), 2 * (24 + 4 * WIDE + 8 * lp_checkpoint_count(w.model) + 8));
    close_world(&w);
}

static void a_byte_that_no_sender_holds_is_named(void **state)
{
    (void)state;
    world w = {.senders = 2,
               .receivers = 2,
               .is_sharded = true,
               .options = {.mode = LP_SYNC_SLICED, .bucket = 4096},
               .load = LP_COLD,
               .timeout_ns = 120000000000};
    open_world(&w, 1);
    w.server = record_layout(w.model, 1, 2, false);
    w.trainer = record_ranks(w.model, 2, 1, true, true); /* rank 1 alone would do; rank 0 lacks half of the experts */
    w.senders = 1;
    run_world(&w);
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(members[i].status[1], LP_OK);
    assert_int_equal(members[1].status[1] == LP_E_UNSUPPORTED || members[2].status[1] == LP_E_UNSUPPORTED, true);
    close_world(&w);
}

/* ---- cold starts ---- */

typedef struct starter {
    lp_transport transport;
    const lp_trace *trace;
    const char *path;
    int64_t bucket;
    rank_memory memory;
    lp_cold_world_report report;
    lp_status status;
    lp_error err;
} starter;

static void *run_starter(void *context)
{
    starter *x = context;
    lp_checkpoint *c = NULL;
    lp_sync *s = NULL;
    const lp_sync_options o = {.is_sender = true, .bucket = x->bucket};
    x->status = lp_checkpoint_open(&c, x->path, &x->err);
    if (x->status == LP_OK)
        x->status = lp_sync_open(&s, &x->transport, x->trace, &o, &x->err);
    if (x->status == LP_OK)
        x->status = lp_sync_cold(s, x->memory.plan, c, NULL, NULL, &x->report, &x->err);
    lp_sync_close(s);
    lp_transport_close(&x->transport);
    lp_checkpoint_close(c);
    return NULL;
}

static void start_world(const lp_trace *t, const payload *p, int ranks, const char *path, int64_t bucket, bool is_torn)
{
    starter x[RANKS_MAX];
    lp_transport transport[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    assert_ok(lp_transport_local(transport, ranks, ranks, 120000000000, NULL, ERR));
    for (int i = 0; i < ranks; i++) {
        x[i] = (starter){.transport = transport[i], .trace = t, .path = path, .bucket = bucket};
        x[i].memory = bind_rank(t, i);
        assert_int_equal(pthread_create(&thread[i], NULL, run_starter, &x[i]), 0);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < ranks; i++) {
        if ((x[i].status != LP_OK) != is_torn)
            fail_msg("rank %d of %d: %s: %s", i, ranks, lp_status_name(x[i].status), x[i].err.text);
        if (!is_torn) {
            rank_memory want = bind_rank(t, i);
            load_whole(&want, p);
            assert_same_memory(&x[i].memory, &want, "cold start", i);
            free_rank(&want);
            assert_true(x[i].report.bytes_read_by_all <=
                        x[i].report.costs.bytes_union + x[i].report.costs.bytes_union / 20);
            assert_int_equal(x[i].report.bytes_read_by_all, x[i].report.costs.bytes_read);
        }
        free_rank(&x[i].memory);
    }
}

static void ranks_that_start_together_read_each_byte_once(void **state)
{
    static const sharding shape[] = {
        {1, 1, 1, 1, false, false}, {1, 1, 1, 4, false, false}, {1, 1, 2, 2, false, true}, {1, 1, 4, 2, false, false}};
    char path[] = "/tmp/loadplan-sync-XXXXXX";
    lp_checkpoint *c = make_model();
    payload p = make_payload(c, 1);
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    char file[64];
    snprintf(file, sizeof file, "%s.safetensors", path);
    write_checkpoint(file, &p);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int64_t bucket = 512; bucket <= 1 << 20; bucket *= 32) {
            lp_trace *t = record_layout(c, shape[i].to_dp, shape[i].to_tp, shape[i].to_ep);
            start_world(t, &p, shape[i].to_dp * shape[i].to_tp, file, bucket, false);
            lp_trace_close(t);
        }
    /* A rank that finds no file ends it for all. */
    lp_trace *t = record_layout(c, 2, 2, true);
    start_world(t, &p, 4, "/nowhere/model.safetensors", 4096, true);
    lp_trace_close(t);
    remove(file);
    remove(path);
    close(fd);
    free_payload(&p);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_epochs_equal_a_load),
        cmocka_unit_test(layerwise_receivers_take_packed_epochs),
        cmocka_unit_test(sliced_epochs_move_what_must_move),
        cmocka_unit_test(sliced_epochs_from_replicas),
        cmocka_unit_test(a_world_of_64_ranks),
        cmocka_unit_test(deltas_equal_a_load),
        cmocka_unit_test(ranks_that_start_together_read_each_byte_once),
        cmocka_unit_test(shards_send_whole_tensors_and_changes),
        cmocka_unit_test(a_torn_delta_is_followed_by_everything),
        cmocka_unit_test(an_unchanged_epoch_moves_only_what_derives_stage),
        cmocka_unit_test(a_byte_that_no_sender_holds_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
