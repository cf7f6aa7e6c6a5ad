/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warp that stores tiles of h while the next tiles multiply. It rounds those of MXFP4 first, for which the
 * multipliers leave them in FP32: that needs a scale of all their columns.
 */
#ifndef LOADPLAN_W4_MANY_STORE_CUH
#define LOADPLAN_W4_MANY_STORE_CUH

#include "kernels/moe_launch.cuh"
#include "kernels/prefill_ptx.cuh"
#include "kernels/w4_many_block.cuh"

/* Rounds a tile of h to E4M3, times the weights of routes and with a scale for each token; by a warp, a lane four
 * columns of each token. First the largest value of 32 tokens, then their scales, a lane each, then their codes. */
__device__ __forceinline__ void w4_many_round_fp8(w4_many_header &h, const float *row_weight, const float *exact,
                                                  char *staging, int width)
{
    constexpr int AT_ONCE = 8;
    const int lane = threadIdx.x % 32;
    const float4 *const from = reinterpret_cast<const float4 *>(exact) + lane;
#pragma unroll 1
    for (int first = 0; first < width; first += 32) {
        const int count = min(32, width - first);
        const float weight = lane < count ? row_weight[first + lane] : 0.0f;
        float most = 0.0f;
#pragma unroll 1
        for (int n = 0; n < count; n += AT_ONCE)
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const float4 v = from[(first + n + i) * (W4_MANY_PITCH / 4)];
                const float four = fmaxf(fmaxf(fmaxf(fabsf(v.x), 0.0f), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
                const unsigned largest = __reduce_max_sync(~0u, __float_as_uint(four)); /* no NaN, no sign */
                if (lane == n + i)
                    most = __uint_as_float(largest);
            }
        most = fmaxf(most * fabsf(weight), 1e-10f); /* that of the products, as rounding keeps their order */
        const float inverse = __fdiv_rn(448.0f, most);
        if (lane < count)
            h.scale[first + lane] = __fdiv_rn(most, 448.0f);
#pragma unroll 1
        for (int n = 0; n < count; n += AT_ONCE) {
            char *const to = staging + (first + n) * 128;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const float4 v = from[(first + n + i) * (W4_MANY_PITCH / 4)];
                const float by = __shfl_sync(~0u, weight, n + i), times = __shfl_sync(~0u, inverse, n + i);
                const uint32_t low = prefill::e4m3_pair(v.x * by * times, v.y * by * times); /* saturates */
                const uint32_t high = prefill::e4m3_pair(v.z * by * times, v.w * by * times);
                *reinterpret_cast<uint32_t *>(to + w4_operand_byte(1, LP_W4_MANY_ROWS, i, 4 * lane)) = low | high << 16;
            }
        }
    }
    prefill::proxy_fence_shared();
    __syncwarp();
}

/* The warp that stores tiles of h, and rounds them where that needs a scale of all their columns. */
template <int KIND> __device__ void w4_many_store(const w4_arguments &p, w4_many_header &h, char *staging)
{
    using L = w4_many_layout<KIND>;
    constexpr int ELEMENT = w4_element_bytes(KIND);
    const bool is_first = threadIdx.x % 32 == 0;
    w4_turn slot = {0, W4_QUEUE, 0};
    uint32_t round = 0;
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const w4_item item = h.item[slot.at];
        __syncwarp();
        if (is_first)
            hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
        if (item.projection < 0)
            return;
        if (item.dropped || item.projection != 0)
            continue;
        const int steps = p.projection[1].steps, block = w4_block_bytes(ELEMENT, item.width);
        const int64_t first = static_cast<int64_t>(item.row) * steps;
        hopper::barrier_wait(hopper::shared_address(&h.staged), round++ & 1);
        if constexpr (KIND != W4_NV)
            w4_many_round_fp8(h, p.routes.row_weight + item.row,
                              reinterpret_cast<const float *>(staging + (L::EXACT - L::STAGED)), staging, item.width);
        if (is_first) {
            prefill::bulk_store(p.h + first * (128 * ELEMENT) + item.tile * block, hopper::shared_address(staging),
                                block);
            if (KIND != W4_NV)
                prefill::bulk_store(p.h_scale + first + item.tile * item.width, hopper::shared_address(h.scale),
                                    item.width * 4);
            prefill::bulk_store_commit();
            prefill::bulk_store_wait();
            hopper::barrier_arrive(hopper::shared_address(&h.stored));
            hopper::proxy_fence();
            hopper::add_release(p.ready + item.chunk, 1);
        }
        __syncwarp();
    }
}

#endif
