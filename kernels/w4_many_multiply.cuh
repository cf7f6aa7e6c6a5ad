/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multiplying threads for up to 128 tokens. Each step of 128 columns of MXFP4 takes two parts a warp; while the
 * products of one run, the codes of the next are decoded into other registers. Sums are added in the order of
 * w4_multiply.cuh. NVFP4: w4_many_nv.cuh.
 */
#ifndef LOADPLAN_W4_MANY_MULTIPLY_CUH
#define LOADPLAN_W4_MANY_MULTIPLY_CUH

#include "kernels/moe_launch.cuh"
#include "kernels/w4_many_finish.cuh"
#include "kernels/w4_many_nv.cuh"

template <int N>
__device__ __forceinline__ void w4_many_mx_steps(w4_many_header &h, uint32_t ring, w4_turn &turn, int steps,
                                                 w4_mx_rows (&rows)[2], w4_many_totals<W4_MX_FP8> &total)
{
    using L = w4_many_layout<W4_MX_FP8>;
    constexpr int PART_WEIGHTS = 16 * 64, PART_SCALES = 16 * L::SCALE_ROW;
    constexpr int EARLY = N <= 96 ? N / 8 : 4; /* scales of tokens loaded before their sums, as registers allow */
    const w4_places<L> my(w4_many_row<W4_MX_FP8>(0));
    float sum[N / 2];
    uint32_t a[2][4][4];
    uint32_t stage = ring + __shfl_sync(~0u, turn.at, 0) * L::STAGE;
    w4_mx_operand(a[0], rows[0], w4_mx_load(stage + my.weights, stage + my.scales));
    for (int k = 1; k <= steps; k++) {
        w4_mx_products<N>(sum, a[0], stage + L::TOKENS);
        w4_mx_operand(a[1], rows[1], w4_mx_load(stage + my.weights + PART_WEIGHTS, stage + my.scales + PART_SCALES));
        float2 scale[EARLY];
#pragma unroll
        for (int j = 0; j < EARLY; j++)
            scale[j] = w4_load_floats(stage + my.token_scales + 32 * j);
        hopper::mma_wait<0>();
        w4_promote<N, EARLY>(total[0], sum, stage + my.token_scales, scale);
        w4_turn next = turn; /* after the last step the same one again, in vain */
        if (k < steps)
            next.next();
        const uint32_t after = ring + __shfl_sync(~0u, next.at, 0) * L::STAGE;
        hopper::barrier_wait(hopper::shared_address(&h.full[next.at]), next.phase);
        w4_mx_products<N>(sum, a[1], stage + L::TOKENS);
        w4_mx_operand(a[0], rows[0], w4_mx_load(after + my.weights, after + my.scales));
        hopper::mma_wait<0>();
        w4_promote<N, EARLY>(total[1], sum, stage + my.token_scales, scale);
        w4_release(h, turn.at, threadIdx.x % 32);
        turn = next;
        stage = after;
    }
    turn.next();
}

/* For more tokens, some of them at a time: sums of all would not fit beside the totals. */
template <int N>
__device__ __forceinline__ void w4_many_mx_pieces(w4_many_header &h, uint32_t ring, w4_turn &turn, int steps,
                                                  w4_mx_rows (&rows)[2], w4_many_totals<W4_MX_FP8> &total)
{
    using L = w4_many_layout<W4_MX_FP8>;
    constexpr int PART_WEIGHTS = 16 * 64, PART_SCALES = 16 * L::SCALE_ROW, PIECE = N % 64 == 0 ? 64 : 40;
    static_assert(N % PIECE == 0, "pieces of one width, so that their sums take the same registers");
    const w4_places<L> my(w4_many_row<W4_MX_FP8>(0));
    for (int k = 0; k < steps; k++, turn.next()) {
        const uint32_t stage = ring + __shfl_sync(~0u, turn.at, 0) * L::STAGE;
        hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
#pragma unroll
        for (int part = 0; part < 2; part++) {
            float sum[PIECE / 2];
            uint32_t a[4][4];
            w4_mx_operand(a, rows[part],
                          w4_mx_load(stage + my.weights + part * PART_WEIGHTS, stage + my.scales + part * PART_SCALES));
#pragma unroll
            for (int first = 0; first < N; first += PIECE) {
                w4_mx_products<PIECE>(sum, a, stage + L::TOKENS + first * 128);
                hopper::mma_wait<0>();
                w4_promote<PIECE>(total[part] + first / 2, sum, stage + my.token_scales + first * 4);
            }
        }
        w4_release(h, turn.at, threadIdx.x % 32);
    }
}

/* MXFP4, N tokens. */
template <int N>
__device__ __forceinline__ void w4_many_mx(w4_many_header &h, uint32_t ring, w4_turn &turn, int steps,
                                           w4_mx_rows (&rows)[2], w4_many_totals<W4_MX_FP8> &total)
{
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            total[part][i] = 0.0f;
    if constexpr (N <= 112)
        w4_many_mx_steps<N>(h, ring, turn, steps, rows, total);
    else
        w4_many_mx_pieces<N>(h, ring, turn, steps, rows, total);
}

/* Of a thread's rows of a tile, from its first two stages. */
__device__ __forceinline__ void w4_many_mx_rows(w4_many_header &h, uint32_t ring, w4_turn turn, int steps,
                                                w4_mx_rows (&rows)[2])
{
    using L = w4_many_layout<W4_MX_FP8>;
    const w4_places<L> my(w4_many_row<W4_MX_FP8>(0));
    w4_turn second = turn;
    if (steps > 1)
        second.next();
    hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
    hopper::barrier_wait(hopper::shared_address(&h.full[second.at]), second.phase);
#pragma unroll
    for (int part = 0; part < 2; part++) {
        const uint32_t in_stage = my.scales + part * 16 * L::SCALE_ROW;
        rows[part] = w4_mx_references(ring + turn.at * L::STAGE + in_stage, ring + second.at * L::STAGE + in_stage);
    }
}

/* The end of a tile: rows that the fast decoders do not get right are made again first. */
template <int KIND>
__device__ __forceinline__ void w4_many_finish(const w4_arguments &p, w4_many_header &h, char *staging,
                                               const w4_item &item, const w4_mx_rows (&rows)[2], uint32_t largest,
                                               w4_many_totals<KIND> &total, uint32_t &round)
{
    const int width = __shfl_sync(~0u, item.width, 0); /* read again: loops have no registers for it */
    if constexpr (KIND == W4_MX_FP8) {
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const float upper = __uint_as_float(rows[part].reference[0] << 23);
            const float lower = __uint_as_float(rows[part].reference[1] << 23);
#pragma unroll
            for (int i = 0; i < LP_W4_MANY_ROWS / 2; i++)
                total[part][i] *= i % 4 < 2 ? upper : lower;
            w4_many_redo<W4_MX_FP8>(p, item, part, rows[part].farthest > W4_SPAN, total[part]);
        }
    } else {
        w4_many_redo<W4_NV>(p, item, 0, w4_is_rare_scale(largest), total[0]);
    }
    if (__shfl_sync(~0u, item.projection, 0) == 0)
        w4_many_finish_h<KIND>(p, h, item, staging, width, total, round);
    else
        w4_many_finish_output<KIND>(p, h, item, staging, width, total, round);
}

/* Products of a tile of N tokens. */
template <int KIND, int N>
__device__ __forceinline__ void w4_many_products(w4_many_header &h, uint32_t ring, w4_turn &turn, int steps,
                                                 w4_mx_rows (&rows)[2], uint32_t &largest, w4_many_totals<KIND> &total)
{
    if constexpr (KIND == W4_MX_FP8)
        w4_many_mx<N>(h, ring, turn, steps, rows, total);
    else
        w4_many_nv<N>(h, ring, turn, steps, total[0], largest);
}

template <int KIND>
__device__ __forceinline__ void w4_many_multiply(const w4_arguments &p, w4_many_header &h, char *staging, uint32_t ring)
{
    const int lane = threadIdx.x % 32;
    w4_turn turn = {0, p.stages, 0}, slot = {0, W4_QUEUE, 0};
    uint32_t round = 0;
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const w4_item &item = h.item[slot.at];                       /* stays there until it is done */
        const int projection = __shfl_sync(~0u, item.projection, 0); /* tells the compiler that warps do not diverge */
        const int width = __shfl_sync(~0u, item.width, 0), stages = __shfl_sync(~0u, item.stages, 0);
        if (projection < 0)
            return;
        w4_mx_rows rows[2];
        uint32_t largest = 0; /* scales of this lane's rows; rare ones: redo them */
        w4_many_totals<KIND> total;
        const bool is_dropped = __shfl_sync(~0u, item.dropped, 0);
        if constexpr (KIND == W4_MX_FP8)
            if (!is_dropped)
                w4_many_mx_rows(h, ring, turn, stages, rows);
        if (is_dropped)
            for (int k = 0; k < stages; k++, turn.next()) {
                hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
                w4_release(h, turn.at, lane);
            }
#define W4_MANY_CASE(n) else if (width == (n)) w4_many_products<KIND, n>(h, ring, turn, stages, rows, largest, total);
        W4_MANY_CASE(8)
        W4_MANY_CASE(16)
        W4_MANY_CASE(24)
        W4_MANY_CASE(32)
        W4_MANY_CASE(40)
        W4_MANY_CASE(48)
        W4_MANY_CASE(56)
        W4_MANY_CASE(64)
        W4_MANY_CASE(72)
        W4_MANY_CASE(80)
        W4_MANY_CASE(88)
        W4_MANY_CASE(96)
        W4_MANY_CASE(104)
        W4_MANY_CASE(112)
        W4_MANY_CASE(120)
        W4_MANY_CASE(128)
#undef W4_MANY_CASE
        if (!__shfl_sync(~0u, item.dropped, 0))
            w4_many_finish<KIND>(p, h, staging, item, rows, largest, total, round);
        /* Tells the compiler that warps do not diverge: else each product's addresses take a move more, and wait for
         * it. */
        asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");
        if (lane == 0)
            hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
    }
}

#endif
