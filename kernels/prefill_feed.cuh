/* SPDX-License-Identifier: Apache-2.0 */
/* The feeding warps of a prefill block: one brings weights, one tokens with their scales. */
#ifndef LOADPLAN_PREFILL_FEED_CUH
#define LOADPLAN_PREFILL_FEED_CUH

#include "kernels/prefill_ring.cuh"

#include <cuda.h>

constexpr int TURN_PIECES = 3; /* before a task's end is the next one taken: late, but not waited for */

/* Tells both blocks the cluster's next task. Within reach of the oldest that any role may still ask for: roles are no
 * further apart than a ring of stages, and a task has two at least. */
__device__ __forceinline__ void prefill_tell_turn(const prefill_walk &walk, int task)
{
    const uint64_t turn = static_cast<uint64_t>(walk.number) << 32 | static_cast<uint32_t>(task);
    for (uint32_t block = 0; block < 2; block++)
        prefill::store_shared_at(walk.turns + static_cast<uint32_t>(walk.number % PREFILL_TURNS * 8), block, turn);
}

/* By one thread. `map`: rows of K bytes, boxes of 128 rows x 128 bytes with the 128-byte swizzle. */
template <int KIND>
__device__ void prefill_feed_weights(const prefill_arguments &p, prefill_shared<KIND> &sm, const CUtensorMap *map1,
                                     const CUtensorMap *map2, int pieces1, int pieces2, uint32_t rank)
{
    using namespace hopper;
    using namespace prefill;
    const uint32_t full = shared_address(sm.full), empty = shared_address(sm.empty);
    constexpr uint32_t HALF = PREFILL_WEIGHT_BYTES / 2;
    prefill_ring<prefill_stages(KIND)> ring;
    prefill_walk walk(p, sm.tables, static_cast<int>(rank), prefill_turns_of(sm));
    const bool takes = rank == 0 && walk.takes_turns();
    for (int which = 0; which < 2; which++) {
        const CUtensorMap *const map = which == 0 ? map1 : map2;
        const int pieces = which == 0 ? pieces1 : pieces2;
        prefill_task task;
        while (walk.next(task)) {
            const int row = walk.weight_tile(task) * PREFILL_COLUMNS;
            int taken = 0;
            for (int k = 0; k < pieces; k++, ring.next()) {
                if (takes && k == max(0, pieces - TURN_PIECES))
                    taken = atomicAdd(p.taken, 1);
                barrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
                const uint32_t bar = full + 8 * ring.stage, to = shared_address(sm.weight[ring.stage]);
                barrier_expect(bar, task.idle ? 0 : PREFILL_WEIGHT_BYTES);
                if (!task.share_tokens) {
                    tensor_load_multicast(to + rank * HALF, map, k * 128, row + static_cast<int>(rank) * 128, bar, 3);
                } else if (!task.idle) {
                    tensor_load(to, map, k * 128, row, bar);
                    tensor_load(to + HALF, map, k * 128, row + 128, bar);
                }
            }
            if (takes)
                prefill_tell_turn(walk, walk.clusters() + taken);
        }
        if (which == 0)
            walk.to_second();
    }
}

/* Asks for the weights of a block's first tile before routing is done: the tile that it gets when every expert has one
 * tile of tokens. They wait in the L2 cache; where the guess is wrong nothing is lost, for memory was idle. */
template <int KIND> __device__ void prefill_ask_ahead(const prefill_arguments &p, const CUtensorMap *map, uint32_t rank)
{
    using namespace hopper;
    using namespace prefill;
    constexpr int STEP = prefill_decodes(KIND) ? 64 : 128, MOST = prefill_decodes(KIND) ? 16 : 8;
    const int columns = prefill_walk::columns_of(p, 0), half = (columns + 1) / 2,
              cluster = static_cast<int>(blockIdx.x / 2);
    const int expert = cluster / half, n = 2 * (cluster % half) + static_cast<int>(rank);
    if (expert >= p.experts || n >= columns)
        return;
    const int tile = expert * columns + n, steps = p.hidden * prefill_row_bits(KIND) / 8 / STEP;
    for (int k = 0; k < min(steps, MOST); k++) {
        if (p.packed) {
            bulk_prefetch(p.codes[0] + (static_cast<int64_t>(tile) * steps + k) * (PREFILL_COLUMNS * 64),
                          PREFILL_COLUMNS * 64);
        } else if (prefill_decodes(KIND)) {
            tensor_prefetch(map, k * STEP, tile * PREFILL_COLUMNS);
        } else {
            tensor_prefetch(map, k * STEP, tile * PREFILL_COLUMNS);
            tensor_prefetch(map, k * STEP, tile * PREFILL_COLUMNS + 128);
        }
    }
}

/* One piece of a task's tokens and their scales, and `more` bytes that are copied besides; waits for the stage. By one
 * thread. */
template <int KIND>
__device__ __forceinline__ void
prefill_feed_piece(const prefill_arguments &p, prefill_shared<KIND> &sm, const prefill_ring<prefill_stages(KIND)> &ring,
                   const prefill_task &task, int which, int k, int pieces, uint32_t rank, uint32_t more = 0)
{
    using namespace hopper;
    using namespace prefill;
    constexpr bool SCALED = prefill_is_scaled(KIND);
    constexpr int PER_SCALE = prefill_element(KIND); /* pieces of 128 bytes for 128 columns */
    const uint32_t bar = shared_address(&sm.full[ring.stage]), to = shared_address(sm.tokens[ring.stage]);
    const uint32_t bytes = static_cast<uint32_t>((task.rows + 7) / 8 * 1024), half = bytes / 2048 * 1024;
    const int64_t block = task.row / PREFILL_ROWS;
    const char *const piece = p.tokens[which] + (block * pieces + k) * PREFILL_PIECE;
    barrier_wait(shared_address(&sm.empty[ring.stage]), ring.phase ^ 1);
    barrier_expect(bar, more + bytes + (SCALED ? PREFILL_SCALE_BYTES : 0));
    if (!task.share_tokens || prefill_is_solo(p, sm.tables))
        bulk_load(to, piece, bytes, bar);
    else if (rank == 1)
        bulk_load_multicast(to + half, piece + half, bytes - half, bar, 3);
    else if (half > 0)
        bulk_load_multicast(to, piece, half, bar, 3);
    if (SCALED)
        bulk_load(shared_address(sm.scale[ring.stage]),
                  p.token_scale[which] + (block * (pieces / PER_SCALE) + k / PER_SCALE) * PREFILL_ROWS,
                  PREFILL_SCALE_BYTES, bar);
}

/* Until the rows of h that a task of the second projection reads are there. */
__device__ __forceinline__ void prefill_wait_for_h(const prefill_arguments &p, const prefill_tables &tables,
                                                   const prefill_task &task)
{
    const int32_t *const flag = p.ready + tables.tiles[task.expert] + task.m;
    prefill::wait_for_count(flag, PREFILL_WARPS * prefill_walk::columns_of(p, 0));
    hopper::proxy_fence();
}

/* By one thread. */
template <int KIND>
__device__ void prefill_feed_tokens(const prefill_arguments &p, prefill_shared<KIND> &sm, int pieces1, int pieces2,
                                    uint32_t rank)
{
    prefill_ring<prefill_stages(KIND)> ring;
    prefill_walk walk(p, sm.tables, static_cast<int>(rank), prefill_turns_of(sm));
    prefill_teller teller(sm.told);
    for (int which = 0; which < 2; which++) {
        const int pieces = which == 0 ? pieces1 : pieces2;
        prefill_task task;
        while (walk.next(task)) {
            teller.tell(task);
            if (which == 1)
                prefill_wait_for_h(p, sm.tables, task);
            for (int k = 0; k < pieces; k++, ring.next())
                prefill_feed_piece(p, sm, ring, task, which, k, pieces, rank);
        }
        if (which == 0)
            walk.to_second();
    }
    teller.tell_end();
}

/* Weights that were decoded ahead, and tokens: pieces of 256 rows as a stage holds them. By one thread. */
template <int KIND>
__device__ void prefill_feed_made(const prefill_arguments &p, prefill_shared<KIND> &sm, int pieces1, int pieces2,
                                  uint32_t rank)
{
    using namespace hopper;
    using namespace prefill;
    constexpr uint32_t HALF = PREFILL_WEIGHT_BYTES / 2;
    prefill_ring<prefill_stages(KIND)> ring;
    int tasks = 0;
    prefill_walk walk(p, sm.tables, static_cast<int>(rank), prefill_turns_of(sm));
    prefill_teller teller(sm.told);
    for (int which = 0; which < 2; which++) {
        const int pieces = which == 0 ? pieces1 : pieces2;
        prefill_task task;
        for (; walk.next(task); tasks++) {
            teller.tell(task);
            const char *from = p.made;
            int number = 0;
            if (!task.idle) {
                number = prefill_number(p, sm.tables, which, task.expert, task.n);
                prefill_wait_made(p, number);
                from = prefill_place_of(p, number);
            }
            if (which == 1)
                prefill_wait_for_h(p, sm.tables, task);
            for (int k = 0; k < pieces; k++, ring.next(), from += PREFILL_WEIGHT_BYTES) {
                const uint32_t bar = shared_address(&sm.full[ring.stage]);
                const uint32_t to = shared_address(sm.weight[ring.stage]);
                const bool refers = prefill_is_mx(KIND) && k == 0 && !task.idle;
                prefill_feed_piece(p, sm, ring, task, which, k, pieces, rank,
                                   task.idle ? 0 : PREFILL_WEIGHT_BYTES + (refers ? PREFILL_COLUMNS : 0));
                if (refers)
                    bulk_load(shared_address(sm.making.reference[tasks % (2 * prefill_stages(KIND))]),
                              p.reference + static_cast<int64_t>(number) * PREFILL_COLUMNS, PREFILL_COLUMNS, bar);
                if (!task.share_tokens)
                    bulk_load_multicast(to + rank * HALF, from + rank * HALF, HALF, bar, 3);
                else if (!task.idle)
                    bulk_load(to, from, PREFILL_WEIGHT_BYTES, bar);
            }
        }
        if (which == 0)
            walk.to_second();
    }
    teller.tell_end();
}

#endif
