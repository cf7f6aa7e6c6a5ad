/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lp_megamoe against the reference: every format and layout, token counts, routings, scales, activations. Each case
 * runs twice over poisoned outputs and workspace and must give the same bits; a third run has the same tokens in
 * another order. Usage: test_megamoe [PARTS OF CASES' NAMES, BY COMMAS] [SEED].
 */
#include "gpu_testing.h"
#include "megamoe_problem.h"
#include "moe_choice.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 48, THREADS = 16, PERMUTATION = 7 };

typedef struct moe_case {
    const char *name;
    lp_moe_format format;
    int32_t layout; /* n of lp_megamoe_layout */
    int64_t experts, hidden, intermediate, top_k, max_tokens;
    int64_t tokens[12]; /* 0 ends the list after the first */
    problem_routing routing;
    problem_scales scales;
    bool fp8_x;
    lp_moe_activation activation;
    float alpha, beta, limit;
    int64_t first_expert, bound, zero_every;
    bool fast;
    int64_t shared_intermediate;
    lp_moe_format shared_format;
} moe_case;

#define USUAL .experts = 8, .hidden = 512, .intermediate = 256, .top_k = 4, .max_tokens = 512
/* h so wide that FP8 products are right enough. */
#define WIDE_H    .experts = 4, .hidden = 512, .intermediate = 2048, .top_k = 2, .max_tokens = 512
#define AHEAD     .experts = 20, .hidden = 512, .intermediate = 2048, .top_k = 4, .max_tokens = 5200
#define AHEAD_MX8 .experts = 16, .hidden = 512, .intermediate = 2048, .top_k = 4, .max_tokens = 2600
#define COUNTS                                                                                                         \
    {                                                                                                                  \
        0, 1, 2, 7, 8, 17, 64, 128, 512                                                                                \
    }

static const moe_case cases[] = {
    {"fp8", LP_FP8_BLOCK128, 0, USUAL, .tokens = COUNTS, .zero_every = 5},
    {"fp8-x8", LP_FP8_BLOCK128, 0, USUAL, .tokens = COUNTS, .fp8_x = true, .limit = 1.5f},
    {"fp8-i2048", LP_FP8_BLOCK128, 0, WIDE_H, .tokens = COUNTS, .zero_every = 5},
    {"fp8-i2048-x8", LP_FP8_BLOCK128, 0, WIDE_H, .tokens = {8, 64}, .fp8_x = true, .limit = 1.5f},
    {"bf16", LP_MOE_BF16, 0, USUAL, .tokens = COUNTS, .zero_every = 5},
    {"mxfp8", LP_MXFP8, 0, USUAL, .tokens = COUNTS, .zero_every = 5},
    {"mxfp4-packed", LP_MXFP4, 0, USUAL, .tokens = COUNTS, .zero_every = 5},
    {"mxfp4-contract", LP_MXFP4, 1, USUAL, .tokens = COUNTS, .zero_every = 5},
    {"nvfp4-packed", LP_NVFP4, 0, USUAL, .tokens = COUNTS, .zero_every = 5},
    {"nvfp4-contract", LP_NVFP4, 1, USUAL, .tokens = COUNTS, .zero_every = 5},
#define ROUTED(label, format, n, ...)                                                                                    \
    {label "-hot", format, n, __VA_ARGS__, .tokens = {17, 40, 90, 300}, .routing = ROUTE_HOT},                           \
        {label "-duplicates", format, n, __VA_ARGS__, .tokens = {33, 200}, .routing = ROUTE_DUPLICATES},                 \
        {label "-masked", format, n, __VA_ARGS__, .tokens = {70}, .routing = ROUTE_MASKED, .bound = 70},                 \
        {label "-all-masked", format, n, __VA_ARGS__, .tokens = {9}, .routing = ROUTE_ALL_MASKED},                       \
        {label "-ranks", format, n, __VA_ARGS__, .tokens = {90}, .routing = ROUTE_OTHER_RANKS, .first_expert = 16},      \
        {label "-empty", format, n, __VA_ARGS__, .tokens = {5, 130}, .routing = ROUTE_HALF_EMPTY},                       \
        {label "-edge", format, n, __VA_ARGS__, .tokens = {40}, .scales = SCALES_EDGE},                                  \
        {label "-nan", format, n, __VA_ARGS__, .tokens = {40}, .scales = SCALES_NAN},                                    \
        {label "-wide", format, n, __VA_ARGS__, .tokens = {40, 200}, .scales = SCALES_WIDE},                             \
        {label "-oai", format, n, __VA_ARGS__, .tokens = {40}, .alpha = 1.702f, .beta = 1.0f, .limit = 1.0f},            \
        {label "-situ", format, n, __VA_ARGS__, .tokens = {40}, .activation = LP_MOE_SITU, .alpha = 2.0f, .beta = 3.0f}, \
    {                                                                                                                    \
        label "-step", format, n, __VA_ARGS__, .tokens = {40}, .activation = LP_MOE_SWIGLU_STEP, .limit = 0.7f           \
    }
#define OF_FORMAT(label, format, n)                                                                                    \
    ROUTED(label, format, n, USUAL), {label "-most",                                                                   \
                                      format,                                                                          \
                                      n,                                                                               \
                                      .experts = 8,                                                                    \
                                      .hidden = 512,                                                                   \
                                      .intermediate = 256,                                                             \
                                      .top_k = 3,                                                                      \
                                      .max_tokens = 8192,                                                              \
                                      .tokens = {4096, 8192}},                                                         \
    {                                                                                                                  \
        label "-large", format, n, .experts = 4, .hidden = 2048, .intermediate = 1024, .top_k = 2, .max_tokens = 256,  \
                                   .tokens = {                                                                         \
                                       24,                                                                             \
                                       256                                                                             \
                                   }                                                                                   \
    }
    OF_FORMAT("fp8", LP_FP8_BLOCK128, 0),
    ROUTED("fp8-i2048", LP_FP8_BLOCK128, 0, WIDE_H), /* other products; few tokens take another path */
    OF_FORMAT("bf16", LP_MOE_BF16, 0),
    OF_FORMAT("mxfp8", LP_MXFP8, 0),
    OF_FORMAT("mxfp4-packed", LP_MXFP4, 0),
    OF_FORMAT("mxfp4-contract", LP_MXFP4, 1),
    OF_FORMAT("nvfp4-packed", LP_NVFP4, 0),
    OF_FORMAT("nvfp4-contract", LP_NVFP4, 1),
/* Chunks of up to 128 tokens, E4M3 products included, which want I >= 2048. */
#define CHUNKS .experts = 4, .hidden = 512, .intermediate = 2048, .top_k = 2, .max_tokens = 256
#define OF_CHUNKS(label, format)                                                                                       \
    {label "-chunks", format, 0, CHUNKS, .tokens = {30, 41, 64, 100, 170, 230, 256}},                                  \
        {label "-chunks-hot", format, 0, CHUNKS, .tokens = {17, 256}, .routing = ROUTE_HOT},                           \
        {label "-chunks-masked", format, 0, CHUNKS, .tokens = {90}, .routing = ROUTE_MASKED},                          \
        {label "-chunks-empty", format, 0, CHUNKS, .tokens = {130}, .routing = ROUTE_HALF_EMPTY},                      \
        {label "-chunks-edge", format, 0, CHUNKS, .tokens = {60}, .scales = SCALES_EDGE},                              \
        {label "-chunks-nan", format, 0, CHUNKS, .tokens = {60}, .scales = SCALES_NAN},                                \
        {label "-chunks-wide", format, 0, CHUNKS, .tokens = {60, 200}, .scales = SCALES_WIDE},                         \
        {label "-chunks-oai", format, 0, CHUNKS, .tokens = {60}, .alpha = 1.702f, .beta = 1.0f, .limit = 1.0f},        \
        {label "-chunks-situ",      format,        0,           CHUNKS, .tokens = {60},                                \
         .activation = LP_MOE_SITU, .alpha = 2.0f, .beta = 3.0f},                                                      \
    {                                                                                                                  \
        label "-chunks-step", format, 0, CHUNKS, .tokens = {60}, .activation = LP_MOE_SWIGLU_STEP, .limit = 0.7f       \
    }
    OF_CHUNKS("mxfp4", LP_MXFP4),
    OF_CHUNKS("nvfp4", LP_NVFP4),
    OF_CHUNKS("mxfp8", LP_MXFP8),
    OF_CHUNKS("fp8-many", LP_FP8_BLOCK128),
    {"fp8-many-fast", LP_FP8_BLOCK128, 0, CHUNKS, .tokens = {60, 170, 256}, .zero_every = 5, .fast = true},
    {"fp8-many-x8", LP_FP8_BLOCK128, 0, CHUNKS, .tokens = {64, 200}, .fp8_x = true, .limit = 1.5f},
#define SIZES(label, format, n, h, i)                                                                                  \
    {                                                                                                                  \
        label "-" #h "x" #i, format, n, .experts = 3, .hidden = h, .intermediate = i, .top_k = 2, .max_tokens = 256,   \
                                        .tokens = {20, 60, 150}, .fp8_x = (format) == LP_MXFP4 || (format) == LP_MXFP8 \
    }
    {"mxfp4-packed-paths", LP_MXFP4, 0, .experts = 2, .hidden = 512, .intermediate = 2048, .top_k = 2,
     .max_tokens = 2048, .tokens = {40, 60, 120}},
    {"nvfp4-packed-paths", LP_NVFP4, 0, .experts = 2, .hidden = 512, .intermediate = 256, .top_k = 2,
     .max_tokens = 2048, .tokens = {40, 60, 120}},
    SIZES("fp8", LP_FP8_BLOCK128, 0, 512, 512),
    SIZES("fp8", LP_FP8_BLOCK128, 0, 1024, 768),
    SIZES("fp8", LP_FP8_BLOCK128, 0, 512, 2048),
    SIZES("fp8", LP_FP8_BLOCK128, 0, 1536, 2304),
    {"fp8-deep", LP_FP8_BLOCK128, 0, .experts = 2, .hidden = 4608, .intermediate = 2048, .top_k = 2, .max_tokens = 200,
     .tokens = {7, 30}},
    /* More tiles than multiprocessors, in both projections. */
    {"fp8-tiles", LP_FP8_BLOCK128, 0, .experts = 20, .hidden = 1536, .intermediate = 2048, .top_k = 4,
     .max_tokens = 1300, .tokens = {3, 50, 200, 1300}},
/* Each expert has all tokens: whole tiles, and from one token to more than half of a tile behind them. */
#define RESTS .experts = 2, .hidden = 512, .intermediate = 2048, .top_k = 2, .max_tokens = 400
    {"fp8-rests", LP_FP8_BLOCK128, 0, RESTS, .tokens = {129, 136, 144, 145, 256, 257, 272, 385, 400}},
    {"fp8-rests-fast", LP_FP8_BLOCK128, 0, RESTS, .tokens = {130, 264, 400}, .fast = true},
    {"fp8-rests-hot", LP_FP8_BLOCK128, 0, RESTS, .tokens = {70, 136, 195}, .routing = ROUTE_HOT, .limit = 1.5f},
    {"bf16-tiles", LP_MOE_BF16, 0, .experts = 64, .hidden = 512, .intermediate = 768, .top_k = 4, .max_tokens = 1200,
     .tokens = {3, 50, 500}},
    /* Weights that are decoded ahead, of more tiles than the workspace has places for. */
    {"mxfp4-packed-ahead", LP_MXFP4, 0, AHEAD, .tokens = {3, 2600}},
    {"mxfp4-contract-ahead", LP_MXFP4, 1, AHEAD, .tokens = {3, 200, 2600}},
    {"mxfp4-ahead-hot", LP_MXFP4, 1, AHEAD, .tokens = {900}, .routing = ROUTE_HOT},
    {"mxfp4-ahead-empty", LP_MXFP4, 0, AHEAD, .tokens = {900}, .routing = ROUTE_HALF_EMPTY},
    {"mxfp4-ahead-edge", LP_MXFP4, 0, AHEAD, .tokens = {200}, .scales = SCALES_EDGE},
    {"mxfp4-ahead-nan", LP_MXFP4, 1, AHEAD, .tokens = {200}, .scales = SCALES_NAN},
    {"mxfp4-ahead-wide", LP_MXFP4, 1, AHEAD, .tokens = {200}, .scales = SCALES_WIDE},
    {"nvfp4-packed-ahead", LP_NVFP4, 0, AHEAD, .tokens = {3, 2600}},
    {"nvfp4-contract-ahead", LP_NVFP4, 1, AHEAD, .tokens = {3, 200, 2600}},
    {"nvfp4-ahead-edge", LP_NVFP4, 1, AHEAD, .tokens = {200}, .scales = SCALES_EDGE},
    {"nvfp4-ahead-nan", LP_NVFP4, 0, AHEAD, .tokens = {200}, .scales = SCALES_NAN},
    {"mxfp8-ahead", LP_MXFP8, 0, AHEAD_MX8, .tokens = {3, 200, 2600}},
    {"mxfp8-ahead-hot", LP_MXFP8, 0, AHEAD_MX8, .tokens = {900}, .routing = ROUTE_HOT},
    {"mxfp8-ahead-nan", LP_MXFP8, 0, AHEAD_MX8, .tokens = {200}, .scales = SCALES_NAN},
    SIZES("mxfp4-packed", LP_MXFP4, 0, 256, 2048),
    SIZES("mxfp4-contract", LP_MXFP4, 1, 256, 2048),
    SIZES("bf16", LP_MOE_BF16, 0, 256, 128),
    SIZES("bf16", LP_MOE_BF16, 0, 768, 384),
    SIZES("mxfp8", LP_MXFP8, 0, 256, 128),
    SIZES("mxfp8", LP_MXFP8, 0, 768, 384),
    SIZES("mxfp4-packed", LP_MXFP4, 0, 256, 128),
    SIZES("mxfp4-packed", LP_MXFP4, 0, 768, 384),
    SIZES("mxfp4-contract", LP_MXFP4, 1, 256, 128),
    SIZES("mxfp4-contract", LP_MXFP4, 1, 768, 384),
    SIZES("nvfp4-packed", LP_NVFP4, 0, 256, 128),
    SIZES("nvfp4-packed", LP_NVFP4, 0, 768, 384),
    SIZES("nvfp4-contract", LP_NVFP4, 1, 256, 128),
    SIZES("nvfp4-contract", LP_NVFP4, 1, 768, 384),
/* Shared experts: of another format, as wide as several, wider than BF16 products are made for; with every routing. */
#define SHARED(name, format, n, of, width, ...)                                                                        \
    {                                                                                                                  \
        "shared-" name, format, n, USUAL, .shared_format = of, .shared_intermediate = width, __VA_ARGS__               \
    }
    SHARED("nvfp4-mxfp8", LP_NVFP4, 0, LP_MXFP8, 384, .tokens = COUNTS, .zero_every = 5),
    SHARED("nvfp4-bf16", LP_NVFP4, 1, LP_MOE_BF16, 128, .tokens = {1, 17, 200}),
    SHARED("mxfp4-mxfp8", LP_MXFP4, 0, LP_MXFP8, 2048, .tokens = COUNTS),
    SHARED("mxfp4-fp8", LP_MXFP4, 1, LP_FP8_BLOCK128, 2304, .tokens = {8, 200}, .fp8_x = true),
    SHARED("fp8", LP_FP8_BLOCK128, 0, 0, 512, .tokens = COUNTS, .alpha = 1.702f, .beta = 1.0f, .limit = 1.0f),
    SHARED("bf16-nvfp4", LP_MOE_BF16, 0, LP_NVFP4, 256, .tokens = {3, 70}),
    SHARED("mxfp8-masked", LP_MXFP8, 0, 0, 256, .tokens = {70}, .routing = ROUTE_MASKED),
    SHARED("mxfp4-all-masked", LP_MXFP4, 0, LP_MXFP8, 256, .tokens = {9}, .routing = ROUTE_ALL_MASKED),
    SHARED("nvfp4-ranks", LP_NVFP4, 0, LP_MXFP8, 256, .tokens = {90}, .routing = ROUTE_OTHER_RANKS, .first_expert = 16),
    {"fp8-fast", LP_FP8_BLOCK128, 0, USUAL, .tokens = COUNTS, .zero_every = 5, .fast = true},
    {"fp8-i2048-fast", LP_FP8_BLOCK128, 0, WIDE_H, .tokens = COUNTS, .zero_every = 5, .fast = true},
};

/* ---- a problem on the device ---- */

typedef struct device_problem {
    lp_megamoe_weights weights, shared;
    lp_megamoe_io io;
    void *workspace;
    int64_t workspace_bytes;
    void *allocation[32];
    int count;
} device_problem;

static void *device_bytes(device_problem *d, const void *from, int64_t bytes)
{
    void *memory;
    CUDA(cudaMalloc(&memory, (size_t)(bytes > 0 ? bytes : 16)));
    if (from != NULL && bytes > 0)
        put_device(memory, from, (size_t)bytes);
    d->allocation[d->count++] = memory;
    return memory;
}

static void upload_experts(device_problem *d, lp_megamoe_weights *weights, const moe_problem *p)
{
    lp_error err = {0};
    *weights = (lp_megamoe_weights){.size = sizeof *weights};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
        if (p->layout[slot] != NULL) {
            const void *const data = device_bytes(d, p->packed[slot], p->packed_bytes[slot]);
            CHECK(lp_megamoe_tensor_in(&weights->tensor[slot], &p->shape, p->layout[slot], data, &err) == LP_OK, "%s",
                  err.text);
        }
    if (p->weights.l1_alpha != NULL) {
        weights->l1_alpha = device_bytes(d, p->weights.l1_alpha, p->shape.experts * 8);
        weights->l2_alpha = device_bytes(d, p->weights.l2_alpha, p->shape.experts * 4);
        weights->l2_activation_scale = device_bytes(d, p->weights.l2_activation_scale, 4);
        weights->l1_alpha_columns = p->weights.l1_alpha_columns;
    }
}

static void upload_weights(device_problem *d, const moe_problem *p)
{
    lp_error err = {0};
    *d = (device_problem){.io.size = sizeof d->io};
    upload_experts(d, &d->weights, p);
    if (p->shared != NULL) {
        upload_experts(d, &d->shared, p->shared);
        d->weights.shared = &d->shared;
    }
    const int64_t cap = p->shape.max_tokens, x_bytes = p->shape.x_dtype == LP_BF16 ? 2 : 1;
    d->io.x = device_bytes(d, NULL, cap * p->shape.hidden * x_bytes);
    if (x_bytes == 1)
        d->io.x_scale = device_bytes(d, NULL, cap * (p->shape.hidden / 128) * 4);
    d->io.topk_ids = device_bytes(d, NULL, cap * p->shape.top_k * 8);
    d->io.topk_weight = device_bytes(d, NULL, cap * p->shape.top_k * 4);
    d->io.tokens = device_bytes(d, NULL, 4);
    d->io.received = device_bytes(d, NULL, p->shape.experts * 4);
    d->io.y = device_bytes(d, NULL, cap * p->shape.hidden * 2);
    d->workspace_bytes = lp_megamoe_workspace(&p->shape, &err);
    CHECK(d->workspace_bytes > 0, "%s", err.text);
    d->workspace = device_bytes(d, NULL, d->workspace_bytes);
}

static void put(const void *to, const void *from, int64_t bytes)
{
    if (bytes > 0)
        put_device((void *)(uintptr_t)to, from, (size_t)bytes);
}

/* Tokens in the order token -> (token * step) % tokens. */
static void upload_tokens(device_problem *d, const moe_problem *p, int64_t step)
{
    const lp_megamoe_shape *const s = &p->shape;
    const int64_t tokens = p->input.tokens, row = s->hidden * (s->x_dtype == LP_BF16 ? 2 : 1),
                  blocks = s->hidden / 128 * 4;
    const int32_t count = (int32_t)tokens;
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t from = t * step % tokens, k = s->top_k;
        if (step == 1 && t > 0)
            break; /* all at once */
        const int64_t rows = step == 1 ? tokens : 1;
        put((const char *)d->io.x + t * row, (const char *)p->input.x + from * row, rows * row);
        if (d->io.x_scale != NULL)
            put((const char *)d->io.x_scale + t * blocks, (const char *)p->input.x_scale + from * blocks,
                rows * blocks);
        put((const char *)d->io.topk_weight + t * k * 4, p->input.weight + from * k, rows * k * 4);
        if (s->id_dtype == LP_I64) {
            put((const char *)d->io.topk_ids + t * k * 8, p->input.ids + from * k, rows * k * 8);
            continue;
        }
        for (int64_t i = 0; i < rows * k; i++) {
            const int32_t id = (int32_t)p->input.ids[from * k + i];
            put((const char *)d->io.topk_ids + (t * k + i) * 4, &id, 4);
        }
    }
    put(d->io.tokens, &count, 4);
}

static void poison(const moe_problem *p, device_problem *d)
{
    fill_device(d->workspace, 0xff, (size_t)d->workspace_bytes);
    fill_device(d->io.y, 0xff, (size_t)(p->shape.max_tokens * p->shape.hidden * 2));
    fill_device(d->io.received, 0, (size_t)p->shape.experts * 4);
}

static void fetch(const moe_problem *p, const device_problem *d, uint16_t *y)
{
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(y, d->io.y, (size_t)(p->shape.max_tokens * p->shape.hidden * 2), cudaMemcpyDeviceToHost));
}

static void run(const moe_problem *p, device_problem *d, uint16_t *y)
{
    lp_error err = {0};
    poison(p, d);
    CHECK(lp_megamoe(&p->shape, &d->weights, &d->io, d->workspace, d->workspace_bytes, NULL, &err) == LP_OK, "%s",
          err.text);
    fetch(p, d, y);
}

static void free_device(const device_problem *d)
{
    for (int i = 0; i < d->count; i++)
        CUDA(cudaFree(d->allocation[i]));
}

/* ---- checks ---- */

static bool has_bf16_activations(lp_moe_format format)
{
    return format == LP_NVFP4 || format == LP_MOE_BF16;
}

/* Of all rows: BF16 activations, E4M3 ones, those whose sums are coarse. */
static double allowed(const lp_megamoe_shape *shape)
{
    const bool is_fine = has_bf16_activations(shape->format) &&
                         (shape->shared_format == 0 || has_bf16_activations(shape->shared_format));
    return is_fine ? 2e-3 : shape->fast ? 1.5e-2 : 5e-3;
}

static double allowed_row(const lp_megamoe_shape *shape)
{
    return shape->fast ? 4e-2 : 2e-2;
}

static int check_values(const char *name, const moe_problem *p, const uint16_t *y, uint64_t seed)
{
    const int64_t tokens = p->input.tokens, hidden = p->shape.hidden;
    const int64_t count = tokens < SAMPLES ? tokens : SAMPLES;
    int64_t token[SAMPLES];
    for (int64_t i = 0; i < count; i++)
        token[i] = count == tokens ? i : random_below(&seed, tokens);
    double *const rounded = malloc((size_t)(count * hidden + 1) * sizeof *rounded);
    double *const exact = malloc((size_t)(count * hidden + 1) * sizeof *exact);
    reference_tokens(&p->shape, &p->weights, &p->input, token, count, THREADS, rounded, exact);
    const reference_error e = reference_compare(y, rounded, token, count, hidden);
    const reference_error u = reference_compare(y, exact, token, count, hidden);
    const bool good = e.relative <= allowed(&p->shape) && e.worst_row <= allowed_row(&p->shape) && e.wrong_nan == 0;
    printf("%s %-28s T %5lld  error %.2e worst row %.2e (token %lld) nan %lld  unrounded %.2e\n",
           good ? "ok  " : "FAIL", name, (long long)tokens, e.relative, e.worst_row, (long long)e.worst_token,
           (long long)e.wrong_nan, u.relative);
    free(rounded);
    free(exact);
    return good ? 0 : 1;
}

static int check_untouched(const char *name, const moe_problem *p, const uint16_t *y)
{
    const int64_t hidden = p->shape.hidden;
    for (int64_t i = p->input.tokens * hidden; i < p->shape.max_tokens * hidden; i++)
        if (y[i] != 0xffff) {
            printf("FAIL %s: row %lld past the last token was written\n", name, (long long)(i / hidden));
            return 1;
        }
    return 0;
}

static int check_received(const char *name, const moe_problem *p, const device_problem *d)
{
    int32_t got[512];
    int64_t want[512] = {0};
    CUDA(cudaMemcpy(got, d->io.received, (size_t)p->shape.experts * 4, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < p->input.tokens * p->shape.top_k; i++) {
        const int64_t e = p->input.ids[i] - p->shape.first_expert;
        if (p->input.ids[i] >= 0 && e >= 0 && e < p->shape.experts)
            want[e]++;
    }
    for (int64_t e = 0; e < p->shape.experts; e++)
        if (got[e] != want[e]) {
            printf("FAIL %s: expert %lld received %d routes, not %lld\n", name, (long long)e, got[e],
                   (long long)want[e]);
            return 1;
        }
    return 0;
}

static int check_same(const char *name, const char *what, const moe_problem *p, const uint16_t *a, const uint16_t *b,
                      int64_t step)
{
    const int64_t tokens = p->input.tokens, hidden = p->shape.hidden;
    for (int64_t t = 0; t < tokens; t++)
        if (memcmp(a + t * step % tokens * hidden, b + t * hidden, (size_t)hidden * 2) != 0) {
            printf("FAIL %s: token %lld of %lld has other bits %s\n", name, (long long)t, (long long)tokens, what);
            return 1;
        }
    return 0;
}

static int run_case(const moe_case *c, uint64_t seed)
{
    lp_error err = {0};
    const lp_megamoe_shape shape = {.size = sizeof shape,
                                    .experts = c->experts,
                                    .hidden = c->hidden,
                                    .intermediate = c->intermediate,
                                    .top_k = c->top_k,
                                    .max_tokens = c->max_tokens,
                                    .tokens_bound = c->bound,
                                    .first_expert = c->first_expert,
                                    .format = c->format,
                                    .x_dtype = c->fp8_x ? LP_F8_E4M3 : LP_BF16,
                                    .id_dtype = c->hidden % 512 == 0 ? LP_I64 : LP_I32,
                                    .activation = c->activation,
                                    .activation_alpha = c->alpha,
                                    .activation_beta = c->beta,
                                    .activation_limit = c->limit,
                                    .shared_intermediate = c->shared_intermediate,
                                    .fast = c->fast,
                                    .shared_format = c->shared_format};
    moe_problem p;
    device_problem d;
    CHECK(problem_make(&p, &shape, c->layout, c->scales, seed, &err) == LP_OK, "%s: %s", c->name, err.text);
    upload_weights(&d, &p);
    const size_t bytes = (size_t)(shape.max_tokens * shape.hidden * 2);
    uint16_t *const y = malloc(bytes), *const again = malloc(bytes);
    int failed = 0;
    for (int i = 0; i < 12 && (i == 0 || c->tokens[i] > 0); i++) {
        problem_route(&p, c->tokens[i], c->routing, c->zero_every, seed + (uint64_t)i);
        upload_tokens(&d, &p, 1);
        run(&p, &d, y);
        failed +=
            check_values(c->name, &p, y, seed) + check_untouched(c->name, &p, y) + check_received(c->name, &p, &d);
        run(&p, &d, again);
        failed += check_same(c->name, "in a second run", &p, y, again, 1);
        if (c->bound == 0) { /* another path, perhaps */
            p.shape.tokens_bound = c->tokens[i] > 0 ? c->tokens[i] : 1;
            run(&p, &d, again);
            failed += check_same(c->name, "with a tight bound", &p, y, again, 1);
            p.shape.tokens_bound = 0;
        }
        if (p.input.tokens % PERMUTATION != 0 && p.input.tokens <= 512) {
            upload_tokens(&d, &p, PERMUTATION);
            run(&p, &d, again);
            failed += check_same(c->name, "in another order", &p, y, again, PERMUTATION);
        }
    }
    free_device(&d);
    free(y);
    free(again);
    problem_free(&p);
    return failed;
}

/* ---- shared experts of the routed ones' format and width have the bits of one more expert that every token has ----
 */

static int run_shared(lp_moe_format format, int32_t layout, uint64_t seed)
{
    enum { EXPERTS = 4, CHOICES = 2, TOKENS = 40 };
    lp_error err = {0};
    const lp_megamoe_shape whole = {.size = sizeof whole,
                                    .experts = EXPERTS + 1,
                                    .hidden = 512,
                                    .intermediate = 256,
                                    .top_k = CHOICES + 1,
                                    .max_tokens = 64,
                                    .format = format,
                                    .x_dtype = LP_BF16,
                                    .id_dtype = LP_I64};
    lp_megamoe_shape apart = whole;
    apart.experts = EXPERTS, apart.top_k = CHOICES, apart.shared_intermediate = whole.intermediate;
    const lp_megamoe_shape one = lp_megamoe_shared_shape(&apart);
    moe_problem p;
    device_problem d;
    CHECK(problem_make(&p, &whole, layout, SCALES_USUAL, seed, &err) == LP_OK, "%s", err.text);
    problem_route(&p, TOKENS, ROUTE_UNIFORM, 0, seed);
    int64_t *const ids = (int64_t *)(uintptr_t)p.input.ids;
    float *const weight = (float *)(uintptr_t)p.input.weight;
    for (int64_t t = 0; t < TOKENS; t++) {
        for (int64_t j = 0; j < CHOICES; j++)
            ids[t * (CHOICES + 1) + j] %= EXPERTS;
        ids[t * (CHOICES + 1) + CHOICES] = EXPERTS;
        weight[t * (CHOICES + 1) + CHOICES] = 1.0f;
    }
    upload_weights(&d, &p);
    upload_tokens(&d, &p, 1);
    const size_t bytes = (size_t)(whole.max_tokens * whole.hidden * 2);
    uint16_t *const y = malloc(bytes), *const again = malloc(bytes);
    run(&p, &d, y);
    for (int64_t t = 0; t < TOKENS; t++) /* routes of the routed experts alone */
        for (int64_t j = 0; j < CHOICES; j++) {
            ids[t * CHOICES + j] = ids[t * (CHOICES + 1) + j];
            weight[t * CHOICES + j] = weight[t * (CHOICES + 1) + j];
        }
    d.shared = d.weights;
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        if (p.layout[slot] == NULL)
            continue;
        const char *const all = d.weights.tensor[slot].data, *const last =
                                                                 all + p.packed_bytes[slot] / (EXPERTS + 1) * EXPERTS;
        CHECK(lp_megamoe_tensor_in(&d.weights.tensor[slot], &apart, p.layout[slot], all, &err) == LP_OK, "%s",
              err.text);
        CHECK(lp_megamoe_tensor_in(&d.shared.tensor[slot], &one, p.layout[slot], last, &err) == LP_OK, "%s", err.text);
    }
    if (d.shared.l1_alpha != NULL) {
        d.shared.l1_alpha += 2 * EXPERTS;
        d.shared.l2_alpha += EXPERTS;
    }
    d.weights.shared = &d.shared;
    p.shape = apart;
    d.workspace_bytes = lp_megamoe_workspace(&apart, &err);
    CHECK(d.workspace_bytes > 0, "%s", err.text);
    d.workspace = device_bytes(&d, NULL, d.workspace_bytes);
    upload_tokens(&d, &p, 1);
    run(&p, &d, again);
    const int failed = check_same("shared", "as one more expert", &p, again, y, 1);
    printf("%s shared, format %d, layout %d: the bits of one more expert\n", failed == 0 ? "ok  " : "FAIL", (int)format,
           (int)layout);
    free_device(&d);
    free(y);
    free(again);
    problem_free(&p);
    return failed;
}

/* ---- a captured call sees new weights, scales and tokens ---- */

static int run_graph(lp_moe_format format, int32_t layout, uint64_t seed)
{
    lp_error err = {0};
    const lp_megamoe_shape shape = {.size = sizeof shape,
                                    .experts = 4,
                                    .hidden = 512,
                                    .intermediate = 256,
                                    .top_k = 2,
                                    .max_tokens = 64,
                                    .format = format,
                                    .x_dtype = LP_BF16,
                                    .id_dtype = LP_I64};
    moe_problem first, second;
    device_problem d;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(problem_make(&first, &shape, layout, SCALES_USUAL, seed, &err) == LP_OK, "%s", err.text);
    CHECK(problem_make(&second, &shape, layout, SCALES_USUAL, seed + 1, &err) == LP_OK, "%s", err.text);
    problem_route(&first, 40, ROUTE_UNIFORM, 0, seed);
    problem_route(&second, 23, ROUTE_HOT, 0, seed + 1);
    upload_weights(&d, &first);
    upload_tokens(&d, &first, 1);
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(lp_megamoe(&shape, &d.weights, &d.io, d.workspace, d.workspace_bytes, stream, &err) == LP_OK, "%s", err.text);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    uint16_t *const y = malloc((size_t)(64 * 512 * 2));
    int failed = 0;
    for (int round = 0; round < 4; round++) {
        const moe_problem *const p = round % 2 == 0 ? &first : &second;
        for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
            put(d.weights.tensor[slot].data, p->packed[slot], p->packed_bytes[slot]);
        if (p->weights.l1_alpha != NULL) {
            put(d.weights.l1_alpha, p->weights.l1_alpha, shape.experts * 8);
            put(d.weights.l2_alpha, p->weights.l2_alpha, shape.experts * 4);
        }
        upload_tokens(&d, p, 1);
        poison(p, &d);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaGraphLaunch(exec, stream));
        fetch(p, &d, y);
        failed += check_values("graph", p, y, seed) + check_untouched("graph", p, y);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(stream));
    free_device(&d);
    free(y);
    problem_free(&first);
    problem_free(&second);
    return failed;
}

int main(int argc, char **argv)
{
    need_gpu();
    const char *const only = argc > 1 ? argv[1] : "";
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261130;
    printf("seed %llu\n", (unsigned long long)seed);
    int failed = 0, ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (is_wanted(cases[i].name, only)) {
            failed += run_case(&cases[i], seed + 1000 * i);
            fflush(stdout);
            ran++;
        }
    if (is_wanted("shared", only))
        for (int format = LP_MXFP4; format <= LP_MOE_BF16; format++)
            for (int32_t n = 0; lp_megamoe_layout((lp_moe_format)format, LP_MOE_L1_WEIGHT, n) != NULL; n++, ran++)
                failed += run_shared((lp_moe_format)format, n, seed);
    if (is_wanted("graph", only))
        for (int format = LP_MXFP4; format <= LP_MOE_BF16; format++)
            for (int32_t n = 0; lp_megamoe_layout((lp_moe_format)format, LP_MOE_L1_WEIGHT, n) != NULL; n++, ran++)
                failed += run_graph((lp_moe_format)format, n, seed);
    CHECK(ran > 0, "no case is called '%s'", only);
    printf("%d cases, %d failed checks\n", ran, failed);
    return failed == 0 ? 0 : 1;
}
