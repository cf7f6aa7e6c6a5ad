/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the exchange adds: a call over all ranks against lp_megamoe on the work that each rank has after dispatch (the
 * tokens of all ranks, its own experts), both timed on all GPUs at once, from a common start with the L2 cache flushed
 * by reads. The time of a call is that of the slowest rank. y is compared with one GPU that holds all experts, bit by
 * bit, and the links are measured by peer copies in the same run. One JSON object a line.
 *
 *   bench_moe_exchange [--ranks N] [--formats mxfp4,..] [--shapes flash,..] [--tokens 8,..] [--balance even,..]
 *                      [--launches N] [--no-check]
 *
 * --tokens: of a rank, on average. --balance: how tokens and routes are spread over ranks (even; rank 0 holds half of
 * the tokens; rank 0's experts get half of the routes; of two ranks three quarters, since half is even). More ranks
 * than GPUs share them: then the work of all ranks, one after the other, stands against the call of all.
 */
#include "exchange_ranks.h"

#include <string.h>

int read_ceiling(const void *data, size_t bytes, void *out, void *stream);

enum { MOST_LAUNCHES = 101 };

static const size_t FLUSH_BYTES = (size_t)512 << 20, COPY_BYTES = (size_t)256 << 20;
static int launches = 21, is_checked = 1;

/* ---- timing ---- */

static void open_gates(void)
{
    void *buffer[MOST_RANKS];
    lp_error err;
    for (int g = 0; g < ranks; g++) {
        use_gpu_of(g);
        CUDA(cudaMalloc(&buffer[g], sizeof(lp_moe_exchange_header)));
        CUDA(cudaStreamCreateWithFlags(&rank[g].stream, cudaStreamNonBlocking));
        CUDA(cudaEventCreate(&rank[g].from));
        CUDA(cudaEventCreate(&rank[g].to));
        CUDA(cudaMalloc((void **)&rank[g].flush, FLUSH_BYTES));
        CUDA(cudaMalloc((void **)&rank[g].sink, 256));
        fill_device(rank[g].flush, 1, FLUSH_BYTES);
        CHECK(lp_moe_fill_header(buffer[g], rank[g].stream, &err) == LP_OK, "%s", err.text);
        CUDA(cudaDeviceSynchronize());
    }
    for (int g = 0; g < ranks; g++) {
        rank[g].gate =
            (lp_moe_exchange){.size = sizeof rank[g].gate, .rank = g, .ranks = ranks, .timeout_ns = 5000000000};
        memcpy(rank[g].gate.buffer, buffer, sizeof buffer);
    }
}

static int by_float(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct timing_of_all {
    double slowest, fastest, sum; /* of the ranks' medians, seconds */
} timing_of_all;

/* Ranks that share a GPU take turns with what each does alone. */
static cudaStream_t stream_of(int g, bool is_single)
{
    return rank[is_single ? g % gpus : g].stream;
}

/* All ranks meet, flush their caches, meet again, and run: the host is far ahead by then. */
static timing_of_all timed(bool is_single)
{
    static float ms[MOST_RANKS][MOST_LAUNCHES];
    lp_error err;
    for (int i = -2; i < launches; i++) {
        for (int stage = 0; stage < 2; stage++)
            for (int g = 0; g < ranks; g++) {
                rank_state *const s = &rank[g];
                use_gpu_of(g);
                CHECK(lp_moe_meet(&s->gate, 1, s->stream, &err) == LP_OK, "%s", err.text);
                if (stage == 0) {
                    for (int n = 0; n < 2 + ranks / 2; n++)
                        CUDA(read_ceiling(s->flush, FLUSH_BYTES, s->sink, s->stream));
                    continue;
                }
                const cudaStream_t stream = stream_of(g, is_single);
                CUDA(cudaEventRecord(s->from, stream));
                CUDA(cudaGraphLaunch(is_single ? s->single_graph : s->graph, stream));
                CUDA(cudaEventRecord(s->to, stream));
            }
        for (int g = 0; g < ranks; g++) {
            float t;
            use_gpu_of(g);
            CUDA(cudaEventSynchronize(rank[g].to));
            CUDA(cudaEventElapsedTime(&t, rank[g].from, rank[g].to));
            if (i >= 0)
                ms[g][i] = t;
        }
    }
    timing_of_all all = {0, 1e9, 0};
    for (int g = 0; g < ranks; g++) {
        qsort(ms[g], (size_t)launches, sizeof ms[g][0], by_float);
        const double median = (double)ms[g][launches / 2] * 1e-3;
        all.slowest = median > all.slowest ? median : all.slowest;
        all.fastest = median < all.fastest ? median : all.fastest;
        all.sum += median;
    }
    return all;
}

/* Bytes a second from each GPU to the next, all at once. */
static double measure_links(void)
{
    char *memory[MOST_RANKS];
    double slowest = 0;
    if (ranks < 2 || is_shared())
        return 0;
    for (int g = 0; g < ranks; g++) {
        use_gpu_of(g);
        CUDA(cudaMalloc((void **)&memory[g], 2 * COPY_BYTES));
    }
    for (int i = 0; i < 4; i++)
        for (int g = 0; g < ranks; g++) {
            const int to = (g + 1) % ranks;
            use_gpu_of(g);
            CUDA(cudaEventRecord(rank[g].from, rank[g].stream));
            CUDA(cudaMemcpyPeerAsync(memory[to] + COPY_BYTES, to, memory[g], g, COPY_BYTES, rank[g].stream));
            CUDA(cudaEventRecord(rank[g].to, rank[g].stream));
        }
    for (int g = 0; g < ranks; g++) {
        float ms;
        use_gpu_of(g);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaEventElapsedTime(&ms, rank[g].from, rank[g].to));
        slowest = (double)ms * 1e-3 > slowest ? (double)ms * 1e-3 : slowest;
    }
    for (int g = 0; g < ranks; g++) {
        use_gpu_of(g);
        CUDA(cudaFree(memory[g]));
    }
    return (double)COPY_BYTES / slowest;
}

/* ---- one line ---- */

/* Tokens whose y has other bits than on GPU 0 with all experts. */
static int64_t different_tokens(const model *m, const lp_megamoe_weights *all, int64_t every)
{
    lp_error err;
    const int before = rank[0].count;
    const int64_t row = m->hidden * 2;
    const lp_megamoe_shape shape = shape_of(m, rank[0].shape.format, m->experts * ranks, every);
    const int64_t bytes = lp_megamoe_workspace(&shape, &err);
    CHECK(bytes > 0, "%s", err.text);
    void *const workspace = take(0, (size_t)bytes);
    CHECK(lp_megamoe(&shape, all, &rank[0].single_io, workspace, bytes, rank[0].stream, &err) == LP_OK, "%s", err.text);
    CUDA(cudaStreamSynchronize(rank[0].stream));
    char *const want = malloc((size_t)(every * row)), *const got = malloc((size_t)(every * row));
    CHECK(want != NULL && got != NULL, "out of memory");
    CUDA(cudaMemcpy(want, rank[0].single_io.y, (size_t)(every * row), cudaMemcpyDeviceToHost));
    for (int g = 0; g < ranks; g++) {
        use_gpu_of(g);
        CUDA(cudaMemcpy(got + rank[g].first_token * row, rank[g].io.y, (size_t)(rank[g].tokens * row),
                        cudaMemcpyDeviceToHost));
    }
    int64_t different = 0;
    for (int64_t t = 0; t < every; t++)
        different += memcmp(want + t * row, got + t * row, (size_t)row) != 0;
    free(want);
    free(got);
    use_gpu_of(0);
    while (rank[0].count > before)
        CUDA(cudaFree(rank[0].owned[--rank[0].count]));
    return different;
}

static void use_ids(const model *m, int64_t all, const int32_t *ids)
{
    for (int g = 0; g < ranks; g++) {
        use_gpu_of(g);
        put_device((void *)(uintptr_t)rank[g].single_io.topk_ids, ids, (size_t)(all * m->top_k * 4));
    }
}

static void free_calls(const int *before)
{
    for (int g = 0; g < ranks; g++) {
        lp_moe_failure failure;
        lp_error err;
        use_gpu_of(g);
        CHECK(lp_moe_exchange_failure(&rank[g].exchange, rank[g].stream, &failure, &err) == LP_OK, "%s", err.text);
        CUDA(cudaGraphExecDestroy(rank[g].graph));
        CUDA(cudaGraphExecDestroy(rank[g].single_graph));
        while (rank[g].count > before[g])
            CUDA(cudaFree(rank[g].owned[--rank[g].count]));
    }
}

static double alone(timing_of_all t)
{
    return is_shared() ? t.sum : t.slowest;
}

static int bench(const char *name, const model *m, lp_moe_format format, const lp_megamoe_weights *all, int64_t tokens,
                 balance b)
{
    const int64_t every = tokens * ranks;
    int before[MOST_RANKS];
    int32_t *const ids = choose(m, every, b, false), *const none = choose(m, every, b, true);
    spread_tokens(tokens, b);
    for (int g = 0; g < ranks; g++) {
        before[g] = rank[g].count;
        make_tokens(g, m, every, ids);
    }
    make_calls(m, format, every);
    const timing_of_all single = timed(true), both = timed(false);
    const int64_t different = is_checked ? different_tokens(m, all, every) : -1;
    use_ids(m, every, none);
    const timing_of_all empty_single = timed(true), empty = timed(false);
    free_calls(before);
    printf("{\"format\": \"%s\", \"shape\": \"%s\", \"gpus\": %d, \"ranks\": %d, \"tokens\": %lld, "
           "\"balance\": \"%s\", \"most_tokens\": %lld, \"most_routes\": %.3f, \"exchange_us\": %.1f, "
           "\"fastest_rank_us\": %.1f, \"single_us\": %.1f, \"added\": %.3f, \"no_routes_us\": %.1f, "
           "\"no_routes_single_us\": %.1f, \"different_tokens\": %lld}\n",
           name, m->name, gpus, ranks, (long long)tokens, balance_names[b], (long long)most_tokens(),
           most_routes(m, every, ids), both.slowest * 1e6, both.fastest * 1e6, alone(single) * 1e6,
           both.slowest / alone(single) - 1, empty.slowest * 1e6, alone(empty_single) * 1e6, (long long)different);
    fflush(stdout);
    free(ids);
    free(none);
    return different > 0;
}

/* Every number of tokens, with every balance. */
static int bench_all(const char *name, const model *m, lp_moe_format format, const lp_megamoe_weights *all,
                     const char *counts, const char *balances)
{
    int failed = 0;
    for (const char *at = counts; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        for (int b = 0; b < BALANCES; b++)
            if (is_listed(balances, balance_names[b]))
                failed += bench(name, m, format, all, atoll(at), (balance)b);
    return failed;
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
    const char *formats = "mxfp4,nvfp4,fp8", *shapes = "flash,pro", *counts = "8,64,512,4096", *balances = "even";
    int failed = 0, wanted = 0;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* as in test_moe_exchange.c */
    for (int i = 1; i < argc; i++) {
        const char *const value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--no-check") == 0)
            is_checked = 0;
        else if (strcmp(argv[i], "--ranks") == 0)
            wanted = atoi(value), i++;
        else if (strcmp(argv[i], "--formats") == 0)
            formats = value, i++;
        else if (strcmp(argv[i], "--shapes") == 0)
            shapes = value, i++;
        else if (strcmp(argv[i], "--tokens") == 0)
            counts = value, i++;
        else if (strcmp(argv[i], "--balance") == 0)
            balances = value, i++;
        else if (strcmp(argv[i], "--launches") == 0)
            launches = atoi(value), i++;
        else
            CHECK(false, "unknown option %s", argv[i]);
    }
    launches = launches < 1 || launches > MOST_LAUNCHES ? 21 : launches;
    need_gpu();
    CUDA(cudaGetDeviceCount(&gpus));
    ranks = wanted >= 1 && wanted <= MOST_RANKS ? wanted : gpus > MOST_RANKS ? MOST_RANKS : gpus;
    gpus = ranks < gpus ? ranks : gpus;
    use_peers();
    open_gates();
    printf("{\"gpus\": %d, \"ranks\": %d, \"launches\": %d, \"link_gb_per_s\": %.0f}\n", gpus, ranks, launches,
           measure_links() * 1e-9);
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
            const model *const m = &models[i];
            lp_megamoe_weights all;
            if (!is_listed(formats, forms[f].name) || !is_listed(shapes, m->name))
                continue;
            const lp_megamoe_shape whole = shape_of(m, forms[f].format, m->experts * ranks, 1),
                                   own = shape_of(m, forms[f].format, m->experts, 1);
            make_weights(0, &all, &whole, NULL, 0);
            CUDA(cudaDeviceSynchronize());
            for (int g = 0; g < ranks; g++)
                make_weights(g, &rank[g].weights, &own, &all, g * m->experts);
            failed += bench_all(forms[f].name, m, forms[f].format, &all, counts, balances);
            for (int g = 0; g < ranks; g++)
                give_back(g);
        }
    return failed == 0 ? 0 : 1;
}
