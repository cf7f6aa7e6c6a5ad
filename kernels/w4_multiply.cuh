/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multiplying threads: codes from shared memory to registers, decoded, times the tokens of the stage.
 *
 * Lane 4g + q of a warp holds rows g and g + 8 of its 16 and the columns 32q .. 32q + 31 of each 128: one MXFP4 scale
 * or two NVFP4 scales a row.
 */
#ifndef LOADPLAN_W4_MULTIPLY_CUH
#define LOADPLAN_W4_MULTIPLY_CUH

#include "kernels/w4_rare_rows.cuh"
#include "kernels/w4_registers.cuh"

/* Of the first of a lane's two rows, in a tile. */
__device__ __forceinline__ int w4_row()
{
    return static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
}

/* Hands a tile's sums to the finishers; rows that the fast decoders do not get right are made again first. */
template <int KIND, int N>
__device__ __forceinline__ void w4_give_sums(const w4_arguments &p, w4_header &h, const w4_item &item,
                                             const float (&total)[N / 2], float factor0, float factor1, bool is_rare,
                                             float4 *sums, uint32_t &round)
{
    constexpr float UNIT = w4_unit_of_sums(KIND);
    const int group = threadIdx.x / 128;
    hopper::barrier_wait(hopper::shared_address(&h.dumped), round++ & 1 ^ 1);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        sums[w4_sum_place(group, j, threadIdx.x % 128)] =
            make_float4(total[4 * j] * UNIT * factor0, total[4 * j + 1] * UNIT * factor0,
                        total[4 * j + 2] * UNIT * factor1, total[4 * j + 3] * UNIT * factor1);
    if (__any_sync(~0u, is_rare))
        w4_redo_rows<KIND>(p, item, is_rare, reinterpret_cast<float *>(sums));
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.summed));
}

template <int N, int MOST>
__device__ __forceinline__ void w4_mx_tile(const w4_arguments &p, w4_header &h, uint32_t ring, w4_turn &turn,
                                           const w4_item &item, int stages, float4 *sums, uint32_t &round)
{
    using L = w4_layout<W4_MX_FP8, MOST>;
    constexpr int AHEAD = N <= LP_W4_FEW_ROWS ? 2 : 1; /* steps in flight, as registers allow */
    const w4_places<L> my(w4_row());
    const int lane = threadIdx.x % 32;
    float total[N / 2], sum[AHEAD][N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = 0.0f;
    hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
    w4_mx_rows rows = w4_mx_references(ring + turn.at * L::STAGE + my.scales,
                                       ring + turn.at * L::STAGE + my.scales + W4_ROWS * L::SCALE_ROW);
    for (int k = 0; k < stages; k++, turn.next()) {
        const uint32_t stage = ring + turn.at * L::STAGE, token_scales = stage + my.token_scales;
        hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            uint32_t a[4][4];
            w4_mx_operand(
                a, rows,
                w4_mx_load(stage + my.weights + s * W4_STEP_BYTES, stage + my.scales + s * W4_ROWS * L::SCALE_ROW));
            w4_mx_products<N>(sum[s % AHEAD], a, stage + L::TOKENS + s * N * 128);
            if (AHEAD == 1) {
                hopper::mma_wait<0>();
                w4_promote<N>(total, sum[0], token_scales + s * N * 4);
            }
        }
        if (AHEAD == 2) { /* no further: products in flight over the end of this loop would be serialised */
            hopper::mma_wait<1>();
            w4_promote<N>(total, sum[0], token_scales);
            hopper::mma_wait<0>();
            w4_promote<N>(total, sum[AHEAD - 1], token_scales + N * 4);
        }
        w4_release(h, turn.at, lane);
    }
    w4_give_sums<W4_MX_FP8, N>(p, h, item, total, __uint_as_float(rows.reference[0] << 23),
                               __uint_as_float(rows.reference[1] << 23), rows.farthest > W4_SPAN, sums, round);
}

/* Starts the products of one step, all into the same sum. */
template <int N, int PENDING>
__device__ __forceinline__ void w4_bf16_products(float (&sum)[N / 2], int add, uint32_t weights,
                                                 const w4_nv_scales &scale, uint32_t tokens)
{
    const uint4 x = hopper::load16(weights), y = hopper::load16(weights + 8 * 64);
    const uint32_t upper[4] = {x.x, x.y, x.z, x.w}, lower[4] = {y.x, y.y, y.z, y.w};
    uint32_t a[4][2][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        w4_nv_operand(a[j], upper[j], lower[j], w4_twice(scale.of[0], j / 2), w4_twice(scale.of[1], j / 2));
        if (j % 2 == 0)
            continue;
        hopper::mma_begin();
#pragma unroll
        for (int t = 2 * j - 2; t < 2 * j + 2; t++) {
            w4_mma<true, N>(sum, a[t / 2][t % 2], w4_operand(tokens + t / 4 * N * 128, t % 4 * 2), add);
            add = 1;
        }
        hopper::mma_commit();
        hopper::mma_wait<PENDING>();
    }
}

template <int N, int MOST>
__device__ __forceinline__ void w4_nv_step(float (&sum)[N / 2], uint32_t &largest, int add, uint32_t weights,
                                           uint32_t scales, uint32_t tokens)
{
    const w4_nv_scales scale = w4_nv_load_scales(scales, largest);
    /* in flight while the next words are decoded, as registers allow */
    w4_bf16_products<N, N <= 16 && MOST <= LP_W4_FEW_ROWS ? 1 : 0>(sum, add, weights, scale, tokens);
}

template <int N, int MOST>
__device__ __forceinline__ void w4_wide_tile(const w4_arguments &p, w4_header &h, uint32_t ring, w4_turn &turn,
                                             const w4_item &item, int stages, float4 *sums, uint32_t &round)
{
    using L = w4_layout<W4_MX_WIDE, MOST>;
    const w4_places<L> my(w4_row());
    const int lane = threadIdx.x % 32;
    float total[N / 2], sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = 0.0f;
    hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
    w4_mx_rows rows = w4_mx_references(ring + turn.at * L::STAGE + my.scales,
                                       ring + turn.at * L::STAGE + my.scales + W4_ROWS * L::SCALE_ROW);
    for (int k = 0; k < stages; k++, turn.next()) {
        const uint32_t stage = ring + __shfl_sync(~0u, turn.at, 0) * L::STAGE;
        hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint32_t scales = stage + my.scales + s * W4_ROWS * L::SCALE_ROW;
            const uint32_t e0 = hopper::load1(scales), e1 = hopper::load1(scales + 32);
            rows.farthest = __viaddmax_u32(e0, W4_WIDE_SPAN / 2 - rows.reference[0], rows.farthest);
            rows.farthest = __viaddmax_u32(e1, W4_WIDE_SPAN / 2 - rows.reference[1], rows.farthest);
            const w4_nv_scales scale = {{w4_scale_mx(e0, rows.reference[0]), w4_scale_mx(e1, rows.reference[1])}};
            w4_bf16_products<N, 0>(sum, 0, stage + my.weights + s * W4_STEP_BYTES, scale,
                                   stage + L::TOKENS + s * 2 * N * 128);
            w4_promote<N>(total, sum, stage + my.token_scales + s * N * 4);
        }
        w4_release(h, turn.at, lane);
    }
    w4_give_sums<W4_MX_WIDE, N>(p, h, item, total, w4_wide_factor(rows.reference[0]), w4_wide_factor(rows.reference[1]),
                                rows.farthest > W4_WIDE_SPAN, sums, round);
}

template <int N, int MOST>
__device__ __forceinline__ void w4_nv_tile(const w4_arguments &p, w4_header &h, uint32_t ring, w4_turn &turn,
                                           const w4_item &item, int stages, float4 *sums, uint32_t &round)
{
    using L = w4_layout<W4_NV, MOST>;
    const w4_places<L> my(w4_row());
    const int lane = threadIdx.x % 32;
    float sum[N / 2];
    int last = 0;
    uint32_t largest = 0; /* scales of this lane's rows; rare ones: redo them */
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] = 0.0f;
    for (int k = 0; k < stages; k++, turn.next()) {
        const uint32_t stage = ring + __shfl_sync(~0u, turn.at, 0) * L::STAGE;
        hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            w4_nv_step<N, MOST>(sum, largest, k > 0 || s > 0, stage + my.weights + s * W4_STEP_BYTES,
                                stage + my.scales + s * W4_ROWS * L::SCALE_ROW, stage + L::TOKENS + s * 2 * N * 128);
            if (s == 0 && k > 0)
                w4_release(h, last, lane); /* its last products are done now */
        }
        last = turn.at;
    }
    hopper::mma_wait<0>();
    w4_release(h, last, lane);
    w4_give_sums<W4_NV, N>(p, h, item, sum, 1.0f, 1.0f, w4_is_rare_scale(largest), sums, round);
}

template <int KIND, int N, int MOST>
__device__ __forceinline__ void w4_tile(const w4_arguments &p, w4_header &h, uint32_t ring, w4_turn &turn,
                                        const w4_item &item, int stages, float4 *sums, uint32_t &round)
{
    if constexpr (KIND == W4_MX_FP8)
        w4_mx_tile<N, MOST>(p, h, ring, turn, item, stages, sums, round);
    else if constexpr (KIND == W4_MX_WIDE)
        w4_wide_tile<N, MOST>(p, h, ring, turn, item, stages, sums, round);
    else
        w4_nv_tile<N, MOST>(p, h, ring, turn, item, stages, sums, round);
}

template <int KIND, int MOST>
__device__ void w4_multiply(const w4_arguments &p, w4_header &h, uint32_t ring, float4 *sums)
{
    constexpr int UNIT = w4_unit(MOST);
    const int lane = threadIdx.x % 32;
    w4_turn turn = {0, p.stages, 0}, slot = {0, W4_QUEUE, 0};
    uint32_t round = 0;
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const w4_item &item = h.item[slot.at];                       /* stays there until it is done */
        const int projection = __shfl_sync(~0u, item.projection, 0); /* tells the compiler that warps do not diverge */
        const int width = __shfl_sync(~0u, item.width, 0), stages = __shfl_sync(~0u, item.stages, 0);
        if (projection < 0)
            return;
        if (__shfl_sync(~0u, item.dropped, 0))
            for (int k = 0; k < stages; k++, turn.next()) {
                hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
                w4_release(h, turn.at, lane);
            }
        else if (width == UNIT)
            w4_tile<KIND, UNIT, MOST>(p, h, ring, turn, item, stages, sums, round);
        else if (width == 2 * UNIT)
            w4_tile<KIND, 2 * UNIT, MOST>(p, h, ring, turn, item, stages, sums, round);
        else if (width == 3 * UNIT || MOST == 3 * UNIT)
            w4_tile<KIND, 3 * UNIT, MOST>(p, h, ring, turn, item, stages, sums, round);
        else
            w4_tile<KIND, MOST, MOST>(p, h, ring, turn, item, stages, sums, round);
        __syncwarp();
        if (lane == 0)
            hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
    }
}

#endif
