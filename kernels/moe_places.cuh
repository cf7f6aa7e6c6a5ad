/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the rows of routes go, once the routes of every expert are counted: places of experts, of routes, and the
 * tables that tell them. megamoe_private.h says how rows lie.
 */
#ifndef LOADPLAN_MOE_PLACES_CUH
#define LOADPLAN_MOE_PLACES_CUH

#include "kernels/moe_gather.cuh"
#include "kernels/moe_items.cuh"

/* In shared memory; what does not fit in one chunk is in several, of chunk_rows rows but for the last. */
struct moe_expert_place {
    int count, start, first_chunk, chunk_rows;
};

/* Expert of a route as this rank numbers it, or -1. */
__device__ __forceinline__ int moe_expert_of(const lp_moe_route_job &job, int64_t route)
{
    const int64_t id = job.id_dtype == LP_I64 ? static_cast<const int64_t *>(job.topk_ids)[route]
                                              : static_cast<const int32_t *>(job.topk_ids)[route];
    const int64_t expert = id - job.first_expert;
    return id >= 0 && expert >= 0 && expert < job.experts ? static_cast<int>(expert) : -1;
}

__device__ __forceinline__ int moe_round_up(int value, int unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Fills places from their counts; by one warp. Returns rows and chunks of all experts. */
__device__ inline int2 moe_place_experts(const lp_moe_route_job &job, moe_expert_place *places)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int2 all = make_int2(0, 0);
    for (int base = 0; base < job.experts; base += 32) {
        const int e = base + lane, count = e < job.experts ? places[e].count : 0;
        const int chunk_rows = moe_chunk_rows(count, job.chunk_rows, job.even_rows, job.align);
        const int own_rows = moe_round_up(count, job.align), own_chunks = (count + chunk_rows - 1) / chunk_rows;
        int2 sum = make_int2(own_rows, own_chunks); /* becomes that of lanes up to this one */
        for (int d = 1; d < 32; d *= 2) {
            const int x = __shfl_up_sync(~0u, sum.x, d), y = __shfl_up_sync(~0u, sum.y, d);
            if (lane >= d)
                sum.x += x, sum.y += y;
        }
        if (e < job.experts)
            places[e] = {count, all.x + sum.x - own_rows, all.y + sum.y - own_chunks, chunk_rows};
        all.x += __shfl_sync(~0u, sum.x, 31);
        all.y += __shfl_sync(~0u, sum.y, 31);
    }
    __syncwarp();
    return all;
}

/* The tables that do not belong to a token; by `threads` threads, this one the `thread`th. `all`: as thread 0 got it
 * from moe_place_experts. */
__device__ inline void moe_write_tables(const lp_moe_route_job &job, const moe_expert_place *places, int2 all,
                                        int thread, int threads)
{
    const lp_moe_routes &to = job.routes;
    for (int e = thread; e < job.experts; e += threads) {
        const auto [count, start, first, chunk_rows] = places[e];
        const int own_chunks = (count + chunk_rows - 1) / chunk_rows;
        to.count[e] = count;
        to.start[e] = start;
        to.first_chunk[e] = first;
        if (job.received != nullptr)
            job.received[e] += count;
        for (int i = 0; i < own_chunks; i++) {
            const int left = count - i * chunk_rows;
            lp_moe_chunk chunk = {};
            chunk.expert = e;
            chunk.row = start + i * chunk_rows;
            chunk.width = min(moe_round_up(left, job.align), chunk_rows);
            chunk.valid = min(left, chunk_rows);
            chunk.first = first;
            chunk.count = own_chunks;
            to.chunk[first + i] = chunk;
        }
        for (int row = start + count; row < start + moe_round_up(count, job.align); row++) {
            to.row_route[row] = -1;
            to.row_weight[row] = 0.0f;
        }
    }
    if (thread == 0) {
        to.start[job.experts] = all.x;
        *to.chunks = all.y;
    }
}

/* The spot of an expert's route with that many before it. */
__device__ __forceinline__ moe_spot moe_spot_of(const lp_moe_route_job &job, const moe_expert_place &place, int before)
{
    const int first = before < place.chunk_rows ? 0 : before / place.chunk_rows * place.chunk_rows;
    moe_spot s;
    s.row = place.start + before;
    s.n = before - first;
    s.width = min(moe_round_up(place.count - first, job.align), place.chunk_rows);
    s.first_row = place.start + first;
    return s;
}

#endif
