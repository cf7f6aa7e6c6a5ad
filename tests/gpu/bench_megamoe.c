/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times lp_megamoe as one rank of eight-way expert parallelism sees it, against the read ceiling of the same run, and
 * checks a few tokens of each call against the reference. The L2 cache is flushed by reads before each launch.
 *
 *   bench_megamoe [formats] [shapes] [token counts] [launches] [tokens to check] [format of a shared expert]
 *   bench_megamoe mxfp4,nvfp4 flash,pro 8,64,512 21 2
 *
 * A shared expert is as wide as the others. Its bytes and products count; tokens are not checked with it.
 */
#include "gpu_testing.h"
#include "kernels/megamoe.h"
#include "kernels/number_formats.h"
#include "megamoe_reference.h"
#include "moe_forms.h"

#include <math.h>
#include <string.h>

int read_ceiling(const void *data, size_t bytes, void *out, void *stream);
int sm_clock(uint64_t *out, void *stream);

enum { BLOCK = (1 << 22) - 3 * 4096, CHECKED_MOST = 8 };

static const size_t FLUSH_BYTES = (size_t)512 << 20, CEILING_BYTES = (size_t)4 << 30;

typedef struct model {
    const char *name;
    int64_t experts, hidden, intermediate, top_k;
} model;

static const model models[] = {
    {"tiny", 8, 512, 384, 2}, {"small", 16, 2048, 1024, 4}, {"flash", 32, 4096, 2048, 6}, {"pro", 48, 7168, 3072, 6}};

typedef struct layer {
    lp_megamoe_shape shape;
    lp_megamoe_weights weights;
    uint8_t *host[LP_MOE_SLOTS];
    int64_t bytes[LP_MOE_SLOTS];
    float *alpha_host, *alpha; /* l1 [E, 2], l2 [E], activation scale [1] */
    struct layer *shared;      /* the shared expert, or NULL */
} layer;

static char *flush_buffer, *ceiling_buffer, *sink;
static double ceiling;
static uint64_t *clock_out;
static cudaEvent_t from, to;
static int to_check = 2;

/* One of 4,096 nearly normal numbers. */
static float random_normal(uint64_t *state)
{
    enum { VALUES = 4096 };
    static float table[VALUES];
    if (table[0] == 0) {
        uint64_t own = 5;
        for (int i = 0; i < VALUES; i++) {
            double sum = -6.0;
            for (int k = 0; k < 12; k++)
                sum += (double)(random_next(&own) >> 11) * 0x1p-53;
            table[i] = (float)sum;
        }
    }
    return table[random_next(state) % VALUES];
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Random bytes of a slot, repeated at a distance that no expert's size divides. */
static void fill(lp_moe_format format, int slot, uint8_t *data, int64_t bytes)
{
    static uint8_t block[BLOCK];
    uint64_t state = 11 + (uint64_t)slot;
    const bool is_scale = slot % 2 == 1;
    for (int i = 0; i < BLOCK; i++) {
        const uint64_t r = random_next(&state) >> 32;
        block[i] = (uint8_t)r;
        if (is_scale)
            block[i] = format == LP_NVFP4 ? (uint8_t)(0x20 + r % 24) : (uint8_t)(114 + r % 5);
        else if (format == LP_MXFP8 || format == LP_FP8_BLOCK128)
            block[i] = (uint8_t)lp_e4m3_code(random_normal(&state)); /* as trained weights are spread */
    }
    if (is_scale && format == LP_FP8_BLOCK128)
        for (int i = 0; i < BLOCK / 4; i++) {
            const float scale = 0.01f * (1.0f + (float)(random_next(&state) % 1000) * 0.001f);
            memcpy(block + 4 * i, &scale, 4);
        }
    if (!is_scale && format == LP_MOE_BF16)
        for (int i = 0; i < BLOCK / 2; i++) {
            const uint16_t code = bf16_of(0.02f * random_normal(&state));
            memcpy(block + 2 * i, &code, 2);
        }
    for (int64_t at = 0; at < bytes; at += BLOCK)
        memcpy(data + at, block, (size_t)(bytes - at < BLOCK ? bytes - at : BLOCK));
}

static void make_layer(layer *l, const model *m, lp_moe_format format, int64_t max_tokens)
{
    lp_error err;
    *l = (layer){.shape = {.size = sizeof l->shape,
                           .experts = m->experts,
                           .hidden = m->hidden,
                           .intermediate = m->intermediate,
                           .top_k = m->top_k,
                           .max_tokens = max_tokens,
                           .format = format,
                           .x_dtype = LP_BF16,
                           .id_dtype = LP_I32},
                 .weights = {.size = sizeof l->weights}};
    const lp_layout_sizes sizes = {m->experts, m->hidden, m->intermediate};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        const char *const id = lp_megamoe_layout(format, (lp_moe_slot)slot, 0);
        if (id == NULL)
            continue;
        lp_layout_shape form;
        void *data;
        CHECK(lp_layout_describe(lp_layout_find(id), &sizes, &form, &err) == LP_OK, "%s", err.text);
        l->bytes[slot] = form.bytes;
        l->host[slot] = malloc((size_t)form.bytes);
        CHECK(l->host[slot] != NULL, "out of memory");
        fill(format, slot, l->host[slot], form.bytes);
        CUDA(cudaMalloc(&data, (size_t)form.bytes));
        CUDA(cudaMemcpy(data, l->host[slot], (size_t)form.bytes, cudaMemcpyHostToDevice));
        CHECK(lp_megamoe_tensor_in(&l->weights.tensor[slot], &l->shape, id, data, &err) == LP_OK, "%s", err.text);
    }
    if (format != LP_NVFP4)
        return;
    const int64_t count = 3 * m->experts + 1;
    uint64_t state = 5;
    l->alpha_host = malloc((size_t)count * sizeof(float));
    CHECK(l->alpha_host != NULL, "out of memory");
    for (int64_t i = 0; i < count; i++)
        l->alpha_host[i] = 0.01f + 0.01f * (float)random_below(&state, 4);
    CUDA(cudaMalloc((void **)&l->alpha, (size_t)count * sizeof(float)));
    CUDA(cudaMemcpy(l->alpha, l->alpha_host, (size_t)count * sizeof(float), cudaMemcpyHostToDevice));
    l->weights.l1_alpha = l->alpha;
    l->weights.l1_alpha_columns = 2;
    l->weights.l2_alpha = l->alpha + 2 * m->experts;
    l->weights.l2_activation_scale = l->alpha + 3 * m->experts;
}

static void add_shared(layer *l, layer *shared, const model *m, lp_moe_format format)
{
    const model one = {m->name, 1, m->hidden, m->intermediate, 1};
    make_layer(shared, &one, format, l->shape.max_tokens);
    l->shared = shared;
    l->weights.shared = &shared->weights;
    l->shape.shared_intermediate = m->intermediate;
    l->shape.shared_format = format;
}

static int64_t bytes_of(const layer *l)
{
    int64_t all = 0;
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
        all += l->bytes[slot];
    return all;
}

static void free_layer(layer *l)
{
    if (l->shared != NULL)
        free_layer(l->shared);
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        free(l->host[slot]);
        if (l->bytes[slot] > 0)
            CUDA(cudaFree((void *)(uintptr_t)l->weights.tensor[slot].data));
    }
    free(l->alpha_host);
    CUDA(cudaFree(l->alpha));
}

/* ---- one call ---- */

typedef struct call {
    lp_megamoe_io io;
    int64_t tokens, hit;
    uint16_t *x_host, *y_host;
    int64_t *id_host;
    float *weight_host;
    void *x, *ids, *weight, *count, *y, *workspace;
    int64_t workspace_bytes;
} call;

static void make_routes(const lp_megamoe_shape *s, call *c, int32_t *ids)
{
    uint64_t state = 3 + (uint64_t)c->tokens;
    uint8_t seen[512] = {0};
    for (int64_t t = 0; t < c->tokens; t++)
        for (int64_t j = 0; j < s->top_k; j++) {
            int32_t id;
            bool is_new;
            do {
                id = (int32_t)random_below(&state, s->experts);
                is_new = true;
                for (int64_t i = 0; i < j; i++)
                    is_new = is_new && ids[t * s->top_k + i] != id;
            } while (!is_new);
            const int64_t at = t * s->top_k + j;
            ids[at] = id;
            c->id_host[at] = id;
            c->weight_host[at] = 0.05f + 0.01f * (float)random_below(&state, 30);
            c->hit += !seen[id];
            seen[id] = 1;
        }
}

static void *upload(const void *host, int64_t bytes)
{
    void *device;
    CUDA(cudaMalloc(&device, (size_t)bytes));
    CUDA(cudaMemcpy(device, host, (size_t)bytes, cudaMemcpyHostToDevice));
    return device;
}

static void make_call(const layer *l, call *c, int64_t tokens)
{
    const lp_megamoe_shape *const s = &l->shape;
    const int64_t values = tokens * s->hidden, routes = tokens * s->top_k;
    const int32_t count = (int32_t)tokens;
    uint64_t state = 9;
    lp_error err;
    *c = (call){.tokens = tokens, .workspace_bytes = lp_megamoe_workspace(s, &err)};
    CHECK(c->workspace_bytes > 0, "%s", err.text);
    int32_t *const ids = malloc((size_t)routes * sizeof *ids);
    c->x_host = malloc((size_t)values * 2);
    c->y_host = malloc((size_t)values * 2);
    c->id_host = malloc((size_t)routes * sizeof *c->id_host);
    c->weight_host = malloc((size_t)routes * sizeof *c->weight_host);
    CHECK(ids && c->x_host && c->y_host && c->id_host && c->weight_host, "out of memory");
    for (int64_t i = 0; i < values; i++)
        c->x_host[i] = bf16_of(random_normal(&state));
    make_routes(s, c, ids);
    c->x = upload(c->x_host, values * 2);
    c->ids = upload(ids, routes * 4);
    c->weight = upload(c->weight_host, routes * 4);
    c->count = upload(&count, 4);
    CUDA(cudaMalloc(&c->y, (size_t)values * 2));
    CUDA(cudaMemset(c->y, 0xff, (size_t)values * 2));
    CUDA(cudaMalloc(&c->workspace, (size_t)c->workspace_bytes));
    CUDA(cudaMemset(c->workspace, 0xff, (size_t)c->workspace_bytes));
    c->io = (lp_megamoe_io){
        .size = sizeof c->io, .x = c->x, .topk_ids = c->ids, .topk_weight = c->weight, .tokens = c->count, .y = c->y};
    free(ids);
}

static void free_call(call *c)
{
    free(c->x_host);
    free(c->y_host);
    free(c->id_host);
    free(c->weight_host);
    CUDA(cudaFree(c->x));
    CUDA(cudaFree(c->ids));
    CUDA(cudaFree(c->weight));
    CUDA(cudaFree(c->count));
    CUDA(cudaFree(c->y));
    CUDA(cudaFree(c->workspace));
}

static void run(const layer *l, const call *c)
{
    lp_error err;
    CHECK(lp_megamoe(&l->shape, &l->weights, &c->io, c->workspace, c->workspace_bytes, NULL, &err) == LP_OK, "%s",
          err.text);
}

/* Checkpoint order again, for the experts of the checked tokens only; the others stay zero and unread. */
static uint8_t *checkpoint_tensor(const layer *l, lp_moe_slot slot, lp_shard shard, const call *c, int64_t checked)
{
    const lp_megamoe_shape *const s = &l->shape;
    const lp_layout_sizes sizes = {s->experts, s->hidden, s->intermediate};
    const lp_layout *const layout = lp_layout_find(l->weights.tensor[slot].layout);
    const int64_t bytes = l->bytes[slot] / s->experts / (shard == LP_SHARD_DOWN ? 1 : 2);
    lp_error err;
    uint8_t done[512] = {0}, *const out = calloc((size_t)s->experts, (size_t)bytes);
    CHECK(out != NULL, "out of memory");
    for (int64_t i = 0; i < checked * s->top_k; i++) {
        const int64_t e = c->id_host[i];
        if (!done[e])
            CHECK(lp_layout_undo(layout, &sizes, shard, e, l->host[slot], out + e * bytes, NULL, &err) == LP_OK, "%s",
                  err.text);
        done[e] = 1;
    }
    return out;
}

static reference_error check(const layer *l, call *c)
{
    static const lp_shard shards[] = {LP_SHARD_GATE, LP_SHARD_UP, LP_SHARD_DOWN};
    const lp_megamoe_shape *const s = &l->shape;
    const int64_t checked = c->tokens < to_check ? c->tokens : to_check;
    const int64_t token[CHECKED_MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    const bool has_scales = s->format != LP_MOE_BF16;
    uint8_t *part[3], *scale[3] = {NULL};
    CUDA(cudaMemcpy(c->y_host, c->y, (size_t)(c->tokens * s->hidden * 2), cudaMemcpyDeviceToHost));
    if (checked == 0)
        return (reference_error){0};
    for (int i = 0; i < 3; i++) {
        part[i] = checkpoint_tensor(l, i < 2 ? LP_MOE_L1_WEIGHT : LP_MOE_L2_WEIGHT, shards[i], c, checked);
        if (has_scales)
            scale[i] = checkpoint_tensor(l, i < 2 ? LP_MOE_L1_SCALE : LP_MOE_L2_SCALE, shards[i], c, checked);
    }
    const reference_weights weights = {part[0],
                                       part[1],
                                       part[2],
                                       scale[0],
                                       scale[1],
                                       scale[2],
                                       l->alpha_host,
                                       l->alpha_host ? l->alpha_host + 2 * s->experts : NULL,
                                       l->alpha_host ? l->alpha_host + 3 * s->experts : NULL,
                                       2,
                                       NULL};
    const reference_input input = {c->x_host, NULL, c->id_host, c->weight_host, c->tokens};
    double *const want = malloc((size_t)(2 * checked * s->hidden) * sizeof *want);
    CHECK(want != NULL, "out of memory");
    lp_megamoe_shape shape = *s;
    shape.activation_alpha = 1.0f;
    reference_tokens(&shape, &weights, &input, token, checked, 16, want, want + checked * s->hidden);
    const reference_error e = reference_compare(c->y_host, want, token, checked, s->hidden);
    free(want);
    for (int i = 0; i < 3; i++) {
        free(part[i]);
        free(scale[i]);
    }
    return e;
}

/* ---- timing ---- */

static int by_float(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double timed(const layer *l, const call *c, int launches, double *ghz)
{
    float ms[101];
    uint64_t ticks[2];
    for (int i = -2; i < launches; i++) {
        CUDA(read_ceiling(flush_buffer, FLUSH_BYTES, sink, NULL));
        CUDA(cudaEventRecord(from, NULL));
        run(l, c);
        CUDA(cudaEventRecord(to, NULL));
        CUDA(sm_clock(clock_out, NULL));
        CUDA(cudaEventSynchronize(to));
        if (i >= 0)
            CUDA(cudaEventElapsedTime(&ms[i], from, to));
    }
    CUDA(cudaMemcpy(ticks, clock_out, sizeof ticks, cudaMemcpyDeviceToHost));
    *ghz = (double)ticks[0] / (double)ticks[1];
    qsort(ms, (size_t)launches, sizeof ms[0], by_float);
    return (double)ms[launches / 2] * 1e-3;
}

static double measure_ceiling(void)
{
    float least = 1e9f;
    for (int i = 0; i < 7; i++) {
        float ms;
        CUDA(cudaEventRecord(from, NULL));
        CUDA(read_ceiling(ceiling_buffer, CEILING_BYTES, sink, NULL));
        CUDA(cudaEventRecord(to, NULL));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&ms, from, to));
        if (ms < least)
            least = ms;
    }
    return (double)CEILING_BYTES / ((double)least * 1e-3);
}

static void bench(layer *l, const char *name, const model *m, int64_t tokens, int launches)
{
    call c;
    double ghz;
    l->shape.tokens_bound = tokens;
    make_call(l, &c, tokens);
    run(l, &c);
    CUDA(cudaDeviceSynchronize());
    const reference_error e = check(l, &c);
    uint16_t *const first = malloc((size_t)(tokens * m->hidden * 2));
    CHECK(first != NULL, "out of memory");
    memcpy(first, c.y_host, (size_t)(tokens * m->hidden * 2));
    const double seconds = timed(l, &c, launches, &ghz);
    CUDA(cudaMemcpy(c.y_host, c.y, (size_t)(tokens * m->hidden * 2), cudaMemcpyDeviceToHost));
    const bool same = memcmp(first, c.y_host, (size_t)(tokens * m->hidden * 2)) == 0;
    const double bytes = (double)bytes_of(l) / (double)m->experts * (double)c.hit +
                         (l->shared != NULL ? (double)bytes_of(l->shared) : 0.0);
    const int64_t experts = m->top_k + (l->shared != NULL ? 1 : 0); /* of a token */
    const double flop = 6.0 * (double)(tokens * experts) * (double)(m->hidden * m->intermediate);
    printf("%-5s %-5s %5lld tokens %3lld hit | %8.1f us %6.3f TB/s %.3f of reads %7.1f TFLOP/s | %.2f GHz | error %.1e "
           "worst row %.1e nan %lld%s\n",
           name, m->name, (long long)tokens, (long long)c.hit, seconds * 1e6, bytes / seconds * 1e-12,
           bytes / seconds / ceiling, flop / seconds * 1e-12, ghz, e.relative, e.worst_row, (long long)e.wrong_nan,
           same ? "" : " RUNS DIFFER");
    fflush(stdout);
    free(first);
    free_call(&c);
}

static lp_moe_format form_called(const char *name)
{
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
        if (strcmp(forms[f].name, name) == 0)
            return forms[f].format;
    CHECK(false, "there is no format '%s'", name);
    return 0;
}

/* The name of FP8 blocks whose sums may be coarse (lp_megamoe_shape.fast). */
#define FAST "fp8-fast"

int main(int argc, char **argv)
{
    const char *const formats = argc > 1 ? argv[1] : "mxfp4,nvfp4", *const shapes = argc > 2 ? argv[2] : "flash,pro";
    const char *const counts = argc > 3 ? argv[3] : "8,64,512";
    int launches = argc > 4 ? atoi(argv[4]) : 21;
    if (launches < 1 || launches > 101)
        launches = 21;
    if (argc > 5)
        to_check = atoi(argv[5]);
    to_check = to_check < 0 || to_check > CHECKED_MOST ? CHECKED_MOST : to_check;
    const lp_moe_format shared_format = argc > 6 ? form_called(argv[6]) : 0;
    if (shared_format != 0)
        to_check = 0;
    need_gpu();
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    CUDA(cudaMalloc((void **)&flush_buffer, FLUSH_BYTES));
    CUDA(cudaMalloc((void **)&ceiling_buffer, CEILING_BYTES));
    CUDA(cudaMalloc((void **)&sink, 256));
    CUDA(cudaMalloc((void **)&clock_out, 16));
    CUDA(cudaMemset(flush_buffer, 1, FLUSH_BYTES));
    CUDA(cudaMemset(ceiling_buffer, 1, CEILING_BYTES));
    ceiling = measure_ceiling();
    printf("read ceiling %.0f GB/s, median of %d launches\n", ceiling * 1e-9, launches);
    int64_t most = 1;
    for (const char *at = counts; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        most = atoll(at) > most ? atoll(at) : most;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++)
        for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
            const bool can_fast = forms[f].format == LP_FP8_BLOCK128, fast = can_fast && is_listed(formats, FAST);
            const bool usual = is_listed(formats, forms[f].name);
            if ((!usual && !fast) || !is_listed(shapes, models[m].name))
                continue;
            layer l, shared;
            make_layer(&l, &models[m], forms[f].format, most);
            if (shared_format != 0)
                add_shared(&l, &shared, &models[m], shared_format);
            for (const char *at = counts; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                for (int i = usual ? 0 : 1; i <= (fast ? 1 : 0); i++) {
                    l.shape.fast = i == 1;
                    bench(&l, l.shape.fast ? FAST : forms[f].name, &models[m], atoll(at), launches);
                }
            free_layer(&l);
        }
    return 0;
}
