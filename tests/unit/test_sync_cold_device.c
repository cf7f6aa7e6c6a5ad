/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts of several ranks on devices, whose chunks are exchanged by a fake library between devices in host memory:
 * equal to a load, each byte read about once, and clean when any call or any allocation fails.
 */
#include "device_streams.h"
#include "sync_testing.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

enum { RANKS_MOST = 16 };

/* An allocator for all threads of a rank. */
typedef struct failing_rank {
    lp_alloc alloc;
    lp_platform platform;
    atomic_int calls, live;
    int fail_at; /* 0: never */
} failing_rank;

static void *resize_of_rank(void *context, void *old, size_t bytes)
{
    failing_rank *m = context;
    if (bytes == 0) {
        atomic_fetch_sub(&m->live, old != NULL);
        free(old);
        return NULL;
    }
    if (atomic_fetch_add(&m->calls, 1) + 1 == m->fail_at)
        return NULL;
    void *block = realloc(old, bytes);
    atomic_fetch_add(&m->live, old == NULL && block != NULL);
    return block;
}

typedef struct starter {
    int rank;
    failing_rank memory;
    const lp_trace *trace;
    const char *path;
    int64_t bucket;
    gpu device;
    lp_transport local, nccl;
    lp_destinations *host;     /* what the memory looks like */
    lp_destination_memory *on; /* the same on the device */
    int64_t count;
    lp_plan *plan;
    void *stream;
    lp_cold_world_report report;
    lp_status status;
    lp_error err;
} starter;

static starter starters[RANKS_MOST];

static void open_starter(starter *x, const lp_trace *t, int rank, const char *path, int64_t bucket, uint64_t seed)
{
    *x = (starter){.rank = rank, .trace = t, .path = path, .bucket = bucket};
    x->memory.alloc =
        (lp_alloc){.size = sizeof x->memory.alloc, .context = &x->memory, .resize = resize_of_rank, .exact = true};
    x->memory.platform.alloc = &x->memory.alloc;
    gpu_open(&x->device, seed * 31 + (uint64_t)rank);
    const lp_scope *scope = lp_trace_scope_at(t, lp_trace_scope_find(t, rank));
    assert_ok(lp_destinations_allocate(&x->host, t, scope, false, NULL, ERR));
    const lp_destination_memory *list = lp_destinations_list(x->host, &x->count);
    x->on = calloc((size_t)x->count, sizeof *x->on);
    assert_non_null(x->on);
    for (int64_t i = 0; i < x->count; i++) {
        void *block = NULL;
        assert_int_equal(fake_take_block(&x->device.f, list[i].storage_bytes, false, &block), 0);
        x->on[i] = list[i];
        x->on[i].storage = block;
        x->on[i].data = (uint8_t *)block + ((uint8_t *)list[i].data - (uint8_t *)list[i].storage);
    }
    const lp_bind_options o = {.threads = 1, .staging = 1 << 20, .platform = &x->memory.platform};
    assert_ok(lp_bind_with(&x->plan, t, scope, x->on, x->count, &o, &x->device.calls, ERR));
    assert_int_equal(x->device.nccl.stream_open(&x->device, false, &x->stream), 0);
    x->device.f.calls = 0;
    x->memory.calls = 0;
}

static void close_starter(starter *x)
{
    x->device.f.fail_at = -1;
    x->memory.fail_at = 0;
    lp_plan_close(x->plan);
    gpu_settle(&x->device, x->stream);
    x->device.nccl.stream_close(&x->device, x->stream);
    for (int64_t i = 0; i < x->count; i++)
        fake_give(&x->device, x->on[i].storage);
    free(x->on);
    lp_destinations_free(x->host);
    gpu_close(&x->device);
    assert_int_equal(x->memory.live, 0);
}

static void *run_starter(void *context)
{
    starter *x = context;
    lp_checkpoint *c = NULL;
    lp_sync *s = NULL;
    const lp_platform *platform = &x->memory.platform;
    const lp_sync_options o = {.is_sender = true, .bucket = x->bucket, .platform = platform};
    const lp_session_options session = {.mode = LP_COLD, .stream = x->stream};
    x->status = lp_transport_nccl_on(&x->nccl, &x->local, &x->device.nccl, FAKE_NCCL, platform, &x->err);
    if (x->status == LP_OK)
        x->status = lp_checkpoint_open_with(&c, x->path, platform, &x->err);
    if (x->status == LP_OK)
        x->status = lp_sync_open(&s, &x->nccl, x->trace, &o, &x->err);
    if (x->status == LP_OK)
        x->status = lp_sync_cold(s, x->plan, c, &session, NULL, &x->report, &x->err);
    lp_sync_close(s);
    lp_transport_close(&x->nccl);
    lp_transport_close(&x->local); /* the others see that this rank is gone */
    lp_checkpoint_close(c);
    return NULL;
}

static void run_starters(int ranks)
{
    lp_transport local[RANKS_MOST];
    pthread_t thread[RANKS_MOST];
    assert_ok(lp_transport_local(local, ranks, ranks, 0, NULL, ERR));
    for (int i = 0; i < ranks; i++) {
        starters[i].local = local[i];
        assert_int_equal(pthread_create(&thread[i], NULL, run_starter, &starters[i]), 0);
    }
    for (int i = 0; i < ranks; i++)
        pthread_join(thread[i], NULL);
}

static void assert_loaded(const starter *x, const payload *p)
{
    lp_destinations *memory = NULL;
    lp_plan *plan = NULL;
    lp_session *s = NULL;
    int64_t count;
    const lp_scope *scope = lp_trace_scope_at(x->trace, lp_trace_scope_find(x->trace, x->rank));
    assert_ok(lp_destinations_allocate(&memory, x->trace, scope, false, NULL, ERR));
    const lp_destination_memory *want = lp_destinations_list(memory, &count);
    assert_ok(lp_bind(&plan, x->trace, scope, want, count, &(lp_bind_options){.threads = 1}, ERR));
    assert_ok(lp_begin(&s, plan, &(lp_session_options){.mode = LP_COLD}, ERR));
    for (int64_t t = 0; t < lp_checkpoint_count(p->catalogue); t++) {
        const lp_checkpoint_tensor *c = lp_checkpoint_at(p->catalogue, t);
        const lp_buffer b = {.data = p->data[t], .dtype = c->dtype, .ndim = c->ndim, .shape = c->shape};
        assert_ok(lp_push(s, c->name, &b, ERR));
    }
    assert_ok(lp_finish(s, NULL, ERR));
    lp_session_close(s);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(want[i].storage, x->on[i].storage, (size_t)want[i].storage_bytes) != 0)
            fail_msg("rank %d: '%s' differs", x->rank, want[i].name);
    lp_plan_close(plan);
    lp_destinations_free(memory);
}

typedef struct setting {
    lp_checkpoint *model;
    payload p;
    char path[64];
} setting;

static void open_setting(setting *x)
{
    x->model = make_model();
    x->p = make_payload(x->model, 1);
    snprintf(x->path, sizeof x->path, "cold-device-%d.safetensors", (int)getpid());
    write_checkpoint(x->path, &x->p);
}

static void close_setting(setting *x)
{
    assert_int_equal(unlink(x->path), 0);
    free_payload(&x->p);
    lp_checkpoint_close(x->model);
}

static void ranks_on_devices_read_each_byte_once(void **state)
{
    (void)state;
    setting x;
    open_setting(&x);
    for (int dp = 1; dp <= 4; dp *= 2)
        for (int tp = 1; tp <= 4; tp *= 2)
            for (int64_t bucket = 512; bucket <= 65536; bucket *= 128) {
                const int ranks = dp * tp;
                lp_trace *t = record_layout(x.model, dp, tp, false);
                for (int i = 0; i < ranks; i++)
                    open_starter(&starters[i], t, i, x.path, bucket, (uint64_t)(dp * 100 + tp));
                run_starters(ranks);
                for (int i = 0; i < ranks; i++) {
                    const starter *s = &starters[i];
                    if (s->status != LP_OK)
                        fail_msg("rank %d of %d x %d, chunks of %lld: %s: %s", i, dp, tp, (long long)bucket,
                                 lp_status_name(s->status), s->err.text);
                    assert_loaded(s, &x.p);
                    assert_int_equal(s->report.bytes_read_by_all, s->report.costs.bytes_read);
                    assert_true(s->report.bytes_read_by_all <= s->report.costs.bytes_union * 21 / 20);
                }
                for (int i = 0; i < ranks; i++)
                    close_starter(&starters[i]);
                lp_trace_close(t);
            }
    close_setting(&x);
}

/* Two ranks, of which one has a call or an allocation that fails; false when it has no n-th one. Nothing hangs, nothing
 * is left behind, and both come to the same. */
static bool start_with_failure(const setting *x, const lp_trace *t, int rank, int n, bool is_memory, int *failures)
{
    for (int i = 0; i < 2; i++)
        open_starter(&starters[i], t, i, x->path, 16384, (uint64_t)n);
    if (is_memory)
        starters[rank].memory.fail_at = n;
    else
        starters[rank].device.f.fail_at = n - 1;
    run_starters(2);
    const bool is_hit = (is_memory ? starters[rank].memory.calls : starters[rank].device.f.calls) >= n;
    assert_int_equal(starters[0].status == LP_OK, starters[1].status == LP_OK);
    if (is_memory && starters[rank].status != LP_OK)
        assert_int_equal(starters[rank].status, LP_E_MEMORY);
    for (int i = 0; i < 2 && starters[0].status == LP_OK; i++)
        assert_loaded(&starters[i], &x->p);
    *failures += starters[0].status != LP_OK;
    for (int i = 0; i < 2; i++)
        close_starter(&starters[i]);
    return is_hit;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    setting x;
    int failures = 0;
    open_setting(&x);
    lp_trace *t = record_layout(x.model, 2, 1, false);
    for (int rank = 0; rank < 2; rank++)
        for (int n = 1; start_with_failure(&x, t, rank, n, false, &failures); n++)
            continue;
    print_message("%d failing calls\n", failures);
    assert_true(failures > 100);
    lp_trace_close(t);
    close_setting(&x);
}

/* Of the ranks by turns, further and further apart. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    setting x;
    int failures = 0;
    open_setting(&x);
    lp_trace *t = record_layout(x.model, 2, 1, false);
    for (int n = 1; start_with_failure(&x, t, n % 2, n, true, &failures); n += 1 + n / 40)
        continue;
    print_message("%d failing allocations\n", failures);
    assert_true(failures > 50);
    lp_trace_close(t);
    close_setting(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_on_devices_read_each_byte_once),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
