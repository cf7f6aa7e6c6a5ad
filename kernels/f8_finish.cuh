/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the sums of a part: h, rounded and stored as the operand of the second projection, or rows of out.
 *
 * In the first projection rows g of a warp are gate and rows g + 8 up, so a thread holds both of its column. A tile of
 * four parts is 128 columns of h, the unit of its quantisation. Neighbouring lanes of g exchange one of their two
 * tokens, so that each stores two columns of one token.
 */
#ifndef LOADPLAN_F8_FINISH_CUH
#define LOADPLAN_F8_FINISH_CUH

#include "kernels/f8_block.cuh"
#include "kernels/moe_activation.cuh"
#include "kernels/moe_rows.cuh"
#include "kernels/prefill_ptx.cuh"

/* The start of shared memory. */
struct f8_few_header : f8_queue {
    int most[3][LP_F8_SOME_ROWS]; /* largest |h| of a token of a tile, as bits; of this tile, the next and the last */
};

/* Of columns g (even) and g + 1 of both tokens, the token that this lane stores: lanes with an even g the first. */
__device__ __forceinline__ float2 f8_exchange(float first, float second)
{
    const bool odd = threadIdx.x / 4 % 2 == 1;
    const float got = __shfl_xor_sync(~0u, odd ? first : second, 4);
    return odd ? make_float2(got, second) : make_float2(first, got);
}

/* Largest |h| of each token over the tile, through all four warpgroups; 1e-10 at least. In place: value[n of the
 * thread] <- it. A NaN counts for nothing. */
template <int N>
__device__ __forceinline__ void f8_largest(f8_few_header &h, int number, const float (&value)[N / 4],
                                           float (&most)[N / 4])
{
    const int lane = threadIdx.x % 32, q = lane % 4;
    int *const of_tile = h.most[number % 3];
    if (threadIdx.x < LP_F8_SOME_ROWS) /* nobody reads it any more: that was two tiles ago */
        h.most[(number + 1) % 3][threadIdx.x] = 0;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        float v = fmaxf(1e-10f, fabsf(value[i]));
        for (int d = 4; d < 32; d *= 2)
            v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
        if (lane < 4)
            atomicMax(of_tile + i / 2 * 8 + 2 * q + i % 2, __float_as_int(v));
    }
    w4_sync<1, f8_threads<f8_few_form>::MULTIPLIERS>();
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        most[i] = __int_as_float(of_tile[i / 2 * 8 + 2 * q + i % 2]);
}

/* `number`: of this tile among the block's tiles of the first projection. */
template <int KIND, int N>
__device__ __forceinline__ void f8_finish_h(const f8_arguments &p, f8_few_header &h, const f8_item &item, int part,
                                            int number, const float (&total)[N / 2])
{
    constexpr int ELEMENT = f8_element_bytes(KIND);
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    float value[N / 4]; /* of tokens 8 (i / 2) + 2 q + i % 2 */
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 weight = *reinterpret_cast<const float2 *>(p.routes.row_weight + item.row + 8 * j + 2 * q);
#pragma unroll
        for (int c = 0; c < 2; c++)
            value[2 * j + c] =
                moe_activate(p.activation, p.alpha, p.beta, p.limit, total[4 * j + c], total[4 * j + 2 + c]) *
                (c == 0 ? weight.x : weight.y);
    }
    float factor[N / 4];
    if constexpr (KIND == F8_BLOCKS) {
        f8_largest<N>(h, number, value, factor);
        float *const scale =
            p.h_scale + static_cast<int64_t>(item.row) * p.projection[1].pieces + item.tile * item.width;
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            if (part == 0 && warp == 0 && g == 0)
                scale[i / 2 * 8 + 2 * q + i % 2] = __fdiv_rn(factor[i], 448.0f);
            factor[i] = __fdiv_rn(448.0f, factor[i]);
        }
    }
    char *const to = p.h + static_cast<int64_t>(item.row) * p.projection[1].pieces * F8_PIECE;
    const int column = item.tile * 128 + part * 32 + warp * 8 + g / 2 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        char *const at = to + f8_operand_byte(item.width, 8 * j + 2 * q + g % 2, column * ELEMENT);
        if constexpr (KIND == F8_BLOCKS) {
            const float2 pair = f8_exchange(value[2 * j] * factor[2 * j], value[2 * j + 1] * factor[2 * j + 1]);
            *reinterpret_cast<uint16_t *>(at) = prefill::e4m3_pair(pair.x, pair.y);
        } else {
            const float2 pair = f8_exchange(value[2 * j], value[2 * j + 1]);
            *reinterpret_cast<uint32_t *>(at) = prefill::bf16_pair(pair.x, pair.y);
        }
    }
    __threadfence();
    hopper::proxy_fence(); /* other blocks copy it into their shared memory */
    __syncwarp();
    if (lane == 0)
        hopper::add_release(p.ready + item.chunk, 1);
}

template <int N>
__device__ __forceinline__ void f8_finish_out(const f8_arguments &p, const f8_item &item, int part,
                                              const float (&total)[N / 2])
{
    const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const int column = (item.tile * p.projection[1].parts + part) * f8_few_form::PART_ROWS + warp * 16 + g / 2 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const int n = 8 * j + 2 * q + g % 2;
        const float2 upper = f8_exchange(total[4 * j], total[4 * j + 1]);
        const float2 lower = f8_exchange(total[4 * j + 2], total[4 * j + 3]);
        if (n >= item.valid)
            continue;
        char *const row = moe_row_place(p.sink, p.routes.row_route, p.out, item.row + n, p.hidden);
        uint16_t *const to = reinterpret_cast<uint16_t *>(row) + column;
        *reinterpret_cast<uint32_t *>(to) = prefill::bf16_pair(upper.x, upper.y);
        *reinterpret_cast<uint32_t *>(to + 8) = prefill::bf16_pair(lower.x, lower.y);
    }
}

#endif
