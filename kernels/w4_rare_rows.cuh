/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that the fast decoders do not get right are summed again from memory, in FP32: those of MXFP4 whose scales are
 * too far from the reference, or hold a NaN, and those of NVFP4 with a NaN or a sign among their scales. Trained
 * weights have none; this is for being right, not for speed.
 */
#ifndef LOADPLAN_W4_RARE_ROWS_CUH
#define LOADPLAN_W4_RARE_ROWS_CUH

#include "kernels/w4_block.cuh"

#include <cuda_fp8.h>

__device__ inline float w4_code_value(uint32_t code)
{
    const float magnitude =
        (code & 7) < 2 ? 0.5f * (code & 7) : (1.0f + 0.5f * (code & 1)) * (1 << ((code & 7) / 2 - 1));
    return code & 8 ? -magnitude : magnitude;
}

__device__ inline float w4_e4m3_value(uint32_t code)
{
    __nv_fp8_e4m3 x;
    x.__x = static_cast<__nv_fp8_storage_t>(code);
    return static_cast<float>(x);
}

/* Four codes of a row times four values of a token, columns 4 * lane .. of one step, times both scales. */
template <int KIND>
__device__ inline float w4_four_products(uint32_t codes, uint32_t scale, const char *operand, int width, int n,
                                         float token_scale)
{
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        const char *const at = operand + w4_operand_byte(w4_element_bytes(KIND), width, n, 4 * lane + i);
        const float x = KIND == W4_MX_FP8 ? w4_e4m3_value(__ldcg(reinterpret_cast<const unsigned char *>(at)))
                                          : __uint_as_float(__ldcg(reinterpret_cast<const unsigned short *>(at)) << 16);
        sum += w4_code_value(codes >> (4 * i) & 15) * x;
    }
    if (KIND == W4_NV)
        return sum * w4_e4m3_value(scale);
    return scale == 255 ? __int_as_float(0x7fffffff) : ldexpf(sum * token_scale, static_cast<int>(scale) - 127);
}

/* One row by one token; a warp does it, each lane four columns of each 128. */
template <int KIND>
__device__ inline float w4_row_by_token(const w4_projection &projection, const w4_item &item, int row, int n)
{
    constexpr int ELEMENT = w4_element_bytes(KIND), SCALE_ROW = w4_scale_bytes(KIND);
    const int lane = threadIdx.x % 32, steps = projection.steps, block = w4_block_bytes(ELEMENT, item.width);
    const int64_t step0 = (static_cast<int64_t>(item.expert) * projection.tiles + item.tile) * steps;
    const char *weight = projection.weight + step0 * W4_STEP_BYTES + row * 64 + 2 * lane;
    const char *scale = projection.scale + step0 * (W4_ROWS * SCALE_ROW) + row * SCALE_ROW + lane * SCALE_ROW / 32;
    const char *operand = projection.operand + static_cast<int64_t>(item.row) * steps * (128 * ELEMENT);
    const float *token_scale = projection.operand_scale + static_cast<int64_t>(item.row) * steps + n;
    float sum = 0.0f;
    for (int s = 0; s < steps; s++) {
        const uint32_t codes = *reinterpret_cast<const uint16_t *>(weight);
        const float token = KIND != W4_NV ? __ldcg(token_scale) : 1.0f;
        const uint32_t code = *reinterpret_cast<const uint8_t *>(scale);
        sum += w4_four_products<KIND>(codes, code, operand, item.width, n, token);
        weight += W4_STEP_BYTES, scale += W4_ROWS * SCALE_ROW, operand += block, token_scale += item.width;
    }
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

/* Replaces sums of the rows of this warp's lanes that say `is_rare`; both rows of such a lane. */
template <int KIND>
__device__ __noinline__ void w4_redo_rows(const w4_arguments &p, const w4_item &item, bool is_rare, float *sums)
{
    const int lane = threadIdx.x % 32, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
    const unsigned rare = __ballot_sync(~0u, is_rare);
    __syncwarp();
    for (int g = 0; g < 8; g++) {
        if ((rare >> (4 * g) & 15) == 0)
            continue;
        for (int i = 0; i < 2 * item.width; i++) {
            const int lower = i & 1, n = i / 2;
            const float sum =
                w4_row_by_token<KIND>(p.projection[item.projection], item, group * 64 + warp * 16 + g + 8 * lower, n);
            const int place = w4_sum_place(group, n / 8, warp * 32 + 4 * g + n % 8 / 2);
            if (lane == 0)
                sums[4 * place + 2 * lower + n % 2] = sum;
        }
    }
}

#endif
