/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a tile of NVFP4 for up to 128 tokens; a warpgroup has 64 rows. Codes times scales are BF16 values, and so
 * are tokens: there is one sum, to which products are added in the order of columns.
 *
 * While products run, the codes of the next ones are decoded, those of the next stage too. The matrix unit shares its
 * time between warpgroups: without that all of them would wait together, and then decode together.
 */
#ifndef LOADPLAN_W4_MANY_NV_CUH
#define LOADPLAN_W4_MANY_NV_CUH

#include "kernels/w4_many_block.cuh"
#include "kernels/w4_registers.cuh"

/* What a lane needs of a step, as it is stored: a word of codes is 8 columns of a row. */
struct w4_many_nv_codes {
    uint32_t upper[4], lower[4]; /* rows g and g + 8 */
    w4_nv_scales scale;
};

/* largest: as for w4_nv_load_scales. */
__device__ __forceinline__ w4_many_nv_codes w4_many_nv_load(uint32_t weights, uint32_t scales, uint32_t &largest)
{
    const uint4 x = hopper::load16(weights), y = hopper::load16(weights + 8 * 64);
    return {{x.x, x.y, x.z, x.w}, {y.x, y.y, y.z, y.w}, w4_nv_load_scales(scales, largest)};
}

/* A word of both rows, the first operands of two products. */
__device__ __forceinline__ void w4_many_nv_decode(uint32_t (&a)[2][4], const w4_many_nv_codes &codes, int word)
{
    w4_nv_operand(a, codes.upper[word], codes.lower[word], w4_twice(codes.scale.of[0], word / 2),
                  w4_twice(codes.scale.of[1], word / 2));
}

/* Starts its products. `tokens`: of the step. */
template <int N>
__device__ __forceinline__ void w4_many_nv_start(float (&sum)[LP_W4_MANY_ROWS / 2], const uint32_t (&a)[2][4],
                                                 uint32_t tokens, int word)
{
    hopper::mma_begin();
#pragma unroll
    for (int t = 0; t < 2; t++)
        w4_mma<true, N>(sum, a[t], w4_operand(tokens + word / 2 * (N * 128), word % 2 * 4 + 2 * t), 1);
    hopper::mma_commit();
}

/* sum <- that of a tile of `steps` stages from `turn` on. largest: the largest scales of this lane's rows. */
template <int N>
__device__ __forceinline__ void w4_many_nv(w4_many_header &h, uint32_t ring, w4_turn &turn, int steps,
                                           float (&sum)[LP_W4_MANY_ROWS / 2], uint32_t &largest)
{
    using L = w4_many_layout<W4_NV>;
    const w4_places<L> my(w4_many_row<W4_NV>(0));
    uint32_t a[2][2][4];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] = 0.0f;
    uint32_t stage = ring + __shfl_sync(~0u, turn.at, 0) * L::STAGE;
    hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
    w4_many_nv_codes codes = w4_many_nv_load(stage + my.weights, stage + my.scales, largest);
    w4_many_nv_decode(a[0], codes, 0);
    for (int k = 1; k <= steps; k++) {
        w4_turn next = turn; /* after the last step the same one again, in vain */
        if (k < steps)
            next.next();
        const uint32_t after = ring + __shfl_sync(~0u, next.at, 0) * L::STAGE;
#pragma unroll
        for (int word = 0; word < 4; word++) {
            w4_many_nv_start<N>(sum, a[word % 2], stage + L::TOKENS, word);
            if (word == 3) {
                hopper::barrier_wait(hopper::shared_address(&h.full[next.at]), next.phase);
                codes = w4_many_nv_load(after + my.weights, after + my.scales, largest);
            }
            w4_many_nv_decode(a[(word + 1) % 2], codes, (word + 1) % 4);
            hopper::mma_wait<0>();
        }
        w4_release(h, turn.at, threadIdx.x % 32);
        turn = next;
        stage = after;
    }
    turn.next();
}

#endif
