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

#include "kernels/moe_activation.cuh"
#include "kernels/moe_rows.cuh"
#include "kernels/prefill_ptx.cuh"
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
    w4_many_redo_rows<KIND>(p, item, (threadIdx.x / 32 * w4_many_layout<KIND>::PARTS + part) * 16, rare, redone);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        total[i] = redone[i];
}

/* Gate and up of four rows by two tokens of sums, and what becomes of them. */
struct w4_many_gate_up {
    float gate[8], up[8];
};
struct w4_many_eight {
    float of[8];
};

/* One value after the other: the code of these activations is long, and they are rare. */
__device__ __noinline__ w4_many_eight w4_many_activate_any(w4_many_gate_up in, int kind, float alpha, float beta,
                                                           float limit)
{
    w4_many_eight out;
#pragma unroll 1
    for (int i = 0; i < 8; i++)
        out.of[i] = moe_activate(kind, alpha, beta, limit, in.gate[i], in.up[i]);
    return out;
}

/* kind is LP_MOE_SWIGLU with a limit that may be infinite. */
__device__ __noinline__ w4_many_eight w4_many_swiglu(w4_many_gate_up in, float gate_alpha, float up_alpha, float alpha,
                                                     float beta, float limit)
{
    w4_many_eight out;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float gate = moe_at_most(in.gate[i] * gate_alpha, limit);
        const float up = moe_at_least(moe_at_most(in.up[i] * up_alpha, limit), -limit);
        out.of[i] = gate * moe_sigmoid(alpha * gate) * (up + beta);
    }
    return out;
}

/* total[part][4j + c] <- h of gate total[part][4j + c] and up total[part][4j + 2 + c]: of tokens 8j + 2q + c. */
template <int KIND, int N>
__device__ __forceinline__ void w4_many_activate(const w4_arguments &p, const w4_item &item,
                                                 w4_many_sums<KIND, N> &total)
{
    constexpr int SUMS = w4_many_layout<KIND>::PARTS * N / 2;
    float gate_alpha = 1.0f, up_alpha = 1.0f;
    if (KIND == W4_NV) {
        const float *const alpha = p.l1_alpha + item.expert * p.l1_alpha_columns;
        gate_alpha = w4_unit_of_sums(KIND) * alpha[0];
        up_alpha = w4_unit_of_sums(KIND) * alpha[p.l1_alpha_columns - 1];
    }
    const float limit = p.limit > 0.0f ? p.limit : __int_as_float(0x7f800000);
#pragma unroll
    for (int i = 0; i < SUMS; i += 16) {
        w4_many_gate_up in;
        w4_many_eight out;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int at = i + k / 2 * 4 + k % 2;
            in.gate[k] = at < SUMS ? total[at / (N / 2)][at % (N / 2)] : 0.0f;
            in.up[k] = at < SUMS ? total[at / (N / 2)][at % (N / 2) + 2] : 0.0f;
        }
        if (p.activation == LP_MOE_SWIGLU) {
            out = w4_many_swiglu(in, gate_alpha, up_alpha, p.alpha, p.beta, limit);
        } else {
#pragma unroll
            for (int k = 0; k < 8; k++)
                in.gate[k] *= gate_alpha, in.up[k] *= up_alpha;
            out = w4_many_activate_any(in, p.activation, p.alpha, p.beta, p.limit);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int at = i + k / 2 * 4 + k % 2;
            if (at < SUMS)
                total[at / (N / 2)][at % (N / 2)] = out.of[k];
        }
    }
}

/* Leaves h as it is to the warp that rounds it. */
template <int N> __device__ __forceinline__ void w4_many_leave(uint32_t exact, const w4_many_sums<W4_MX_FP8, N> &value)
{
    const int thread = w4_many_thread(), warp = thread / 32, lane = thread % 32, g = lane / 4, q = lane % 4;
    const uint32_t to = exact + 4 * (2 * q * W4_MANY_PITCH + warp * 16 + g);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int part = 0; part < 2; part++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                prefill::store_shared_u32(to + 4 * ((8 * j + c) * W4_MANY_PITCH + 8 * part),
                                          __float_as_uint(value[part][4 * j + c]));
}

/* Rounds h to BF16, which needs no scale. */
template <int N> __device__ __forceinline__ void w4_many_round_bf16(char *staging, const w4_many_sums<W4_NV, N> &value)
{
    const int thread = w4_many_thread(), warp = thread / 32, lane = thread % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        char *const to = staging + w4_operand_byte(2, N, 2 * q + c, warp * 8 + g);
#pragma unroll
        for (int j = 0; j < N / 8; j++)
            *reinterpret_cast<__nv_bfloat16 *>(to + j * 1024) = __float2bfloat16_rn(value[0][4 * j + c]);
    }
}

template <int KIND, int N>
__device__ __forceinline__ void w4_many_finish_h(const w4_arguments &p, w4_many_header &h, const w4_item &item,
                                                 char *staging, w4_many_sums<KIND, N> &total, uint32_t &round)
{
    using L = w4_many_layout<KIND>;
    w4_many_activate<KIND, N>(p, item, total);
    hopper::barrier_wait(hopper::shared_address(&h.stored), round++ & 1 ^ 1);
    if constexpr (KIND == W4_NV) {
        w4_many_round_bf16<N>(staging, total);
        prefill::proxy_fence_shared();
    } else {
        w4_many_leave<N>(hopper::shared_address(staging) + (L::EXACT - L::STAGED), total);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.staged));
}

/* Eight rows by eight tokens four times, transposed on the way to shared memory; a lane has the place of one token. */
__device__ __forceinline__ void w4_store_transposed(uint32_t at, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* As many tokens at a time through shared memory as a warp has room for, so that a lane writes 16 bytes of a row. There
 * a token has ROW bytes, those of the warp's rows; their chunks change places with the tokens, for the banks' sake. */
template <int KIND, int N>
__device__ __forceinline__ void w4_many_finish_output(const w4_arguments &p, w4_many_header &h, const w4_item &item,
                                                      char *staging, const w4_many_sums<KIND, N> &total, uint32_t round)
{
    constexpr int AT_ONCE = W4_MANY_TURNED / 8, CHUNKS = 2 * w4_many_layout<KIND>::PARTS, ROW = 16 * CHUNKS,
                  TOKENS = 32 / CHUNKS;
    const int thread = w4_many_thread(), warp = thread / 32, lane = thread % 32;
    float alpha = 1.0f;
    if (KIND == W4_NV) {
        alpha = p.l2_alpha[item.expert];
        if (p.l2_activation_scale != nullptr)
            alpha = __fdiv_rn(alpha, *p.l2_activation_scale);
    }
    alpha *= w4_unit_of_sums(KIND);
    const uint32_t turned = hopper::shared_address(staging) + warp * (W4_MANY_TURNED * ROW);
    const int to_token = lane % 8 + lane / (8 * CHUNKS) * 8, token = lane / CHUNKS, chunk = lane % CHUNKS;
    const uint32_t to = turned + to_token * ROW + (lane / 8 % CHUNKS ^ to_token * CHUNKS / 8 % CHUNKS) * 16;
    const uint32_t from = turned + token * ROW + (chunk ^ token * CHUNKS / 8 % CHUNKS) * 16;
    const int in_row = item.tile * (W4_ROWS * 2) + warp * ROW + chunk * 16; /* bytes */
    hopper::barrier_wait(hopper::shared_address(&h.stored), round & 1 ^ 1); /* the last tile of h has left its place */
#pragma unroll
    for (int first = 0; first < N / 8; first += AT_ONCE) {
#pragma unroll
        for (int j = first; j < N / 8 && j < first + AT_ONCE; j += 4 / CHUNKS) {
            uint32_t pair[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at = 4 * (j + i / CHUNKS) + i % 2 * 2, part = i % CHUNKS / 2;
                pair[i] = at < N / 2 ? prefill::bf16_pair(total[part][at] * alpha, total[part][at + 1] * alpha) : 0;
            }
            w4_store_transposed(to + (j - first) * (8 * ROW), pair);
        }
        __syncwarp();
        const int end = min(item.valid, 8 * (first + AT_ONCE));
#pragma unroll 1
        for (int n = 8 * first + token; n < end; n += TOKENS) {
            const uint4 out = hopper::load16(from + (n - token - 8 * first) * ROW);
            *reinterpret_cast<uint4 *>(moe_row_place(p.sink, p.routes.row_route, p.out, item.row + n, p.hidden) +
                                       in_row) = out;
        }
        __syncwarp();
    }
}

#endif
