/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of one part of a tile for up to 112 tokens: a warpgroup has twice 64 rows of weights by N tokens. Sum
 * 4 j + 2 r + c of a half belongs to row g + 8 r of its warp's 16 and to token 8 j + 2 q + c, with g = lane / 4,
 * q = lane % 4. Bits are those of f8_multiply.cuh.
 *
 * Shared memory is what products, copies and loads of factors share, and registers what products and additions do. So
 * factors are made once for the block, by a warp of its own, and are read once for all sums of 128 columns, into
 * registers; then an addition is one instruction.
 */
#ifndef LOADPLAN_F8_MANY_MULTIPLY_CUH
#define LOADPLAN_F8_MANY_MULTIPLY_CUH

#include "kernels/f8_many_block.cuh"
#include "kernels/f8_multiply.cuh"

/* Makes the factors of all tokens of an item, 128 columns after 128 columns; by a warp. */
__device__ __forceinline__ void f8_many_make_factors(const f8_arguments &p, f8_many_shared &sm, f8_turn &token_turn,
                                                     const f8_item &item)
{
    const int lane = threadIdx.x % 32, pieces = p.projection[item.projection].pieces;
    const bool is_first = item.projection == 0;
    f8_block_scales block(p, item, is_first ? item.tile : 2 * item.tile,
                          is_first ? item.tile + p.intermediate / 128 : 2 * item.tile + 1, true);
    for (int k = 0; k < pieces; k++, token_turn.next()) {
        const float2 by = block.at(k);
        hopper::barrier_wait(hopper::shared_address(&sm.queue.tokens_full[token_turn.at]), token_turn.phase);
        const float2 *const scale = reinterpret_cast<const float2 *>(sm.scales[token_turn.at]);
        for (int i = lane; i < item.width / 2; i += 32) {
            const float2 of = scale[i];
            sm.factors[token_turn.at][i] = {make_float2(of.x * by.x, of.y * by.x),
                                            make_float2(of.x * by.y, of.y * by.y)};
        }
        f8_release(&sm.factors_full[token_turn.at]);
    }
}

__device__ __forceinline__ void f8_many_factor_warp(const f8_arguments &p, f8_many_shared &sm)
{
    f8_turn token_turn = {0, F8_MANY_TOKEN_STAGES, 0}, slot = {0, F8_QUEUE, 0};
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&sm.queue.given[slot.at]), slot.phase);
        const f8_item item = sm.queue.item[slot.at];
        f8_release(&sm.queue.taken[slot.at]);
        if (item.projection < 0)
            return;
        if (!item.dropped)
            f8_many_make_factors(p, sm, token_turn, item);
    }
}

/* Factors of a thread's sums of N tokens: of its two rows, of tokens 2 q and 2 q + 1 of each eight. */
template <int N> struct f8_many_factors {
    float4 of[N / 8];
    /* From the shared address of those of the thread's first tokens. Rows g are gate and rows g + 8 up, */
    __device__ __forceinline__ void load_both(uint32_t at)
    {
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const uint4 v = hopper::load16(at + j * 4 * sizeof(f8_many_factor));
            of[j] = make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
        }
    }
    /* or have blocks `upper` and `lower`, 0 or 1. */
    __device__ __forceinline__ void load(uint32_t at, int upper, int lower)
    {
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 a = w4_load_floats(at + j * 4 * sizeof(f8_many_factor) + upper * sizeof(float2));
            const float2 b = w4_load_floats(at + j * 4 * sizeof(f8_many_factor) + lower * sizeof(float2));
            of[j] = make_float4(a.x, a.y, b.x, b.y);
        }
    }
};

/* total += sum * factor. */
template <int N>
__device__ __forceinline__ void f8_many_promote(float *total, const float (&sum)[N / 2], const f8_many_factors<N> &by)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        total[4 * j] = fmaf(sum[4 * j], by.of[j].x, total[4 * j]);
        total[4 * j + 1] = fmaf(sum[4 * j + 1], by.of[j].y, total[4 * j + 1]);
        total[4 * j + 2] = fmaf(sum[4 * j + 2], by.of[j].z, total[4 * j + 2]);
        total[4 * j + 3] = fmaf(sum[4 * j + 3], by.of[j].w, total[4 * j + 3]);
    }
}

constexpr int F8_MANY_WHOLE = 80; /* tokens up to which there are registers for two sums of all of them */

/*
 * `part` of a tile. COLUMNS of 128 to a fresh sum. One product follows the other: for each cut of the tokens, of which
 * there are two where they are many, its columns, and both halves of the rows; while one runs the sum of the one before
 * it is added. A cut's factors are held as long as it takes.
 */
template <int N, int COLUMNS>
__device__ __forceinline__ void f8_many_multiply(const f8_arguments &p, f8_many_shared &sm, f8_turn &turn,
                                                 f8_turn &token_turn, const f8_item &item, int part,
                                                 float (&total)[2][N / 2])
{
    constexpr int CUTS = N > F8_MANY_WHOLE ? 2 : 1, CUT = N / CUTS, EACH = COLUMNS / 32;
    constexpr int OF_CUT = 2 * (128 / COLUMNS), STEPS = CUTS * OF_CUT;
    constexpr int HALF_BYTES = 64 * F8_PIECE, FACTOR_BYTES = sizeof(f8_many_factor);
    const int pieces = p.projection[item.projection].pieces;
    const bool is_first = __shfl_sync(~0u, item.projection, 0) == 0;
    const int upper = is_first ? 0 : part, lower = is_first ? 1 : part; /* blocks of rows g and g + 8 */
#pragma unroll
    for (int i = 0; i < N; i++)
        total[i % 2][i / 2] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < pieces; k++) {
        hopper::barrier_wait(hopper::shared_address(&sm.queue.tokens_full[token_turn.at]), token_turn.phase);
        hopper::barrier_wait(hopper::shared_address(&sm.queue.full[turn.at]), turn.phase);
        const int stage = __shfl_sync(~0u, turn.at, 0), token_stage = __shfl_sync(~0u, token_turn.at, 0);
        const uint32_t weights = hopper::shared_address(sm.weights[stage]);
        const uint32_t tokens = hopper::shared_address(sm.tokens[token_stage]);
        const uint32_t factors = hopper::shared_address(sm.factors[token_stage]) + threadIdx.x % 4 * FACTOR_BYTES;
        float sum[2][CUT / 2];
        f8_many_factors<CUT> by;
#pragma unroll
        for (int i = 0; i <= STEPS; i++) {
            if (i < STEPS) {
                const int half = i % 2, columns = i % OF_CUT / 2 * COLUMNS, cut = i / OF_CUT;
                hopper::mma_begin();
                f8_products<F8_BLOCKS, CUT, EACH>(sum[i % 2], weights + half * HALF_BYTES,
                                                  tokens + cut * CUT * F8_PIECE, columns / 32, 0);
                hopper::mma_commit();
            }
            if (i == 0)
                continue;
            if (i == 1)
                hopper::barrier_wait(hopper::shared_address(&sm.factors_full[token_turn.at]), token_turn.phase);
            const int done = i - 1, cut = done / OF_CUT;
            if (done % OF_CUT == 0) {
                const uint32_t at = factors + cut * CUT / 2 * FACTOR_BYTES;
                if constexpr (COLUMNS == LP_MOE_SUM_COLUMNS) /* of the first projection only */
                    by.load_both(at);
                else
                    by.load(at, upper, lower);
            }
            if (i < STEPS)
                hopper::mma_wait<1>();
            else
                hopper::mma_wait<0>();
            if (i == STEPS)
                f8_release(&sm.queue.empty[turn.at]);
            f8_many_promote<CUT>(total[done % 2] + cut * CUT / 2, sum[done % 2], by);
        }
        f8_release(&sm.queue.tokens_empty[token_turn.at]); /* behind the last read of its factors */
        turn.next(), turn.next();
        token_turn.next();
    }
}

#endif
