/* SPDX-License-Identifier: Apache-2.0 */
/* The feeding warps of a prefill block: one brings weights, one tokens with their scales. */
#ifndef LOADPLAN_PREFILL_FEED_CUH
#define LOADPLAN_PREFILL_FEED_CUH

#include "kernels/prefill_tile.cuh"

#include <cuda.h>

/* By one thread. `map`: rows of K bytes, boxes of 128 rows x 128 bytes with the 128-byte swizzle. */
__device__ inline void prefill_feed_weights(const prefill_arguments &p, prefill_shared &sm, const CUtensorMap *map1,
                                            const CUtensorMap *map2, int pieces1, int pieces2, uint32_t rank)
{
    using namespace prefill;
    const uint32_t full = shared_address(sm.full), empty = shared_address(sm.empty);
    constexpr uint32_t HALF = PREFILL_WEIGHT_BYTES / 2;
    prefill_ring ring;
    for (int which = 0; which < 2; which++) {
        const CUtensorMap *const map = which == 0 ? map1 : map2;
        const int pieces = which == 0 ? pieces1 : pieces2;
        prefill_walk walk(p, sm, which, static_cast<int>(rank));
        prefill_task task;
        while (walk.next(task)) {
            const int row = walk.weight_tile(task) * PREFILL_COLUMNS;
            for (int k = 0; k < pieces; k++, ring.next()) {
                barrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
                const uint32_t bar = full + 8 * ring.stage, to = shared_address(sm.weight[ring.stage]);
                barrier_expect(bar, task.idle ? 0 : PREFILL_WEIGHT_BYTES);
                if (task.share_tokens) {
                    if (!task.idle) {
                        tensor_load(to, map, k * 128, row, bar);
                        tensor_load(to + HALF, map, k * 128, row + 128, bar);
                    }
                } else {
                    tensor_load_multicast(to + rank * HALF, map, k * 128, row + static_cast<int>(rank) * 128, bar, 3);
                }
            }
        }
    }
}

/* By one thread. `scaled`: tokens have a scale per 128 columns, `per_scale` pieces of 128 bytes. */
__device__ inline void prefill_feed_tokens(const prefill_arguments &p, prefill_shared &sm, int pieces1, int pieces2,
                                           bool scaled, int per_scale, uint32_t rank)
{
    using namespace prefill;
    const uint32_t full = shared_address(sm.full), empty = shared_address(sm.empty);
    prefill_ring ring;
    for (int which = 0; which < 2; which++) {
        const int pieces = which == 0 ? pieces1 : pieces2, scales = pieces / per_scale;
        prefill_walk walk(p, sm, which, static_cast<int>(rank));
        prefill_task task;
        while (walk.next(task)) {
            const uint32_t bytes = static_cast<uint32_t>((task.rows + 7) / 8 * 1024), half = (bytes / 2048) * 1024;
            if (which == 1) {
                const int32_t *const flag = p.ready + sm.tiles[task.expert] + task.m;
                while (load_acquire(flag) < 2 * prefill_walk::columns_of(p, 0))
                    ;
                proxy_fence();
            }
            const int64_t block = task.row / PREFILL_ROWS;
            const char *const from = p.tokens[which] + block * pieces * PREFILL_PIECE;
            const float *const scale = scaled ? p.token_scale[which] + block * scales * PREFILL_ROWS : nullptr;
            for (int k = 0; k < pieces; k++, ring.next()) {
                barrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
                const uint32_t bar = full + 8 * ring.stage, to = shared_address(sm.tokens[ring.stage]);
                barrier_expect(bar, bytes + (scaled ? PREFILL_SCALE_BYTES : 0));
                const char *const piece = from + static_cast<int64_t>(k) * PREFILL_PIECE;
                if (!task.share_tokens)
                    bulk_load(to, piece, bytes, bar);
                else if (rank == 1)
                    bulk_load_multicast(to + half, piece + half, bytes - half, bar, 3);
                else if (half > 0)
                    bulk_load_multicast(to, piece, half, bar, 3);
                if (scaled)
                    bulk_load(shared_address(sm.scale[ring.stage]), scale + k / per_scale * PREFILL_ROWS,
                              PREFILL_SCALE_BYTES, bar);
            }
        }
    }
}

#endif
