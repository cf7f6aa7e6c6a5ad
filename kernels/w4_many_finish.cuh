/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the threads that multiplied up to 128 tokens do with their sums: the tokens of the second projection, or output
 * rows. The same values as in w4_finish.cuh, from registers.
 */
#ifndef LOADPLAN_W4_MANY_FINISH_CUH
#define LOADPLAN_W4_MANY_FINISH_CUH

#include "kernels/moe_activation.cuh"
#include "kernels/moe_launch.cuh"
#include "kernels/moe_rows.cuh"
#include "kernels/prefill_ptx.cuh"
#include "kernels/w4_many_block.cuh"
#include "kernels/w4_rare_rows.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

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
template <int KIND, int N>
__device__ __forceinline__ void w4_many_redo(const w4_arguments &p, const w4_item &item, int part, bool is_rare,
                                             float (&total)[N / 2])
{
    const unsigned rare = __ballot_sync(~0u, is_rare);
    if (rare == 0)
        return;
    float redone[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        redone[i] = total[i];
    w4_many_redo_rows<KIND>(p, item, threadIdx.x / 32 * 32 + 16 * part, rare, redone);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = redone[i];
}

/* The same for the other activations, one value after the other: their code is long, and all of it unrolled would not
 * stay in the cache of instructions. */
template <int N> __device__ __noinline__ void w4_many_activate_any(const w4_arguments &p, float (&value)[N])
{
    for (int i = 0; i < N; i += 4)
        for (int c = 0; c < 2; c++)
            value[i + c] = moe_activate(p.activation, p.alpha, p.beta, p.limit, value[i + c], value[i + 2 + c]);
}

/* total[part][4j + c] <- h of gate total[part][4j + c] and up total[part][4j + 2 + c]: of tokens 8j + 2q + c. */
template <int KIND, int N>
__device__ __forceinline__ void w4_many_activate(const w4_arguments &p, const w4_item &item, float (&total)[2][N / 2])
{
    if (KIND == W4_NV) {
        const float *const alpha = p.l1_alpha + item.expert * p.l1_alpha_columns;
        const float gate_alpha = w4_unit_of_sums(KIND) * alpha[0];
        const float up_alpha = w4_unit_of_sums(KIND) * alpha[p.l1_alpha_columns - 1];
#pragma unroll
        for (int i = 0; i < N; i++)
            total[i / (N / 2)][i % (N / 2)] *= i % 4 < 2 ? gate_alpha : up_alpha;
    }
    if (p.activation == LP_MOE_SWIGLU) {
        const float limit = p.limit > 0.0f ? p.limit : __int_as_float(0x7f800000);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i % 4 >= 2)
                continue;
            float gate = total[i / (N / 2)][i % (N / 2)], up = total[i / (N / 2)][i % (N / 2) + 2];
            gate = gate > limit ? limit : gate;
            up = up > limit ? limit : up < -limit ? -limit : up;
            total[i / (N / 2)][i % (N / 2)] = gate * moe_sigmoid(p.alpha * gate) * (up + p.beta);
        }
    } else {
        float value[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            value[i] = total[i / (N / 2)][i % (N / 2)];
        w4_many_activate_any<N>(p, value);
#pragma unroll
        for (int i = 0; i < N; i++)
            total[i / (N / 2)][i % (N / 2)] = value[i];
    }
    if (KIND == W4_NV)
        return;
    const float *const weights = p.routes.row_weight + item.row + 2 * (w4_many_thread() % 4); /* they belong into h */
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 weight = *reinterpret_cast<const float2 *>(weights + 8 * j);
#pragma unroll
        for (int part = 0; part < 2; part++)
            total[part][4 * j] *= weight.x, total[part][4 * j + 1] *= weight.y;
    }
}

/* h.own[warp].most: the largest |h| of each token in the warp's rows. */
template <int N> __device__ __forceinline__ void w4_many_find_most(w4_many_header &h, const float (&total)[2][N / 2])
{
    constexpr int COUNT = N / 4;
    const int thread = w4_many_thread(), lane = thread % 32;
    float most[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        most[i] = fmaxf(fabsf(total[0][i / 2 * 4 + i % 2]), fabsf(total[1][i / 2 * 4 + i % 2]));
        /* Lanes exchange halves of what they have, so that each is left with a quarter of the tokens. */
#pragma unroll
    for (int half = COUNT / 2, d = 16; d >= 8; half /= 2, d /= 2)
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float give = lane & d ? most[i] : most[i + half], keep = lane & d ? most[i + half] : most[i];
            most[i] = fmaxf(keep, __shfl_xor_sync(~0u, give, d));
        }
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++)
        most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 4));
    if (lane & 4)
        return;
    const int first = (lane & 16 ? COUNT / 2 : 0) + (lane & 8 ? COUNT / 4 : 0);
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++)
        h.own[thread / 32].most[(first + i) / 2 * 8 + 2 * (lane % 4) + (first + i) % 2] = most[i];
}

/* Rounds h to E4M3, with a scale for each token. */
template <int N>
__device__ __forceinline__ void w4_many_round_fp8(w4_many_header &h, char *staging, const float (&value)[2][N / 2])
{
    const int n = w4_many_thread(), warp = n / 32, lane = n % 32, g = lane / 4, q = lane % 4;
    w4_many_find_most<N>(h, value);
    w4_sync<1, W4_MANY_MULTIPLIERS>();
    if (n < N) {
        float most = h.own[0].most[n];
        for (int w = 1; w < W4_MANY_WARPS; w++)
            most = fmaxf(most, h.own[w].most[n]);
        h.scale[n] = __fdiv_rn(fmaxf(most, 1e-10f), 448.0f);
        h.inverse[n] = __fdiv_rn(448.0f, fmaxf(most, 1e-10f));
    }
    w4_sync<1, W4_MANY_MULTIPLIERS>();
    char *to[2][2];
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
        for (int c = 0; c < 2; c++)
            to[part][c] = staging + w4_operand_byte(1, N, 2 * q + c, (2 * warp + part) * 8 + g);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 inverse = *reinterpret_cast<const float2 *>(h.inverse + 8 * j + 2 * q);
#pragma unroll
        for (int part = 0; part < 2; part++) { /* saturates */
            const uint32_t two = prefill::e4m3_pair(value[part][4 * j] * inverse.x, value[part][4 * j + 1] * inverse.y);
            to[part][0][j * 1024] = static_cast<char>(two);
            to[part][1][j * 1024] = static_cast<char>(two >> 8);
        }
    }
}

/* The same, to BF16. */
template <int N> __device__ __forceinline__ void w4_many_round_bf16(char *staging, const float (&value)[2][N / 2])
{
    const int thread = w4_many_thread(), warp = thread / 32, lane = thread % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            char *const to = staging + w4_operand_byte(2, N, 2 * q + c, (2 * warp + part) * 8 + g);
#pragma unroll
            for (int j = 0; j < N / 8; j++)
                *reinterpret_cast<__nv_bfloat16 *>(to + j * 1024) = __float2bfloat16_rn(value[part][4 * j + c]);
        }
}

template <int KIND, int N>
__device__ __forceinline__ void w4_many_finish_h(const w4_arguments &p, w4_many_header &h, const w4_item &item,
                                                 char *staging, float (&total)[2][N / 2], uint32_t &round)
{
    w4_many_activate<KIND, N>(p, item, total);
    hopper::barrier_wait(hopper::shared_address(&h.stored), round++ & 1 ^ 1);
    if constexpr (KIND == W4_NV)
        w4_many_round_bf16<N>(staging, total);
    else
        w4_many_round_fp8<N>(h, staging, total);
    prefill::proxy_fence_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.staged));
}

/* The thread that stores tiles of h. */
template <int KIND> __device__ void w4_many_store(const w4_arguments &p, w4_many_header &h, const char *staging)
{
    constexpr int ELEMENT = w4_element_bytes(KIND);
    w4_turn slot = {0, W4_QUEUE, 0};
    uint32_t round = 0;
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const w4_item item = h.item[slot.at];
        hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
        if (item.projection < 0)
            return;
        if (item.dropped || item.projection != 0)
            continue;
        const int steps = p.projection[1].steps, block = w4_block_bytes(ELEMENT, item.width);
        const int64_t first = static_cast<int64_t>(item.row) * steps;
        hopper::barrier_wait(hopper::shared_address(&h.staged), round++ & 1);
        prefill::bulk_store(p.h + first * (128 * ELEMENT) + item.tile * block, hopper::shared_address(staging), block);
        if (KIND != W4_NV)
            prefill::bulk_store(p.h_scale + first + item.tile * item.width, hopper::shared_address(h.scale),
                                item.width * 4);
        prefill::bulk_store_commit();
        prefill::bulk_store_wait();
        hopper::barrier_arrive(hopper::shared_address(&h.stored));
        hopper::proxy_fence();
        hopper::add_release(p.ready + item.chunk, 1);
    }
}

/* Eight rows by eight tokens four times, transposed on the way to shared memory; a lane has the place of one token. */
__device__ __forceinline__ void w4_store_transposed(uint32_t at, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* Eight tokens at a time through shared memory, so that a lane writes 16 bytes of a row and four lanes 64. */
template <int KIND, int N>
__device__ __forceinline__ void w4_many_finish_output(const w4_arguments &p, w4_many_header &h, const w4_item &item,
                                                      const float (&total)[2][N / 2])
{
    const int thread = w4_many_thread(), warp = thread / 32, lane = thread % 32, token = lane / 4, eight = lane % 4;
    float alpha = 1.0f;
    if (KIND == W4_NV) {
        alpha = p.l2_alpha[item.expert];
        if (p.l2_activation_scale != nullptr)
            alpha = __fdiv_rn(alpha, *p.l2_activation_scale);
    }
    alpha *= w4_unit_of_sums(KIND);
    const uint32_t rounded = hopper::shared_address(h.own[warp].rounded);
    const uint32_t to = rounded + lane % 8 * 64 + (lane / 8 ^ lane / 2 % 4) * 16;
    const uint32_t from = rounded + token * 64 + (eight ^ token / 2 % 4) * 16;
    const int in_row = item.tile * (W4_ROWS * 2) + warp * 64 + eight * 16; /* bytes */
    int row = item.row + token;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        uint32_t pair[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pair[i] = prefill::bf16_pair(total[i / 2][4 * j + i % 2 * 2] * alpha,
                                         total[i / 2][4 * j + i % 2 * 2 + 1] * alpha);
        w4_store_transposed(to + j % 2 * 512, pair);
        __syncwarp();
        const uint4 out = hopper::load16(from + j % 2 * 512);
        if (8 * j + token < item.valid)
            *reinterpret_cast<uint4 *>(moe_row_place(p.sink, p.routes.row_route, p.out, row, p.hidden) + in_row) = out;
        row += 8;
        asm volatile("" : "+r"(row)); /* else all addresses are made beforehand and leave no registers for products */
    }
    __syncwarp();
}

#endif
