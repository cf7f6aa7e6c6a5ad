/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer over several ranks against one GPU that holds all experts and all tokens: y must have the same bits. Ranks
 * are streams of this process, spread over as many GPUs as there are.
 *
 *   test_moe_exchange [PARTS OF CASES' NAMES, BY COMMAS] [GPUS] [SEED]
 */
#include "moe_choice.h"
#include "moe_world.h"

static const int64_t BRIEF_NS = 300000000;

#define SMALL .hidden = 512, .intermediate = 256, .experts = 3
#define OF_FORMAT(label, format, n)                                                                                    \
    {label "-one", format, n, 1, SMALL, .tokens = {40}},                                                               \
        {label "-two", format, n, 2, SMALL, .tokens = {17, 64}, .first_expert = 10},                                   \
        {label "-two-many", format, n, 2, SMALL, .tokens = {96, 95}, .bound = 96, .wide_ids = true},                   \
        {label "-three", format, n, 3, SMALL, .tokens = {5, 0, 40}, .bound = 40},                                      \
        {label "-four", format, n, 4, SMALL, .tokens = {8, 8, 8, 8}, .bound = 8},                                      \
        {label "-all-for-one", format, n, 3, SMALL, .tokens = {30, 20, 10}, .routing = ROUTE_HOT},                     \
        {label "-all-of-one", format, n, 4, SMALL, .tokens = {0, 0, 90, 0}},                                           \
        {label "-half", format, n, 2, SMALL, .tokens = {33, 34}, .routing = ROUTE_HALF_EMPTY},                         \
        {label "-uneven", format, n, 3, SMALL, .tokens = {96, 48, 48}, .routing = ROUTE_UNEVEN},                       \
        {label "-masked", format, n, 2, SMALL, .tokens = {33, 34}, .routing = ROUTE_MASKED},                           \
        {label "-all-masked", format, n, 2, SMALL, .tokens = {9, 1}, .routing = ROUTE_ALL_MASKED},                     \
        {label "-none", format, n, 2, SMALL, .tokens = {0, 0}},                                                        \
        {label "-duplicates", format, n, 2, SMALL, .tokens = {50, 20}, .routing = ROUTE_DUPLICATES},                   \
        {label "-middle",    format,     n, 2, .hidden = 512, .intermediate = 2048, .experts = 4,                      \
         .tokens = {20, 32}, .bound = 32},                                                                             \
        {label "-elsewhere", format,          n, 2, SMALL, .tokens = {50, 20}, .routing = ROUTE_OTHER_RANKS,           \
         .first_expert = 9,  .wide_ids = true},                                                                        \
    {                                                                                                                  \
        label "-large", format, n, 2, .hidden = 2048, .intermediate = 2048, .experts = 4, .tokens = { 64, 96 }         \
    }

static const exchange_case cases[] = {
    OF_FORMAT("mxfp4-packed", LP_MXFP4, 0),
    OF_FORMAT("mxfp4-contract", LP_MXFP4, 1),
    OF_FORMAT("nvfp4-packed", LP_NVFP4, 0),
    OF_FORMAT("nvfp4-contract", LP_NVFP4, 1),
    OF_FORMAT("fp8", LP_FP8_BLOCK128, 0),
    OF_FORMAT("mxfp8", LP_MXFP8, 0),
    OF_FORMAT("bf16", LP_MOE_BF16, 0),
    {"fp8-x8", LP_FP8_BLOCK128, 0, 2, SMALL, .tokens = {17, 64}, .fp8_x = true},
    {"fp8-many", LP_FP8_BLOCK128, 0, 2, .hidden = 512, .intermediate = 2048, .experts = 4, .tokens = {40, 48},
     .bound = 48},
    {"mxfp4-x8", LP_MXFP4, 0, 3, SMALL, .tokens = {17, 64, 1}, .fp8_x = true},
    {"mxfp4-shared", LP_MXFP4, 0, 2, SMALL, .tokens = {17, 64}, .shared_intermediate = 384},
    {"nvfp4-shared", LP_NVFP4, 0, 3, SMALL, .tokens = {5, 0, 40}, .bound = 40, .shared_intermediate = 256},
    {"bf16-odd", LP_MOE_BF16, 0, 2, .hidden = 768, .intermediate = 128, .experts = 2, .tokens = {17, 64}},
    {"mxfp4-odd", LP_MXFP4, 0, 2, .hidden = 256, .intermediate = 384, .experts = 2, .tokens = {17, 64}},
};

static int run_case(const exchange_case *c, uint64_t seed)
{
    world w;
    int failed = 0;
    make_world(&w, c, seed);
    for (int round = 0; round < 2; round++) { /* the second finds the buffers as the first has left them */
        problem_route(&w.problem, w.whole.tokens, c->routing, 0, seed + (uint64_t)round);
        upload_world(&w);
        for (int32_t i = 0; i < w.ranks; i++)
            call(&w.rank[round == 0 ? i : w.ranks - 1 - i]);
        failed += check_world(c->name, &w);
    }
    printf("%s %s\n", failed == 0 ? "ok  " : "FAIL", c->name);
    free_world(&w);
    return failed;
}

/* ---- a captured call is launched again, between others, with other tokens ---- */

static int run_graph_of(const exchange_case *form, uint64_t seed)
{
    static const int64_t tokens[4][MOST_RANKS] = {{30, 41}, {0, 7}, {64, 64}, {9, 0}};
    world w;
    cudaGraph_t graph;
    cudaGraphExec_t exec[2];
    int failed = 0;
    make_world(&w, form, seed);
    for (int32_t i = 0; i < w.ranks; i++) {
        CUDA(cudaSetDevice(w.rank[i].gpu));
        CUDA(cudaStreamBeginCapture(w.rank[i].stream, cudaStreamCaptureModeRelaxed));
        call(&w.rank[i]);
        CUDA(cudaStreamEndCapture(w.rank[i].stream, &graph));
        CUDA(cudaGraphInstantiate(&exec[i], graph, 0));
        CUDA(cudaGraphDestroy(graph));
    }
    for (int round = 0; round < 4; round++) {
        place_tokens(&w, tokens[round]);
        problem_route(&w.problem, w.whole.tokens, ROUTE_UNIFORM, 0, seed + (uint64_t)round);
        upload_world(&w);
        for (int32_t i = 0; i < w.ranks; i++) {
            CUDA(cudaSetDevice(w.rank[i].gpu));
            if (round == 1 && i == 1)
                call(&w.rank[i]); /* the same call without a graph */
            else
                CUDA(cudaGraphLaunch(exec[i], w.rank[i].stream));
        }
        failed += check_world(form->name, &w);
    }
    for (int32_t i = 0; i < w.ranks; i++)
        CUDA(cudaGraphExecDestroy(exec[i]));
    printf("%s %s\n", failed == 0 ? "ok  " : "FAIL", form->name);
    free_world(&w);
    return failed;
}

static int run_graph(uint64_t seed)
{
    static const exchange_case forms[] = {
        {"graph", LP_MXFP4, 0, 2, SMALL, .tokens = {30, 41}, .bound = 64},
        /* One rank has its GPU to itself, so launches start early; these sizes put a fill between two of them. */
        {"graph-one", LP_MXFP4, 0, 1, .hidden = 256, .intermediate = 384, .experts = 2, .tokens = {30}, .bound = 64},
    };
    return run_graph_of(&forms[0], seed) + run_graph_of(&forms[1], seed);
}

/* ---- many calls in a row, with nobody waiting for anybody but the ranks in their meetings ---- */

static int run_burst(uint64_t seed)
{
    enum { CALLS = 60, SETS = 2 };
    static const exchange_case form = {"burst", LP_FP8_BLOCK128, 0, 3, SMALL, .tokens = {90, 3, 50}, .bound = 90};
    static const int64_t tokens[SETS][MOST_RANKS] = {{90, 3, 50}, {1, 90, 77}};
    world w;
    lp_megamoe_io io[SETS][MOST_RANKS], whole[SETS];
    int failed = 0;
    make_world(&w, &form, seed);
    for (int set = 0; set < SETS; set++) {
        if (set > 0)
            make_io(&w.whole);
        for (int32_t i = 0; i < w.ranks && set > 0; i++)
            make_io(&w.rank[i]);
        place_tokens(&w, tokens[set]);
        problem_route(&w.problem, w.whole.tokens, set == 0 ? ROUTE_UNIFORM : ROUTE_MASKED, 0, seed + (uint64_t)set);
        upload_world(&w);
        whole[set] = w.whole.io;
        for (int32_t i = 0; i < w.ranks; i++) {
            io[set][i] = w.rank[i].io;
            io[set][i].received = NULL;
        }
    }
    for (int number = 0; number < CALLS; number++)
        for (int32_t i = 0; i < w.ranks; i++) {
            w.rank[i].io = io[number % SETS][i];
            call(&w.rank[i]);
        }
    for (int set = 0; set < SETS; set++) {
        place_tokens(&w, tokens[set]);
        w.whole.io = whole[set];
        uint16_t *const want = whole_result(&w);
        for (int32_t i = 0; i < w.ranks; i++) {
            w.rank[i].io = io[set][i];
            failed += check_rank("burst", &w.rank[i], want, NULL);
        }
        free(want);
    }
    printf("%s burst\n", failed == 0 ? "ok  " : "FAIL");
    free_world(&w);
    return failed;
}

/* ---- anything ---- */

static int run_random(uint64_t seed)
{
    enum { ROUNDS = 30 };
    static const lp_moe_format formats[] = {LP_MXFP4, LP_NVFP4, LP_MXFP8, LP_FP8_BLOCK128, LP_MOE_BF16};
    int failed = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t state = seed + 7919 * (uint64_t)round;
        exchange_case c = {"random", .hidden = 512, .intermediate = 256};
        c.format = formats[random_below(&state, 5)];
        c.layout = lp_megamoe_layout(c.format, LP_MOE_L1_WEIGHT, 1) != NULL ? (int32_t)random_below(&state, 2) : 0;
        c.ranks = 1 + (int32_t)random_below(&state, MOST_RANKS);
        c.experts = 1 + random_below(&state, 6);
        c.routing = (problem_routing)random_below(&state, ROUTE_HALF_EMPTY + 1);
        c.first_expert = random_below(&state, 3) * 11;
        c.wide_ids = random_below(&state, 2) == 1;
        c.fp8_x = c.format != LP_NVFP4 && c.format != LP_MOE_BF16 && random_below(&state, 2) == 1;
        for (int32_t i = 0; i < c.ranks; i++) {
            c.tokens[i] = random_below(&state, 4) == 0 ? 0 : random_below(&state, CAP + 1);
            c.bound = c.tokens[i] > c.bound ? c.tokens[i] : c.bound;
        }
        if (c.bound == 0 || random_below(&state, 2) == 1)
            c.bound = CAP;
        if (run_case(&c, state) != 0) {
            printf("FAIL random: round %d of seed %llu\n", round, (unsigned long long)seed);
            failed++;
        }
    }
    return failed;
}

/* ---- failures ---- */

static int expect_failure(const char *name, const rank_state *r, lp_moe_failure_kind kind, int32_t culprit,
                          uint32_t number)
{
    lp_error err = {0};
    lp_moe_failure f;
    CUDA(cudaSetDevice(r->gpu));
    const lp_status status = lp_moe_exchange_failure(&r->exchange, r->stream, &f, &err);
    if (status == LP_E_PEER && f.kind == kind && (culprit < 0 || f.rank == culprit) && f.call == number)
        return 0;
    printf("FAIL %s: rank %d: status %d, kind %d, rank %d, call %u: %s\n", name, r->exchange.rank, (int)status,
           (int)f.kind, f.rank, f.call, err.text);
    return 1;
}

/* Rank 1 stays away in the second call; everybody learns of it, also rank 1 when it comes, and all can begin anew. */
static int run_absent(uint64_t seed)
{
    static const exchange_case form = {"absent", LP_NVFP4, 0, 3, SMALL, .tokens = {10, 20, 30}};
    world w;
    int failed = 0;
    make_world(&w, &form, seed);
    problem_route(&w.problem, w.whole.tokens, ROUTE_UNIFORM, 0, seed);
    upload_world(&w);
    for (int32_t i = 0; i < w.ranks; i++)
        call(&w.rank[i]);
    failed += check_world("absent", &w);
    for (int32_t i = 0; i < w.ranks; i++)
        w.rank[i].exchange.timeout_ns = BRIEF_NS;
    call(&w.rank[0]);
    call(&w.rank[2]);
    failed += expect_failure("absent", &w.rank[0], LP_MOE_NO_TOKENS, 1, 2);
    failed += expect_failure("absent", &w.rank[2], LP_MOE_NO_TOKENS, 1, 2);
    for (int32_t i = 0; i < w.ranks; i++)
        w.rank[i].exchange.timeout_ns = 3600000000000; /* nobody waits any more */
    for (int round = 0; round < 2; round++)
        for (int32_t i = 0; i < w.ranks; i++)
            call(&w.rank[i]);
    failed += expect_failure("late", &w.rank[1], LP_MOE_NO_TOKENS, 1, 2);
    for (int32_t i = 0; i < w.ranks; i++)
        failed += expect_failure("after", &w.rank[i], LP_MOE_NO_TOKENS, 1, 2);
    clear_world(&w);
    upload_world(&w);
    for (int32_t i = 0; i < w.ranks; i++) {
        w.rank[i].exchange.timeout_ns = 20000000000;
        call(&w.rank[i]);
    }
    failed += check_world("anew", &w);
    printf("%s absent\n", failed == 0 ? "ok  " : "FAIL");
    free_world(&w);
    return failed;
}

static int run_other_bound(uint64_t seed)
{
    static const exchange_case form = {"bound", LP_MXFP4, 0, 2, SMALL, .tokens = {10, 20}, .bound = 32};
    world w;
    int failed = 0;
    make_world(&w, &form, seed);
    problem_route(&w.problem, w.whole.tokens, ROUTE_UNIFORM, 0, seed);
    upload_world(&w);
    w.rank[1].shape.tokens_bound = 40;
    for (int32_t i = 0; i < w.ranks; i++)
        call(&w.rank[i]);
    for (int32_t i = 0; i < w.ranks; i++)
        failed += expect_failure("bound", &w.rank[i], LP_MOE_OTHER_BOUND, -1, 1);
    printf("%s bound\n", failed == 0 ? "ok  " : "FAIL");
    free_world(&w);
    return failed;
}

int main(int argc, char **argv)
{
    /* A kernel that is loaded at its first launch may wait for one that waits for another rank of this process. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    need_gpu();
    const char *const only = argc > 1 ? argv[1] : "";
    const uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 20261130;
    int failed = 0, ran = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    if (argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) < gpus)
        gpus = atoi(argv[2]);
    for (int i = 0; i < gpus; i++)
        for (int j = 0; j < gpus; j++)
            if (i != j) {
                CUDA(cudaSetDevice(i));
                CUDA(cudaDeviceEnablePeerAccess(j, 0));
            }
    printf("%d GPUs, seed %llu\n", gpus, (unsigned long long)seed);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (is_wanted(cases[i].name, only)) {
            failed += run_case(&cases[i], seed + 1000 * i);
            fflush(stdout);
            ran++;
        }
    static const struct {
        const char *name;
        int (*run)(uint64_t seed);
    } others[] = {{"graph", run_graph},
                  {"burst", run_burst},
                  {"random", run_random},
                  {"absent", run_absent},
                  {"bound", run_other_bound}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (is_wanted(others[i].name, only)) {
            failed += others[i].run(seed);
            fflush(stdout);
            ran++;
        }
    CHECK(ran > 0, "no case is called '%s'", only);
    printf("%d cases, %d failed checks\n", ran, failed);
    return failed == 0 ? 0 : 1;
}
