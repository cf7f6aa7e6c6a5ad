/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both projections of experts of FP8 blocks for up to 112 tokens of an expert at a time, in one launch: the plan of
 * f8_few.cu. Two warpgroups have 128 rows of a tile each and keep the totals of all tokens in registers; while one
 * adds, the products of the other run. Weights come in small stages, which are given back soon, and their ring is deep
 * enough for the end of a tile.
 */
#include "kernels/f8_feed.cuh"
#include "kernels/f8_launch.cuh"
#include "kernels/f8_many_finish.cuh"
#include "kernels/f8_many_multiply.cuh"

namespace
{

using form = f8_many_form;
using threads = f8_threads<form>;

/* Products of a warpgroup's part of an item. */
template <int N>
__device__ __forceinline__ void multiply(const f8_arguments &p, f8_many_shared &sm, f8_turn &turn, f8_turn &token_turn,
                                         const f8_item &item, int projection, int part, f8_many_totals &total)
{
    if (projection == 1)
        f8_many_multiply<N, LP_MOE_LONG_SUM_COLUMNS, true>(p, sm, turn, token_turn, item, part, total);
    else if (p.fast)
        f8_many_multiply<N, LP_MOE_LONG_SUM_COLUMNS, false>(p, sm, turn, token_turn, item, part, total);
    else
        f8_many_multiply<N, LP_MOE_SUM_COLUMNS, false>(p, sm, turn, token_turn, item, part, total);
}

__device__ __forceinline__ void work(const f8_arguments &p, f8_many_shared &sm)
{
    const int part = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 128), 0);
    f8_turn turn = {part, p.stages, 0}, token_turn = {0, form::TOKEN_STAGES, 0}, slot = {0, F8_QUEUE, 0};
    for (uint32_t round = 0;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&sm.queue.given[slot.at]), slot.phase);
        const f8_item &item = sm.queue.item[slot.at];                /* stays there until it is done */
        const int projection = __shfl_sync(~0u, item.projection, 0); /* tells the compiler that warps do not diverge */
        const int width = __shfl_sync(~0u, item.width, 0), stages = __shfl_sync(~0u, item.stages, 0);
        if (projection < 0)
            return;
        if (projection == 0 && threadIdx.x < width) {
            prefill::copy4(hopper::shared_address(sm.weight + threadIdx.x),
                           p.routes.row_weight + item.row + threadIdx.x);
            prefill::copies_commit();
        }
        f8_many_totals total;
        if (__shfl_sync(~0u, item.dropped, 0))
            for (int i = 0; i < stages; i += form::GROUPS, turn.next(), turn.next()) {
                hopper::barrier_wait(hopper::shared_address(&sm.queue.full[turn.at]), turn.phase);
                f8_release(&sm.queue.empty[turn.at]);
            }
#define F8_MANY_CASE(n) else if (width == (n)) multiply<n>(p, sm, turn, token_turn, item, projection, part, total);
        F8_MANY_CASE(16)
        F8_MANY_CASE(32)
        F8_MANY_CASE(48)
        F8_MANY_CASE(64)
        F8_MANY_CASE(80)
        F8_MANY_CASE(96)
        F8_MANY_CASE(112)
#undef F8_MANY_CASE
        if (!__shfl_sync(~0u, item.dropped, 0)) { /* read again: a loop's registers are all in use */
            if (__shfl_sync(~0u, item.projection, 0) == 0)
                f8_many_finish_h(p, sm, __shfl_sync(~0u, item.width, 0), part, round++, total);
            else
                f8_many_finish_out(p, sm, item, __shfl_sync(~0u, item.width, 0), part, round, total);
        }
        f8_release(&sm.queue.taken[slot.at]);
    }
}

__global__ void __launch_bounds__(threads::ALL, 1)
    products_of_many(const __grid_constant__ f8_arguments p, const __grid_constant__ CUtensorMap map1,
                     const __grid_constant__ CUtensorMap map2)
{
    extern __shared__ __align__(1024) char memory[];
    f8_many_shared &sm = *reinterpret_cast<f8_many_shared *>(memory);
    if (threadIdx.x == 0) {
        f8_init_queue<form>(sm.queue, p.stages, threads::WARPS / form::GROUPS, threads::WARPS, 2);
        for (uint64_t &full : sm.factors_full)
            hopper::barrier_init(hopper::shared_address(&full), 1);
        hopper::barrier_init(hopper::shared_address(&sm.stored), threads::WARPS);
        hopper::barrier_init(hopper::shared_address(&sm.told), 1);
        f8_init_done();
    }
    __syncthreads();
    moe_let_next_start();
    /* Registers move to the multipliers; together no more than at launch (384 x 168), or the kernel hangs. */
    if (threadIdx.x >= threads::MULTIPLIERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == threads::WEIGHT_FEEDER)
            f8_feed_weights<form>(p, sm.queue, memory, &map1, &map2);
        else if (threadIdx.x == threads::TOKEN_FEEDER)
            f8_feed_tokens<form, F8_BLOCKS>(p, sm.queue, hopper::shared_address(memory));
        else if (threadIdx.x >= F8_MANY_FACTORS && threadIdx.x < F8_MANY_FACTORS + 32)
            f8_many_factor_warp(p, sm);
        else if (threadIdx.x == F8_MANY_PUBLISHER)
            f8_many_publish(p, sm);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        moe_wait_for_inputs();
        work(p, sm);
    }
}

} // namespace

extern "C" lp_status lp_f8_many_run(const lp_moe_call *call, lp_error *err)
{
    f8_space space = {};
    space.tokens = offsetof(f8_many_shared, tokens), space.token_stage = sizeof(f8_many_shared::tokens[0]);
    space.scales = offsetof(f8_many_shared, scales), space.scale_stage = sizeof(f8_many_shared::scales[0]);
    space.weights = offsetof(f8_many_shared, weights);
    return f8_run<form>(call, products_of_many, space, LP_F8_MANY_ROWS, LP_F8_MANY_ROWS, err);
}
