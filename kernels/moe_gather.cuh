/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of x to the operands of the first projection: eight columns of one token at a time, to the rows of all its
 * routes. For the kernel that routes, and for projections that route themselves (moe_start.cuh).
 *
 * Lanes that hold the 128 columns of a scale, or of a block, work together: 16 of a warp, neighbours.
 */
#ifndef LOADPLAN_MOE_GATHER_CUH
#define LOADPLAN_MOE_GATHER_CUH

#include "kernels/f8_operand.cuh"
#include "kernels/m8_operand.cuh"
#include "kernels/megamoe_private.h"
#include "kernels/prefill_ptx.cuh"
#include "kernels/prefill_store.cuh"
#include "kernels/w4_gather.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

constexpr int MOE_COLUMNS = 8, MOE_GROUP = 128; /* of x: a thread's, a scale's */

/*
 * Division of many numbers by one, a scale of at least 1e-10 / 448 by which none of them is more than 448 in amount:
 * the same quotient as of a division, but for quotients below 2^-60. Written out, because each division would bring the
 * code of all special cases along, and a kernel that runs once reads its code from memory.
 */
struct moe_divisor {
    float by, inverse;
    __device__ __forceinline__ explicit moe_divisor(float scale) : by(scale)
    {
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scale));
        inverse = fmaf(inverse, fmaf(-by, inverse, 1.0f), inverse);
    }
    __device__ __forceinline__ float divide(float v) const
    {
        float quotient = v * inverse;
        quotient = fmaf(inverse, fmaf(-by, quotient, v), quotient);
        return fmaf(inverse, fmaf(-by, quotient, v), quotient);
    }
};

/* Where the row of a route lies: its number in its chunk, the chunk's first row
 * and width. */
struct moe_spot {
    int row, n, width, first_row; /* row -1: masked */
};

/* Scale max(amax, 1e-10) / 448 of the 128 columns that 16 lanes hold, and the
 * values divided by it. */
__device__ __forceinline__ uint2 moe_quantise(uint4 x, float *scale)
{
    const uint32_t pair[4] = {x.x, x.y, x.z, x.w};
    float v[MOE_COLUMNS], most = 1e-10f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(pair[i] << 16), v[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000u);
        most = fmaxf(most, fmaxf(fabsf(v[2 * i]), fabsf(v[2 * i + 1])));
    }
#pragma unroll
    for (int d = 1; d < MOE_GROUP / MOE_COLUMNS; d *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    *scale = __fdiv_rn(most, 448.0f);
    const moe_divisor by(*scale);
    uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        two[i] = prefill::e4m3_pair(by.divide(v[2 * i]), by.divide(v[2 * i + 1]));
    return make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
}

/* 8 E4M3 values of column k, a multiple of 8, as the projections of whole-byte weights read them. */
template <int GATHER>
__device__ __forceinline__ void moe_store_fp8(const lp_moe_route_job &job, const moe_spot &s, int k, uint2 value,
                                              float scale)
{
    const int64_t hidden = job.hidden, blocks = hidden / MOE_GROUP, block = k / MOE_GROUP;
    char *const rows = static_cast<char *>(job.rows);
    if (GATHER == LP_MOE_GATHER_F8) {
        *reinterpret_cast<uint2 *>(rows + s.first_row * hidden + f8_operand_byte(s.width, s.n, k)) = value;
        if (k % MOE_GROUP == 0)
            job.row_scale[s.first_row * blocks + block * s.width + s.n] = scale;
        return;
    }
    prefill_store_codes(job.prefill_kind, rows + s.row * hidden * prefill_element(job.prefill_kind), k, value);
    if (k % MOE_GROUP == 0)
        job.row_scale[s.row * blocks + block] = scale;
}

template <int GATHER>
__device__ __forceinline__ void moe_store_bf16(const lp_moe_route_job &job, const moe_spot &s, int k, uint4 value)
{
    const int64_t hidden = job.hidden;
    char *const rows = static_cast<char *>(job.rows);
    if (GATHER == LP_MOE_GATHER_F8_BF16)
        *reinterpret_cast<uint4 *>(rows + s.first_row * hidden * 2 + f8_operand_byte(s.width, s.n, 2 * k)) = value;
    else if (GATHER == LP_MOE_GATHER_M8)
        *reinterpret_cast<uint4 *>(rows + s.first_row * hidden * 2 +
                                   m8_operand_byte(s.width, s.n, k / 16 * 16 + k / 8 % 2)) = value;
    else
        prefill_store_bf16(job.prefill_kind, rows + s.row * hidden * 2, k, value);
}

/* E4M3 codes as BF16 values. */
__device__ inline uint4 moe_widened(uint2 code)
{
    const uint32_t word[2] = {code.x, code.y};
    uint32_t pair[4];
    for (int i = 0; i < 4; i++) {
        __nv_fp8_e4m3 low, high;
        low.__x = static_cast<__nv_fp8_storage_t>(word[i / 2] >> (i % 2 * 16));
        high.__x = static_cast<__nv_fp8_storage_t>(word[i / 2] >> (i % 2 * 16 + 8));
        pair[i] =
            __float_as_uint(static_cast<float>(low)) >> 16 | (__float_as_uint(static_cast<float>(high)) & 0xffff0000u);
    }
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* The rows of a token's routes as the projections of 4-bit weights read them; by 16 lanes for a block of 128 columns,
 * that of column k. `code`: E4M3, or `value`: BF16. */
template <int GATHER>
__device__ __forceinline__ void moe_store_w4(const lp_moe_route_job &job, const moe_spot *spot, int k, uint2 code,
                                             uint4 value, float scale)
{
    constexpr bool IS_FP8 = GATHER == LP_MOE_GATHER_W4_FP8;
    constexpr int ELEMENT = IS_FP8 ? 1 : 2, STEP = IS_FP8 ? 2 : 1; /* of E4M3, two lanes have the same 16 bytes */
    const int lane = static_cast<int>(threadIdx.x) % 16;
    const int64_t hidden = job.hidden, block = k / MOE_GROUP;
    const uint4 turned = IS_FP8 ? w4_turn_codes(code) : w4_turn_values(value);
#pragma unroll 1
    for (int j = IS_FP8 ? lane / 8 : 0; j < static_cast<int>(job.top_k); j += STEP) {
        const moe_spot s = spot[j];
        if (s.row < 0)
            continue;
        char *const to =
            static_cast<char *>(job.rows) + s.first_row * hidden * ELEMENT + block * w4_block_bytes(ELEMENT, s.width);
        *reinterpret_cast<uint4 *>(to + (IS_FP8 ? w4_turned_code_byte(s.n) : w4_turned_value_byte(s.width, s.n))) =
            turned;
        if (GATHER != LP_MOE_GATHER_W4_BF16 && lane % (16 / STEP) == 0)
            job.row_scale[s.first_row * (hidden / MOE_GROUP) + block * s.width + s.n] = scale;
    }
}

/* Eight columns of MXFP8 tokens in BF16, of x as moe_load_piece gives it; four lanes hold the 32 columns of a scale. */
__device__ __forceinline__ uint4 moe_mx_values(const lp_moe_route_job &job, uint4 piece, int64_t at)
{
    if (job.x_dtype != LP_BF16)
        return e4m3_values(make_uint2(piece.x, piece.y),
                           lp_ue8m0_value(reinterpret_cast<const uint8_t *>(job.x_scale)[at / 32]));
    const uint32_t pair[4] = {piece.x, piece.y, piece.z, piece.w};
    uint32_t out[4];
    float most = E4M3_LEAST_X;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = fmaxf(most, fmaxf(fabsf(__uint_as_float(pair[i] << 16)), fabsf(__uint_as_float(pair[i] & 0xffff0000u))));
#pragma unroll
    for (int d = 1; d < 4; d *= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    const uint32_t code = e4m3_scale_above(most);
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = e4m3_rounded(__uint_as_float(pair[i] << 16), __uint_as_float(pair[i] & 0xffff0000u), code);
    return make_uint4(out[0], out[1], out[2], out[3]);
}

/* Piece `piece` of a token, eight columns: 16 bytes of BF16, or 8 of E4M3 in x and y. */
__device__ __forceinline__ uint4 moe_load_piece(const lp_moe_route_job &job, int token, int piece)
{
    const int64_t at = token * (job.hidden / MOE_COLUMNS) + piece;
    if (job.x_dtype == LP_BF16)
        return static_cast<const uint4 *>(job.x)[at];
    const uint2 code = static_cast<const uint2 *>(job.x)[at];
    return make_uint4(code.x, code.y, 0, 0);
}

enum moe_x_form { MOE_X_AS_GIVEN, MOE_X_E4M3, MOE_X_MXFP8 }; /* MXFP8: as BF16 values */

/*
 * Columns k .. k + 7 of a token, a piece as moe_load_piece gives it, to its rows. spots: of the
 * token's routes. By all lanes of a warp, with neighbouring k.
 */
template <int GATHER, moe_x_form FORM>
__device__ __forceinline__ void moe_gather_piece(const lp_moe_route_job &job, const moe_spot *spots, int token, int k,
                                                 uint4 piece)
{
    constexpr bool IS_FP8 = FORM == MOE_X_E4M3;
    if (FORM == MOE_X_MXFP8)
        piece = moe_mx_values(job, piece, token * job.hidden + k);
    if (GATHER == LP_MOE_GATHER_M8)
        piece = m8_turn_values(piece);
    uint2 code = make_uint2(piece.x, piece.y);
    float scale = 0.0f;
    if (IS_FP8 && job.x_dtype == LP_BF16)
        code = moe_quantise(piece, &scale);
    else if (IS_FP8)
        scale = job.x_scale[(token * job.hidden + k) / MOE_GROUP];
    if constexpr (GATHER == LP_MOE_GATHER_W4_FP8 || GATHER == LP_MOE_GATHER_W4_BF16 ||
                  GATHER == LP_MOE_GATHER_W4_WIDE) {
        const uint4 value = GATHER == LP_MOE_GATHER_W4_WIDE ? moe_widened(code) : piece;
        moe_store_w4<GATHER>(job, spots, k, code, value, scale);
    } else {
        /* Prefill gathers in a launch of its own: it wants each token once. */
        const int count = GATHER == LP_MOE_GATHER_PREFILL ? 1 : static_cast<int>(job.top_k);
#pragma unroll 1
        for (int j = 0; j < count; j++) {
            moe_spot s = spots[j];
            if (GATHER == LP_MOE_GATHER_PREFILL)
                s.row = token;
            if (s.row < 0)
                continue;
            if (IS_FP8)
                moe_store_fp8<GATHER>(job, s, k, code, scale);
            else
                moe_store_bf16<GATHER>(job, s, k, piece);
        }
    }
}

#endif
