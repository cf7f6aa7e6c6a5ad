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

/* Factors of a thread's sums of N tokens, 2 q and 2 q + 1 of each eight: of its rows g and of its rows g + 8, which are
 * those of one block of weights if SAME. */
template <int N, bool SAME> struct f8_many_factors {
    static constexpr int OF = SAME ? 2 : 4;
    float of[N / 8][OF];
    /* From the shared address of those of the thread's first tokens; of the first block and the second, or, if SAME, of
     * `block`, 0 or 1. */
    __device__ __forceinline__ void load(uint32_t at, int block)
    {
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            if constexpr (SAME) {
                const float2 v = w4_load_floats(at + j * 4 * sizeof(f8_many_factor) + block * sizeof(float2));
                of[j][0] = v.x, of[j][1] = v.y;
            } else {
                const uint4 v = hopper::load16(at + j * 4 * sizeof(f8_many_factor));
                of[j][0] = __uint_as_float(v.x), of[j][1] = __uint_as_float(v.y);
                of[j][2] = __uint_as_float(v.z), of[j][3] = __uint_as_float(v.w);
            }
        }
    }
};

/* total += sum * factor. */
template <int N, bool SAME>
__device__ __forceinline__ void f8_many_promote(float *total, const float (&sum)[N / 2],
                                                const f8_many_factors<N, SAME> &by)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = fmaf(sum[i], by.of[i / 4][i % f8_many_factors<N, SAME>::OF], total[i]);
}

/* Tokens up to which there are registers for two sums of all of them. With 80 there are, but not in the places that all
 * widths leave free of totals. */
constexpr int F8_MANY_WHOLE = 64;

/*
 * `part` of a tile. COLUMNS of 128 to a fresh sum. One product follows the other: for each cut of the tokens, of which
 * there are two where they are many, its columns, and both halves of the rows; while one runs the sum of the one before
 * it is added. A cut's factors are held as long as it takes.
 */
template <int N, int COLUMNS, bool SAME>
__device__ __forceinline__ void f8_many_multiply(const f8_arguments &p, f8_many_shared &sm, f8_turn &turn,
                                                 f8_turn &token_turn, const f8_item &item, int part,
                                                 f8_many_totals &total)
{
    constexpr int CUTS = N > F8_MANY_WHOLE ? 2 : 1, CUT = N / CUTS, EACH = COLUMNS / 32;
    constexpr int OF_CUT = 2 * (128 / COLUMNS), STEPS = CUTS * OF_CUT;
    constexpr int HALF_BYTES = 64 * F8_PIECE, FACTOR_BYTES = sizeof(f8_many_factor);
    const int pieces = p.projection[item.projection].pieces;
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
        f8_many_factors<CUT, SAME> by;
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
            if (done % OF_CUT == 0)
                by.load(factors + cut * CUT / 2 * FACTOR_BYTES, part);
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
