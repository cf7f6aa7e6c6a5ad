/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of many tokens an expert: which warp does what, and the loop over tiles of those that multiply. */
#ifndef LOADPLAN_PREFILL_KERNEL_CUH
#define LOADPLAN_PREFILL_KERNEL_CUH

#include "kernels/prefill_ahead.cuh"
#include "kernels/prefill_code_feed.cuh"
#include "kernels/prefill_decode.cuh"
#include "kernels/prefill_feed.cuh"
#include "kernels/prefill_finish.cuh"
#include "kernels/prefill_hand_over.cuh"
#include "kernels/prefill_multiply.cuh"
#include "kernels/prefill_rare_rows.cuh"

namespace
{

/* Warpgroups 0 and 1 multiply, the others feed them. */
template <int KIND>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(prefill_threads(KIND), 1)
    products(const __grid_constant__ prefill_arguments p, const __grid_constant__ CUtensorMap map1,
             const __grid_constant__ CUtensorMap map2)
{
    using namespace hopper;
    using namespace prefill;
    constexpr bool DECODES = prefill_decodes(KIND), IS_AHEAD = prefill_is_ahead(KIND);
    extern __shared__ __align__(1024) uint8_t memory[];
    prefill_shared<KIND> &sm = *reinterpret_cast<prefill_shared<KIND> *>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t rank = cluster_rank();
    const int pieces1 = p.hidden * prefill_element(KIND) / 128, pieces2 = p.intermediate * prefill_element(KIND) / 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < prefill_stages(KIND); s++) {
            barrier_init(shared_address(&sm.full[s]), IS_AHEAD ? 1
                                                      : DECODES
                                                          ? PREFILL_DECODERS + 1
                                                          : 2); /* who fills the weights, and the tokens' feeder */
            barrier_init(shared_address(&sm.empty[s]), 2 * PREFILL_WARPS); /* of both blocks */
        }
        if constexpr (DECODES)
            for (int s = 0; s < prefill_raw<KIND>::RING; s++) {
                barrier_init(shared_address(&sm.raw.full[s]), 1);
                barrier_init(shared_address(&sm.raw.empty[s]), PREFILL_DECODERS);
            }
        for (int g = 0; g < 2; g++) {
            barrier_init(shared_address(&sm.staged[g]), PREFILL_WARPS / 2);
            barrier_init(shared_address(&sm.unstaged[g]), 1);
        }
        for (int i = 0; i < PREFILL_TURNS; i++)
            sm.turn[i] = 0, sm.told[i].number = 0;
        barrier_init_done();
    }
    if (!IS_AHEAD && warp == PREFILL_WARPS && lane == 0)
        prefill_ask_ahead<KIND>(p, &map1, rank);
    cluster_sync(); /* a fence of all memory, too: done before the inputs are there */
    moe_wait_for_inputs();
    moe_let_next_start();
    if (warp == 1)
        prefill_count_tiles(p, sm.tables, prefill_splits(KIND));
    __syncthreads();
    if (warp >= PREFILL_WARPS) {
        registers_less<prefill_registers_beside(KIND)>();
        if constexpr (DECODES) {
            if (warp < PREFILL_WARPS + PREFILL_DECODERS)
                prefill_decode(p, sm, pieces1, pieces2, rank);
            else if (lane == 0)
                prefill_feed_codes(p, sm, &map1, &map2, pieces1, pieces2, rank);
        } else if constexpr (IS_AHEAD) {
            if (warp > PREFILL_WARPS)
                prefill_decode_ahead(p, sm, warp - PREFILL_WARPS - 1);
            else if (lane == 0)
                prefill_feed_made(p, sm, pieces1, pieces2, rank);
        } else {
            if (warp == PREFILL_WARPS && lane == 0)
                prefill_feed_weights(p, sm, &map1, &map2, pieces1, pieces2, rank);
            if (warp == PREFILL_WARPS + 1 && lane == 0)
                prefill_feed_tokens(p, sm, pieces1, pieces2, rank);
            if (prefill_hands_over(KIND) && warp >= PREFILL_WARPS + 2 && lane == 0)
                prefill_store_h(p, sm, warp - PREFILL_WARPS - 2);
        }
        __syncwarp();
    } else {
        registers_more<prefill_registers(KIND)>();
        prefill_ring<prefill_stages(KIND)> ring;
        prefill_receipt receipt; /* of kinds that do not hand over */
        prefill_hand_over hand_over;
        float sum[128];
        int number = 0, halves = 0; /* tasks, and those that are divided */
        prefill_listener tasks(sm.told);
        prefill_block_scales scales; /* of LP_PREFILL_FP8, asked for before the tile before them is finished */
        prefill_task task, next;
        for (bool more = tasks.next(next); more; number++) {
            task = next;
            if (KIND == LP_PREFILL_FP8 && number == 0)
                scales.start(p, task);
            const int which = task.which;
            const prefill_share share(KIND, task);
            const float2 weight = prefill_row_weights(p, task, share, which);
            if (which == 1) /* others may wait for it, and this block for them */
                receipt.give();
            prefill_multiply<KIND>(p, sm, ring, task, scales, share, which, which == 0 ? pieces1 : pieces2, sum);
            more = tasks.next(next);
            if (KIND == LP_PREFILL_FP8 && more)
                scales.start(p, next);
            if (task.idle)
                continue;
            const uint8_t *reference = nullptr;
            if constexpr (KIND == LP_PREFILL_MX)
                reference = sm.raw.reference[number % 4];
            if constexpr (IS_AHEAD) {
                const int tile = prefill_number(p, sm.tables, which, task.expert, task.n);
                reference = sm.making.reference[number % (2 * prefill_stages(KIND))];
                if (threadIdx.x == 0)
                    add_release(p.used + tile, 1);
            }
            if constexpr (prefill_is_mx(KIND))
                if (!share.idle)
                    prefill_scale_rows(p, reference, task, which, sum);
            if constexpr (prefill_hands_over(KIND))
                hand_over.wait(sm);
            if (which == 1) {
                if (!share.idle)
                    prefill_finish_out<KIND>(p, sm, task, share, sum);
            } else if constexpr (prefill_hands_over(KIND)) { /* no warpgroup is idle then */
                prefill_finish_h<KIND>(p, sm, task, share, halves % 2, weight, sum);
                hand_over.give(sm);
                halves += share.is_half;
            } else {
                receipt.give();
                if (!share.idle)
                    prefill_finish_h<KIND>(p, sm, task, share, 0, weight, sum);
                receipt.flag = p.ready + sm.tables.tiles[task.expert] + task.m;
            }
        }
        receipt.give();
    }
    cluster_sync(); /* copies and arrivals of the other block may still be on their way here */
}

} // namespace

#endif
