/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The finishing threads: sums of a tile to the tokens of the second projection, or to output rows.
 *
 * In the first projection rows g are gate and rows g + 8 up, so a thread holds both of its column, and a tile gives 128
 * columns of h: one unit of its quantisation.
 */
#ifndef LOADPLAN_W4_FINISH_CUH
#define LOADPLAN_W4_FINISH_CUH

#include "kernels/moe_activation.cuh"
#include "kernels/moe_rows.cuh"
#include "kernels/w4_block.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

__device__ __forceinline__ void w4_sums_taken(w4_header &h)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.dumped));
}

/* h of a thread's two tokens 8j + 2q, 8j + 2q + 1 in each of the four row groups. */
template <int KIND>
__device__ __forceinline__ void w4_activate(const w4_arguments &p, const w4_item &item, const float4 *sums, int j,
                                            float (&value)[W4_GROUPS][2])
{
    constexpr bool IS_NV = KIND == W4_NV;
    const int thread = threadIdx.x % 128, first = item.row + 8 * j + 2 * (thread % 4);
    float gate_alpha = 1.0f, up_alpha = 1.0f, weight[2] = {1.0f, 1.0f};
    if (IS_NV) {
        gate_alpha = p.l1_alpha[item.expert * p.l1_alpha_columns];
        up_alpha = p.l1_alpha[item.expert * p.l1_alpha_columns + p.l1_alpha_columns - 1];
    } else { /* the router's weight belongs into h */
        weight[0] = p.routes.row_weight[first];
        weight[1] = p.routes.row_weight[first + 1];
    }
#pragma unroll
    for (int w = 0; w < W4_GROUPS; w++) {
        const float4 v = sums[w4_sum_place(w, j, thread)]; /* gate, gate, up, up */
        value[w][0] =
            weight[0] * moe_activate(p.activation, p.alpha, p.beta, p.limit, v.x * gate_alpha, v.z * up_alpha);
        value[w][1] =
            weight[1] * moe_activate(p.activation, p.alpha, p.beta, p.limit, v.y * gate_alpha, v.w * up_alpha);
    }
}

/* Rounds 8 tokens of h into `output`, in the order of the operand: to E4M3 with a scale for each token. */
template <int KIND>
__device__ __forceinline__ void w4_round_h_fp8(const w4_arguments &p, w4_header &h, const w4_item &item,
                                               const float (&value)[W4_GROUPS][2], int j, char *output)
{
    const int thread = threadIdx.x % 128, warp = thread / 32, g = thread % 32 / 4, n = 8 * j + 2 * (thread % 4);
    for (int c = 0; c < 2; c++) {
        float most = 0.0f;
        for (int w = 0; w < W4_GROUPS; w++)
            most = fmaxf(most, fabsf(value[w][c]));
        for (int d = 4; d < 32; d *= 2)
            most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
        if (g == 0)
            h.most[warp][n + c] = most;
    }
    w4_sync<1, W4_FINISHERS>();
    for (int c = 0; c < 2; c++) {
        const float most = fmaxf(fmaxf(h.most[0][n + c], h.most[1][n + c]), fmaxf(h.most[2][n + c], h.most[3][n + c]));
        const float scale = __fdiv_rn(fmaxf(most, 1e-10f), 448.0f), inverse = __fdiv_rn(448.0f, fmaxf(most, 1e-10f));
        for (int w = 0; w < W4_GROUPS; w++) {
            const __nv_fp8_e4m3 code(value[w][c] * inverse); /* saturates; prefill_finish.cuh has the same product */
            char *const to = output + w4_operand_byte(w4_element_bytes(KIND), item.width, n + c, w * 32 + warp * 8 + g);
            if (KIND == W4_MX_FP8)
                *to = static_cast<char>(code.__x);
            else
                *reinterpret_cast<__nv_bfloat16 *>(to) = __float2bfloat16_rn(static_cast<float>(code)); /* exact */
        }
        if (warp == 0 && g == 0)
            p.h_scale[static_cast<int64_t>(item.row) * p.projection[1].steps + item.tile * item.width + n + c] = scale;
    }
}

/* The same, to BF16. */
__device__ __forceinline__ void w4_round_h_bf16(const w4_item &item, const float (&value)[W4_GROUPS][2], int j,
                                                char *output)
{
    const int thread = threadIdx.x % 128, warp = thread / 32, g = thread % 32 / 4, n = 8 * j + 2 * (thread % 4);
    w4_sync<1, W4_FINISHERS>();
    for (int c = 0; c < 2; c++)
        for (int w = 0; w < W4_GROUPS; w++)
            *reinterpret_cast<__nv_bfloat16 *>(output + w4_operand_byte(2, item.width, n + c, w * 32 + warp * 8 + g)) =
                __float2bfloat16_rn(value[w][c]);
}

/* Rounded values take the place of sums: those of 8 tokens are smaller than their sums and lie where sums of the same 8
 * or of earlier tokens lay (with BF16 up to 48 tokens). So no value is written before all threads have read the sums of
 * its tokens. */
template <int KIND>
__device__ __forceinline__ void w4_finish_h(const w4_arguments &p, w4_header &h, const w4_item &item, char *sums)
{
    constexpr int ELEMENT = w4_element_bytes(KIND);
    const int thread = threadIdx.x % 128, block = w4_block_bytes(ELEMENT, item.width);
    for (int j = 0; j < item.width / 8; j++) {
        float value[W4_GROUPS][2];
        w4_activate<KIND>(p, item, reinterpret_cast<const float4 *>(sums), j, value);
        if (KIND == W4_NV)
            w4_round_h_bf16(item, value, j, sums);
        else
            w4_round_h_fp8<KIND>(p, h, item, value, j, sums);
    }
    w4_sync<1, W4_FINISHERS>();
    char *const to = p.h + static_cast<int64_t>(item.row) * p.projection[1].steps * (128 * ELEMENT) + item.tile * block;
    for (int i = thread; i < block / 16; i += W4_FINISHERS)
        reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(sums)[i];
    w4_sums_taken(h);
    __threadfence();
    hopper::proxy_fence(); /* other blocks copy it into their shared memory */
    w4_sync<1, W4_FINISHERS>();
    if (thread == 0)
        hopper::add_release(p.ready + item.chunk, 1);
}

template <int KIND>
__device__ __forceinline__ void w4_finish_output(const w4_arguments &p, w4_header &h, const w4_item &item, char *sums)
{
    const int thread = threadIdx.x % 128, warp = thread / 32, g = thread % 32 / 4, q = thread % 4;
    float alpha = 1.0f;
    if (KIND == W4_NV) {
        alpha = p.l2_alpha[item.expert];
        if (p.l2_activation_scale != nullptr)
            alpha = __fdiv_rn(alpha, *p.l2_activation_scale);
    }
    for (int j = 0; j < item.width / 8; j++) {
        float4 v[W4_GROUPS];
#pragma unroll
        for (int w = 0; w < W4_GROUPS; w++)
            v[w] = reinterpret_cast<const float4 *>(sums)[w4_sum_place(w, j, thread)];
        w4_sync<1, W4_FINISHERS>();
#pragma unroll
        for (int w = 0; w < W4_GROUPS; w++) {
            __nv_bfloat16 *const to =
                reinterpret_cast<__nv_bfloat16 *>(sums) + (8 * j + 2 * q) * W4_ROWS + w * 64 + warp * 16 + g;
            to[0] = __float2bfloat16_rn(v[w].x * alpha);
            to[W4_ROWS] = __float2bfloat16_rn(v[w].y * alpha);
            to[8] = __float2bfloat16_rn(v[w].z * alpha);
            to[W4_ROWS + 8] = __float2bfloat16_rn(v[w].w * alpha);
        }
    }
    w4_sync<1, W4_FINISHERS>();
    for (int i = thread; i < item.valid * (W4_ROWS / 8); i += W4_FINISHERS) {
        const int n = i / (W4_ROWS / 8), eight = i % (W4_ROWS / 8);
        char *const row = moe_row_place(p.sink, p.routes.row_route, p.out, item.row + n, p.hidden);
        reinterpret_cast<uint4 *>(row)[item.tile * (W4_ROWS / 8) + eight] = reinterpret_cast<const uint4 *>(sums)[i];
    }
    w4_sums_taken(h);
}

template <int KIND> __device__ void w4_finish(const w4_arguments &p, w4_header &h, char *sums)
{
    w4_turn slot = {0, W4_QUEUE, 0};
    uint32_t round = 0;
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const w4_item &item = h.item[slot.at]; /* stays there until it is done */
        if (item.projection < 0)
            return;
        if (!item.dropped) {
            hopper::barrier_wait(hopper::shared_address(&h.summed), round++ & 1);
            if (item.projection == 0)
                w4_finish_h<KIND>(p, h, item, sums);
            else
                w4_finish_output<KIND>(p, h, item, sums);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
    }
}

#endif
