/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multiplying threads: codes from shared memory to registers, decoded, times the tokens of the stage.
 *
 * Lane 4g + q of a warp holds rows g and g + 8 of its 16 and the columns 32q .. 32q + 31 of each 128: one MXFP4 scale
 * or two NVFP4 scales a row.
 */
#ifndef LOADPLAN_W4_MULTIPLY_CUH
#define LOADPLAN_W4_MULTIPLY_CUH

#include "kernels/w4_block.cuh"
#include "kernels/w4_codes.cuh"
#include "kernels/w4_rare_rows.cuh"

__device__ __forceinline__ void w4_release(w4_header &h, int stage, int lane)
{
    __syncwarp();
    if (lane == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.empty[stage]));
}

/* Adds one step's product, times the tokens' scales, to the totals. */
template <int N>
__device__ __forceinline__ void w4_promote(float (&total)[N / 2], const float (&sum)[N / 2], uint32_t at)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 scale = w4_load_floats(at + 32 * j);
        total[4 * j] = fmaf(sum[4 * j], scale.x, total[4 * j]);
        total[4 * j + 1] = fmaf(sum[4 * j + 1], scale.y, total[4 * j + 1]);
        total[4 * j + 2] = fmaf(sum[4 * j + 2], scale.x, total[4 * j + 2]);
        total[4 * j + 3] = fmaf(sum[4 * j + 3], scale.y, total[4 * j + 3]);
    }
}

struct w4_mx_rows {
    uint32_t reference[2]; /* of rows g and g + 8 */
    uint32_t farthest;     /* scale byte above the lowest that the references allow; more than W4_SPAN: redo the rows */
};

template <int MOST> __device__ __forceinline__ w4_mx_rows w4_mx_references(uint32_t scales)
{
    using L = w4_layout<W4_MX_FP8, MOST>; /* scales lie alike in both kinds of MXFP4 */
    w4_mx_rows rows;
    for (int i = 0; i < 2; i++) {
        uint32_t highest = max(hopper::load1(scales + 32 * i), hopper::load1(scales + 32 * i + W4_ROWS * L::SCALE_ROW));
        highest = max(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = max(highest, __shfl_xor_sync(~0u, highest, 2));
        rows.reference[i] = w4_reference(highest);
    }
    rows.farthest = 0;
    return rows;
}

/* Starts the products of one step. weights, scales: of this lane; tokens: of the step. */
template <int N>
__device__ __forceinline__ void w4_mx_step(float (&sum)[N / 2], w4_mx_rows &rows, uint32_t weights, uint32_t scales,
                                           uint32_t tokens)
{
    const uint4 x = hopper::load16(weights), y = hopper::load16(weights + 8 * 64);
    const uint32_t upper[4] = {x.x, x.y, x.z, x.w}, lower[4] = {y.x, y.y, y.z, y.w};
    const uint32_t e0 = hopper::load1(scales), e1 = hopper::load1(scales + 32);
    rows.farthest = __viaddmax_u32(e0, 13u - rows.reference[0], rows.farthest);
    rows.farthest = __viaddmax_u32(e1, 13u - rows.reference[1], rows.farthest);
    const uint32_t low0 = w4_magnitudes_low(e0, rows.reference[0]), high0 = w4_magnitudes_high(e0, rows.reference[0]);
    const uint32_t low1 = w4_magnitudes_low(e1, rows.reference[1]), high1 = w4_magnitudes_high(e1, rows.reference[1]);
    uint32_t a[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        w4_decode_mx(upper[j], low0, high0, a[j][0], a[j][2]);
        w4_decode_mx(lower[j], low1, high1, a[j][1], a[j][3]);
    }
    hopper::mma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++)
        w4_mma<false, N>(sum, a[j], w4_operand(tokens, 2 * j), j > 0);
    hopper::mma_commit();
}

template <int N, int MOST>
__device__ __forceinline__ void w4_mx_tile(const w4_arguments &p, w4_header &h, uint32_t ring, w4_turn &turn,
                                           const w4_item &item, int stages, float4 *sums, uint32_t &round)
{
    using L = w4_layout<W4_MX_FP8, MOST>;
    constexpr int AHEAD = N <= LP_W4_FEW_ROWS ? 2 : 1; /* steps in flight, as registers allow */
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, q = lane % 4;
    const int row = group * 64 + warp * 16 + lane / 4;
    const uint32_t my_weights = L::WEIGHTS + (group * 64 + warp * 16) * 64 + lane * 16,
                   my_scales = L::SCALES + row * 4 + q;
    float total[N / 2], sum[AHEAD][N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = 0.0f;
    hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
    w4_mx_rows rows = w4_mx_references<MOST>(ring + turn.at * L::STAGE + my_scales);
    for (int k = 0; k < stages; k++, turn.next()) {
        const uint32_t stage = ring + turn.at * L::STAGE, token_scales = stage + L::TOKEN_SCALES + 8 * q;
        hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            w4_mx_step<N>(sum[s % AHEAD], rows, stage + my_weights + s * W4_STEP_BYTES,
                          stage + my_scales + s * W4_ROWS * L::SCALE_ROW, stage + L::TOKENS + s * N * 128);
            if (AHEAD == 1) {
                hopper::mma_wait<0>();
                w4_promote<N>(total, sum[0], token_scales + s * N * 4);
            }
        }
        if (AHEAD == 2) { /* no further: products in flight over the end of a loop would be serialised */
            hopper::mma_wait<1>();
            w4_promote<N>(total, sum[0], token_scales);
            hopper::mma_wait<0>();
            w4_promote<N>(total, sum[AHEAD - 1], token_scales + N * 4);
        }
        w4_release(h, turn.at, lane);
    }
    const float factor0 = __uint_as_float(rows.reference[0] << 23), factor1 = __uint_as_float(rows.reference[1] << 23);
    hopper::barrier_wait(hopper::shared_address(&h.dumped), round++ & 1 ^ 1);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        sums[w4_sum_place(group, j, threadIdx.x % 128)] = make_float4(
            total[4 * j] * factor0, total[4 * j + 1] * factor0, total[4 * j + 2] * factor1, total[4 * j + 3] * factor1);
    if (__any_sync(~0u, rows.farthest > W4_SPAN))
        w4_redo_rows<W4_MX_FP8>(p, item, rows.farthest > W4_SPAN, reinterpret_cast<float *>(sums));
    __syncwarp();
    if (lane == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.summed));
}

/* Starts the products of one step, all into the same sum. scale[r][half]: of the lane's rows, for its 16 columns each.
 */
template <int N, int PENDING>
__device__ __forceinline__ void w4_bf16_products(float (&sum)[N / 2], int add, uint32_t weights,
                                                 const uint32_t (&scale)[2][2], uint32_t tokens)
{
    const uint4 x = hopper::load16(weights), y = hopper::load16(weights + 8 * 64);
    const uint32_t upper[4] = {x.x, x.y, x.z, x.w}, lower[4] = {y.x, y.y, y.z, y.w};
    uint32_t a[4][2][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t u[4], v[4];
        w4_decode_nv(upper[j], scale[0][j / 2], u);
        w4_decode_nv(lower[j], scale[1][j / 2], v);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            a[j][m][0] = u[2 * m];
            a[j][m][1] = v[2 * m];
            a[j][m][2] = u[2 * m + 1];
            a[j][m][3] = v[2 * m + 1];
        }
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
__device__ __forceinline__ void w4_nv_step(float (&sum)[N / 2], uint32_t &highest, int add, uint32_t weights,
                                           uint32_t scales, uint32_t tokens)
{
    const uint32_t code[4] = {hopper::load1(scales), hopper::load1(scales + 1), hopper::load1(scales + 64),
                              hopper::load1(scales + 65)};
    highest = max(max(max(highest, code[0]), max(code[1], code[2])), code[3]);
    const uint32_t scale[2][2] = {{w4_scale_nv(code[0]), w4_scale_nv(code[1])},
                                  {w4_scale_nv(code[2]), w4_scale_nv(code[3])}};
    /* in flight while the next words are decoded, as registers allow */
    w4_bf16_products<N, N <= 16 && MOST <= LP_W4_FEW_ROWS ? 1 : 0>(sum, add, weights, scale, tokens);
}

template <int N, int MOST>
__device__ __forceinline__ void w4_wide_tile(const w4_arguments &p, w4_header &h, uint32_t ring, w4_turn &turn,
                                             const w4_item &item, int stages, float4 *sums, uint32_t &round)
{
    using L = w4_layout<W4_MX_WIDE, MOST>;
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, q = lane % 4;
    const int row = group * 64 + warp * 16 + lane / 4;
    const uint32_t my_weights = L::WEIGHTS + (group * 64 + warp * 16) * 64 + lane * 16;
    const uint32_t my_scales = L::SCALES + row * 4 + q;
    float total[N / 2], sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = 0.0f;
    hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
    w4_mx_rows rows = w4_mx_references<MOST>(ring + turn.at * L::STAGE + my_scales);
    for (int k = 0; k < stages; k++, turn.next()) {
        const uint32_t stage = ring + __shfl_sync(~0u, turn.at, 0) * L::STAGE;
        hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint32_t scales = stage + my_scales + s * W4_ROWS * L::SCALE_ROW;
            const uint32_t e0 = hopper::load1(scales), e1 = hopper::load1(scales + 32);
            rows.farthest = __viaddmax_u32(e0, W4_WIDE_SPAN / 2 - rows.reference[0], rows.farthest);
            rows.farthest = __viaddmax_u32(e1, W4_WIDE_SPAN / 2 - rows.reference[1], rows.farthest);
            const uint32_t scale0 = w4_scale_mx(e0, rows.reference[0]), scale1 = w4_scale_mx(e1, rows.reference[1]);
            const uint32_t scale[2][2] = {{scale0, scale0}, {scale1, scale1}};
            w4_bf16_products<N, 0>(sum, 0, stage + my_weights + s * W4_STEP_BYTES, scale,
                                   stage + L::TOKENS + s * 2 * N * 128);
            w4_promote<N>(total, sum, stage + L::TOKEN_SCALES + 8 * q + s * N * 4);
        }
        w4_release(h, turn.at, lane);
    }
    const float factor0 = w4_wide_factor(rows.reference[0]), factor1 = w4_wide_factor(rows.reference[1]);
    hopper::barrier_wait(hopper::shared_address(&h.dumped), round++ & 1 ^ 1);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        sums[w4_sum_place(group, j, threadIdx.x % 128)] =
            make_float4(total[4 * j] * W4_WIDE_UNIT * factor0, total[4 * j + 1] * W4_WIDE_UNIT * factor0,
                        total[4 * j + 2] * W4_WIDE_UNIT * factor1, total[4 * j + 3] * W4_WIDE_UNIT * factor1);
    if (__any_sync(~0u, rows.farthest > W4_WIDE_SPAN))
        w4_redo_rows<W4_MX_WIDE>(p, item, rows.farthest > W4_WIDE_SPAN, reinterpret_cast<float *>(sums));
    __syncwarp();
    if (lane == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.summed));
}

template <int N, int MOST>
__device__ __forceinline__ void w4_nv_tile(const w4_arguments &p, w4_header &h, uint32_t ring, w4_turn &turn,
                                           const w4_item &item, int stages, float4 *sums, uint32_t &round)
{
    using L = w4_layout<W4_NV, MOST>;
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, q = lane % 4;
    const int row = group * 64 + warp * 16 + lane / 4;
    const uint32_t my_weights = L::WEIGHTS + (group * 64 + warp * 16) * 64 + lane * 16;
    const uint32_t my_scales = L::SCALES + row * 8 + 2 * q;
    float sum[N / 2];
    int last = 0;
    uint32_t highest = 0; /* scale byte of this lane's rows; above 0x7e: redo them */
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sum[i] = 0.0f;
    for (int k = 0; k < stages; k++, turn.next()) {
        const uint32_t stage = ring + __shfl_sync(~0u, turn.at, 0) * L::STAGE;
        hopper::barrier_wait(hopper::shared_address(&h.full[turn.at]), turn.phase);
#pragma unroll
        for (int s = 0; s < 2; s++) {
            w4_nv_step<N, MOST>(sum, highest, k > 0 || s > 0, stage + my_weights + s * W4_STEP_BYTES,
                                stage + my_scales + s * W4_ROWS * L::SCALE_ROW, stage + L::TOKENS + s * 2 * N * 128);
            if (s == 0 && k > 0)
                w4_release(h, last, lane); /* its last products are done now */
        }
        last = turn.at;
    }
    hopper::mma_wait<0>();
    w4_release(h, last, lane);
    hopper::barrier_wait(hopper::shared_address(&h.dumped), round++ & 1 ^ 1);
#pragma unroll
    for (int j = 0; j < N / 8; j++) /* codes were decoded to 2^-8 of their value */
        sums[w4_sum_place(group, j, threadIdx.x % 128)] =
            make_float4(sum[4 * j] * 256.0f, sum[4 * j + 1] * 256.0f, sum[4 * j + 2] * 256.0f, sum[4 * j + 3] * 256.0f);
    if (__any_sync(~0u, highest > 0x7e))
        w4_redo_rows<W4_NV>(p, item, highest > 0x7e, reinterpret_cast<float *>(sums));
    __syncwarp();
    if (lane == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.summed));
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
