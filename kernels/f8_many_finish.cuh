/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the sums of a tile of up to 128 tokens: h, rounded and stored as the operand of the second
 * projection, or rows of out. The same values as in f8_finish.cuh.
 *
 * Sums are in registers, so their code is unrolled, once for each width; a tile's end unrolled like that would be read
 * from memory each time. So sums go through shared memory, sixteen tokens at a time, and what is long is a function of
 * all widths: there a warp has whole tokens.
 */
#ifndef LOADPLAN_F8_MANY_FINISH_CUH
#define LOADPLAN_F8_MANY_FINISH_CUH

#include "kernels/f8_many_block.cuh"
#include "kernels/moe_activation.cuh"
#include "kernels/moe_rows.cuh"
#include "kernels/prefill_ptx.cuh"

constexpr int F8_MANY_MULTIPLIERS = f8_threads<f8_many_form>::MULTIPLIERS;
constexpr int F8_MANY_WARPS = f8_threads<f8_many_form>::WARPS; /* each has every eighth token */
static_assert(F8_MANY_WARPS == 8, "a warp's tokens share their place in the swizzle");

/* Leaves a thread's sums of tokens from `first` on, F8_MANY_TURNED or those that are left: of rows `upper` and `upper`
 * + apart, in both halves. */
template <int N>
__device__ __forceinline__ void f8_many_leave(f8_many_shared &sm, const float (&total)[2][N / 2], int first, int upper,
                                              int to_half, int apart)
{
    const int q = threadIdx.x % 4;
    w4_sync<1, F8_MANY_MULTIPLIERS>(); /* what was there has been read */
#pragma unroll
    for (int j = 0; j < F8_MANY_TURNED / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            if (first + 8 * j >= N)
                continue;
            float *const to = sm.turned + (8 * j + 2 * q + c) * F8_MANY_PITCH + upper;
            const int at = 4 * (first / 8 + j) + c;
            to[0] = total[0][at], to[apart] = total[0][at + 2];
            to[to_half] = total[1][at], to[to_half + apart] = total[1][at + 2];
        }
    w4_sync<1, F8_MANY_MULTIPLIERS>();
}

/* Four rows of a token, from the shared address of what was left. */
__device__ __forceinline__ float4 f8_many_four(uint32_t turned, int token, int row)
{
    const uint4 v = hopper::load16(turned + (token * F8_MANY_PITCH + row) * 4);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

__device__ __forceinline__ float f8_many_weight(uint32_t weights, int token)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(weights + token * 4));
    return v;
}

__device__ __noinline__ float f8_many_activate_any(int kind, float alpha, float beta, float limit, float gate, float up)
{
    return moe_activate(kind, alpha, beta, limit, gate, up);
}

/* h of `count` tokens that were left, rows 0..127 gate and 128..255 up; weights: shared address of theirs. to, scale:
 * of the first of them in its tile. */
__device__ __noinline__ void f8_many_round(uint32_t turned, uint32_t weights, int count, int kind, float alpha,
                                           float beta, float limit, char *to, float *scale)
{
    constexpr int AT_ONCE = 3;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float at_most = limit > 0.0f ? limit : __int_as_float(0x7f800000);
    to += ((lane / 4) ^ warp) * 16 + lane % 4 * 4;
#pragma unroll 1
    for (int first = warp; first < count; first += AT_ONCE * F8_MANY_WARPS) {
        float value[AT_ONCE][4];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int n = first + i * F8_MANY_WARPS; /* past the last one: stale values, not stored */
            const float4 gates = f8_many_four(turned, n, 4 * lane), ups = f8_many_four(turned, n, 128 + 4 * lane);
            const float gate[4] = {gates.x, gates.y, gates.z, gates.w}, up[4] = {ups.x, ups.y, ups.z, ups.w};
            const float weight = f8_many_weight(weights, n);
            if (kind == LP_MOE_SWIGLU) {
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const float a = moe_at_most(gate[c], at_most);
                    const float b = moe_at_least(moe_at_most(up[c], at_most), -at_most);
                    value[i][c] = a * moe_sigmoid(alpha * a) * (b + beta) * weight;
                }
            } else {
#pragma unroll
                for (int c = 0; c < 4; c++)
                    value[i][c] = f8_many_activate_any(kind, alpha, beta, limit, gate[c], up[c]) * weight;
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int n = first + i * F8_MANY_WARPS;
            const float *const v = value[i];
            const float four = fmaxf(fmaxf(fmaxf(1e-10f, fabsf(v[0])), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
            const float most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(four))); /* no NaN, no sign */
            const float factor = __fdiv_rn(448.0f, most);
            const uint32_t low = prefill::e4m3_pair(v[0] * factor, v[1] * factor);
            const uint32_t high = prefill::e4m3_pair(v[2] * factor, v[3] * factor);
            if (n >= count)
                break;
            *reinterpret_cast<uint32_t *>(to + n * F8_PIECE) = low | high << 16;
            if (lane == 0)
                scale[n] = __fdiv_rn(most, 448.0f);
        }
    }
}

/* `number`: of this tile among the block's tiles of the first projection. `weight`: router weight of its token
 * threadIdx.x, if it has so many. */
template <int N>
__device__ __forceinline__ void f8_many_finish_h(const f8_arguments &p, f8_many_shared &sm, const f8_item &item,
                                                 int part, int number, float weight, const float (&total)[2][N / 2])
{
    const int thread = threadIdx.x, warp = thread / 32 % 4, lane = thread % 32, g = lane / 4;
    const int64_t pieces = p.projection[1].pieces, row = item.row;
    char *const to = p.h + row * pieces * F8_PIECE + static_cast<int64_t>(item.tile) * N * F8_PIECE;
    float *const scale = p.h_scale + row * pieces + item.tile * N;
    const uint32_t turned = hopper::shared_address(sm.turned), weights = hopper::shared_address(sm.weight);
    hopper::barrier_wait(hopper::shared_address(&sm.told), number % 2 ^ 1); /* of the tile before: long done */
    if (thread < N)
        sm.weight[thread] = weight;
#pragma unroll
    for (int first = 0; first < N; first += F8_MANY_TURNED) {
        f8_many_leave<N>(sm, total, first, 64 * part + 8 * warp + g, 32, 128);
        f8_many_round(turned, weights + first * 4, min(N - first, F8_MANY_TURNED), p.activation, p.alpha, p.beta,
                      p.limit, to + first * F8_PIECE, scale + first);
    }
    f8_release(&sm.stored);
}

/* Tells all blocks of the tiles of h that are stored; by a thread of its own, for it waits for their way to memory. */
__device__ __forceinline__ void f8_many_publish(const f8_arguments &p, f8_many_shared &sm)
{
    f8_turn slot = {0, F8_QUEUE, 0};
    uint32_t round = 0;
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&sm.queue.given[slot.at]), slot.phase);
        const int projection = sm.queue.item[slot.at].projection, chunk = sm.queue.item[slot.at].chunk;
        const bool is_dropped = sm.queue.item[slot.at].dropped;
        hopper::barrier_arrive(hopper::shared_address(&sm.queue.taken[slot.at]));
        if (projection < 0)
            return;
        if (projection == 1 || is_dropped)
            continue;
        hopper::barrier_wait(hopper::shared_address(&sm.stored), round++ % 2);
        __threadfence();
        hopper::proxy_fence(); /* other blocks copy it into their shared memory */
        hopper::add_release(p.ready + chunk, F8_MANY_WARPS);
        hopper::barrier_arrive(hopper::shared_address(&sm.told));
    }
}

/* Rows of out of the tokens that were left: eight columns of each. to: those of the first of them at this tile, where
 * rows stay in the workspace; else their sink says where, and `row` is the first. */
__device__ __noinline__ void f8_many_store(uint32_t turned, int valid, char *to, int hidden, int in_row,
                                           const lp_moe_sink *sink, const int32_t *row_route, int row)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 2
    for (int n = threadIdx.x / 32; n < valid; n += F8_MANY_WARPS) {
        char *const at = sink == nullptr ? to + static_cast<int64_t>(n) * hidden * 2
                                         : moe_row_place(*sink, row_route, nullptr, row + n, hidden) + in_row;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float4 v = f8_many_four(turned, n, 128 * half + 4 * lane);
            *reinterpret_cast<uint2 *>(at + (128 * half + 4 * lane) * 2) =
                make_uint2(prefill::bf16_pair(v.x, v.y), prefill::bf16_pair(v.z, v.w));
        }
    }
}

template <int N>
__device__ __forceinline__ void f8_many_finish_out(const f8_arguments &p, f8_many_shared &sm, const f8_item &item,
                                                   int part, const float (&total)[2][N / 2])
{
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    const int in_row = item.tile * (f8_many_form::GROUPS * f8_many_form::PART_ROWS * 2), row = item.row;
    const uint32_t turned = hopper::shared_address(sm.turned);
    const lp_moe_sink *const sink = p.sink.routes == 0 ? nullptr : &p.sink;
    char *const to = static_cast<char *>(p.out) + static_cast<int64_t>(row) * p.hidden * 2 + in_row;
    const int valid = item.valid;
#pragma unroll
    for (int first = 0; first < N; first += F8_MANY_TURNED) {
        f8_many_leave<N>(sm, total, first, 128 * part + 16 * (warp % 4) + g, 64, 8);
        f8_many_store(turned, min(valid - first, F8_MANY_TURNED), to + static_cast<int64_t>(first) * p.hidden * 2,
                      p.hidden, in_row, sink, p.routes.row_route, row + first);
    }
}

#endif
