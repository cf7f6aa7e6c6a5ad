/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing inside the projections, where routes are few: by the threads that multiply, while the rings of weights fill.
 *
 * Every block counts all ids, and so knows all places without asking another. What is to be done once, the tables and
 * the rows of each token, are units that blocks draw from a counter, so that none waits for a block that does not run
 * yet: other calls, and other ranks, may hold multiprocessors. Counters tell the feeding threads of all blocks when the
 * tables are there, and when the rows of all tokens are.
 *
 * A kernel that runs once reads its code from memory, and here that takes longer than the work: the way is kept short.
 */
#ifndef LOADPLAN_MOE_START_CUH
#define LOADPLAN_MOE_START_CUH

#include "kernels/hopper_ptx.cuh"
#include "kernels/moe_gather.cuh"
#include "kernels/moe_launch.cuh"
#include "kernels/moe_places.cuh"

/* What the kernel is given. Not `inside`: a launch in front of it has routed. */
struct moe_start {
    lp_moe_route_job job;
    bool inside;
    int *drawn, *tables, *gathered; /* 0 before: units drawn; tables written; tokens whose rows are gathered */
};

/* In the header of a block's shared memory. */
struct moe_start_header {
    uint64_t routed; /* the places of experts are known */
    uint64_t left;   /* the threads that multiply route no more */
    int unit, unused[3];
};

/* By one thread; `warps` route. */
__device__ __forceinline__ void moe_init_start(moe_start_header &h, int warps)
{
    hopper::barrier_init(hopper::shared_address(&h.routed), 1);
    hopper::barrier_init(hopper::shared_address(&h.left), warps);
}

/* Behind the header, free again when all have left: places of experts, spots of a token's routes, experts of routes. */
inline int64_t moe_start_bytes(const lp_moe_route_job &job)
{
    return job.experts * static_cast<int64_t>(sizeof(moe_expert_place)) +
           job.top_k * static_cast<int64_t>(sizeof(moe_spot)) +
           job.max_tokens * job.top_k * static_cast<int64_t>(sizeof(uint16_t));
}

/* What to give a kernel whose blocks have so many bytes for it: inside, where that is enough and every block has one
 * token at most. With more of them a launch is faster, whose blocks have more threads. */
inline moe_start moe_start_of(const lp_moe_route_job &job, int64_t space_bytes)
{
    constexpr int64_t MOST_TOKENS = 128;
    moe_start s = {};
    s.job = job;
    s.inside = job.max_tokens <= MOST_TOKENS && moe_start_bytes(job) <= space_bytes;
    s.drawn = job.routes.sync, s.tables = job.routes.sync + 1, s.gathered = job.routes.sync + 2;
    return s;
}

/* The launch in front of the kernel. */
inline lp_status moe_begin(const moe_start &s, void *stream, lp_error *err)
{
    return s.inside ? lp_moe_clear(&s.job, stream, err) : lp_moe_route(&s.job, stream, err);
}

/* Tokens of the call. */
__device__ __forceinline__ int moe_tokens(const lp_moe_route_job &job)
{
    return max(0, min(*job.tokens, static_cast<int>(job.max_tokens)));
}

/* ---- by feeding threads ---- */

__device__ __forceinline__ void moe_wait_until(const int *counter, int value)
{
    while (hopper::load_acquire(counter) < value)
        ;
}

/* Stages of weights, of a ring of `stages`, to ask for before it is known whether their expert has tokens: where the
 * block routes it knows soon, and as many are on their way until then. CAN: the kernel is one that routes where
 * `inside` says so; here and below. */
template <bool CAN> __device__ __forceinline__ int moe_blind_stages(const moe_start &s, int stages)
{
    constexpr int UNTIL_ROUTED = 2;
    return CAN && s.inside ? UNTIL_ROUTED : stages;
}

/* Chunks of all experts, when the tables may be read. */
template <bool CAN> __device__ __forceinline__ int moe_chunks(const moe_start &s)
{
    if (CAN && s.inside)
        moe_wait_until(s.tables, 1);
    else
        moe_wait_for_inputs();
    return *s.job.routes.chunks;
}

/* Until the rows of all tokens may be copied, into memory where this block routed too, and what routing wrote beside
 * them may be read. */
template <bool CAN> __device__ __forceinline__ void moe_wait_for_rows(const moe_start &s, moe_start_header &h)
{
    if (!CAN || !s.inside)
        return moe_wait_for_inputs();
    if (s.job.early)
        moe_wait_for_inputs();
    moe_wait_until(s.gathered, moe_tokens(s.job));
    hopper::barrier_wait(hopper::shared_address(&h.left), 0);
    hopper::proxy_fence();
}

/* moe_serve_first for the item that a block began with. */
template <bool CAN, typename Arguments, typename Item>
__device__ __forceinline__ bool moe_serve_own_first(const Arguments &p, moe_start_header &h, char *space, Item &item,
                                                    int most, int unit, int even)
{
    if (!CAN || !p.start.inside) {
        moe_wait_for_inputs();
        return moe_serve_first(p, item, most, unit, even);
    }
    hopper::barrier_wait(hopper::shared_address(&h.routed), 0);
    const moe_expert_place place = reinterpret_cast<const moe_expert_place *>(space)[item.expert];
    return moe_serve(item, place.count, place.start, place.first_chunk, place.chunk_rows, unit);
}

/* ---- by the threads that multiply, numbers 0 up ---- */

/* The spot of a route with `before` routes of its expert in front of it, and its entries in the tables. Expert -1: none
 * of this rank's. */
__device__ __forceinline__ moe_spot moe_place_route(const lp_moe_route_job &job, const moe_expert_place *places,
                                                    int route, int expert, int before, float weight)
{
    moe_spot spot = {-1, 0, 0, 0};
    if (expert >= 0) {
        spot = moe_spot_of(job, places[expert], before);
        job.routes.row_route[spot.row] = route;
        job.routes.row_weight[spot.row] = weight;
    }
    job.routes.route_row[route] = spot.row;
    return spot;
}

/* Counts, places, and units until none is left. BARRIER: a named barrier of theirs. `space`: moe_start_bytes of shared
 * memory, 16-byte aligned. For setmaxnreg afterwards: here fewer registers do, and behind it the compiler knows again
 * that warps do not diverge. */
template <int GATHER, moe_x_form FORM, int THREADS, int BARRIER>
__device__ __forceinline__ void moe_route_inside(const moe_start &s, moe_start_header &h, char *space)
{
    constexpr int NO_EXPERT = 0xffff;
    const lp_moe_route_job &job = s.job;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int warp =
        __shfl_sync(~0u, thread / 32, 0); /* tells the compiler that a warp's lanes agree, here and below */
    const int choices = static_cast<int>(job.top_k), experts = static_cast<int>(job.experts);
    const int bound = static_cast<int>(job.max_tokens) * choices, pieces = static_cast<int>(job.hidden / MOE_COLUMNS);
    moe_expert_place *const places = reinterpret_cast<moe_expert_place *>(space);
    moe_spot *const spots = reinterpret_cast<moe_spot *>(places + experts);
    uint16_t *const expert_of = reinterpret_cast<uint16_t *>(spots + choices);
    const auto sync = [] { asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(THREADS) : "memory"); };
    if (job.early)
        moe_wait_for_inputs();
    int next = 0;
    if (thread == 0)
        next = atomicAdd(s.drawn, 1);
    const int tokens = __shfl_sync(~0u, moe_tokens(job), 0);
#pragma unroll 1
    for (int e = thread; e < experts; e += THREADS)
        places[e].count = 0;
    sync();
#pragma unroll 1
    for (int route = thread; route < bound; route += THREADS) {
        const int expert = moe_expert_of(job, route);
        const bool is_local = expert >= 0 && route < tokens * choices;
        expert_of[route] = static_cast<uint16_t>(is_local ? expert : NO_EXPERT);
        if (is_local)
            atomicAdd(&places[expert].count, 1);
    }
    if (thread == 0)
        h.unit = next;
    int2 all = make_int2(0, 0);
    bool is_placed = false;
    for (;;) {
        sync();
        const int unit = __shfl_sync(~0u, h.unit, 0);
        const int token = unit - 1, own = token * choices + warp; /* the first of this warp's routes */
        uint4 piece = make_uint4(0, 0, 0, 0);
        float weight = 0.0f;
        if (unit > 0 && unit <= tokens) { /* on their way while places are found */
            if (32 * warp < pieces)
                piece = moe_load_piece(job, token, thread);
            if (warp < choices)
                weight = job.topk_weight[own];
        }
        if (!is_placed && warp == 0) {
            all = moe_place_experts(job, places);
            if (thread == 0)
                hopper::barrier_arrive(hopper::shared_address(&h.routed));
        }
        is_placed = true;
        sync();
        if (unit > tokens)
            break;
        if (thread == 0)
            next = atomicAdd(s.drawn, 1);
        if (unit == 0) {
            moe_write_tables(job, places, all, thread, THREADS);
        } else {
#pragma unroll 1
            for (int route = own; route < (token + 1) * choices; route += THREADS / 32) {
                const int expert = expert_of[route];
                int before = 0;
#pragma unroll 4
                for (int i = lane; i < route; i += 32)
                    before += expert_of[i] == expert;
                before = __reduce_add_sync(~0u, before);
                if (route != own)
                    weight = job.topk_weight[route];
                if (lane == 0)
                    spots[route - token * choices] =
                        moe_place_route(job, places, route, expert == NO_EXPERT ? -1 : expert, before, weight);
            }
            sync();
#pragma unroll 1
            for (int i = 32 * warp; i < pieces; i += THREADS) {
                moe_gather_piece<GATHER, FORM>(job, spots, token, (i + lane) * MOE_COLUMNS, piece);
                if (i + THREADS < pieces)
                    piece = moe_load_piece(job, token, i + lane + THREADS);
            }
        }
        if (thread == 0)
            h.unit = next;
        sync();
        if (thread == 0) /* it passes on what all of them wrote */
            hopper::add_release(unit == 0 ? s.tables : s.gathered, 1);
    }
    __syncwarp();
    if (lane == 0)
        hopper::barrier_arrive(hopper::shared_address(&h.left));
}

#endif
