/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two feeding threads of a block. One takes items and streams their weights, the other brings the tokens, each into
 * a ring of its own, so that weights keep flowing while tokens are waited for.
 * Items are numbered as moe_items.cuh says.
 */
#ifndef LOADPLAN_M8_FEED_CUH
#define LOADPLAN_M8_FEED_CUH

#include "kernels/f8_ptx.cuh"
#include "kernels/m8_block.cuh"
#include "kernels/moe_launch.cuh"

#include <cuda.h>

/* Stages of a tile. */
struct m8_stages {
    __device__ __forceinline__ int operator()(const m8_projection &projection) const { return projection.stages; }
};

__device__ __forceinline__ bool m8_find_item(const m8_arguments &p, int number, int chunks, m8_item &item)
{
    return moe_find_item(p, number, chunks, p.chunk_rows, p.unit, 0, m8_stages(), item);
}

/* Weights of an item, 128 columns at a time, with their scales. */
struct m8_weight_feed {
    const CUtensorMap *map1, *map2;
    uint32_t weights, scales;
    uint64_t policy;
    m8_turn turn;

    __device__ __forceinline__ void fill(const m8_arguments &p, m8_header &h, const m8_item &item, int k)
    {
        const m8_projection &projection = p.projection[item.projection];
        const int rows = projection.tiles * M8_ROWS, row = item.tile * M8_ROWS;
        const uint32_t full = hopper::shared_address(&h.full[turn.at]);
        hopper::barrier_wait(hopper::shared_address(&h.empty[turn.at]), turn.phase ^ 1);
        hopper::barrier_expect(full, M8_STAGE + M8_SCALE_BYTES);
        f8_copy_box(weights + turn.at * M8_STAGE, item.projection == 0 ? map1 : map2, item.expert * rows + row, k, full,
                    policy);
        w4_copy_streamed(scales + turn.at * M8_SCALE_BYTES,
                         projection.scale + (static_cast<int64_t>(item.expert) * projection.stages + k) * rows + row,
                         M8_SCALE_BYTES, full, policy);
        turn.next();
    }
};

__device__ inline void m8_feed_weights(const m8_arguments &p, m8_header &h, uint32_t weights, uint32_t scales,
                                       const CUtensorMap *map1, const CUtensorMap *map2)
{
    m8_weight_feed feed = {map1, map2, weights, scales, w4_stream_policy(), {0, p.stages, 0}};
    m8_turn slot = {0, M8_QUEUE, 0};
    f8_ask_for_map(map1);
    f8_ask_for_map(map2);
    int number = atomicAdd(p.ticket, 1), filled = 0;
    const bool is_first = number < p.first_tiles;
    m8_item item = moe_first_tile<m8_item>(p, number, m8_stages());
    if (is_first)
        for (; filled < min(item.stages, p.stages); filled++)
            feed.fill(p, h, item, filled);
    moe_wait_for_inputs();
    const int chunks = *p.routes.chunks;
    if (!is_first) {
        while (!m8_find_item(p, number, chunks, item))
            number = atomicAdd(p.ticket, 1);
    } else if (!moe_serve_first(p, item, p.chunk_rows, p.unit)) {
        item.dropped = 1;
        item.stages = filled;
    }
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.taken[slot.at]), slot.phase ^ 1);
        h.item[slot.at] = item;
        hopper::barrier_arrive(hopper::shared_address(&h.given[slot.at]));
        if (item.projection < 0)
            return;
        number = atomicAdd(p.ticket, 1); /* in flight while the stages are filled */
        for (; filled < item.stages; filled++)
            feed.fill(p, h, item, filled);
        filled = 0;
        while (!m8_find_item(p, number, chunks, item))
            number = atomicAdd(p.ticket, 1);
    }
}

__device__ inline void m8_feed_tokens(const m8_arguments &p, m8_header &h, uint32_t tokens, int stage_bytes)
{
    m8_turn turn = {0, p.token_stages, 0}, slot = {0, M8_QUEUE, 0};
    moe_wait_for_inputs();
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const m8_item item = h.item[slot.at];
        hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
        if (item.projection < 0)
            return;
        if (item.dropped)
            continue;
        const m8_projection &projection = p.projection[item.projection];
        if (item.projection == 1) {
            while (hopper::load_acquire(p.ready + item.chunk) < p.projection[0].tiles * (M8_MULTIPLIERS / 32))
                __nanosleep(32);
            hopper::proxy_fence();
        }
        const uint32_t bytes = static_cast<uint32_t>(item.width * M8_COLUMNS * 2);
        const char *from = projection.operand + static_cast<int64_t>(item.row) * projection.stages * (M8_COLUMNS * 2);
        for (int k = 0; k < projection.stages; k++, turn.next(), from += bytes) {
            const uint32_t full = hopper::shared_address(&h.tokens_full[turn.at]);
            hopper::barrier_wait(hopper::shared_address(&h.tokens_empty[turn.at]), turn.phase ^ 1);
            hopper::barrier_expect(full, bytes);
            hopper::bulk_load(tokens + turn.at * stage_bytes, from, bytes, full);
        }
    }
}

#endif
