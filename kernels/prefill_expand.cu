/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights whose scales belong to single rows, written out as BF16: code times scale, which is exact. E2M1 and E4M3 have
 * at most four significant bits and an UE4M3 scale has four: products need at most six or, with a power of two, four of
 * BF16's eight, and BF16 has the exponents of F32, subnormals included.
 */
#include "kernels/moe_launch.cuh"
#include "kernels/number_formats.h"
#include "kernels/prefill.h"
#include "layouts/layout_index.h"

#include <cuda_bf16.h>

namespace
{

constexpr int THREADS = 256, COLUMNS = 16; /* of a thread: one NVFP4 scale, half an MX one */

struct source {
    const uint8_t *weight, *scale;
    uint16_t *to;
    int64_t rows, columns; /* of one expert */
    int64_t first;         /* expert */
    int format, packed;
};

__device__ bool is_fp4(int format)
{
    return format == LP_MXFP4 || format == LP_NVFP4;
}

/* Place of the scale byte of an (interleaved) row and a column. */
__device__ int64_t scale_byte(const source &s, int64_t expert, int64_t row, int64_t column)
{
    const int64_t per = s.format == LP_NVFP4 ? 16 : 32, byte = column / per, words = s.columns / per / 4;
    if (!s.packed)
        return 4 * lp_scale_word(expert, lp_scale_slot(row), byte / 4, s.rows, words) + byte % 4;
    const int64_t in_step = 128 / per; /* bytes of a row in a step of 128 columns */
    return ((expert * (s.rows / 256) + row / 256) * (s.columns / 128) + column / 128) * 256 * in_step +
           row % 256 * in_step + byte % in_step;
}

/* Place of the byte of a code. */
__device__ int64_t weight_byte(const source &s, int64_t expert, int64_t row, int64_t column)
{
    const int64_t row_bytes = is_fp4(s.format) ? s.columns / 2 : s.columns, at = is_fp4(s.format) ? column / 2 : column;
    if (!s.packed)
        return (expert * s.rows + row) * row_bytes + at;
    return ((expert * (s.rows / 256) + row / 256) * (s.columns / 128) + column / 128) * 256 * 64 + row % 256 * 64 +
           at % 64;
}

__device__ float code_value(const source &s, const uint8_t (&bytes)[COLUMNS], int i)
{
    return is_fp4(s.format) ? lp_e2m1_value(bytes[i / 2] >> (i % 2 * 4)) : lp_e4m3_value(bytes[i]);
}

__global__ void __launch_bounds__(THREADS) expand(const __grid_constant__ source s, int64_t pieces)
{
    const int64_t row_pieces = s.columns / COLUMNS;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x; i < pieces;
         i += static_cast<int64_t>(gridDim.x) * THREADS) {
        const int64_t at = i / row_pieces, column = i % row_pieces * COLUMNS, row = at % s.rows, local = at / s.rows;
        const uint8_t *const from = s.weight + weight_byte(s, s.first + local, row, column);
        uint8_t bytes[COLUMNS] = {};
        if (is_fp4(s.format))
            *reinterpret_cast<uint2 *>(bytes) = *reinterpret_cast<const uint2 *>(from);
        else
            *reinterpret_cast<uint4 *>(bytes) = *reinterpret_cast<const uint4 *>(from);
        const uint32_t code = s.scale[scale_byte(s, s.first + local, row, column)];
        const float scale = s.format == LP_NVFP4 ? lp_e4m3_value(code) : lp_ue8m0_value(code);
        uint16_t value[COLUMNS];
        for (int c = 0; c < COLUMNS; c++)
            value[c] = static_cast<uint16_t>(lp_bf16_code(code_value(s, bytes, c) * scale));
        uint4 *const to = reinterpret_cast<uint4 *>(s.to + at * s.columns + column);
        to[0] = reinterpret_cast<const uint4 *>(value)[0];
        to[1] = reinterpret_cast<const uint4 *>(value)[1];
    }
}

} // namespace

extern "C" lp_status lp_prefill_expand(const lp_prefill_expand_job *job, void *stream, lp_error *err)
{
    constexpr int BLOCKS = 132 * 8;
    for (int which = 0; which < 2; which++) {
        source s = {};
        s.weight = static_cast<const uint8_t *>(job->weight[which]);
        s.scale = static_cast<const uint8_t *>(job->scale[which]);
        s.to = static_cast<uint16_t *>(job->to[which]);
        s.rows = which == 0 ? 2 * job->intermediate : job->hidden;
        s.columns = which == 0 ? job->hidden : job->intermediate;
        s.first = job->first, s.format = job->format, s.packed = job->family == LP_MOE_PACKED;
        const moe_launch launch(BLOCKS, THREADS, 0, stream, false);
        LP_TRY(
            moe_launched(cudaLaunchKernelEx(&launch.config, expand, s, job->experts * s.rows * (s.columns / COLUMNS)),
                         "the expansion of weights", err));
    }
    return LP_OK;
}
