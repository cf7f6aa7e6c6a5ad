/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the sums of up to 128 tokens: the tokens of the second projection, or output rows. The same values as
 * in w4_finish.cuh, from registers.
 *
 * Sums are in registers, so their code is unrolled, once for each width; what is long is done in pieces that all widths
 * share. A tile's end unrolled for its width would be read from memory each time, which takes longer than running it.
 */
#ifndef LOADPLAN_W4_MANY_FINISH_CUH
#define LOADPLAN_W4_MANY_FINISH_CUH

#include "kernels/moe_many_end.cuh"
#include "kernels/w4_many_block.cuh"
#include "kernels/w4_rare_rows.cuh"

#include <cuda_bf16.h>

/* threadIdx.x. What is made of it is made where it is used: made before the loop over tiles, for all their widths, it
 * would take registers from sums. */
__device__ __forceinline__ int w4_many_thread()
{
    int thread = static_cast<int>(threadIdx.x);
    asm volatile("" : "+r"(thread));
    return thread;
}

/* Sums again, from memory, both rows of the lanes whose bits are set: of rows from `row` on, by a warp. */
template <int KIND>
__device__ __noinline__ void w4_many_redo_rows(const w4_arguments &p, const w4_item &item, int row, unsigned rare,
                                               float *total)
{
    const int lane = threadIdx.x % 32;
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 2 * item.width && (rare >> (4 * g) & 15) != 0; i++) {
            const int lower = i & 1, n = i / 2;
            const float sum = w4_row_by_token<KIND>(p.projection[item.projection], item, row + g + 8 * lower, n);
            if (lane == 4 * g + n % 8 / 2)
                total[n / 8 * 4 + 2 * lower + n % 2] = sum / w4_unit_of_sums(KIND);
        }
}

/* Replaces the sums of both rows of the lanes that say `is_rare`. They go through memory so that the call does not take
 * registers from those who do not make it. */
template <int KIND>
__device__ __forceinline__ void w4_many_redo(const w4_arguments &p, const w4_item &item, int part, bool is_rare,
                                             float (&total)[LP_W4_MANY_ROWS / 2])
{
    const unsigned rare = __ballot_sync(~0u, is_rare);
    if (rare == 0)
        return;
    float redone[LP_W4_MANY_ROWS / 2];
#pragma unroll
    for (int i = 0; i < LP_W4_MANY_ROWS / 2; i++)
        redone[i] = total[i];
    w4_many_redo_rows<KIND>(p, item, (threadIdx.x / 32 * w4_many_layout<KIND>::PARTS + part) * 16, rare, redone);
#pragma unroll
    for (int i = 0; i < LP_W4_MANY_ROWS / 2; i++)
        total[i] = redone[i];
}

template <int KIND>
__device__ __forceinline__ void w4_many_activate(const w4_arguments &p, const w4_item &item, int width,
                                                 w4_many_totals<KIND> &total)
{
    if constexpr (KIND == W4_NV) {
        const float *const alpha = p.l1_alpha + item.expert * p.l1_alpha_columns;
        moe_many_activate<true>(p, width, w4_unit_of_sums(KIND) * alpha[0],
                                w4_unit_of_sums(KIND) * alpha[p.l1_alpha_columns - 1], total);
    } else {
        moe_many_activate<false>(p, width, 1.0f, 1.0f, total);
    }
}

/* Leaves h as it is to the warp that rounds it. */
__device__ __forceinline__ void w4_many_leave(uint32_t exact, int width, const w4_many_totals<W4_MX_FP8> &value)
{
    const int thread = w4_many_thread(), warp = thread / 32, lane = thread % 32, g = lane / 4, q = lane % 4;
    const uint32_t to = exact + 4 * (2 * q * W4_MANY_PITCH + warp * 16 + g);
#pragma unroll
    for (int j = 0; j < LP_W4_MANY_ROWS / 8; j++) {
        if (8 * j >= width)
            break;
#pragma unroll
        for (int part = 0; part < 2; part++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                prefill::store_shared_u32(to + 4 * ((8 * j + c) * W4_MANY_PITCH + 8 * part),
                                          __float_as_uint(value[part][4 * j + c]));
    }
}

/* Rounds h to BF16, which needs no scale. */
__device__ __forceinline__ void w4_many_round_bf16(char *staging, int width, const w4_many_totals<W4_NV> &value)
{
    const int thread = w4_many_thread(), warp = thread / 32, lane = thread % 32, g = lane / 4, q = lane % 4;
    char *const even = staging + w4_operand_byte(2, width, 2 * q, warp * 8 + g);
    char *const odd = staging + w4_operand_byte(2, width, 2 * q + 1, warp * 8 + g);
#pragma unroll
    for (int j = 0; j < LP_W4_MANY_ROWS / 8; j++) {
        if (8 * j >= width)
            break;
        *reinterpret_cast<__nv_bfloat16 *>(even + j * 1024) = __float2bfloat16_rn(value[0][4 * j]);
        *reinterpret_cast<__nv_bfloat16 *>(odd + j * 1024) = __float2bfloat16_rn(value[0][4 * j + 1]);
    }
}

template <int KIND>
__device__ __forceinline__ void w4_many_finish_h(const w4_arguments &p, w4_many_header &h, const w4_item &item,
                                                 char *staging, int width, w4_many_totals<KIND> &total, uint32_t &round)
{
    using L = w4_many_layout<KIND>;
    w4_many_activate<KIND>(p, item, width, total);
    hopper::barrier_wait(hopper::shared_address(&h.stored), round++ & 1 ^ 1);
    if constexpr (KIND == W4_NV) {
        w4_many_round_bf16(staging, width, total);
        prefill::proxy_fence_shared();
    } else {
        w4_many_leave(hopper::shared_address(staging) + (L::EXACT - L::STAGED), width, total);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.staged));
}

template <int KIND>
__device__ __forceinline__ void w4_many_finish_output(const w4_arguments &p, w4_many_header &h, const w4_item &item,
                                                      char *staging, int width, const w4_many_totals<KIND> &total,
                                                      uint32_t round)
{
    constexpr int PARTS = w4_many_layout<KIND>::PARTS, ROW = moe_turned_row<PARTS>;
    const int warp = w4_many_thread() / 32, chunk = w4_many_thread() % (2 * PARTS);
    float alpha = 1.0f;
    if (KIND == W4_NV) {
        alpha = p.l2_alpha[item.expert];
        if (p.l2_activation_scale != nullptr)
            alpha = __fdiv_rn(alpha, *p.l2_activation_scale);
    }
    alpha *= w4_unit_of_sums(KIND);
    hopper::barrier_wait(hopper::shared_address(&h.stored), round & 1 ^ 1); /* the last tile of h has left its place */
    moe_many_store<PARTS, LP_W4_MANY_ROWS / 2, W4_MANY_TURNED>(
        p, item, width, hopper::shared_address(staging) + warp * (W4_MANY_TURNED * ROW),
        item.tile * (W4_ROWS * 2) + warp * ROW + chunk * 16, alpha, total);
}

#endif
