/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of an exchange for its bench: experts of random numbers, tokens spread over ranks evenly or not, and both calls
 * of each rank as graphs. */
#ifndef EXCHANGE_RANKS_H
#define EXCHANGE_RANKS_H

#include "gpu_testing.h"
#include "kernels/exchange_private.h"
#include "kernels/megamoe_bench.h"
#include "moe_forms.h"

enum { MOST_RANKS = 8, EXPERTS_MOST = 512 };

typedef struct model {
    const char *name;
    int64_t experts, hidden, intermediate, top_k; /* experts of a rank */
} model;

static const model models[] = {{"tiny", 4, 512, 256, 2}, {"flash", 32, 4096, 2048, 6}, {"pro", 48, 7168, 3072, 6}};

typedef enum balance { EVEN, TOKENS, ROUTES, BALANCES } balance;

static const char *const balance_names[BALANCES] = {"even", "tokens", "routes"};

typedef struct rank_state {
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
    int64_t first_token, tokens; /* of those of all ranks */
    void *owned[40];
    int count;
} rank_state;

static rank_state rank[MOST_RANKS];
static int gpus, ranks;

static void use_gpu_of(int g)
{
    CUDA(cudaSetDevice(g % gpus));
}

static bool is_shared(void)
{
    return ranks > gpus;
}

static void *take(int g, size_t bytes)
{
    void *memory;
    use_gpu_of(g);
    CUDA(cudaMalloc(&memory, bytes));
    rank[g].owned[rank[g].count++] = memory;
    return memory;
}

static void give_back(int g)
{
    use_gpu_of(g);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < rank[g].count; i++)
        CUDA(cudaFree(rank[g].owned[i]));
    rank[g].count = 0;
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

/* Of rank 0, in quarters, where it has more than the others. */
static int64_t quarters(void)
{
    return ranks > 2 ? 2 : 3;
}

static void spread_tokens(int64_t tokens, balance b)
{
    int64_t left = tokens * ranks, first = 0;
    for (int g = 0; g < ranks; g++) {
        rank[g].first_token = first;
        rank[g].tokens = b == TOKENS && g == 0 && ranks > 1 ? left * quarters() / 4 : left / (ranks - g);
        first += rank[g].tokens;
        left -= rank[g].tokens;
    }
}

static int64_t most_tokens(void)
{
    int64_t most = 0;
    for (int g = 0; g < ranks; g++)
        most = rank[g].tokens > most ? rank[g].tokens : most;
    return most;
}

static int64_t choose_expert(uint64_t *state, int64_t own, int64_t all, balance b)
{
    if (b != ROUTES || all == own)
        return random_below(state, all);
    return random_below(state, 4) < quarters() ? random_below(state, own) : own + random_below(state, all - own);
}

/* top_k different ones of all experts for each token, or none. */
static int32_t *choose(const model *m, int64_t tokens, balance b, bool is_masked)
{
    const int64_t all = m->experts * ranks;
    uint64_t state = 1 + (uint64_t)tokens;
    int32_t *const ids = malloc((size_t)(tokens * m->top_k) * sizeof *ids);
    CHECK(ids != NULL, "out of memory");
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < m->top_k; j++) {
            bool is_new;
            do {
                ids[t * m->top_k + j] = (int32_t)choose_expert(&state, m->experts, all, b);
                is_new = true;
                for (int64_t i = 0; i < j; i++)
                    is_new = is_new && ids[t * m->top_k + i] != ids[t * m->top_k + j];
            } while (!is_new);
        }
    for (int64_t i = 0; is_masked && i < tokens * m->top_k; i++)
        ids[i] = -1;
    return ids;
}

/* What share of the routes goes to experts of the rank that gets the most. */
static double most_routes(const model *m, int64_t tokens, const int32_t *ids)
{
    int64_t count[MOST_RANKS] = {0}, most = 0;
    for (int64_t i = 0; i < tokens * m->top_k; i++)
        count[ids[i] / m->experts]++;
    for (int g = 0; g < ranks; g++)
        most = count[g] > most ? count[g] : most;
    return (double)most / (double)(tokens * m->top_k);
}

/* Tokens of all ranks at each one: the single call takes all, the exchange those of its rank. */
static void make_tokens(int g, const model *m, int64_t all, const int32_t *ids)
{
    const int64_t k = m->top_k, first = rank[g].first_token, tokens = rank[g].tokens;
    const int32_t count[2] = {(int32_t)tokens, (int32_t)all};
    char *const x = take(g, (size_t)(all * m->hidden * 2)), *const y = take(g, (size_t)(all * m->hidden * 2));
    int32_t *const id = take(g, (size_t)(all * k * 4)), *const counts = take(g, sizeof count);
    float *const weight = take(g, (size_t)(all * k * 4));
    CUDA(lp_moe_bench_fill(x, all * m->hidden * 2, LP_MOE_RANDOM_BF16, NULL));
    CUDA(lp_moe_bench_fill(weight, all * k * 4, LP_MOE_RANDOM_F32, NULL));
    put_device(id, ids, (size_t)(all * k * 4));
    put_device(counts, count, sizeof count);
    rank[g].single_io = (lp_megamoe_io){
        .size = sizeof(lp_megamoe_io), .x = x, .topk_ids = id, .topk_weight = weight, .tokens = counts + 1, .y = y};
    rank[g].io = (lp_megamoe_io){.size = sizeof(lp_megamoe_io),
                                 .x = x + first * m->hidden * 2,
                                 .topk_ids = id + first * k,
                                 .topk_weight = weight + first * k,
                                 .tokens = counts,
                                 .y = take(g, (size_t)(most_tokens() * m->hidden * 2))};
}

static void run_single(int g)
{
    lp_error err;
    const rank_state *const s = &rank[g];
    CHECK(lp_megamoe(&s->single_shape, &s->weights, &s->single_io, s->workspace, s->workspace_bytes, s->stream, &err) ==
              LP_OK,
          "%s", err.text);
}

static void run_exchange(int g)
{
    lp_error err;
    const rank_state *const s = &rank[g];
    CHECK(lp_moe_exchange_run(&s->shape, &s->weights, &s->io, &s->exchange, s->workspace, s->workspace_bytes, s->stream,
                              &err) == LP_OK,
          "%s", err.text);
}

static cudaGraphExec_t capture(int g, void (*run)(int g))
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    use_gpu_of(g);
    CUDA(cudaStreamBeginCapture(rank[g].stream, cudaStreamCaptureModeRelaxed));
    run(g);
    CUDA(cudaStreamEndCapture(rank[g].stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void make_calls(const model *m, lp_moe_format format, int64_t all)
{
    lp_error err;
    void *buffer[MOST_RANKS];
    int64_t bytes = 0;
    for (int g = 0; g < ranks; g++) {
        rank_state *const s = &rank[g];
        s->shape = shape_of(m, format, m->experts, most_tokens());
        s->single_shape = shape_of(m, format, m->experts, all);
        s->single_shape.first_expert = g * m->experts;
        const int64_t one = lp_moe_exchange_workspace(&s->shape, ranks, &err);
        CHECK(one > 0, "%s", err.text);
        const int64_t other = lp_megamoe_workspace(&s->single_shape, &err);
        CHECK(other > 0, "%s", err.text);
        s->workspace_bytes = one > other ? one : other;
        s->workspace = take(g, (size_t)s->workspace_bytes);
        bytes = lp_moe_exchange_bytes(&s->shape, ranks, &err);
        buffer[g] = take(g, (size_t)bytes);
        CHECK(lp_moe_exchange_clear(buffer[g], bytes, s->stream, &err) == LP_OK, "%s", err.text);
        CUDA(cudaStreamSynchronize(s->stream));
    }
    for (int g = 0; g < ranks; g++) {
        lp_moe_exchange *const e = &rank[g].exchange;
        *e = (lp_moe_exchange){.size = sizeof *e,
                               .rank = g,
                               .ranks = ranks,
                               .timeout_ns = 5000000000,
                               .shares_gpu = is_shared(),
                               .buffer_bytes = bytes};
        memcpy(e->buffer, buffer, sizeof buffer);
        rank[g].graph = capture(g, run_exchange);
        rank[g].single_graph = capture(g, run_single);
    }
}

#endif
