/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the sums of a part: h, rounded and stored as the operand of the second projection, or rows of out.
 *
 * In the first projection rows g of a warp are gate and rows g + 8 up, so a thread holds both of its column; the 64
 * rows of a warpgroup are 32 columns of h, those of one scale. Neighbouring lanes of g exchange one of their two
 * tokens, so that each stores two columns of one token.
 */
#ifndef LOADPLAN_M8_FINISH_CUH
#define LOADPLAN_M8_FINISH_CUH

#include "kernels/m8_block.cuh"
#include "kernels/moe_activation.cuh"
#include "kernels/moe_rows.cuh"

/* Of columns g and g + STEP of both tokens, the token that this lane stores: the lower of the two lanes the first. */
template <int STEP> __device__ __forceinline__ float2 m8_exchange(float first, float second)
{
    const bool is_upper = threadIdx.x / 4 / STEP % 2 == 1;
    const float got = __shfl_xor_sync(~0u, is_upper ? first : second, 4 * STEP);
    return is_upper ? make_float2(got, second) : make_float2(first, got);
}

template <int N>
__device__ __forceinline__ void m8_activate_usually(const m8_arguments &p, const float (&total)[N / 2],
                                                    float (&value)[N / 4])
{
    const float limit = p.limit > 0.0f ? p.limit : __int_as_float(0x7f800000);
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const float gate = moe_at_most(total[i / 2 * 4 + i % 2], limit);
        const float up = moe_at_least(moe_at_most(total[i / 2 * 4 + 2 + i % 2], limit), -limit);
        value[i] = gate * moe_sigmoid(p.alpha * gate) * (up + p.beta);
    }
}

/* Through memory, one after the other: the code of these activations is long, and they are rare. */
template <int N>
__device__ __forceinline__ void m8_activate_any(const m8_arguments &p, const float (&total)[N / 2],
                                                float (&value)[N / 4])
{
    float sums[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        sums[i] = total[i];
#pragma unroll 1
    for (int i = 0; i < N / 4; i++) {
        float *const gate = sums + i / 2 * 4 + i % 2;
        *gate = moe_activate(p.activation, p.alpha, p.beta, p.limit, *gate, gate[2]);
    }
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        value[i] = sums[i / 2 * 4 + i % 2];
}

/* Tells the warpgroup the scales of its tokens' h; a NaN counts for nothing. They are in `of` afterwards, by warp. */
template <int N>
__device__ __forceinline__ void m8_share_scales(uint8_t (&of)[4][LP_M8_MOST_ROWS], const float (&value)[N / 4])
{
    const int thread = m8_thread(), group = thread / 128, warp = thread % 128 / 32, lane = thread % 32, q = lane % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float most[2] = {fmaxf(0.0f, fabsf(value[2 * j])), fmaxf(0.0f, fabsf(value[2 * j + 1]))};
        for (int d = 4; d < 32; d *= 2)
            for (float &m : most)
                m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
        if (lane < 4)
            *reinterpret_cast<uint16_t *>(&of[warp][8 * j + 2 * q]) =
                static_cast<uint16_t>(e4m3_scale_above(most[0]) | e4m3_scale_above(most[1]) << 8);
    }
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

/* `number`: of this tile among the block's tiles of the first projection. */
template <int N>
__device__ __forceinline__ void m8_finish_h(const m8_arguments &p, m8_most &most, const m8_item &item, int number,
                                            const float (&total)[N / 2])
{
    const int thread = m8_thread(), group = thread / 128, warp = thread / 32 % 4, lane = thread % 32, g = lane / 4,
              q = lane % 4;
    float value[N / 4]; /* of tokens 8 (i / 2) + 2 q + i % 2 */
    if (p.activation == LP_MOE_SWIGLU)
        m8_activate_usually<N>(p, total, value);
    else
        m8_activate_any<N>(p, total, value);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 weight = *reinterpret_cast<const float2 *>(p.routes.row_weight + item.row + 8 * j + 2 * q);
        value[2 * j] *= weight.x, value[2 * j + 1] *= weight.y;
    }
    uint8_t(&of)[4][LP_M8_MOST_ROWS] = most.of[number % 2][group]; /* a warp is not two barriers ahead of another */
    m8_share_scales<N>(of, value);
    char *const to = p.h + static_cast<int64_t>(item.row) * p.intermediate * 2;
    const int column = item.tile * 128 + group * 32 + warp * 8 + (g & ~2); /* and the next but one */
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const int n = 8 * j + 2 * q + g / 2 % 2;
        const uint32_t code = max(max(of[0][n], of[1][n]), max(of[2][n], of[3][n]));
        const float2 pair = m8_exchange<2>(value[2 * j], value[2 * j + 1]);
        *reinterpret_cast<uint32_t *>(to + m8_operand_byte(item.width, n, column)) = e4m3_rounded(pair.x, pair.y, code);
    }
    __threadfence();
    hopper::proxy_fence(); /* other blocks copy it into their shared memory */
    __syncwarp();
    if (lane == 0)
        hopper::add_release(p.ready + item.chunk, 1);
}

template <int N>
__device__ __forceinline__ void m8_finish_out(const m8_arguments &p, const m8_item &item, const float (&total)[N / 2])
{
    const int thread = m8_thread(), warp = thread / 32, g = thread % 32 / 4, q = thread % 4;
    const int column = item.tile * M8_ROWS + warp * 16 + g / 2 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const int n = 8 * j + 2 * q + g % 2;
        const float2 upper = m8_exchange<1>(total[4 * j], total[4 * j + 1]);
        const float2 lower = m8_exchange<1>(total[4 * j + 2], total[4 * j + 3]);
        if (n >= item.valid)
            continue;
        char *const row = moe_row_place(p.sink, p.routes.row_route, p.out, item.row + n, p.hidden);
        uint16_t *const to = reinterpret_cast<uint16_t *>(row) + column;
        *reinterpret_cast<uint32_t *>(to) = e4m3_pair_of(upper.x, upper.y);
        *reinterpret_cast<uint32_t *>(to + 8) = e4m3_pair_of(lower.x, lower.y);
    }
}

#endif
