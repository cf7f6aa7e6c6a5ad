/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two feeding threads of a block. One takes items and streams their weights, the other brings the tokens, each into
 * a ring of its own, so that weights keep flowing while tokens are waited for.
 * Items are numbered as moe_items.cuh says.
 */
#ifndef LOADPLAN_F8_FEED_CUH
#define LOADPLAN_F8_FEED_CUH

#include "kernels/f8_block.cuh"
#include "kernels/moe_launch.cuh"

#include <cuda.h>

/* Stages of a tile. */
template <typename Form> struct f8_stages {
    __device__ __forceinline__ int operator()(const f8_projection &projection) const
    {
        return (projection.pieces + Form::PIECES - 1) / Form::PIECES * projection.parts;
    }
};

template <typename Form>
__device__ __forceinline__ bool f8_find_item(const f8_arguments &p, int number, int chunks, f8_item &item)
{
    return moe_find_item(p, number, chunks, p.chunk_rows, p.unit, p.even_rows, f8_stages<Form>(), item);
}

/* Weights of an item, stage by stage: the parts of a tile one after the other, then the next columns. */
template <typename Form> struct f8_weight_feed {
    const CUtensorMap *map1, *map2;
    uint32_t ring;
    uint64_t policy;
    f8_turn turn;

    __device__ __forceinline__ void fill(const f8_arguments &p, f8_queue &h, const f8_item &item, int k)
    {
        constexpr int BYTES = f8_stage_bytes<Form>;
        const f8_projection &projection = p.projection[item.projection];
        const int part = k % projection.parts, tile = item.expert * projection.tiles + item.tile;
        const int row = (tile * projection.parts + part) * Form::PART_ROWS, piece = k / projection.parts * Form::PIECES;
        const uint32_t full = hopper::shared_address(&h.full[turn.at]);
        hopper::barrier_wait(hopper::shared_address(&h.empty[turn.at]), turn.phase ^ 1);
        hopper::barrier_expect(full, BYTES);
        f8_copy_box(ring + turn.at * BYTES, item.projection == 0 ? map1 : map2, row, piece, full, policy);
        turn.next();
    }
};

/* `memory`: shared, from its start. */
template <typename Form>
__device__ void f8_feed_weights(const f8_arguments &p, f8_queue &h, char *memory, const CUtensorMap *map1,
                                const CUtensorMap *map2)
{
    const f8_stages<Form> stages;
    f8_weight_feed<Form> feed = {
        map1, map2, hopper::shared_address(memory) + p.space.weights, w4_stream_policy(), {0, p.stages, 0}};
    f8_turn slot = {0, F8_QUEUE, 0};
    f8_ask_for_map(map1);
    f8_ask_for_map(map2);
    int number = atomicAdd(p.ticket, 1), filled = 0, group = 0, chunks = -1;
    const bool is_first = number < p.first_tiles;
    f8_item item = moe_first_tile<f8_item>(p, number, stages);
    if (is_first)
        for (; filled < min(item.stages, moe_blind_stages<Form::ROUTES>(p.start, p.stages)); filled++)
            feed.fill(p, h, item, filled);
    if (!Form::ROUTES || !is_first)
        chunks = moe_chunks<Form::ROUTES>(p.start);
    if (!is_first) {
        while (!f8_find_item<Form>(p, number, chunks, item))
            number = atomicAdd(p.ticket, 1);
    } else if (!moe_serve_own_first<Form::ROUTES>(p, h.start, memory + p.space.tokens, item, p.chunk_rows, p.unit,
                                                  p.even_rows)) {
        item.dropped = 1;
        item.stages = filled;
    }
    for (;; slot.next()) {
        if (item.projection >= 0) {
            item.first_group = p.projection[item.projection].parts == Form::GROUPS ? 0 : group;
            group = (item.first_group + p.projection[item.projection].parts) % Form::GROUPS;
        }
        hopper::barrier_wait(hopper::shared_address(&h.taken[slot.at]), slot.phase ^ 1);
        h.item[slot.at] = item;
        hopper::barrier_arrive(hopper::shared_address(&h.given[slot.at]));
        if (item.projection < 0)
            return;
        number = atomicAdd(p.ticket, 1); /* in flight while the stages are filled */
        for (; filled < item.stages; filled++)
            feed.fill(p, h, item, filled);
        filled = 0;
        if (Form::ROUTES && chunks < 0)
            chunks = moe_chunks<Form::ROUTES>(p.start);
        while (!f8_find_item<Form>(p, number, chunks, item))
            number = atomicAdd(p.ticket, 1);
    }
}

/* `shared`: the address of shared memory. */
template <typename Form, int KIND> __device__ void f8_feed_tokens(const f8_arguments &p, f8_queue &h, uint32_t shared)
{
    const f8_space &space = p.space;
    f8_turn turn = {0, Form::TOKEN_STAGES, 0}, slot = {0, F8_QUEUE, 0};
    moe_wait_for_rows<Form::ROUTES>(p.start, h.start);
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const f8_item item = h.item[slot.at];
        hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
        if (item.projection < 0)
            return;
        if (item.dropped)
            continue;
        const f8_projection &projection = p.projection[item.projection];
        if (item.projection == 1) {
            while (hopper::load_acquire(p.ready + item.chunk) < p.projection[0].tiles * f8_threads<Form>::WARPS)
                __nanosleep(32);
            hopper::proxy_fence();
        }
        const char *const operand = projection.operand + static_cast<int64_t>(item.row) * projection.pieces * F8_PIECE;
        const float *const scale = projection.operand_scale + static_cast<int64_t>(item.row) * projection.pieces;
        for (int k = 0; k < projection.pieces; k += Form::PIECES, turn.next()) {
            const int pieces = min(Form::PIECES, projection.pieces - k);
            const uint32_t bytes = static_cast<uint32_t>(pieces * item.width * F8_PIECE);
            const uint32_t scales = KIND == F8_BLOCKS ? static_cast<uint32_t>(pieces * item.width * 4) : 0;
            const uint32_t full = hopper::shared_address(&h.tokens_full[turn.at]);
            hopper::barrier_wait(hopper::shared_address(&h.tokens_empty[turn.at]), turn.phase ^ 1);
            hopper::barrier_expect(full, bytes + scales);
            hopper::bulk_load(shared + space.tokens + turn.at * space.token_stage,
                              operand + static_cast<int64_t>(k) * item.width * F8_PIECE, bytes, full);
            if (KIND == F8_BLOCKS)
                hopper::bulk_load(shared + space.scales + turn.at * space.scale_stage, scale + k * item.width, scales,
                                  full);
        }
    }
}

#endif
