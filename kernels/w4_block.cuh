/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the roles of the 4-bit kernel share: its arguments, its shared memory, and the queue of work of a block.
 *
 * A block runs alone on its multiprocessor. A piece of work, an item, is a tile of 256 weight rows over all of K for
 * the tokens of one chunk. Threads 0..511 multiply (four warpgroups, 64 rows each), 512..639 finish tiles (activation,
 * rounding, output), 640 feeds weights and 672 feeds tokens.
 */
#ifndef LOADPLAN_W4_BLOCK_CUH
#define LOADPLAN_W4_BLOCK_CUH

#include "kernels/w4_decode.h"
#include "kernels/w4_operand.cuh"
#include "kernels/moe_items.cuh"
#include "kernels/moe_start.cuh"
#include "kernels/w4_ptx.cuh"

constexpr int W4_ROWS = 256, W4_STEP_BYTES = W4_ROWS * 64; /* of a tile; bytes of weights of 128 columns */
constexpr int W4_GROUPS = 4, W4_MULTIPLIERS = W4_GROUPS * 128, W4_FINISHERS = 128;
constexpr int W4_WEIGHT_FEEDER = W4_MULTIPLIERS + W4_FINISHERS, W4_TOKEN_FEEDER = W4_WEIGHT_FEEDER + 32;
constexpr int W4_THREADS = W4_WEIGHT_FEEDER + 128;
constexpr int W4_QUEUE = 4, W4_MOST_STAGES = 8;

struct w4_projection {
    const char *weight, *scale; /* packed by tiles */
    const char *operand;        /* its tokens */
    const float *operand_scale;
    int tiles, steps; /* of an expert: rows / 256, K / 128 */
};

struct w4_arguments {
    w4_projection projection[2];
    lp_moe_routes routes;
    char *h;
    float *h_scale;
    const char *zero;
    void *out; /* BF16 [rows, H] */
    const float *l1_alpha, *l2_alpha, *l2_activation_scale;
    int l1_alpha_columns;
    int hidden, experts, stages;
    int even_rows;   /* of an expert's chunks where it has several, see lp_moe_route_job */
    int first_tiles; /* tiles that blocks take before routing is known: experts' first chunks, in order */
    int activation;
    float alpha, beta, limit;
    lp_moe_sink sink;
    moe_start start;
    int *ticket, *ready; /* counters that are 0 before: of items; of finished tiles of a chunk's h */
};

struct w4_item {
    int projection; /* -1: no more work */
    int expert, tile, chunk, row, width, valid;
    int stages;  /* that were or will be filled for it */
    int dropped; /* its weights were fetched in vain: the expert has no tokens */
    int unused[3];
};

/* What is multiplied. */
enum w4_kind {
    W4_MX_FP8 = 0,  /* MXFP4 as E5M2, E4M3 tokens with a scale per 128 */
    W4_MX_WIDE = 1, /* MXFP4 as BF16, the same tokens as BF16 */
    W4_NV = 2       /* NVFP4 as BF16, BF16 tokens */
};

__host__ __device__ constexpr int w4_element_bytes(int kind) /* of a token's value */
{
    return kind == W4_MX_FP8 ? 1 : 2;
}

/* What the gather makes of x. */
__host__ __device__ constexpr lp_moe_gather w4_gather_of(int kind)
{
    return kind == W4_NV ? LP_MOE_GATHER_W4_BF16 : kind == W4_MX_WIDE ? LP_MOE_GATHER_W4_WIDE : LP_MOE_GATHER_W4_FP8;
}

__host__ __device__ constexpr int w4_scale_bytes(int kind) /* of a row and step */
{
    return kind == W4_NV ? 8 : 4;
}

/* A sum is in units of 1 / this: codes are decoded to 2^-63 and to 2^-8 of their values. */
__host__ __device__ constexpr float w4_unit_of_sums(int kind)
{
    return kind == W4_MX_WIDE ? 0x1p63f : kind == W4_NV ? 256.0f : 1.0f;
}

/* A variant of the kernel takes chunks of up to MOST tokens, in units of these; those for many choose theirs. */
__host__ __device__ constexpr int w4_unit(int most)
{
    return most > LP_W4_FEW_ROWS ? 16 : 8;
}

/* A stage of the ring: so many steps of 128 columns, weights with their scales and tokens with theirs. */
template <int KIND_, int MOST_, int STEPS_> struct w4_stage {
    static constexpr int KIND = KIND_, MOST = MOST_, STEPS = STEPS_;
    static constexpr int ELEMENT = w4_element_bytes(KIND), SCALE_ROW = w4_scale_bytes(KIND);
    static constexpr int TOKEN_SCALE = KIND == W4_NV ? 0 : 4;
    static constexpr int WEIGHTS = 0, SCALES = WEIGHTS + STEPS * W4_STEP_BYTES;
    static constexpr int TOKENS = SCALES + STEPS * W4_ROWS * SCALE_ROW;
    static constexpr int TOKEN_SCALES = TOKENS + STEPS * w4_block_bytes(ELEMENT, MOST);
    static constexpr int STAGE = (TOKEN_SCALES + STEPS * MOST * TOKEN_SCALE + 1023) / 1024 * 1024;
    static_assert(TOKENS % 1024 == 0, "as the swizzle wants it");
};

template <int KIND, int MOST> struct w4_layout : w4_stage<KIND, MOST, 2> {
    using S = w4_stage<KIND, MOST, 2>;
    static constexpr int HEADER = 2048, SUMS = MOST * W4_ROWS * 4; /* in whose place the finishers round them */
    static constexpr int RING = HEADER + SUMS, UNIT = w4_unit(MOST);
    static constexpr bool ROUTES = MOST <= LP_W4_FEW_ROWS; /* moe_start.cuh; beside more sums it costs registers */
    static_assert(S::ELEMENT == 1 || MOST <= 48, "rounded values must not reach sums that are still to be read");
};

/* The start of shared memory. Barriers count the rounds of what they guard. */
struct w4_queue {
    uint64_t full[W4_MOST_STAGES], empty[W4_MOST_STAGES]; /* stages of the ring */
    uint64_t given[W4_QUEUE], taken[W4_QUEUE];            /* items */
    w4_item item[W4_QUEUE];
    moe_start_header start;
};

struct w4_header : w4_queue {
    uint64_t summed, dumped;          /* sums handed to the finishers, and taken from there */
    float most[4][LP_W4_MIDDLE_ROWS]; /* largest |h| of a token by warp of the finishers */
};
static_assert(sizeof(w4_header) <= 2048, "the ring starts behind it");

/* By one thread: as many warps multiply, and free a stage; `readers` arrivals free an item. */
__device__ inline void w4_init_queue(w4_queue &h, int stages, int multipliers, int readers)
{
    for (int i = 0; i < stages; i++) {
        hopper::barrier_init(hopper::shared_address(&h.full[i]), 2);
        hopper::barrier_init(hopper::shared_address(&h.empty[i]), multipliers);
    }
    for (int i = 0; i < W4_QUEUE; i++) {
        hopper::barrier_init(hopper::shared_address(&h.given[i]), 1);
        hopper::barrier_init(hopper::shared_address(&h.taken[i]), readers);
    }
    moe_init_start(h.start, multipliers);
}

/* After the last barrier was initialised. */
__device__ inline void w4_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    hopper::proxy_fence();
}

/* Place of a thread's sums, as the finishers read them: float4 [token / 8][group][thread of the group]. */
__device__ __forceinline__ int w4_sum_place(int group, int eight, int thread)
{
    return (eight * W4_GROUPS + group) * 128 + thread;
}

using w4_turn = moe_turn;

#endif
