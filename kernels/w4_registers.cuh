/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the multiplying threads of both variants do to one step of 128 columns: codes from shared memory to registers,
 * as the matrix unit takes a first operand, and sums to totals.
 *
 * Lane 4g + q of a warp holds rows g and g + 8 of its 16 and the columns 32q .. 32q + 31 of each 128: one MXFP4 scale
 * or two NVFP4 scales a row.
 */
#ifndef LOADPLAN_W4_REGISTERS_CUH
#define LOADPLAN_W4_REGISTERS_CUH

#include "kernels/w4_block.cuh"
#include "kernels/w4_codes.cuh"

/* By each warp that multiplied. */
__device__ __forceinline__ void w4_release(w4_queue &h, int stage, int lane)
{
    __syncwarp();
    if (lane == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.empty[stage]));
}

/* Where a lane finds in a stage what it needs of a step: codes and scales of its row g, the scales of its tokens. */
template <typename L> struct w4_places {
    uint32_t weights, scales, token_scales;
    __device__ __forceinline__ explicit w4_places(int row)
    {
        const int q = threadIdx.x % 4;
        weights = L::WEIGHTS + row * 64 + q * 16;
        scales = L::SCALES + row * L::SCALE_ROW + q * (L::SCALE_ROW / 4);
        token_scales = L::TOKEN_SCALES + q * 8;
    }
};

/* Adds one step's product, times the tokens' scales, to N / 2 totals. The first scales may have been loaded before. */
template <int N, int EARLY>
__device__ __forceinline__ void w4_promote(float *total, const float (&sum)[N / 2], uint32_t at, const float2 *early)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 scale = j < EARLY ? early[j] : w4_load_floats(at + 32 * j);
        total[4 * j] = fmaf(sum[4 * j], scale.x, total[4 * j]);
        total[4 * j + 1] = fmaf(sum[4 * j + 1], scale.y, total[4 * j + 1]);
        total[4 * j + 2] = fmaf(sum[4 * j + 2], scale.x, total[4 * j + 2]);
        total[4 * j + 3] = fmaf(sum[4 * j + 3], scale.y, total[4 * j + 3]);
    }
}

template <int N> __device__ __forceinline__ void w4_promote(float *total, const float (&sum)[N / 2], uint32_t at)
{
    w4_promote<N, 0>(total, sum, at, nullptr);
}

struct w4_mx_rows {
    uint32_t reference[2]; /* of rows g and g + 8 */
    uint32_t farthest;     /* scale byte above the lowest that the references allow; more than W4_SPAN: redo the rows */
};

/* Of this lane's rows, from the places of their scales in the first two steps. */
__device__ __forceinline__ w4_mx_rows w4_mx_references(uint32_t first, uint32_t second)
{
    w4_mx_rows rows;
    for (int i = 0; i < 2; i++) {
        uint32_t highest = max(hopper::load1(first + 32 * i), hopper::load1(second + 32 * i));
        highest = max(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = max(highest, __shfl_xor_sync(~0u, highest, 2));
        rows.reference[i] = w4_reference(highest);
    }
    rows.farthest = 0;
    return rows;
}

/* Codes and scales of a lane's two rows in a step, as they are stored. */
struct w4_mx_codes {
    uint4 word[2];
    uint32_t scale[2];
};

__device__ __forceinline__ w4_mx_codes w4_mx_load(uint32_t weights, uint32_t scales)
{
    return {{hopper::load16(weights), hopper::load16(weights + 8 * 64)},
            {hopper::load1(scales), hopper::load1(scales + 32)}};
}

/* A step of codes to E5M2. */
__device__ __forceinline__ void w4_mx_operand(uint32_t (&a)[4][4], w4_mx_rows &rows, const w4_mx_codes &codes)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint32_t word[4] = {codes.word[r].x, codes.word[r].y, codes.word[r].z, codes.word[r].w};
        rows.farthest = __viaddmax_u32(codes.scale[r], 13u - rows.reference[r], rows.farthest);
        const uint32_t low = w4_magnitudes_low(codes.scale[r], rows.reference[r]);
        const uint32_t high = w4_magnitudes_high(codes.scale[r], rows.reference[r]);
#pragma unroll
        for (int j = 0; j < 4; j++)
            w4_decode_mx(word[j], low, high, a[j][r], a[j][r + 2]);
    }
}

/* Starts the products of one step, into a sum of its own. */
template <int N>
__device__ __forceinline__ void w4_mx_products(float (&sum)[N / 2], const uint32_t (&a)[4][4], uint32_t tokens)
{
    hopper::mma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++)
        w4_mma<false, N>(sum, a[j], w4_operand(tokens, 2 * j), j > 0);
    hopper::mma_commit();
}

/* Of rows g and g + 8: BF16 pairs of two scales, the lower half for the first 16 of a lane's columns. */
struct w4_nv_scales {
    uint32_t of[2];
};

/* largest: those that this lane has met. */
__device__ __forceinline__ w4_nv_scales w4_nv_load_scales(uint32_t scales, uint32_t &largest)
{
    w4_nv_scales s;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s.of[i] = w4_two_scales_nv(w4_load_two_bytes(scales + 64 * i));
        largest = w4_larger_scales(largest, s.of[i]);
    }
    return s;
}

/* A word of each of two rows to BF16, the first operands of two products. */
__device__ __forceinline__ void w4_nv_operand(uint32_t (&a)[2][4], uint32_t upper, uint32_t lower, uint32_t upper_scale,
                                              uint32_t lower_scale)
{
    uint32_t u[4], v[4];
    w4_decode_nv(upper, upper_scale, u);
    w4_decode_nv(lower, lower_scale, v);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        a[m][0] = u[2 * m];
        a[m][1] = v[2 * m];
        a[m][2] = u[2 * m + 1];
        a[m][3] = v[2 * m + 1];
    }
}

#endif
