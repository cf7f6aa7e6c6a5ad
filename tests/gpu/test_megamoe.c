/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lp_megamoe against the reference: every format and layout, token counts, routings, scales, activations. Each case
 * runs twice over poisoned outputs and workspace and must give the same bits; a third run has the same tokens in
 * another order. Usage: test_megamoe [PARTS OF CASES' NAMES, BY COMMAS] [SEED].
 */
#include "moe_cases.h"
#include "moe_choice.h"
#include "moe_device.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 48, THREADS = 16, PERMUTATION = 7 };

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
