/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions on a GPU: the oracle over random worlds, of separate and of tied destinations, in every mode, order and
 * split; chains of sessions; a captured graph that sees new sources, derives included; checks that fail; dummy values;
 * no memory is taken after bind.
 *
 *   test_device_session [WORLDS [FIRST SEED]]
 */
#include "gpu_check.h"
#include "tests/unit/session_chains.h"
#include "tests/unit/tied_worlds.h"

static uint64_t worlds = 60, first_seed = 1;

/* ---- the kit ---- */

static void *kit_take(void *context, int64_t bytes)
{
    void *memory;
    (void)context;
    CUDA(cudaMalloc(&memory, (size_t)bytes + 1));
    fill_device(memory, 0xee, (size_t)bytes);
    return memory;
}

static void kit_give(void *context, void *memory)
{
    (void)context;
    CUDA(cudaFree(memory));
}

static void kit_put(void *context, void *device, const void *host, int64_t bytes)
{
    (void)context;
    put_device(device, host, (size_t)bytes);
    CUDA(cudaDeviceSynchronize()); /* the session's stream does not wait for the default one */
}

static void kit_get(void *context, void *host, const void *device, int64_t bytes)
{
    (void)context;
    CUDA(cudaMemcpy(host, device, (size_t)bytes, cudaMemcpyDeviceToHost));
}

static void kit_bind(void *context, lp_plan **out, world *w, const lp_destination_memory *memory,
                     const lp_bind_options *o)
{
    (void)context;
    assert_ok(w, lp_bind(out, w->trace, NULL, memory, w->ndest, o, &w->err));
    assert_true(lp_plan_device_bytes(*out) > 0);
}

static void kit_settle(void *context)
{
    (void)context;
    CUDA(cudaDeviceSynchronize());
}

static device_kit open_kit(void)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return (device_kit){NULL, kit_take, kit_give, kit_put, kit_get, kit_bind, kit_settle, stream};
}

/* ---- tests ---- */

/* The first is layerwise without a spill. */
static const lp_bind_options OPTIONS[] = {{.threads = 1, .device = "cuda:0", .staging = 1 << 20},
                                          {.threads = 1, .device = "cuda:0", .staging = 1 << 16, .spill = 1 << 20},
                                          {.threads = 1, .device = "cuda:0", .staging = 8192, .spill = 1 << 16}};

static void check_worlds(void (*make)(world *w, uint64_t seed))
{
    const device_kit k = open_kit();
    for (uint64_t n = 0; n < worlds; n++)
        check_world(&k, make, first_seed + n, &OPTIONS[n % 3]);
    CUDA(cudaStreamDestroy(k.stream));
    print_message("%llu worlds\n", (unsigned long long)worlds);
}

static void test_every_mode_gives_the_model(void **state)
{
    (void)state;
    check_worlds(random_world);
}

/* Casts and fills of which later writes take parts of elements. */
static void test_the_last_write_wins_by_every_byte(void **state)
{
    (void)state;
    check_worlds(random_storage);
}

static void cold_start(chain *c)
{
    lp_cold_device d;
    assert_ok(&c->w, lp_cuda_device_open(&d, "cuda:0", &c->w.err));
    cold_start_on(c, &d);
    lp_cuda_device_close(&d);
}

static void test_chains(void **state)
{
    const device_kit k = open_kit();
    chain_counts n = {0};
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + worlds; seed++)
        run_chain(&k, seed, &OPTIONS[seed % 3], cold_start, &n);
    CUDA(cudaStreamDestroy(k.stream));
    print_message(
        "%llu chains: %d loads ended (%d of some names, %d cold starts), %d given up, %d refused; files in %d\n",
        (unsigned long long)worlds, n.ended, n.subsets, n.starts, n.given_up, n.refused_begin, n.files);
}

/* A world with copies, a cast, a check and derives of both kinds of input. */
static void make_world(world *w, bool fails)
{
    memset(w, 0, sizeof *w);
    w->random = 77;
    const int a = add_source(w, "a.weight", LP_BF16, 64, 96), b = add_source(w, "b.scale", LP_F32, 2, 24);
    const int c = add_source(w, "c.log", LP_F32, 1, 40), e = add_source(w, "e.norm", LP_BF16, 1, 96);
    const int fused = add_dest(w, "fused", LP_BF16, 64, 96, 0, "layers.0");
    const int scale = add_dest(w, "scale", LP_F32, 2, 24, 0, "layers.0"),
              most = add_dest(w, "most", LP_F32, 1, 1, 0, "layers.0");
    const int minus = add_dest(w, "minus", LP_F32, 1, 40, 0, "layers.1"),
              wide = add_dest(w, "wide", LP_F32, 1, 96, 0, "layers.1");
    add_copy(w, a, fused, 0, 64, 0);
    add_copy(w, b, scale, 0, 2, 0);
    add_copy(w, e, wide, 0, 1, 0);
    w->derive[w->nderive++] = (derive){DERIVE_MAX, most, scale, -1};
    w->derive[w->nderive++] = (derive){DERIVE_NEG_EXP, minus, -1, c};
    if (fails)
        w->derive[w->nderive++] = (derive){DERIVE_CLOSE, -1, scale, -1};
    build_world(w, NULL);
}

/* Sources are overwritten in place between launches; results lie at the addresses at which they were. */
static void test_graph(void **state)
{
    world w;
    lp_session *s;
    lp_report report;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const device_kit k = open_kit();
    const cudaStream_t stream = k.stream;
    (void)state;
    make_world(&w, false);
    image live = device_image(&k, &w), want = new_image(&w);
    payload p = make_payload(&w), device = device_payload(&k, &w, &p, 0);
    lp_plan *plan = bind_device(&k, &w, &live, &(lp_bind_options){.device = "cuda:0", .captures = true});
    lp_plan *without = bind_device(&k, &w, &live, &(lp_bind_options){.device = "cuda:0"});
    lp_handle handle[SOURCES_MAX];
    const void *data[SOURCES_MAX];
    for (int i = 0; i < w.nsource; i++) {
        handle[i] = lp_plan_handle(plan, w.source[i].name);
        data[i] = device.data[i];
    }
    const lp_session_options o = {.mode = LP_DIRECT, .stream = stream};
    assert_ok(&w, lp_begin(&s, without, &o, &w.err));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(lp_push_many(s, handle, data, w.nsource, &w.err), LP_E_MISUSE);
    assert_non_null(strstr(w.err.text, "the plan was bound without"));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
    lp_session_close(s);

    assert_ok(&w, lp_begin(&s, plan, &o, &w.err));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(lp_push_range(s, "a.weight", 0, device.data[0], 64, &w.err), LP_E_MISUSE); /* not whole */
    assert_int_equal(lp_push_range(s, "a.weight", 0, p.data[0], w.source[0].bytes, &w.err), LP_E_MISUSE);
    assert_ok(&w, lp_push_many(s, handle, data, w.nsource, &w.err));
    assert_int_equal(lp_finish(s, NULL, &w.err), LP_E_MISUSE);
    assert_non_null(strstr(w.err.text, "being captured"));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, stream));
    assert_ok(&w, lp_finish(s, &report, &w.err));
    assert_int_equal(report.derives_run, 2);
    lp_session_close(s);
    model_load(&w, &p, &want);
    assert_device_image(&k, &w, &live, &want, "the first launch");
    for (int round = 0; round < 3; round++) {
        payload next = make_payload(&w);
        for (int i = 0; i < w.nsource; i++)
            kit_put(NULL, device.data[i], next.data[i], w.source[i].bytes);
        if (round == 1) { /* an ordinary session in between uses lists of its own */
            assert_ok(&w, lp_begin(&s, plan, &o, &w.err));
            for (int i = 0; i < w.nsource; i++)
                assert_ok(&w, lp_push_many(s, &handle[i], &data[i], 1, &w.err));
            assert_ok(&w, lp_finish(s, NULL, &w.err));
            lp_session_close(s);
        }
        for (int i = 0; i < w.ndest; i++)
            fill_device(live.data[i], 0xdd, (size_t)w.dest[i].storage_bytes);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaGraphLaunch(exec, stream));
        assert_ok(&w, lp_plan_checks(plan, stream, &w.err));
        model_load(&w, &next, &want);
        assert_device_image(&k, &w, &live, &want, "a later launch");
        free_payload(&w, &next);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    lp_plan_close(plan);
    lp_plan_close(without);
    free_device_payload(&k, &w, &device, 0);
    free_device_image(&k, &w, &live);
    free_payload(&w, &p);
    free_image(&w, &want);
    free_world(&w);
    CUDA(cudaStreamDestroy(stream));
}

static void test_failed_check(void **state)
{
    world w;
    lp_session *s;
    const device_kit k = open_kit();
    (void)state;
    make_world(&w, true);
    image live = device_image(&k, &w);
    payload p = make_payload(&w);
    float *scale = (float *)(void *)p.data[1];
    for (int i = 0; i < 24; i++)
        scale[24 + i] = scale[i] = 0.5f + (float)i;
    scale[17] = 2.0f;
    lp_plan *plan = bind_device(&k, &w, &live, &(lp_bind_options){.device = "cuda:0"});
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    for (int m = 0; m < 3; m++) {
        assert_ok(&w, lp_begin(&s, plan, &(lp_session_options){.mode = modes[m], .stream = k.stream}, &w.err));
        push_all(&w, s, &p);
        assert_int_equal(lp_finish(s, NULL, &w.err), LP_E_VALUE);
        assert_string_equal(w.err.text, "w1 and w3 differ for expert 17: 2 and 17.5");
        assert_string_equal(w.err.subject, "scale");
        assert_int_equal(lp_push_range(s, "a.weight", 0, p.data[0], 1, &w.err), LP_E_POISONED);
        lp_session_close(s);
    }
    scale[17] = scale[24 + 17];
    assert_ok(&w, lp_begin(&s, plan, &(lp_session_options){.mode = LP_DIRECT}, &w.err));
    push_all(&w, s, &p);
    assert_ok(&w, lp_finish(s, NULL, &w.err));
    lp_session_close(s);
    lp_plan_close(plan);
    free_device_image(&k, &w, &live);
    free_payload(&w, &p);
    free_world(&w);
    CUDA(cudaStreamDestroy(k.stream));
}

static void test_dummy_values(void **state)
{
    world w;
    lp_session *s;
    const device_kit k = open_kit();
    (void)state;
    make_world(&w, false);
    image live = device_image(&k, &w), want = new_image(&w);
    lp_plan *plan = bind_device(&k, &w, &live, &(lp_bind_options){.device = "cuda:0"}),
            *host = bind_image(&w, &want, NULL);
    lp_plan *plans[2] = {plan, host};
    for (int i = 0; i < 2; i++) {
        assert_ok(&w, lp_begin(&s, plans[i], &(lp_session_options){.mode = LP_DUMMY}, &w.err));
        assert_ok(&w, lp_finish(s, NULL, &w.err));
        lp_session_close(s);
    }
    assert_device_image(&k, &w, &live, &want, "dummy values");
    for (uint32_t d = 0; d < lp_plan_rows(plan)->ndest; d++) {
        uint8_t a[LP_VALUE_DIGEST_BYTES], b[LP_VALUE_DIGEST_BYTES];
        assert_ok(&w, lp_plan_value_digest(plan, d, a, &w.err));
        assert_ok(&w, lp_plan_value_digest(host, d, b, &w.err));
        assert_memory_equal(a, b, sizeof a);
    }
    lp_plan_close(plan);
    lp_plan_close(host);
    free_device_image(&k, &w, &live);
    free_image(&w, &want);
    free_world(&w);
    CUDA(cudaStreamDestroy(k.stream));
}

/* Free memory is the same before a session and after it, and while it runs. */
static void test_memory_is_taken_at_bind(void **state)
{
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    world w;
    lp_session *s;
    size_t before, during, after, total;
    const device_kit k = open_kit();
    (void)state;
    make_world(&w, false);
    image live = device_image(&k, &w);
    payload p = make_payload(&w), device = device_payload(&k, &w, &p, 0);
    lp_plan *plan =
        bind_device(&k, &w, &live, &(lp_bind_options){.device = "cuda:0", .staging = 8 << 20, .spill = 1 << 20});
    for (int round = 0; round < 2; round++) /* the first round loads kernels, which takes memory of the context */
        for (int m = 0; m < 3; m++) {
            CUDA(cudaDeviceSynchronize());
            CUDA(cudaMemGetInfo(&before, &total));
            assert_ok(&w, lp_begin(&s, plan, &(lp_session_options){.mode = modes[m], .stream = k.stream}, &w.err));
            for (int i = 0; i < w.nsource; i++) {
                const int64_t half = w.source[i].bytes / 2;
                assert_ok(&w, lp_push_range(s, w.source[i].name, half, device.data[i] + half, w.source[i].bytes - half,
                                            &w.err));
                assert_ok(&w, lp_push_range(s, w.source[i].name, 0, p.data[i], half, &w.err));
            }
            CUDA(cudaMemGetInfo(&during, &total));
            assert_ok(&w, lp_finish(s, NULL, &w.err));
            lp_session_close(s);
            CUDA(cudaMemGetInfo(&after, &total));
            if (round == 1) {
                assert_int_equal(before, during);
                assert_int_equal(before, after);
            }
        }
    lp_plan_close(plan);
    free_device_payload(&k, &w, &device, 0);
    free_device_image(&k, &w, &live);
    free_payload(&w, &p);
    free_world(&w);
    CUDA(cudaStreamDestroy(k.stream));
}

/* Destinations in host memory, and devices that are not there. */
static void test_refusals(void **state)
{
    world w;
    (void)state;
    make_world(&w, false);
    image host = new_image(&w);
    lp_destination_memory memory[DESTS_MAX];
    for (int i = 0; i < w.ndest; i++)
        memory[i] = (lp_destination_memory){.name = w.dest[i].name,
                                            .dtype = w.dest[i].dtype,
                                            .ndim = 2,
                                            .shape = w.dest[i].shape,
                                            .stride = w.dest[i].stride,
                                            .data = host.data[i],
                                            .storage = host.data[i]};
    lp_plan *plan = NULL;
    assert_int_equal(lp_bind(&plan, w.trace, NULL, memory, w.ndest, &(lp_bind_options){.device = "cuda:0"}, &w.err),
                     LP_E_MISMATCH);
    assert_non_null(strstr(w.err.text, "does not lie in the memory of 'cuda:0'"));
    assert_int_equal(lp_bind(&plan, w.trace, NULL, memory, w.ndest, &(lp_bind_options){.device = "cuda:99"}, &w.err),
                     LP_E_DEVICE);
    assert_int_equal(lp_bind(&plan, w.trace, NULL, memory, w.ndest, &(lp_bind_options){.device = "tpu"}, &w.err),
                     LP_E_DEVICE);
    free_image(&w, &host);
    free_world(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_failed_check),
        cmocka_unit_test(test_dummy_values),
        cmocka_unit_test(test_memory_is_taken_at_bind),
        cmocka_unit_test(test_every_mode_gives_the_model),
        cmocka_unit_test(test_the_last_write_wins_by_every_byte),
        cmocka_unit_test(test_chains),
    };
    need_gpu();
    if (argc > 1)
        worlds = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
