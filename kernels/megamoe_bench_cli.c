/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `loadplan bench megamoe`: lp_megamoe as one rank of eight-way expert parallelism sees it, without the communication.
 * Each token chooses different experts of this rank at random; the L2 cache is flushed by reads before each launch;
 * only the weights of experts that some token chose are counted; the read ceiling is measured in the same process.
 * A GPU that comes from idling needs some 20 launches of this to reach its speed, reads alone do not bring it there;
 * and products that last lower its clock. So launches of WARM_SECONDS in all are not counted, and not more.
 */
#include "traces/bench_cli.h"

#ifdef LOADPLAN_HAVE_CUDA

#include "kernels/megamoe.h"
#include "kernels/megamoe_bench.h"

#include "traces/base.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAUNCHES = 21, EXPERTS_MOST = 64, CHOICES = 6 };
static const double WARM_SECONDS = 0.015;
static const int64_t FLUSH_BYTES = (int64_t)512 << 20, CEILING_BYTES = (int64_t)4 << 30;

typedef struct model {
    const char *name;
    int64_t experts, hidden, intermediate;
} model;

static const model flash = {"Flash", 32, 4096, 2048}, pro = {"Pro", 48, 7168, 3072};

typedef enum measure { OF_READS, MICROSECONDS, TERAFLOPS } measure;

/* Device memory of one bench, all of it freed at the end of the process. */
typedef struct bench {
    lp_megamoe_shape shape;
    lp_megamoe_weights weights;
    lp_megamoe_io io;
    void *workspace, *flush, *sink;
    int64_t workspace_bytes, weight_bytes, hit;
    cudaEvent_t from, to;
    double ceiling; /* bytes a second */
} bench;

#define TRY_CUDA(call)                                                                                                 \
    do {                                                                                                               \
        const int code_ = (int)(call);                                                                                 \
        if (code_ != cudaSuccess)                                                                                      \
            return lp_fail(err, LP_E_DEVICE, "cuda: %s", cudaGetErrorString((cudaError_t)code_));                      \
    } while (0)

static lp_status device_bytes(void **out, int64_t bytes, lp_error *err)
{
    TRY_CUDA(cudaMalloc(out, (size_t)bytes));
    return LP_OK;
}

static lp_status make_weights(bench *b, lp_error *err)
{
    const lp_megamoe_shape *const s = &b->shape;
    const lp_layout_sizes sizes = {s->experts, s->hidden, s->intermediate};
    b->weights.size = sizeof b->weights;
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        const char *const id = lp_megamoe_layout(s->format, (lp_moe_slot)slot, 0);
        lp_layout_shape form;
        void *data;
        if (id == NULL)
            continue;
        LP_TRY(lp_layout_describe(lp_layout_find(id), &sizes, &form, err));
        LP_TRY(device_bytes(&data, form.bytes, err));
        TRY_CUDA(lp_moe_bench_fill(data, form.bytes, lp_moe_bench_kind(s->format, slot), NULL));
        LP_TRY(lp_megamoe_tensor_in(&b->weights.tensor[slot], s, id, data, err));
        b->weight_bytes += form.bytes;
    }
    if (s->format != LP_NVFP4)
        return LP_OK;
    void *alpha;
    const int64_t bytes = 3 * EXPERTS_MOST * (int64_t)sizeof(float);
    LP_TRY(device_bytes(&alpha, bytes, err));
    TRY_CUDA(lp_moe_bench_fill(alpha, bytes, LP_MOE_RANDOM_F32, NULL));
    b->weights.l1_alpha = alpha;
    b->weights.l1_alpha_columns = 2;
    b->weights.l2_alpha = b->weights.l1_alpha + 2 * EXPERTS_MOST;
    return LP_OK;
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* CHOICES different experts for each token. Returns how many experts some token chose. */
static int64_t choose_experts(const bench *b, int32_t *ids, int64_t tokens, uint64_t seed)
{
    uint64_t state = seed;
    int64_t hit = 0;
    bool is_hit[EXPERTS_MOST] = {false};
    for (int64_t t = 0; t < tokens; t++) {
        int32_t order[EXPERTS_MOST];
        for (int32_t e = 0; e < b->shape.experts; e++)
            order[e] = e;
        for (int j = 0; j < CHOICES; j++) {
            const uint32_t other = (uint32_t)j + next_random(&state) % (uint32_t)(b->shape.experts - j);
            const int32_t chosen = order[other];
            order[other] = order[j];
            ids[t * CHOICES + j] = chosen;
            hit += !is_hit[chosen];
            is_hit[chosen] = true;
        }
    }
    return hit;
}

/* As many experts as are chosen on average: 26 of 32 and 32 of 48 by 8 tokens. */
static int64_t usual_hit(int64_t experts, int64_t tokens)
{
    double missed = (double)experts;
    for (int64_t t = 0; t < tokens; t++)
        missed *= 1.0 - (double)CHOICES / (double)experts;
    return experts - (int64_t)(missed + 0.5);
}

static lp_status make_call(bench *b, int64_t tokens, lp_error *err)
{
    const int64_t values = tokens * b->shape.hidden, routes = tokens * CHOICES;
    const int32_t count = (int32_t)tokens;
    void *x, *ids, *weight, *device_count, *y;
    int32_t *const host = lp_allocate(NULL, (size_t)routes * sizeof *host);
    if (host == NULL)
        return lp_fail_memory(err);
    for (uint64_t seed = 1; b->hit != usual_hit(b->shape.experts, tokens); seed++)
        b->hit = choose_experts(b, host, tokens, seed);
    lp_status status = LP_OK;
    LP_TRY_GOTO(device_bytes(&ids, routes * (int64_t)sizeof *host, err), free_host);
    if (cudaMemcpy(ids, host, (size_t)routes * sizeof *host, cudaMemcpyHostToDevice) != cudaSuccess)
        status = lp_fail(err, LP_E_DEVICE, "cannot copy the routes");
free_host:
    lp_release(NULL, host);
    LP_TRY(status);
    LP_TRY(device_bytes(&x, values * 2, err));
    LP_TRY(device_bytes(&y, values * 2, err));
    LP_TRY(device_bytes(&weight, routes * 4, err));
    LP_TRY(device_bytes(&device_count, 4, err));
    TRY_CUDA(lp_moe_bench_fill(x, values * 2, LP_MOE_RANDOM_BF16, NULL));
    TRY_CUDA(lp_moe_bench_fill(weight, routes * 4, LP_MOE_RANDOM_F32, NULL));
    TRY_CUDA(cudaMemcpy(device_count, &count, sizeof count, cudaMemcpyHostToDevice));
    b->io = (lp_megamoe_io){
        .size = sizeof b->io, .x = x, .topk_ids = ids, .topk_weight = weight, .tokens = device_count, .y = y};
    b->workspace_bytes = lp_megamoe_workspace(&b->shape, err);
    if (b->workspace_bytes == 0)
        return LP_E_UNSUPPORTED;
    return device_bytes(&b->workspace, b->workspace_bytes, err);
}

static lp_status elapsed(bench *b, double *seconds, lp_error *err)
{
    float ms;
    TRY_CUDA(cudaEventSynchronize(b->to));
    TRY_CUDA(cudaEventElapsedTime(&ms, b->from, b->to));
    *seconds = (double)ms * 1e-3;
    return LP_OK;
}

static lp_status measure_ceiling(bench *b, lp_error *err)
{
    void *memory;
    LP_TRY(device_bytes(&memory, CEILING_BYTES, err));
    TRY_CUDA(cudaMemset(memory, 1, (size_t)CEILING_BYTES));
    for (int i = 0; i < 5; i++) {
        double seconds = 0;
        TRY_CUDA(cudaEventRecord(b->from, NULL));
        TRY_CUDA(lp_moe_bench_read(memory, CEILING_BYTES, b->sink, NULL));
        TRY_CUDA(cudaEventRecord(b->to, NULL));
        LP_TRY(elapsed(b, &seconds, err));
        if ((double)CEILING_BYTES / seconds > b->ceiling)
            b->ceiling = (double)CEILING_BYTES / seconds;
    }
    TRY_CUDA(cudaFree(memory));
    return LP_OK;
}

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* One launch, with nothing of it in the L2 cache before. */
static lp_status time_launch(bench *b, double *seconds, lp_error *err)
{
    TRY_CUDA(lp_moe_bench_read(b->flush, FLUSH_BYTES, b->sink, NULL));
    TRY_CUDA(cudaEventRecord(b->from, NULL));
    LP_TRY(lp_megamoe(&b->shape, &b->weights, &b->io, b->workspace, b->workspace_bytes, NULL, err));
    TRY_CUDA(cudaEventRecord(b->to, NULL));
    return elapsed(b, seconds, err);
}

static lp_status get_y(const bench *b, void *to, size_t bytes, lp_error *err)
{
    TRY_CUDA(cudaMemcpy(to, b->io.y, bytes, cudaMemcpyDeviceToHost));
    return LP_OK;
}

/* Median of the launches, and whether the last gave the bytes of the first. */
static lp_status time_launches(bench *b, int64_t tokens, lp_bench_result *r, double *median, lp_error *err)
{
    const size_t bytes = (size_t)(tokens * b->shape.hidden * 2);
    int64_t sorted[LAUNCHES];
    double seconds = 0.0;
    char *const y = lp_allocate(NULL, 2 * bytes);
    if (y == NULL)
        return lp_fail_memory(err);
    lp_status status = LP_OK;
    LP_TRY_GOTO(time_launch(b, &seconds, err), free_y);
    LP_TRY_GOTO(get_y(b, y, bytes, err), free_y);
    for (double warm = 0.0; warm < WARM_SECONDS; warm += seconds)
        LP_TRY_GOTO(time_launch(b, &seconds, err), free_y);
    for (int i = 0; i < LAUNCHES; i++) {
        LP_TRY_GOTO(time_launch(b, &seconds, err), free_y);
        sorted[i] = r->ns[i] = (int64_t)(seconds * 1e9);
    }
    LP_TRY_GOTO(get_y(b, y + bytes, bytes, err), free_y);
    r->rounds = LAUNCHES;
    r->wrong = memcmp(y, y + bytes, bytes) != 0;
    qsort(sorted, LAUNCHES, sizeof sorted[0], by_value);
    *median = (double)sorted[LAUNCHES / 2] * 1e-9;
free_y:
    lp_release(NULL, y);
    return status;
}

static lp_status read_clock(bench *b, double *ghz, lp_error *err)
{
    uint64_t ticks[2];
    TRY_CUDA(lp_moe_bench_clock(b->sink, NULL));
    TRY_CUDA(cudaMemcpy(ticks, b->sink, sizeof ticks, cudaMemcpyDeviceToHost));
    *ghz = (double)ticks[0] / (double)ticks[1];
    return LP_OK;
}

static lp_status run(lp_moe_format format, const model *m, int64_t tokens, measure value, lp_bench_result *r,
                     lp_error *err)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return lp_fail(err, LP_E_DEVICE, "there is no GPU");
    bench b = {.shape = {.size = sizeof b.shape,
                         .experts = m->experts,
                         .hidden = m->hidden,
                         .intermediate = m->intermediate,
                         .top_k = CHOICES,
                         .max_tokens = tokens,
                         .format = format,
                         .x_dtype = LP_BF16,
                         .id_dtype = LP_I32}};
    double seconds = 0, ghz = 0;
    TRY_CUDA(cudaEventCreate(&b.from));
    TRY_CUDA(cudaEventCreate(&b.to));
    LP_TRY(device_bytes(&b.sink, 256, err));
    LP_TRY(device_bytes(&b.flush, FLUSH_BYTES, err));
    TRY_CUDA(cudaMemset(b.flush, 1, (size_t)FLUSH_BYTES));
    LP_TRY(measure_ceiling(&b, err));
    LP_TRY(make_weights(&b, err));
    LP_TRY(make_call(&b, tokens, err));
    LP_TRY(time_launches(&b, tokens, r, &seconds, err));
    LP_TRY(read_clock(&b, &ghz, err));
    const double bytes = (double)b.weight_bytes / (double)m->experts * (double)b.hit;
    const double flop = 6.0 * (double)(tokens * CHOICES) * (double)(m->hidden * m->intermediate);
    r->size = tokens;
    r->value = value == OF_READS       ? bytes / seconds / b.ceiling
               : value == MICROSECONDS ? seconds * 1e6
                                       : flop / seconds * 1e-12;
    snprintf(r->note, sizeof r->note, "%.1f us, %.2f TB/s of %.2f, %.0f TFLOP/s, %lld experts, %.2f GHz", seconds * 1e6,
             bytes / seconds * 1e-12, b.ceiling * 1e-12, flop / seconds * 1e-12, (long long)b.hit, ghz);
    return LP_OK;
}

/* ---- the table ---- */

/* clang-format off */
#define ROWS(X)                                                                                                        \
    X(mxfp4, LP_MXFP4, flash, 8, MICROSECONDS, 100)   X(mxfp4, LP_MXFP4, pro, 8, MICROSECONDS, 300)                    \
    X(mxfp4, LP_MXFP4, flash, 64, OF_READS, 0.80)     X(mxfp4, LP_MXFP4, pro, 64, OF_READS, 0.88)                      \
    X(mxfp4, LP_MXFP4, flash, 512, MICROSECONDS, 215) X(mxfp4, LP_MXFP4, pro, 512, MICROSECONDS, 620)                  \
    X(mxfp4, LP_MXFP4, flash, 8192, TERAFLOPS, 800)                                                                    \
    X(nvfp4, LP_NVFP4, flash, 64, OF_READS, 0.67)     X(nvfp4, LP_NVFP4, pro, 64, OF_READS, 0.70)                      \
    X(nvfp4, LP_NVFP4, flash, 512, MICROSECONDS, 300) X(nvfp4, LP_NVFP4, pro, 512, MICROSECONDS, 760)                  \
    X(nvfp4, LP_NVFP4, flash, 8192, TERAFLOPS, 600)                                                                    \
    X(fp8, LP_FP8_BLOCK128, flash, 8, MICROSECONDS, 168)  X(fp8, LP_FP8_BLOCK128, flash, 64, MICROSECONDS, 200)        \
    X(fp8, LP_FP8_BLOCK128, flash, 2048, TERAFLOPS, 850)  X(fp8, LP_FP8_BLOCK128, flash, 8192, TERAFLOPS, 950)
/* clang-format on */

#define FUNCTION(name, format, model, tokens, value, bar)                                                              \
    static lp_status run_##name##_##model##_##tokens(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)       \
    {                                                                                                                  \
        (void)bed;                                                                                                     \
        return run(format, &model, tokens, value, r, err);                                                             \
    }
ROWS(FUNCTION)

#define ROW(id, format, model, count, measured, limit)                                                                 \
    {.name = "megamoe." #id "." #model "." #count,                                                                     \
     .summary = "a mixture-of-experts layer of one rank, " #count " tokens",                                           \
     .size_unit = "tokens",                                                                                            \
     .sense = (measured) == MICROSECONDS ? LP_BENCH_AT_MOST : LP_BENCH_AT_LEAST,                                       \
     .unit = (measured) == OF_READS       ? "ratio"                                                                    \
             : (measured) == MICROSECONDS ? "us"                                                                       \
                                          : "TFLOP/s",                                                                 \
     .bar = limit,                                                                                                     \
     .run = run_##id##_##model##_##count,                                                                              \
     .is_apart = true},

static const lp_bench rows[] = {ROWS(ROW)};

const lp_bench_table lp_kernel_benches = {rows, sizeof rows / sizeof rows[0]};

#else

#include "traces/base.h"

/* In the list all the same, so that who asks for it hears what is missing. */
static lp_status run_nowhere(const lp_bench_bed *bed, lp_bench_result *result, lp_error *err)
{
    (void)bed;
    (void)result;
    return lp_fail(err, LP_E_DEVICE, "the benches of 'megamoe' need a build with CUDA, and a GPU");
}

static const lp_bench rows[] = {{.name = "megamoe",
                                 .summary = "mixture-of-experts layers on a GPU: not in this build",
                                 .size_unit = "tokens",
                                 .unit = "us",
                                 .run = run_nowhere,
                                 .is_apart = true}};

const lp_bench_table lp_kernel_benches = {rows, 1};

#endif
