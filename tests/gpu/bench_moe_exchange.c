/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the exchange adds: a call over all GPUs against lp_megamoe on the work that each rank has after dispatch (the
 * tokens of all ranks, its own experts), both timed on all GPUs at once, from a common start with the L2 cache flushed
 * by reads. The time of a call is that of the slowest rank. y is compared with one GPU that holds all experts, bit by
 * bit, and the links are measured by peer copies in the same run. One JSON object a line.
 *
 *   bench_moe_exchange [--gpus N] [--formats mxfp4,..] [--shapes flash,..] [--tokens 8,..] [--launches N] [--no-check]
 */
#include "gpu_testing.h"
#include "kernels/exchange_private.h"
#include "kernels/megamoe_bench.h"
#include "moe_forms.h"

#include <string.h>

int read_ceiling(const void *data, size_t bytes, void *out, void *stream);

enum { MOST_GPUS = 8, MOST_LAUNCHES = 101, EXPERTS_MOST = 512 };

static const size_t FLUSH_BYTES = (size_t)512 << 20, COPY_BYTES = (size_t)256 << 20;

typedef struct model {
    const char *name;
    int64_t experts, hidden, intermediate, top_k; /* experts of a rank */
} model;

static const model models[] = {{"tiny", 4, 512, 256, 2}, {"flash", 32, 4096, 2048, 6}, {"pro", 48, 7168, 3072, 6}};

typedef struct gpu_state {
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *flush, *sink;
    lp_moe_exchange gate; /* where ranks start together */
    lp_megamoe_weights weights;
    lp_megamoe_shape shape, single_shape;
    lp_megamoe_io io, single_io;
    lp_moe_exchange exchange;
    void *workspace;
    int64_t workspace_bytes;
    cudaGraphExec_t graph, single_graph;
    void *owned[40];
    int count;
} gpu_state;

static gpu_state gpu[MOST_GPUS];
static int gpus, launches = 21, is_checked = 1;

static void *take(int g, size_t bytes)
{
    void *memory;
    CUDA(cudaSetDevice(g));
    CUDA(cudaMalloc(&memory, bytes));
    gpu[g].owned[gpu[g].count++] = memory;
    return memory;
}

static void give_back(int g)
{
    CUDA(cudaSetDevice(g));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < gpu[g].count; i++)
        CUDA(cudaFree(gpu[g].owned[i]));
    gpu[g].count = 0;
}

/* ---- a layer: all experts on GPU 0, a rank's own on each ---- */

static lp_megamoe_shape shape_of(const model *m, lp_moe_format format, int64_t experts, int64_t tokens)
{
    return (lp_megamoe_shape){.size = sizeof(lp_megamoe_shape),
                              .experts = experts,
                              .hidden = m->hidden,
                              .intermediate = m->intermediate,
                              .top_k = m->top_k,
                              .max_tokens = tokens,
                              .format = format,
                              .x_dtype = LP_BF16,
                              .id_dtype = LP_I32};
}

/* Experts [first, first + experts) of `all`, which are on GPU 0, or of random numbers where it is NULL. */
static void make_weights(int g, lp_megamoe_weights *out, const lp_megamoe_shape *shape, const lp_megamoe_weights *all,
                         int64_t first)
{
    lp_error err;
    const lp_layout_sizes sizes = {shape->experts, shape->hidden, shape->intermediate};
    *out = (lp_megamoe_weights){.size = sizeof *out};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        const char *const id = lp_megamoe_layout(shape->format, (lp_moe_slot)slot, 0);
        lp_layout_shape form;
        if (id == NULL)
            continue;
        CHECK(lp_layout_describe(lp_layout_find(id), &sizes, &form, &err) == LP_OK, "%s", err.text);
        void *const data = take(g, (size_t)form.bytes);
        if (all == NULL)
            CUDA(lp_moe_bench_fill(data, form.bytes, lp_moe_bench_kind(shape->format, slot), NULL));
        else
            CUDA(cudaMemcpy(data, (const char *)all->tensor[slot].data + first * (form.bytes / shape->experts),
                            (size_t)form.bytes, cudaMemcpyDefault));
        CHECK(lp_megamoe_tensor_in(&out->tensor[slot], shape, id, data, &err) == LP_OK, "%s", err.text);
    }
    if (shape->format != LP_NVFP4)
        return;
    float *const l1 = take(g, EXPERTS_MOST * 8), *const l2 = take(g, EXPERTS_MOST * 4);
    if (all == NULL) {
        CUDA(lp_moe_bench_fill(l1, EXPERTS_MOST * 8, LP_MOE_RANDOM_F32, NULL));
        CUDA(lp_moe_bench_fill(l2, EXPERTS_MOST * 4, LP_MOE_RANDOM_F32, NULL));
    } else {
        CUDA(cudaMemcpy(l1, all->l1_alpha + 2 * first, (size_t)shape->experts * 8, cudaMemcpyDefault));
        CUDA(cudaMemcpy(l2, all->l2_alpha + first, (size_t)shape->experts * 4, cudaMemcpyDefault));
    }
    out->l1_alpha = l1, out->l2_alpha = l2, out->l1_alpha_columns = 2;
}

/* ---- tokens ---- */

/* top_k different ones of all experts for each token, or none. */
static int32_t *choose(const model *m, int64_t tokens, bool is_masked)
{
    const int64_t all = m->experts * gpus;
    uint64_t state = 1 + (uint64_t)tokens;
    int32_t *const ids = malloc((size_t)(tokens * m->top_k) * sizeof *ids);
    CHECK(ids != NULL, "out of memory");
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < m->top_k; j++) {
            bool is_new;
            do {
                ids[t * m->top_k + j] = (int32_t)random_below(&state, all);
                is_new = true;
                for (int64_t i = 0; i < j; i++)
                    is_new = is_new && ids[t * m->top_k + i] != ids[t * m->top_k + j];
            } while (!is_new);
        }
    for (int64_t i = 0; is_masked && i < tokens * m->top_k; i++)
        ids[i] = -1;
    return ids;
}

/* Tokens of all ranks on each GPU: the single call takes all, the exchange those of its rank. */
static void make_tokens(int g, const model *m, int64_t tokens, const int32_t *ids)
{
    const int64_t all = tokens * gpus, k = m->top_k;
    const int32_t count[2] = {(int32_t)tokens, (int32_t)all};
    char *const x = take(g, (size_t)(all * m->hidden * 2)), *const y = take(g, (size_t)(all * m->hidden * 2));
    int32_t *const id = take(g, (size_t)(all * k * 4)), *const counts = take(g, sizeof count);
    float *const weight = take(g, (size_t)(all * k * 4));
    CUDA(lp_moe_bench_fill(x, all * m->hidden * 2, LP_MOE_RANDOM_BF16, NULL));
    CUDA(lp_moe_bench_fill(weight, all * k * 4, LP_MOE_RANDOM_F32, NULL));
    CUDA(cudaMemcpy(id, ids, (size_t)(all * k * 4), cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(counts, count, sizeof count, cudaMemcpyHostToDevice));
    gpu[g].single_io = (lp_megamoe_io){
        .size = sizeof(lp_megamoe_io), .x = x, .topk_ids = id, .topk_weight = weight, .tokens = counts + 1, .y = y};
    gpu[g].io = (lp_megamoe_io){.size = sizeof(lp_megamoe_io),
                                .x = x + g * tokens * m->hidden * 2,
                                .topk_ids = id + g * tokens * k,
                                .topk_weight = weight + g * tokens * k,
                                .tokens = counts,
                                .y = take(g, (size_t)(tokens * m->hidden * 2))};
}

static void run_single(int g)
{
    lp_error err;
    const gpu_state *const s = &gpu[g];
    CHECK(lp_megamoe(&s->single_shape, &s->weights, &s->single_io, s->workspace, s->workspace_bytes, s->stream, &err) ==
              LP_OK,
          "%s", err.text);
}

static void run_exchange(int g)
{
    lp_error err;
    const gpu_state *const s = &gpu[g];
    CHECK(lp_moe_exchange_run(&s->shape, &s->weights, &s->io, &s->exchange, s->workspace, s->workspace_bytes, s->stream,
                              &err) == LP_OK,
          "%s", err.text);
}

static cudaGraphExec_t capture(int g, void (*run)(int g))
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaSetDevice(g));
    CUDA(cudaStreamBeginCapture(gpu[g].stream, cudaStreamCaptureModeRelaxed));
    run(g);
    CUDA(cudaStreamEndCapture(gpu[g].stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void make_calls(const model *m, lp_moe_format format, int64_t tokens)
{
    lp_error err;
    void *buffer[MOST_GPUS];
    int64_t bytes = 0;
    for (int g = 0; g < gpus; g++) {
        gpu_state *const s = &gpu[g];
        s->shape = shape_of(m, format, m->experts, tokens);
        s->single_shape = shape_of(m, format, m->experts, tokens * gpus);
        s->single_shape.first_expert = g * m->experts;
        const int64_t one = lp_moe_exchange_workspace(&s->shape, gpus, &err);
        CHECK(one > 0, "%s", err.text);
        const int64_t other = lp_megamoe_workspace(&s->single_shape, &err);
        CHECK(other > 0, "%s", err.text);
        s->workspace_bytes = one > other ? one : other;
        s->workspace = take(g, (size_t)s->workspace_bytes);
        bytes = lp_moe_exchange_bytes(&s->shape, gpus, &err);
        buffer[g] = take(g, (size_t)bytes);
        CHECK(lp_moe_exchange_clear(buffer[g], bytes, s->stream, &err) == LP_OK, "%s", err.text);
        CUDA(cudaStreamSynchronize(s->stream));
    }
    for (int g = 0; g < gpus; g++) {
        lp_moe_exchange *const e = &gpu[g].exchange;
        *e = (lp_moe_exchange){
            .size = sizeof *e, .rank = g, .ranks = gpus, .timeout_ns = 5000000000, .buffer_bytes = bytes};
        memcpy(e->buffer, buffer, sizeof buffer);
        gpu[g].graph = capture(g, run_exchange);
        gpu[g].single_graph = capture(g, run_single);
    }
}

/* ---- timing ---- */

static void open_gates(void)
{
    void *buffer[MOST_GPUS];
    lp_error err;
    for (int g = 0; g < gpus; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaMalloc(&buffer[g], sizeof(lp_moe_exchange_header)));
        CUDA(cudaStreamCreateWithFlags(&gpu[g].stream, cudaStreamNonBlocking));
        CUDA(cudaEventCreate(&gpu[g].from));
        CUDA(cudaEventCreate(&gpu[g].to));
        CUDA(cudaMalloc((void **)&gpu[g].flush, FLUSH_BYTES));
        CUDA(cudaMalloc((void **)&gpu[g].sink, 256));
        CUDA(cudaMemset(gpu[g].flush, 1, FLUSH_BYTES));
        CHECK(lp_moe_fill_header(buffer[g], gpu[g].stream, &err) == LP_OK, "%s", err.text);
        CUDA(cudaDeviceSynchronize());
    }
    for (int g = 0; g < gpus; g++) {
        gpu[g].gate = (lp_moe_exchange){.size = sizeof gpu[g].gate, .rank = g, .ranks = gpus, .timeout_ns = 5000000000};
        memcpy(gpu[g].gate.buffer, buffer, sizeof buffer);
    }
}

static int by_float(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct timing_of_all {
    double slowest, fastest; /* of the ranks' medians, seconds */
} timing_of_all;

/* All GPUs meet, flush their caches, meet again, and run: the host is far ahead by then. */
static timing_of_all timed(bool is_single)
{
    static float ms[MOST_GPUS][MOST_LAUNCHES];
    lp_error err;
    for (int i = -2; i < launches; i++) {
        for (int stage = 0; stage < 2; stage++)
            for (int g = 0; g < gpus; g++) {
                gpu_state *const s = &gpu[g];
                CUDA(cudaSetDevice(g));
                CHECK(lp_moe_meet(&s->gate, 1, s->stream, &err) == LP_OK, "%s", err.text);
                if (stage == 0) {
                    for (int n = 0; n < 2 + gpus / 2; n++)
                        CUDA(read_ceiling(s->flush, FLUSH_BYTES, s->sink, s->stream));
                    continue;
                }
                CUDA(cudaEventRecord(s->from, s->stream));
                CUDA(cudaGraphLaunch(is_single ? s->single_graph : s->graph, s->stream));
                CUDA(cudaEventRecord(s->to, s->stream));
            }
        for (int g = 0; g < gpus; g++) {
            float t;
            CUDA(cudaSetDevice(g));
            CUDA(cudaEventSynchronize(gpu[g].to));
            CUDA(cudaEventElapsedTime(&t, gpu[g].from, gpu[g].to));
            if (i >= 0)
                ms[g][i] = t;
        }
    }
    timing_of_all all = {0, 1e9};
    for (int g = 0; g < gpus; g++) {
        qsort(ms[g], (size_t)launches, sizeof ms[g][0], by_float);
        const double median = (double)ms[g][launches / 2] * 1e-3;
        all.slowest = median > all.slowest ? median : all.slowest;
        all.fastest = median < all.fastest ? median : all.fastest;
    }
    return all;
}

/* Bytes a second from each GPU to the next, all at once. */
static double measure_links(void)
{
    char *memory[MOST_GPUS];
    double slowest = 0;
    if (gpus < 2)
        return 0;
    for (int g = 0; g < gpus; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaMalloc((void **)&memory[g], 2 * COPY_BYTES));
    }
    for (int i = 0; i < 4; i++)
        for (int g = 0; g < gpus; g++) {
            const int to = (g + 1) % gpus;
            CUDA(cudaSetDevice(g));
            CUDA(cudaEventRecord(gpu[g].from, gpu[g].stream));
            CUDA(cudaMemcpyPeerAsync(memory[to] + COPY_BYTES, to, memory[g], g, COPY_BYTES, gpu[g].stream));
            CUDA(cudaEventRecord(gpu[g].to, gpu[g].stream));
        }
    for (int g = 0; g < gpus; g++) {
        float ms;
        CUDA(cudaSetDevice(g));
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaEventElapsedTime(&ms, gpu[g].from, gpu[g].to));
        slowest = (double)ms * 1e-3 > slowest ? (double)ms * 1e-3 : slowest;
    }
    for (int g = 0; g < gpus; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaFree(memory[g]));
    }
    return (double)COPY_BYTES / slowest;
}

/* ---- one line ---- */

/* Tokens whose y has other bits than on GPU 0 with all experts. */
static int64_t different_tokens(const model *m, const lp_megamoe_weights *all, int64_t tokens)
{
    lp_error err;
    const int before = gpu[0].count;
    const int64_t every = tokens * gpus, row = m->hidden * 2;
    const lp_megamoe_shape shape = shape_of(m, gpu[0].shape.format, m->experts * gpus, every);
    const int64_t bytes = lp_megamoe_workspace(&shape, &err);
    CHECK(bytes > 0, "%s", err.text);
    void *const workspace = take(0, (size_t)bytes);
    CHECK(lp_megamoe(&shape, all, &gpu[0].single_io, workspace, bytes, gpu[0].stream, &err) == LP_OK, "%s", err.text);
    CUDA(cudaStreamSynchronize(gpu[0].stream));
    char *const want = malloc((size_t)(every * row)), *const got = malloc((size_t)(every * row));
    CHECK(want != NULL && got != NULL, "out of memory");
    CUDA(cudaMemcpy(want, gpu[0].single_io.y, (size_t)(every * row), cudaMemcpyDeviceToHost));
    for (int g = 0; g < gpus; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaMemcpy(got + g * tokens * row, gpu[g].io.y, (size_t)(tokens * row), cudaMemcpyDeviceToHost));
    }
    int64_t different = 0;
    for (int64_t t = 0; t < every; t++)
        different += memcmp(want + t * row, got + t * row, (size_t)row) != 0;
    free(want);
    free(got);
    CUDA(cudaSetDevice(0));
    while (gpu[0].count > before)
        CUDA(cudaFree(gpu[0].owned[--gpu[0].count]));
    return different;
}

static void use_ids(const model *m, int64_t tokens, const int32_t *ids)
{
    for (int g = 0; g < gpus; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaMemcpy((void *)(uintptr_t)gpu[g].single_io.topk_ids, ids, (size_t)(tokens * gpus * m->top_k * 4),
                        cudaMemcpyHostToDevice));
    }
}

static int bench(const char *name, const model *m, lp_moe_format format, const lp_megamoe_weights *all, int64_t tokens)
{
    lp_error err;
    int before[MOST_GPUS];
    int32_t *const ids = choose(m, tokens * gpus, false), *const none = choose(m, tokens * gpus, true);
    for (int g = 0; g < gpus; g++) {
        before[g] = gpu[g].count;
        make_tokens(g, m, tokens, ids);
    }
    make_calls(m, format, tokens);
    const timing_of_all single = timed(true), both = timed(false);
    int64_t different = -1;
    if (is_checked)
        different = different_tokens(m, all, tokens);
    use_ids(m, tokens, none);
    const timing_of_all empty_single = timed(true), empty = timed(false);
    for (int g = 0; g < gpus; g++) {
        lp_moe_failure failure;
        CUDA(cudaSetDevice(g));
        CHECK(lp_moe_exchange_failure(&gpu[g].exchange, gpu[g].stream, &failure, &err) == LP_OK, "%s", err.text);
        CUDA(cudaGraphExecDestroy(gpu[g].graph));
        CUDA(cudaGraphExecDestroy(gpu[g].single_graph));
        while (gpu[g].count > before[g])
            CUDA(cudaFree(gpu[g].owned[--gpu[g].count]));
    }
    printf("{\"format\": \"%s\", \"shape\": \"%s\", \"gpus\": %d, \"tokens\": %lld, \"exchange_us\": %.1f, "
           "\"fastest_rank_us\": %.1f, \"single_us\": %.1f, \"added\": %.3f, \"no_routes_us\": %.1f, "
           "\"no_routes_single_us\": %.1f, \"different_tokens\": %lld}\n",
           name, m->name, gpus, (long long)tokens, both.slowest * 1e6, both.fastest * 1e6, single.slowest * 1e6,
           both.slowest / single.slowest - 1, empty.slowest * 1e6, empty_single.slowest * 1e6, (long long)different);
    fflush(stdout);
    free(ids);
    free(none);
    return different > 0;
}

static void use_peers(void)
{
    for (int i = 0; i < gpus; i++)
        for (int j = 0; j < gpus; j++)
            if (i != j) {
                CUDA(cudaSetDevice(i));
                CUDA(cudaDeviceEnablePeerAccess(j, 0));
            }
}

int main(int argc, char **argv)
{
    const char *formats = "mxfp4,nvfp4,fp8", *shapes = "flash,pro", *counts = "8,64,512,4096";
    int failed = 0, wanted = MOST_GPUS;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* as in test_moe_exchange.c */
    for (int i = 1; i < argc; i++) {
        const char *const value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--no-check") == 0)
            is_checked = 0;
        else if (strcmp(argv[i], "--gpus") == 0)
            wanted = atoi(value), i++;
        else if (strcmp(argv[i], "--formats") == 0)
            formats = value, i++;
        else if (strcmp(argv[i], "--shapes") == 0)
            shapes = value, i++;
        else if (strcmp(argv[i], "--tokens") == 0)
            counts = value, i++;
        else if (strcmp(argv[i], "--launches") == 0)
            launches = atoi(value), i++;
        else
            CHECK(false, "unknown option %s", argv[i]);
    }
    launches = launches < 1 || launches > MOST_LAUNCHES ? 21 : launches;
    need_gpu();
    CUDA(cudaGetDeviceCount(&gpus));
    gpus = wanted >= 1 && wanted < gpus ? wanted : gpus > MOST_GPUS ? MOST_GPUS : gpus;
    use_peers();
    open_gates();
    printf("{\"gpus\": %d, \"launches\": %d, \"link_gb_per_s\": %.0f}\n", gpus, launches, measure_links() * 1e-9);
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
            const model *const m = &models[i];
            lp_megamoe_weights all;
            if (!is_listed(formats, forms[f].name) || !is_listed(shapes, m->name))
                continue;
            const lp_megamoe_shape whole = shape_of(m, forms[f].format, m->experts * gpus, 1),
                                   own = shape_of(m, forms[f].format, m->experts, 1);
            make_weights(0, &all, &whole, NULL, 0);
            CUDA(cudaDeviceSynchronize());
            for (int g = 0; g < gpus; g++)
                make_weights(g, &gpu[g].weights, &own, &all, g * m->experts);
            for (const char *at = counts; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                failed += bench(forms[f].name, m, forms[f].format, &all, atoll(at));
            for (int g = 0; g < gpus; g++)
                give_back(g);
        }
    return failed == 0 ? 0 : 1;
}
