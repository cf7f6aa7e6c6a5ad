/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a tile of MXFP8: a warpgroup has 64 rows of weights by N tokens. Codes go from shared memory to
 * registers, times their scales, as BF16: the first operand; tokens are the columns. Sum 4 j + 2 r + c of a thread
 * belongs to row g + 8 r of its warp's 16 and to token 8 j + 2 q + c, with g = lane / 4, q = lane % 4.
 *
 * Bits are those of the path of many tokens: the same values, 16 columns to a product, added to the same sum.
 */
#ifndef LOADPLAN_M8_MULTIPLY_CUH
#define LOADPLAN_M8_MULTIPLY_CUH

#include "kernels/m8_block.cuh"
#include "kernels/w4_ptx.cuh"
#include "layouts/layout_index.h"

/* Where a warpgroup is in the rings. */
struct m8_rings {
    uint32_t weights, scales, tokens; /* shared addresses */
    int token_stage;                  /* bytes */
    m8_turn turn, token_turn;
};

/* Four matrices of 8 rows x 16 bytes; lane l has the address of row l % 8 of matrix l / 8, and gets bytes 4 (l % 4) ..
 * of row l / 4 of each. */
__device__ __forceinline__ void m8_load_matrices(uint32_t at, uint32_t (&v)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at));
}

__device__ __forceinline__ uint32_t m8_load_word(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

/* Of a thread: where its row of a matrix load lies in a stage, and the scales of its rows g and g + 8. */
struct m8_places {
    uint32_t row, chunk; /* the first of its chunks of 16 bytes, of those of 32 */
    uint32_t upper, lower;
    __device__ __forceinline__ m8_places()
    {
        const int thread = m8_thread(), lane = thread % 32, first = thread / 32 * 16;
        row = static_cast<uint32_t>(first + lane % 16) * M8_COLUMNS;
        chunk = static_cast<uint32_t>(lane / 16 ^ lane % 8);
        upper = static_cast<uint32_t>(lp_scale_slot(first + lane / 4)) * 4;
        lower = static_cast<uint32_t>(lp_scale_slot(first + lane / 4 + 8)) * 4;
    }
};

/* 32 columns by 16, the block of a scale: the pairs that codes of rows g and g + 8 are. `from`: of the thread's row and
 * chunk there; scales: their codes, in the lowest byte of a word. */
__device__ __forceinline__ void m8_decode(uint32_t (&pair)[2][4], uint32_t from, uint32_t upper, uint32_t lower)
{
    uint32_t code[4], most = 0;
    m8_load_matrices(from, code);
    upper &= 0xff, lower &= 0xff;
    const uint32_t up = e4m3_scale(upper), low = e4m3_scale(lower);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        e4m3_decode(code[2 * i], up, pair[i][0], pair[i][2], most);
        e4m3_decode(code[2 * i + 1], low, pair[i][1], pair[i][3], most);
    }
    if (!__any_sync(~0u, e4m3_is_odd(most, max(upper, lower))))
        return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float scale = lp_ue8m0_value(i % 2 == 0 ? upper : lower);
        pair[i / 2][i % 2] = e4m3_any_even(code[i], scale);
        pair[i / 2][i % 2 + 2] = e4m3_any_odd(code[i], scale);
    }
    __syncwarp();
}

/* Starts the products of 32 columns, into the totals. `tokens`: N rows of 64 columns, of which they are chunks from
 * `chunk` on. */
template <int N>
__device__ __forceinline__ void m8_start(float (&total)[N / 2], const uint32_t (&pair)[2][4], uint32_t tokens,
                                         uint32_t chunk)
{
    hopper::mma_begin();
#pragma unroll
    for (uint32_t t = 0; t < 2; t++)
        w4_mma<true, N>(total, pair[t], w4_operand(tokens, chunk + 2 * t), 1);
    hopper::mma_commit();
}

/* By each warp that multiplies. */
__device__ __forceinline__ void m8_release(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        hopper::barrier_arrive(hopper::shared_address(barrier));
}

/* Lets weights pass that were fetched in vain. */
__device__ __forceinline__ void m8_pass(m8_header &h, m8_rings &rings, int stages)
{
    for (int i = 0; i < stages; i++, rings.turn.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.full[rings.turn.at]), rings.turn.phase);
        m8_release(&h.empty[rings.turn.at]);
    }
}

/* The products of 32 columns run while the next are decoded. */
template <int N>
__device__ __forceinline__ void m8_multiply(m8_header &h, m8_rings &rings, int stages, float (&total)[N / 2])
{
    const m8_places my;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < stages; k++) {
        hopper::barrier_wait(hopper::shared_address(&h.full[rings.turn.at]), rings.turn.phase);
        const uint32_t row = rings.weights + rings.turn.at * M8_STAGE + my.row;
        const uint32_t scales = rings.scales + rings.turn.at * M8_SCALE_BYTES;
        const uint32_t upper = m8_load_word(scales + my.upper), lower = m8_load_word(scales + my.lower);
        uint32_t tokens = 0;
#pragma unroll
        for (uint32_t part = 0; part < 4; part++) { /* of 32 columns */
            uint32_t pair[2][4];
            m8_decode(pair, row + (my.chunk ^ 2 * part) * 16, upper >> 8 * part, lower >> 8 * part);
            if (part == 0) {
                hopper::barrier_wait(hopper::shared_address(&h.tokens_full[rings.token_turn.at]),
                                     rings.token_turn.phase);
                tokens = rings.tokens + __shfl_sync(~0u, rings.token_turn.at, 0) * rings.token_stage;
            } else {
                hopper::mma_wait<0>();
            }
            if (part == 3)
                m8_release(&h.empty[rings.turn.at]);
            m8_start<N>(total, pair, tokens + part / 2 * N * 128, part % 2 * 4);
        }
        hopper::mma_wait<0>();
        m8_release(&h.tokens_empty[rings.token_turn.at]);
        rings.turn.next();
        rings.token_turn.next();
    }
}

#endif
