/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of an exchange for tests, with their slices of one random problem, and the GPU that holds all of it, whose y
 * each rank's is compared with. */
#ifndef MOE_WORLD_H
#define MOE_WORLD_H

#include "gpu_testing.h"
#include "kernels/exchange.h"
#include "megamoe_problem.h"

#include <stdint.h>
#include <string.h>

enum { MOST_RANKS = 4, CAP = 96, TOP_K = 4 };

typedef struct exchange_case {
    const char *name;
    lp_moe_format format;
    int32_t layout; /* n of lp_megamoe_layout */
    int32_t ranks;
    int64_t hidden, intermediate, experts; /* experts of a rank */
    int64_t tokens[MOST_RANKS], bound;
    problem_routing routing;
    bool fp8_x, wide_ids;
    int64_t first_expert, shared_intermediate; /* shared experts are MXFP8 */
} exchange_case;

/* Rank n is on GPU n modulo these. */
static int gpus;

/* ---- ranks on devices ---- */

typedef struct rank_state {
    int gpu;
    cudaStream_t stream;
    lp_megamoe_shape shape;
    lp_megamoe_weights weights, shared;
    lp_megamoe_io io;
    lp_moe_exchange exchange;
    void *workspace;
    int64_t workspace_bytes;
    int64_t first_token, tokens;
    void *allocation[40];
    int count;
} rank_state;

static inline void *device_bytes(rank_state *r, const void *from, int64_t bytes)
{
    void *memory;
    CUDA(cudaSetDevice(r->gpu));
    CUDA(cudaMalloc(&memory, (size_t)(bytes > 0 ? bytes : 16)));
    fill_device(memory, 0xff, (size_t)(bytes > 0 ? bytes : 16));
    if (from != NULL && bytes > 0)
        put_device(memory, from, (size_t)bytes);
    r->allocation[r->count++] = memory;
    return memory;
}

static inline void put(const void *to, const void *from, int64_t bytes)
{
    if (bytes > 0)
        put_device((void *)(uintptr_t)to, from, (size_t)bytes);
}

/* Experts [first, first + experts) of the problem. */
static inline void upload_experts(rank_state *r, lp_megamoe_weights *weights, const lp_megamoe_shape *shape,
                                  const moe_problem *p, int64_t first)
{
    lp_error err = {0};
    *weights = (lp_megamoe_weights){.size = sizeof *weights};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        if (p->layout[slot] == NULL)
            continue;
        const int64_t each = p->packed_bytes[slot] / p->shape.experts;
        const void *const data = device_bytes(r, (const char *)p->packed[slot] + first * each, each * shape->experts);
        CHECK(lp_megamoe_tensor_in(&weights->tensor[slot], shape, p->layout[slot], data, &err) == LP_OK, "%s",
              err.text);
    }
    if (p->weights.l1_alpha != NULL) {
        weights->l1_alpha = device_bytes(r, p->weights.l1_alpha + 2 * first, shape->experts * 8);
        weights->l2_alpha = device_bytes(r, p->weights.l2_alpha + first, shape->experts * 4);
        weights->l2_activation_scale = device_bytes(r, p->weights.l2_activation_scale, 4);
        weights->l1_alpha_columns = 2;
    }
}

/* Its routed experts, and all shared ones. */
static inline void upload_weights(rank_state *r, const moe_problem *p, int64_t first)
{
    upload_experts(r, &r->weights, &r->shape, p, first);
    if (p->shared == NULL)
        return;
    upload_experts(r, &r->shared, &p->shared->shape, p->shared, 0);
    r->weights.shared = &r->shared;
}

static inline void make_io(rank_state *r)
{
    const lp_megamoe_shape *const s = &r->shape;
    const int64_t cap = s->max_tokens, x_bytes = s->x_dtype == LP_BF16 ? 2 : 1;
    r->io = (lp_megamoe_io){.size = sizeof r->io};
    r->io.x = device_bytes(r, NULL, cap * s->hidden * x_bytes);
    if (x_bytes == 1)
        r->io.x_scale = device_bytes(r, NULL, cap * (s->hidden / 128) * 4);
    r->io.topk_ids = device_bytes(r, NULL, cap * s->top_k * 8);
    r->io.topk_weight = device_bytes(r, NULL, cap * s->top_k * 4);
    r->io.tokens = device_bytes(r, NULL, 4);
    r->io.received = device_bytes(r, NULL, s->experts * 4);
    r->io.y = device_bytes(r, NULL, cap * s->hidden * 2);
}

/* The tokens of the problem that are this rank's. */
static inline void upload_tokens(rank_state *r, const moe_problem *p)
{
    const lp_megamoe_shape *const s = &r->shape;
    const int64_t row = s->hidden * (s->x_dtype == LP_BF16 ? 2 : 1), blocks = s->hidden / 128 * 4, k = s->top_k;
    const int64_t from = r->first_token, count = r->tokens;
    const int32_t tokens = (int32_t)count;
    CUDA(cudaSetDevice(r->gpu));
    put(r->io.x, (const char *)p->input.x + from * row, count * row);
    if (r->io.x_scale != NULL)
        put(r->io.x_scale, (const char *)p->input.x_scale + from * blocks, count * blocks);
    put(r->io.topk_weight, p->input.weight + from * k, count * k * 4);
    int32_t *const narrow = malloc((size_t)(count * k + 1) * sizeof *narrow);
    for (int64_t i = 0; i < count * k; i++)
        narrow[i] = (int32_t)p->input.ids[from * k + i];
    if (s->id_dtype == LP_I64)
        put(r->io.topk_ids, p->input.ids + from * k, count * k * 8);
    else
        put(r->io.topk_ids, narrow, count * k * 4);
    free(narrow);
    put(r->io.tokens, &tokens, 4);
    fill_device((void *)r->io.y, 0xff, (size_t)(s->max_tokens * s->hidden * 2));
    fill_device(r->io.received, 0, (size_t)s->experts * 4);
}

static inline void free_rank(rank_state *r)
{
    CUDA(cudaSetDevice(r->gpu));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < r->count; i++)
        CUDA(cudaFree(r->allocation[i]));
    CUDA(cudaStreamDestroy(r->stream));
}

static inline uint16_t *fetch(const rank_state *r)
{
    const size_t bytes = (size_t)(r->shape.max_tokens * r->shape.hidden * 2);
    uint16_t *const y = malloc(bytes);
    CHECK(y != NULL, "out of memory");
    CUDA(cudaSetDevice(r->gpu));
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaMemcpy(y, r->io.y, bytes, cudaMemcpyDeviceToHost));
    return y;
}

/* ---- a world ---- */

typedef struct world {
    int32_t ranks;
    moe_problem problem; /* of all experts; its tokens are those of rank 0, then rank 1, .. */
    rank_state whole;    /* one GPU with everything */
    rank_state rank[MOST_RANKS];
} world;

static inline lp_megamoe_shape shape_of(const exchange_case *c, int64_t experts, int64_t max_tokens)
{
    return (lp_megamoe_shape){.size = sizeof(lp_megamoe_shape),
                              .experts = experts,
                              .hidden = c->hidden,
                              .intermediate = c->intermediate,
                              .top_k = TOP_K,
                              .max_tokens = max_tokens,
                              .first_expert = c->first_expert,
                              .format = c->format,
                              .x_dtype = c->fp8_x ? LP_F8_E4M3 : LP_BF16,
                              .id_dtype = c->wide_ids ? LP_I64 : LP_I32,
                              .shared_intermediate = c->shared_intermediate,
                              .shared_format = c->shared_intermediate > 0 ? LP_MXFP8 : 0};
}

static inline void make_rank(rank_state *r, const moe_problem *p, int64_t first, int gpu)
{
    CUDA(cudaSetDevice(gpu));
    CUDA(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    upload_weights(r, p, first);
    make_io(r);
}

static inline void place_tokens(world *w, const int64_t *tokens)
{
    w->whole.tokens = 0;
    for (int32_t i = 0; i < w->ranks; i++) {
        w->rank[i].first_token = w->whole.tokens;
        w->rank[i].tokens = tokens[i];
        w->whole.tokens += tokens[i];
    }
}

static inline void clear_world(world *w)
{
    lp_error err = {0};
    for (int32_t i = 0; i < w->ranks; i++) {
        rank_state *const r = &w->rank[i];
        CUDA(cudaSetDevice(r->gpu));
        CHECK(lp_moe_exchange_clear(r->exchange.buffer[i], r->exchange.buffer_bytes, r->stream, &err) == LP_OK, "%s",
              err.text);
        CUDA(cudaStreamSynchronize(r->stream));
    }
}

/* The problem, and one GPU that has all of it. */
static inline void make_whole(world *w, const exchange_case *c, int on, uint64_t seed)
{
    lp_error err = {0};
    *w = (world){.ranks = c->ranks};
    w->whole.gpu = on;
    w->whole.shape = shape_of(c, c->experts * c->ranks, CAP * c->ranks);
    CHECK(problem_make(&w->problem, &w->whole.shape, c->layout, SCALES_USUAL, seed, &err) == LP_OK, "%s", err.text);
    make_rank(&w->whole, &w->problem, 0, on);
    w->whole.workspace_bytes = lp_megamoe_workspace(&w->whole.shape, &err);
    w->whole.workspace = device_bytes(&w->whole, NULL, w->whole.workspace_bytes);
}

/* A rank but for its exchange; returns the bytes of its buffer. */
static inline int64_t make_member(world *w, const exchange_case *c, int32_t rank)
{
    lp_error err = {0};
    rank_state *const r = &w->rank[rank];
    r->gpu = rank % gpus;
    r->shape = shape_of(c, c->experts, CAP);
    r->shape.tokens_bound = c->bound;
    make_rank(r, &w->problem, rank * c->experts, r->gpu);
    r->workspace_bytes = lp_moe_exchange_workspace(&r->shape, c->ranks, &err);
    CHECK(r->workspace_bytes > 0, "%s", err.text);
    r->workspace = device_bytes(r, NULL, r->workspace_bytes);
    const int64_t bytes = lp_moe_exchange_bytes(&r->shape, c->ranks, &err);
    CHECK(bytes > 0, "%s", err.text);
    return bytes;
}

static inline void connect_member(world *w, int32_t rank, void *const *buffer, int64_t bytes, bool shares_gpu)
{
    lp_moe_exchange *const e = &w->rank[rank].exchange;
    *e = (lp_moe_exchange){.size = sizeof *e,
                           .rank = rank,
                           .ranks = w->ranks,
                           .timeout_ns = 20000000000,
                           .shares_gpu = shares_gpu,
                           .buffer_bytes = bytes};
    memcpy(e->buffer, buffer, (size_t)w->ranks * sizeof *buffer);
}

/* All ranks in this process. */
static inline void make_world(world *w, const exchange_case *c, uint64_t seed)
{
    void *buffer[MOST_RANKS] = {NULL};
    int64_t bytes = 0;
    make_whole(w, c, 0, seed);
    for (int32_t i = 0; i < c->ranks; i++) {
        bytes = make_member(w, c, i);
        buffer[i] = device_bytes(&w->rank[i], NULL, bytes);
    }
    for (int32_t i = 0; i < c->ranks; i++)
        connect_member(w, i, buffer, bytes, c->ranks > gpus);
    clear_world(w);
    place_tokens(w, c->tokens);
}

static inline void free_world(world *w)
{
    free_rank(&w->whole);
    for (int32_t i = 0; i < w->ranks; i++)
        free_rank(&w->rank[i]);
    problem_free(&w->problem);
}

static inline void upload_world(world *w)
{
    upload_tokens(&w->whole, &w->problem);
    for (int32_t i = 0; i < w->ranks; i++)
        upload_tokens(&w->rank[i], &w->problem);
    CUDA(cudaDeviceSynchronize());
}

static inline void call(rank_state *r)
{
    lp_error err = {0};
    CUDA(cudaSetDevice(r->gpu));
    CHECK(lp_moe_exchange_run(&r->shape, &r->weights, &r->io, &r->exchange, r->workspace, r->workspace_bytes, r->stream,
                              &err) == LP_OK,
          "%s", err.text);
}

static inline uint16_t *whole_result(world *w)
{
    lp_error err = {0};
    rank_state *const r = &w->whole;
    CUDA(cudaSetDevice(r->gpu));
    CHECK(lp_megamoe(&r->shape, &r->weights, &r->io, r->workspace, r->workspace_bytes, r->stream, &err) == LP_OK, "%s",
          err.text);
    return fetch(r);
}

/* ---- checks ---- */

/* received: NULL where the io counts nothing. */
static inline int check_rank(const char *name, const rank_state *r, const uint16_t *whole, const int32_t *received)
{
    const int64_t hidden = r->shape.hidden, rank = r->exchange.rank;
    int failed = 0;
    lp_error err = {0};
    lp_moe_failure failure;
    CUDA(cudaSetDevice(r->gpu));
    if (lp_moe_exchange_failure(&r->exchange, r->stream, &failure, &err) != LP_OK) {
        printf("FAIL %s: rank %lld: %s\n", name, (long long)rank, err.text);
        return 1;
    }
    uint16_t *const y = fetch(r);
    for (int64_t t = 0; t < r->tokens && failed == 0; t++)
        if (memcmp(y + t * hidden, whole + (r->first_token + t) * hidden, (size_t)hidden * 2) != 0) {
            printf("FAIL %s: rank %lld: token %lld has other bits\n", name, (long long)rank, (long long)t);
            failed = 1;
        }
    for (int64_t i = r->tokens * hidden; i < r->shape.max_tokens * hidden && failed == 0; i++)
        if (y[i] != 0xffff) {
            printf("FAIL %s: rank %lld: a row past the last token was written\n", name, (long long)rank);
            failed = 1;
        }
    int32_t got[512];
    if (r->io.received != NULL)
        CUDA(cudaMemcpy(got, r->io.received, (size_t)r->shape.experts * 4, cudaMemcpyDeviceToHost));
    if (r->io.received != NULL && memcmp(got, received + rank * r->shape.experts, (size_t)r->shape.experts * 4) != 0) {
        printf("FAIL %s: rank %lld received other numbers of routes\n", name, (long long)rank);
        failed++;
    }
    free(y);
    return failed;
}

static inline int check_world(const char *name, world *w)
{
    int32_t received[512];
    int failed = 0;
    uint16_t *const whole = whole_result(w);
    CUDA(cudaSetDevice(w->whole.gpu));
    CUDA(cudaMemcpy(received, w->whole.io.received, (size_t)w->whole.shape.experts * 4, cudaMemcpyDeviceToHost));
    for (int32_t i = 0; i < w->ranks; i++)
        failed += check_rank(name, &w->rank[i], whole, received);
    free(whole);
    return failed;
}

#endif
