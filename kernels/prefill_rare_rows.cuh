/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MXFP4 multiplied in FP8: sums are in units of a power of two for each row of weights, and rows that E5M2 cannot hold
 * are summed again from their codes, in FP32. Trained weights have none of those.
 */
#ifndef LOADPLAN_PREFILL_RARE_ROWS_CUH
#define LOADPLAN_PREFILL_RARE_ROWS_CUH

#include "kernels/number_formats.h"
#include "kernels/prefill_walk.cuh"
#include "layouts/layout_index.h"

/* A row of a tile of weights: where its codes and scales of a step are, in memory. */
struct prefill_row_places {
    const char *codes, *scales;
    int64_t codes_step, scales_step;
    __device__ prefill_row_places(const prefill_arguments &p, const prefill_task &task, int which, int row, int steps)
    {
        const int64_t columns = prefill_walk::columns_of(p, which), tile = task.expert * columns + task.n;
        codes = p.codes[which] + tile * steps * (PREFILL_COLUMNS * 64) + (p.packed ? row * 64 : row * 64 * steps);
        codes_step = p.packed ? PREFILL_COLUMNS * 64 : 64;
        if (p.packed) {
            scales = p.code_scale[which] + tile * steps * (PREFILL_COLUMNS * 4) + row * 4;
            scales_step = PREFILL_COLUMNS * 4;
        } else {
            const int64_t rows = columns * PREFILL_COLUMNS;
            scales =
                p.code_scale[which] + 4 * (task.expert * steps * rows + task.n * PREFILL_COLUMNS + lp_scale_slot(row));
            scales_step = 4 * rows;
        }
    }
};

/* One row of weights by one token, from memory; a warp does it, each lane four columns of each 128. */
__device__ inline float prefill_row_by_token(const prefill_arguments &p, const prefill_task &task, int which, int row,
                                             int64_t token)
{
    const int k = threadIdx.x % 32 * 4, steps = (which == 0 ? p.hidden : p.intermediate) / 128;
    const prefill_row_places at(p, task, which, row, steps);
    float sum = 0.0f;
    for (int s = 0; s < steps; s++) {
        const uint32_t codes = *reinterpret_cast<const uint16_t *>(at.codes + s * at.codes_step + k / 2);
        const uint32_t exponent = *reinterpret_cast<const uint8_t *>(at.scales + s * at.scales_step + k / 32);
        const int64_t place = prefill_operand_byte(token, s * 128 + prefill_place(LP_PREFILL_MX, k), steps * 128);
        const uint32_t x = __ldcg(reinterpret_cast<const unsigned *>(p.tokens[which] + place));
        float part = 0.0f;
        for (int i = 0; i < 4; i++)
            part += lp_e2m1_value(codes >> (4 * i)) * lp_e4m3_value(x >> (8 * i) & 0xff);
        part *= __ldcg(p.token_scale[which] + prefill_scale_index(token, s, steps));
        sum += exponent == 255 ? __int_as_float(0x7fffffff) : ldexpf(part, static_cast<int>(exponent) - 127);
    }
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(~0u, sum, d);
    return sum;
}

/* Rows whose scales E5M2 cannot hold: their sums are made again, in FP32, and so are those of the rows eight from them,
 * which lanes of the kernels for fewer tokens hold beside them: the bits of a row are the same there. */
__device__ inline void prefill_redo_rows(const prefill_arguments &p, const uint8_t *reference, const prefill_task &task,
                                         int which, float (&sum)[128])
{
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32, first = group * 64 + threadIdx.x % 128 / 32 * 16;
    for (int row = 0; row < PREFILL_COLUMNS; row++) {
        if (reference[row] != 0 && reference[row ^ 8] != 0)
            continue;
        for (int t = 0; t < 16 && first + t < task.rows; t++) {
            const float value = prefill_row_by_token(p, task, which, row, task.row + first + t);
            const bool mine = lane == t % 8 * 4 + row % 8 / 2;
            const int place = row / 8 * 4 + t / 8 * 2 + row % 2;
#pragma unroll
            for (int i = 0; i < 128; i++)
                if (mine && i == place)
                    sum[i] = value;
        }
    }
}

/* The sums of a tile, from units of the rows' references: exponents as F32 has them, or 0 for a row that E5M2 cannot
 * hold. In shared memory, or in lines of memory that nobody writes any more. */
__device__ __forceinline__ void prefill_scale_rows(const prefill_arguments &p, const uint8_t *reference,
                                                   const prefill_task &task, int which, float (&sum)[128])
{
    const uint16_t *const mine = reinterpret_cast<const uint16_t *>(reference) + threadIdx.x % 4;
    bool rare = false;
#pragma unroll
    for (int j = 0; j < 32; j++) {
        const uint32_t two = mine[4 * j], low = two & 0xff, high = two >> 8;
        const float even = __uint_as_float(low << 23), odd = __uint_as_float(high << 23);
        rare |= low == 0 || high == 0;
        sum[4 * j] *= even;
        sum[4 * j + 1] *= odd;
        sum[4 * j + 2] *= even;
        sum[4 * j + 3] *= odd;
    }
    if (__any_sync(~0u, rare))
        prefill_redo_rows(p, reference, task, which, sum);
}

#endif
