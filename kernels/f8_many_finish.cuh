/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the sums of a tile of up to 112 tokens: h, rounded and stored as the operand of the second
 * projection, or rows of out. The same values as in f8_finish.cuh.
 *
 * A token's scale needs the largest |h| of both warpgroups, all of which stay in registers until it is known. Codes go
 * to shared memory, and from there to memory while the next tile multiplies. A block has no tile of h behind one of
 * out, so both may use the same place.
 */
#ifndef LOADPLAN_F8_MANY_FINISH_CUH
#define LOADPLAN_F8_MANY_FINISH_CUH

#include "kernels/f8_many_block.cuh"
#include "kernels/moe_many_end.cuh"

constexpr int F8_MANY_MULTIPLIERS = f8_threads<f8_many_form>::MULTIPLIERS;
constexpr int F8_MANY_WARPS = f8_threads<f8_many_form>::WARPS;

/* Leaves the largest |h| of each token in the warp's columns at `most`. Of sixteen tokens, lanes g halve their values
 * with others until each has one token's. */
__device__ __forceinline__ void f8_many_largest(uint32_t most, const f8_many_totals &value)
{
    const int lane = threadIdx.x % 32;
    const bool second = lane & 16, odd = lane & 8;
    const uint32_t to = most + 4 * ((second ? 8 : 0) + lane % 4 * 2 + (odd ? 1 : 0));
#pragma unroll
    for (int first = 0; first < LP_F8_MANY_ROWS; first += 16) {
        float of[2][2]; /* tokens 8j + 2q + c */
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int at = first / 2 + 4 * j + c;
                of[j][c] = fmaxf(fmaxf(0.0f, fabsf(value[0][at])), fabsf(value[1][at]));
            }
        const float a = fmaxf(second ? of[1][0] : of[0][0], __shfl_xor_sync(~0u, second ? of[0][0] : of[1][0], 16));
        const float b = fmaxf(second ? of[1][1] : of[0][1], __shfl_xor_sync(~0u, second ? of[0][1] : of[1][1], 16));
        float own = fmaxf(odd ? b : a, __shfl_xor_sync(~0u, odd ? a : b, 8));
        own = fmaxf(own, __shfl_xor_sync(~0u, own, 4));
        if ((lane & 4) == 0)
            prefill::store_shared_u32(to + 4 * first, __float_as_uint(own));
    }
}

/* `round`: of this tile among the block's tiles of the first projection. */
__device__ __forceinline__ void f8_many_finish_h(const f8_arguments &p, f8_many_shared &sm, int width, int part,
                                                 uint32_t round, f8_many_totals &total)
{
    const int thread = threadIdx.x, warp = thread / 32 % 4, lane = thread % 32, g = lane / 4, q = lane % 4;
    moe_many_activate<false>(p, width, 1.0f, 1.0f, total);
    f8_many_largest(hopper::shared_address(sm.most[thread / 32]), total);
    w4_sync<1, F8_MANY_MULTIPLIERS>();
    hopper::barrier_wait(hopper::shared_address(&sm.told), round % 2 ^ 1); /* of the tile before: long done */
    if (thread < width) {
        prefill::copies_wait<0>();
        const float weight = sm.weight[thread];
        float most = sm.most[0][thread];
#pragma unroll
        for (int i = 1; i < F8_MANY_WARPS; i++)
            most = fmaxf(most, sm.most[i][thread]);
        most = fmaxf(most * fabsf(weight), 1e-10f); /* that of the products, as rounding keeps their order */
        sm.times[thread] = make_float2(weight, __fdiv_rn(448.0f, most));
        sm.h_scale[thread] = __fdiv_rn(most, 448.0f);
    }
    w4_sync<1, F8_MANY_MULTIPLIERS>();
    const uint32_t times = hopper::shared_address(sm.times) + q * 2 * sizeof(float2);
    const uint32_t to = hopper::shared_address(sm.staged) + 2 * q * F8_PIECE + warp % 2 * 8 + g;
#pragma unroll
    for (int j = 0; j < LP_F8_MANY_ROWS / 8; j++) {
        if (j % 2 == 0 && 8 * j >= width)
            break;
        const uint4 v = hopper::load16(times + j * 8 * sizeof(float2));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int chunk = 4 * part + 2 * half + warp / 2;
            const uint32_t two =
                prefill::e4m3_pair(total[half][4 * j] * __uint_as_float(v.x) * __uint_as_float(v.y),
                                   total[half][4 * j + 1] * __uint_as_float(v.z) * __uint_as_float(v.w));
            prefill::store_shared_u8(to + 8 * j * F8_PIECE + (chunk ^ 2 * q) * 16, two);
            prefill::store_shared_u8(to + (8 * j + 1) * F8_PIECE + (chunk ^ (2 * q + 1)) * 16, two >> 8);
        }
    }
    prefill::proxy_fence_shared();
    f8_release(&sm.stored);
}

/* Stores tiles of h, and tells all blocks of them when they are there; by a thread of its own, for it waits for their
 * way to memory. */
__device__ __forceinline__ void f8_many_publish(const f8_arguments &p, f8_many_shared &sm)
{
    f8_turn slot = {0, F8_QUEUE, 0};
    uint32_t round = 0;
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&sm.queue.given[slot.at]), slot.phase);
        const f8_item item = sm.queue.item[slot.at];
        hopper::barrier_arrive(hopper::shared_address(&sm.queue.taken[slot.at]));
        if (item.projection < 0)
            return;
        if (item.projection == 1 || item.dropped)
            continue;
        const int64_t first = static_cast<int64_t>(item.row) * p.projection[1].pieces;
        const int tile = item.tile * item.width;
        hopper::barrier_wait(hopper::shared_address(&sm.stored), round++ % 2);
        prefill::bulk_store(p.h + (first + tile) * F8_PIECE, hopper::shared_address(sm.staged), item.width * F8_PIECE);
        prefill::bulk_store(p.h_scale + first + tile, hopper::shared_address(sm.h_scale), item.width * 4);
        prefill::bulk_store_commit();
        prefill::bulk_store_wait();
        hopper::barrier_arrive(hopper::shared_address(&sm.told));
        hopper::proxy_fence(); /* other blocks copy it into their shared memory */
        hopper::add_release(p.ready + item.chunk, F8_MANY_WARPS);
    }
}

/* `round`: number of tiles of h so far. */
__device__ __forceinline__ void f8_many_finish_out(const f8_arguments &p, f8_many_shared &sm, const f8_item &item,
                                                   int width, int part, uint32_t round, const f8_many_totals &total)
{
    const int warp = threadIdx.x / 32, chunk = threadIdx.x % 4;
    const int row = item.tile * 256 + part * 128 + warp % 4 * 16 + chunk / 2 * 64 + chunk % 2 * 8;
    hopper::barrier_wait(hopper::shared_address(&sm.told), round % 2 ^ 1); /* the last tile of h has left its place */
    moe_many_store<2, LP_F8_MANY_ROWS / 2, F8_MANY_TURNED>(
        p, item, width, hopper::shared_address(sm.staged) + warp * (F8_MANY_TURNED * moe_turned_row<2>), row * 2, 1.0f,
        total);
}

#endif
