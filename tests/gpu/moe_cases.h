/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of test_megamoe.c: every format and layout, with token counts, routings, scales and activations. */
#ifndef LOADPLAN_MOE_CASES_H
#define LOADPLAN_MOE_CASES_H

#include "megamoe_problem.h"

#include "kernels/megamoe.h"

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

#endif
