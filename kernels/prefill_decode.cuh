/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warps that decode weights of a tile into shared memory, once for all of its tokens: seven decode, the eighth
 * (prefill_code_feed.cuh) fetches codes and tokens.
 */
#ifndef LOADPLAN_PREFILL_DECODE_CUH
#define LOADPLAN_PREFILL_DECODE_CUH

#include "kernels/prefill_decode_rows.cuh"
#include "kernels/prefill_feed.cuh"

/* By the decoding warps. */
template <int KIND>
__device__ void prefill_decode(const prefill_arguments &p, prefill_shared<KIND> &sm, int pieces1, int pieces2,
                               uint32_t rank)
{
    using namespace hopper;
    using namespace prefill;
    using R = prefill_raw<KIND>;
    constexpr int HALVES = prefill_is_fp4(KIND) ? prefill_element(KIND) : 1; /* pieces that a step makes */
    const int lane = threadIdx.x % 32;
    prefill_ring<prefill_stages(KIND)> ring;
    prefill_ring<R::RING> from;
    prefill_mx_rows rows = {};
    const prefill_scale_places places = prefill_places<KIND>(p.packed);
    int number = 0;
    prefill_walk walk(p, sm.tables, static_cast<int>(rank), 0);
    for (int which = 0; which < 2; which++) {
        const int pieces = which == 0 ? pieces1 : pieces2;
        prefill_task task;
        for (; walk.next(task); number++) {
            for (int k = 0; k < pieces; k++, ring.next()) {
                const int half = k % HALVES;
                barrier_wait(shared_address(&sm.empty[ring.stage]), ring.phase ^ 1);
                if (!task.idle) {
                    const uint32_t weights = shared_address(sm.weight[ring.stage]);
                    const uint32_t codes = shared_address(sm.raw.codes[from.stage]);
                    const uint32_t scales = shared_address(sm.raw.scales[from.stage]);
                    barrier_wait(shared_address(&sm.raw.full[from.stage]), from.phase);
                    if constexpr (KIND == LP_PREFILL_MX) {
                        if (k == 0) {
                            prefill_ring<R::RING> second = from;
                            if (pieces > 1) {
                                second.next();
                                barrier_wait(shared_address(&sm.raw.full[second.stage]), second.phase);
                            }
                            prefill_refer(rows, scales, shared_address(sm.raw.scales[second.stage]), places);
                        }
                        prefill_decode_mx(rows, codes, scales, places, weights);
                        if (k == pieces - 1)
                            prefill_hand_over_rows(sm.raw, rows, number);
                    } else if constexpr (prefill_is_fp4(KIND)) {
                        prefill_decode_nv<KIND>(half, codes, scales, places, weights);
                    } else {
                        prefill_decode_codes(codes, weights);
                    }
                    proxy_fence_shared();
                    __syncwarp();
                    if (half == HALVES - 1) {
                        if (lane == 0)
                            barrier_arrive(shared_address(&sm.raw.empty[from.stage]));
                        from.next();
                    }
                }
                if (lane == 0)
                    barrier_arrive(shared_address(&sm.full[ring.stage]));
            }
        }
        if (which == 0)
            walk.to_second();
    }
}

#endif
