/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a tile's sums: h, quantised and stored as the operand of the second projection, or rows of out. */
#ifndef LOADPLAN_PREFILL_FINISH_CUH
#define LOADPLAN_PREFILL_FINISH_CUH

#include "kernels/moe_activation.cuh"
#include "kernels/moe_rows.cuh"
#include "kernels/prefill_walk.cuh"

/* Both values rounded to E4M3 and then written as BF16. */
__device__ __forceinline__ uint32_t prefill_e4m3_as_bf16(float low, float high)
{
    return e4m3_any_pair(prefill::e4m3_pair(low, high), 1.0f);
}

/* Starts copying 16 tokens of a warp from its staging to piece `piece` of h, where eight rows lie together in 1 KiB. */
__device__ __forceinline__ void prefill_store_piece(const prefill_arguments &p, const prefill_task &task,
                                                    uint32_t staging, int warp_row, int64_t piece, int64_t pieces)
{
    using namespace hopper;
    using namespace prefill;
    const int lane = threadIdx.x % 32;
    proxy_fence_shared();
    __syncwarp();
    if (lane < 2 && warp_row + 8 * lane < task.rows) {
        const int64_t row = task.row + warp_row + 8 * lane;
        char *const to = p.h + (row / PREFILL_ROWS * pieces + piece) * PREFILL_PIECE + row % PREFILL_ROWS / 8 * 1024;
        bulk_store(to, staging + lane * 1024, 1024);
        bulk_store_commit();
    }
}

/* Half of the columns of rows in swizzled order, where halves do not lie together; by threads. */
__device__ __forceinline__ void prefill_store_half_piece(const prefill_arguments &p, const prefill_task &task,
                                                         uint32_t staging, int warp_row, int64_t piece, int64_t pieces,
                                                         int half)
{
    const int lane = threadIdx.x % 32, in_warp = lane / 2, row = warp_row + in_warp;
    const int64_t at = task.row + row;
    char *const to = p.h + (at / PREFILL_ROWS * pieces + piece) * PREFILL_PIECE + at % PREFILL_ROWS * 128;
    __syncwarp();
    if (warp_row + in_warp / 8 * 8 < task.rows)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int chunk = ((4 * half + lane % 2 * 2 + i) ^ (row % 8)) * 16;
            *reinterpret_cast<uint4 *>(to + chunk) = hopper::load16(staging + in_warp * 128 + chunk);
        }
    __syncwarp();
}

/* Counts a warp's part of a tile of h as done, once its copies are; later than it was stored, so as not to wait. */
struct prefill_receipt {
    int32_t *flag = nullptr;
    __device__ __forceinline__ void give()
    {
        if (flag == nullptr)
            return;
        prefill::bulk_store_wait();
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            hopper::add_release(flag, 1);
        flag = nullptr;
    }
};

/* sum[8 j + i] <- h of gate sum[8 j + i] and up sum[8 j + 4 + i]. The usual activation has a loop of its own, so that
 * the code that runs stays small. Sums are in units of 1 / unit. */
template <int KIND, bool LIMITED>
__device__ __forceinline__ void prefill_swiglu(const prefill_arguments &p, bool is_half, float (&sum)[128],
                                               float low_weight, float high_weight, float gate_alpha, float up_alpha)
{
#pragma unroll
    for (int j = 0; j < 16; j++) {
        if (j == 8 && is_half)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float gate = sum[8 * j + i], up = sum[8 * j + 4 + i];
            if (!prefill_has_blocks(KIND)) /* a product by itself, as in the other kernels */
                gate = __fmul_rn(gate, gate_alpha), up = __fmul_rn(up, up_alpha);
            if (LIMITED)
                gate = moe_at_most(gate, p.limit), up = moe_at_least(moe_at_most(up, p.limit), -p.limit);
            sum[8 * j + i] = gate * moe_sigmoid(p.alpha * gate) * (up + p.beta) * (i < 2 ? low_weight : high_weight);
        }
    }
}

template <int KIND>
__device__ __forceinline__ void prefill_activate(const prefill_arguments &p, const prefill_task &task, bool is_half,
                                                 float (&sum)[128], float low_weight, float high_weight)
{
    float gate_alpha = prefill_unit(KIND), up_alpha = prefill_unit(KIND);
    if (!prefill_has_blocks(KIND) && p.l1_alpha != nullptr) {
        gate_alpha *= p.l1_alpha[task.expert * p.l1_alpha_columns];
        up_alpha *= p.l1_alpha[task.expert * p.l1_alpha_columns + p.l1_alpha_columns - 1];
    }
    if (p.activation == LP_MOE_SWIGLU) {
        if (p.limit > 0.0f)
            prefill_swiglu<KIND, true>(p, is_half, sum, low_weight, high_weight, gate_alpha, up_alpha);
        else
            prefill_swiglu<KIND, false>(p, is_half, sum, low_weight, high_weight, gate_alpha, up_alpha);
        return;
    }
#pragma unroll
    for (int j = 0; j < 16; j++) {
        if (j == 8 && is_half)
            break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float gate = sum[8 * j + i] * gate_alpha, up = sum[8 * j + 4 + i] * up_alpha;
            const float h = moe_activate(p.activation, p.alpha, p.beta, p.limit, gate, up);
            sum[8 * j + i] = h * (i < 2 ? low_weight : high_weight);
        }
    }
}

/* The largest of both halves of a divided tile, of rows `low` and low + 8 of it. `turn` alternates. */
template <int KIND>
__device__ __forceinline__ float2 prefill_most_of_both(prefill_shared<KIND> &sm, int half, int turn, int row, float low,
                                                       float high)
{
    if (threadIdx.x % 4 == 0)
        sm.most[turn][half][row] = low, sm.most[turn][half][row + 8] = high;
    asm volatile("bar.sync 1, 256;" ::: "memory");
    return make_float2(fmaxf(low, sm.most[turn][1 - half][row]), fmaxf(high, sm.most[turn][1 - half][row + 8]));
}

/* Router weights of the two rows of a thread, where h has them as a factor; asked for before the products. */
__device__ __forceinline__ float2 prefill_row_weights(const prefill_arguments &p, const prefill_task &task,
                                                      const prefill_share &share, int which)
{
    const int row = share.first_token + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    if (which == 1 || !p.weight_in_h || row >= task.rows)
        return make_float2(1.0f, 1.0f);
    const float *const at = p.row_weight + task.row + row;
    return make_float2(__ldg(at), __ldg(at + 8));
}

/* UE8M0 codes of h of MXFP8, for each 32 columns of a thread's two rows. */
struct prefill_mx_scales {
    uint32_t low[4], high[4];
    __device__ __forceinline__ void find(const float (&sum)[128])
    {
#pragma unroll
        for (int b = 0; b < 4; b++) {
            float most[2] = {0.0f, 0.0f};
#pragma unroll
            for (int j = 4 * b; j < 4 * b + 4; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    most[i / 2] = fmaxf(most[i / 2], fabsf(sum[8 * j + i]));
            for (int d = 1; d < 4; d *= 2)
                for (float &m : most)
                    m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
            low[b] = e4m3_scale_above(most[0]), high[b] = e4m3_scale_above(most[1]);
        }
    }
};

template <int KIND>
__device__ __forceinline__ void prefill_finish_h(const prefill_arguments &p, prefill_shared<KIND> &sm,
                                                 const prefill_task &task, const prefill_share &share, int turn,
                                                 float2 weight, float (&sum)[128])
{
    using namespace hopper;
    using namespace prefill;
    const int group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    const bool is_half = prefill_splits(KIND) && share.is_half;
    const int warp_row = share.first_token + warp * 16, low_row = warp_row + g, high_row = low_row + 8;
    const int blocks = p.intermediate / 128;
    const uint32_t staging = shared_address(sm.staging[group]) + warp * 2048, at = staging + g * 16;
    float low = 1.0f, high = 1.0f;
    prefill_activate<KIND>(p, task, is_half, sum, weight.x, weight.y);
    if constexpr (prefill_is_scaled(KIND)) {
        low = high = 1e-10f;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            if (j == 8 && is_half)
                break;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                low = fmaxf(low, fabsf(sum[8 * j + c]));
                high = fmaxf(high, fabsf(sum[8 * j + 2 + c]));
            }
        }
        for (int d = 1; d < 4; d *= 2) {
            low = fmaxf(low, __shfl_xor_sync(~0u, low, d));
            high = fmaxf(high, __shfl_xor_sync(~0u, high, d));
        }
        if (is_half) {
            const float2 most = prefill_most_of_both(sm, share.half, turn, low_row, low, high);
            low = most.x, high = most.y;
        }
        if (q == 0 && share.half == 0) {
            p.h_scale[prefill_scale_index(task.row + low_row, task.n, blocks)] = __fdiv_rn(low, 448.0f);
            p.h_scale[prefill_scale_index(task.row + high_row, task.n, blocks)] = __fdiv_rn(high, 448.0f);
        }
        low = __fdiv_rn(448.0f, low), high = __fdiv_rn(448.0f, high);
    }
    if constexpr (prefill_is_fp8(KIND)) {
        const uint32_t swizzled = (staging + g * 128 + g * 16 + 2 * q) ^ share.half * 64;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            if (j == 8 && is_half)
                break;
            const int in_block = 64 * share.half + prefill_place(KIND, 8 * j) + prefill_place(KIND, 2 * q);
            uint32_t to;
            if (prefill_swizzles(KIND)) /* staging is a multiple of 1 KiB */
                to = (swizzled ^ j / 2 * 16) + j % 2 * 8;
            else
                to = at + in_block / 16 * 128 + in_block % 16;
            store_shared_u16(to, e4m3_pair(sum[8 * j] * low, sum[8 * j + 1] * low));
            store_shared_u16(to + 1024, e4m3_pair(sum[8 * j + 2] * high, sum[8 * j + 3] * high));
        }
        if (!prefill_hands_over(KIND))
            prefill_store_piece(p, task, staging, warp_row, task.n, blocks);
        else if (is_half)
            prefill_store_half_piece(p, task, staging, warp_row, task.n, blocks, share.half);
    } else {
        prefill_mx_scales mx;
        if constexpr (prefill_is_codes(KIND))
            mx.find(sum);
#pragma unroll
        for (int piece = 0; piece < 2; piece++) {
            if (piece == 1) {
                if (is_half)
                    break;
                bulk_store_wait_read();
                __syncwarp();
            }
#pragma unroll
            for (int j = 0; j < 16; j++) {
                if (prefill_place(KIND, 8 * j) / 64 != piece)
                    continue;
                const float *const v = sum + 8 * j;
                const int low_place = prefill_place(KIND, 8 * j) % 64 + prefill_place(KIND, 2 * q),
                          high_place = prefill_place(KIND, 8 * j) % 64 + prefill_place(KIND, 2 * q + 1);
                const uint32_t to = at + low_place / 8 * 128 + low_place % 8 * 2;
                uint32_t first, second; /* of both rows */
                if constexpr (prefill_is_codes(KIND)) {
                    first = e4m3_rounded(v[0], v[1], mx.low[j / 4]), second = e4m3_rounded(v[2], v[3], mx.high[j / 4]);
                } else if constexpr (prefill_is_scaled(KIND)) {
                    first = prefill_e4m3_as_bf16(v[0] * low, v[1] * low);
                    second = prefill_e4m3_as_bf16(v[2] * high, v[3] * high);
                } else {
                    first = bf16_pair(v[0], v[1]), second = bf16_pair(v[2], v[3]);
                }
                if constexpr (KIND == LP_PREFILL_BF16) {
                    store_shared_u32(to, first);
                    store_shared_u32(to + 1024, second);
                } else { /* neighbours go apart */
                    const uint32_t next = at + high_place / 8 * 128 + high_place % 8 * 2;
                    store_shared_u16(to, static_cast<uint16_t>(first));
                    store_shared_u16(next, static_cast<uint16_t>(first >> 16));
                    store_shared_u16(to + 1024, static_cast<uint16_t>(second));
                    store_shared_u16(next + 1024, static_cast<uint16_t>(second >> 16));
                }
            }
            prefill_store_piece(p, task, staging, warp_row, 2 * task.n + piece, 2 * blocks);
        }
    }
}

/*
 * Rows of out in BF16. A warp turns 16 rows by 64 columns around in shared memory, so that it stores lines of 128
 * bytes; there chunks of sixteen bytes are exchanged within a row by its number, which keeps lanes out of each other's
 * banks.
 */
template <int KIND>
__device__ __forceinline__ void prefill_finish_out(const prefill_arguments &p, prefill_shared<KIND> &sm,
                                                   const prefill_task &task, const prefill_share &share,
                                                   float (&sum)[128])
{
    using namespace hopper;
    using namespace prefill;
    const int group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const int first_row = share.first_token + warp * 16, row = first_row + lane / 8;
    const uint32_t staging = shared_address(sm.staging[group]) + warp * 2048;
    const uint32_t put = staging + (lane % 16) * 128 + (lane / 16 ^ lane % 8) * 16;
    const uint32_t get = staging + lane / 8 * 128 + (lane % 8 ^ lane / 8) * 16;
    float factor = prefill_unit(KIND);
    if (!prefill_has_blocks(KIND) && p.l2_alpha != nullptr) {
        factor *= p.l2_alpha[task.expert];
        if (p.l2_activation_scale != nullptr)
            factor = __fdiv_rn(factor, *p.l2_activation_scale);
    }
    char *to[4]; /* of rows row, row + 4 .. */
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = row + 4 * i >= task.rows ? nullptr
                                         : moe_row_place(p.sink, p.row_route, p.out, task.row + row + 4 * i, p.hidden) +
                                               (task.n * PREFILL_COLUMNS + 128 * share.half + lane % 8 * 8) * 2;
#pragma unroll
    for (int piece = 0; piece < 4; piece++) {
        if (piece == 2 && prefill_splits(KIND) && share.is_half)
            break;
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const float *const v = sum + 32 * piece + 4 * j;
            store_matrices(put ^ j * 16, bf16_pair(v[0] * factor, v[1] * factor),
                           bf16_pair(v[2] * factor, v[3] * factor), bf16_pair(v[4] * factor, v[5] * factor),
                           bf16_pair(v[6] * factor, v[7] * factor));
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 line = load16((get ^ i % 2 * 64) + i * 512);
            if (to[i] != nullptr)
                *reinterpret_cast<uint4 *>(to[i] + 128 * piece) = line;
        }
        __syncwarp();
    }
}

#endif
