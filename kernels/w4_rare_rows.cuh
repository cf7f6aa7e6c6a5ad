/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MXFP4 rows whose scales span more than 27 powers of two about the reference, or hold a NaN: E5M2 cannot hold them, so
 * their sums are made again from memory, in FP32. Trained weights have none; this is for being right, not for speed.
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

/* One row by one token; a warp does it, each lane four columns of each 128. */
__device__ inline float w4_row_by_token(const w4_projection &projection, const w4_item &item, int row, int n)
{
    const int lane = threadIdx.x % 32, steps = projection.steps;
    const int64_t step0 = (static_cast<int64_t>(item.expert) * projection.tiles + item.tile) * steps;
    const char *const weight = projection.weight + step0 * W4_STEP_BYTES + row * 64 + 2 * lane;
    const char *const scale = projection.scale + step0 * (W4_ROWS * 4) + row * 4 + lane / 8;
    const char *const operand =
        projection.operand + static_cast<int64_t>(item.row) * steps * 128 + w4_operand_byte(1, item.width, n, 4 * lane);
    const float *const token_scale = projection.operand_scale + static_cast<int64_t>(item.row) * steps + n;
    float sum = 0.0f;
    for (int s = 0; s < steps; s++) {
        const uint32_t codes = *reinterpret_cast<const uint16_t *>(weight + static_cast<int64_t>(s) * W4_STEP_BYTES);
        const uint32_t exponent = *reinterpret_cast<const uint8_t *>(scale + static_cast<int64_t>(s) * (W4_ROWS * 4));
        const uint32_t tokens =
            __ldcg(reinterpret_cast<const unsigned *>(operand + static_cast<int64_t>(s) * item.width * 128));
        float part = 0.0f;
        for (int i = 0; i < 4; i++) {
            __nv_fp8_e4m3 x;
            x.__x = static_cast<__nv_fp8_storage_t>(tokens >> (8 * i));
            part += w4_code_value(codes >> (4 * i) & 15) * static_cast<float>(x);
        }
        part *= __ldcg(token_scale + static_cast<int64_t>(s) * item.width);
        sum += exponent == 255 ? __int_as_float(0x7fffffff) : ldexpf(part, static_cast<int>(exponent) - 127);
    }
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

/* Replaces sums of the rows of this warp's lanes that say `is_rare`; both rows of such a lane. */
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
                w4_row_by_token(p.projection[item.projection], item, group * 64 + warp * 16 + g + 8 * lower, n);
            const int place = (group * (item.width / 8) + n / 8) * 128 + warp * 32 + 4 * g + n % 8 / 2;
            if (lane == 0)
                sums[4 * place + 2 * lower + n % 2] = sum;
        }
    }
}

#endif
