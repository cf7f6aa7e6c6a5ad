/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two feeding threads of a block. One takes items and streams their weights, the other brings the tokens; both fill
 * the same stages, so that weights keep flowing while tokens are waited for.
 * Items are numbered as moe_items.cuh says.
 */
#ifndef LOADPLAN_W4_FEED_CUH
#define LOADPLAN_W4_FEED_CUH

#include "kernels/moe_launch.cuh"
#include "kernels/w4_block.cuh"

/* Stages of a tile. */
template <typename L> struct w4_stages {
    __device__ __forceinline__ int operator()(const w4_projection &projection) const
    {
        return (projection.steps + L::STEPS - 1) / L::STEPS;
    }
};

/* The item of a number; false: there is nothing to do for it. */
template <typename L>
__device__ __forceinline__ bool w4_find_item(const w4_arguments &p, int number, int chunks, w4_item &item)
{
    return moe_find_item(p, number, chunks, L::MOST, L::UNIT, p.even_rows, w4_stages<L>(), item);
}

/* One stage of weights. Where the last one of an odd number of steps has room for two, its second half repeats the
 * first; its tokens are 0. */
template <typename L>
__device__ __forceinline__ void w4_fill_weights(const w4_arguments &p, w4_queue &h, uint32_t ring, const w4_turn &turn,
                                                const w4_item &item, int k, uint64_t policy)
{
    constexpr int STEPS = L::STEPS;
    const w4_projection &projection = p.projection[item.projection];
    const int64_t tile = static_cast<int64_t>(item.expert) * projection.tiles + item.tile;
    const int64_t step = tile * projection.steps + STEPS * k;
    const char *const weight = projection.weight + step * W4_STEP_BYTES;
    const char *const scale = projection.scale + step * (W4_ROWS * L::SCALE_ROW);
    const uint32_t stage = ring + turn.at * L::STAGE, full = hopper::shared_address(&h.full[turn.at]);
    const uint32_t weight_bytes = W4_STEP_BYTES, scale_bytes = W4_ROWS * L::SCALE_ROW;
    hopper::barrier_wait(hopper::shared_address(&h.empty[turn.at]), turn.phase ^ 1);
    hopper::barrier_expect(full, STEPS * (weight_bytes + scale_bytes));
    const bool is_whole = STEPS * (k + 1) <= projection.steps;
    const uint32_t copies = is_whole ? 1 : STEPS, steps = is_whole ? STEPS : 1;
    for (uint32_t i = 0; i < copies; i++) {
        w4_copy_streamed(stage + L::WEIGHTS + i * weight_bytes, weight, steps * weight_bytes, full, policy);
        w4_copy_streamed(stage + L::SCALES + i * scale_bytes, scale, steps * scale_bytes, full, policy);
    }
}

/* space: where the block routes, if it does. */
template <typename L> __device__ void w4_feed_weights(const w4_arguments &p, w4_queue &h, uint32_t ring, char *space)
{
    w4_turn stage = {0, p.stages, 0}, slot = {0, W4_QUEUE, 0};
    const uint64_t policy = w4_stream_policy();
    int number = atomicAdd(p.ticket, 1), filled = 0, chunks = -1;
    const bool is_first = number < p.first_tiles;
    w4_item item = moe_first_tile<w4_item>(p, number, w4_stages<L>());
    if (is_first)
        for (; filled < min(item.stages, moe_blind_stages<L::ROUTES>(p.start, p.stages)); filled++, stage.next())
            w4_fill_weights<L>(p, h, ring, stage, item, filled, policy);
    if (!L::ROUTES || !is_first)
        chunks = moe_chunks<L::ROUTES>(p.start);
    if (!is_first) {
        while (!w4_find_item<L>(p, number, chunks, item))
            number = atomicAdd(p.ticket, 1);
    } else if (!moe_serve_own_first<L::ROUTES>(p, h.start, space, item, L::MOST, L::UNIT, p.even_rows)) {
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
        for (; filled < item.stages; filled++, stage.next())
            w4_fill_weights<L>(p, h, ring, stage, item, filled, policy);
        filled = 0;
        if (L::ROUTES && chunks < 0)
            chunks = moe_chunks<L::ROUTES>(p.start);
        while (!w4_find_item<L>(p, number, chunks, item))
            number = atomicAdd(p.ticket, 1);
    }
}

template <typename L> __device__ void w4_feed_tokens(const w4_arguments &p, w4_queue &h, uint32_t ring)
{
    constexpr int STEPS = L::STEPS;
    w4_turn stage = {0, p.stages, 0}, slot = {0, W4_QUEUE, 0};
    moe_wait_for_rows<L::ROUTES>(p.start, h.start);
    for (;; slot.next()) {
        hopper::barrier_wait(hopper::shared_address(&h.given[slot.at]), slot.phase);
        const w4_item item = h.item[slot.at];
        hopper::barrier_arrive(hopper::shared_address(&h.taken[slot.at]));
        if (item.projection < 0)
            return;
        if (item.dropped) {
            for (int k = 0; k < item.stages; k++, stage.next()) {
                hopper::barrier_wait(hopper::shared_address(&h.empty[stage.at]), stage.phase ^ 1);
                hopper::barrier_arrive(hopper::shared_address(&h.full[stage.at]));
            }
            continue;
        }
        const w4_projection &projection = p.projection[item.projection];
        if (item.projection == 1) {
            while (hopper::load_acquire(p.ready + item.chunk) < p.projection[0].tiles)
                __nanosleep(32);
            hopper::proxy_fence();
        }
        const int steps = projection.steps;
        const uint32_t block = w4_block_bytes(L::ELEMENT, item.width), scales = item.width * L::TOKEN_SCALE;
        const char *const operand = projection.operand + static_cast<int64_t>(item.row) * steps * (128 * L::ELEMENT);
        const float *const scale = projection.operand_scale + static_cast<int64_t>(item.row) * steps;
        for (int k = 0; k < item.stages; k++, stage.next()) {
            const uint32_t to = ring + stage.at * L::STAGE, full = hopper::shared_address(&h.full[stage.at]);
            hopper::barrier_wait(hopper::shared_address(&h.empty[stage.at]), stage.phase ^ 1);
            hopper::barrier_expect(full, STEPS * (block + scales));
            const int given = min(STEPS, steps - STEPS * k);
            hopper::bulk_load(to + L::TOKENS, operand + STEPS * k * static_cast<int64_t>(block), given * block, full);
            if (given < STEPS)
                hopper::bulk_load(to + L::TOKENS + block, p.zero, block, full);
            if (L::TOKEN_SCALE != 0) {
                hopper::bulk_load(to + L::TOKEN_SCALES, scale + STEPS * k * item.width, given * scales, full);
                if (given < STEPS)
                    hopper::bulk_load(to + L::TOKEN_SCALES + scales, p.zero, scales, full);
            }
        }
    }
}

#endif
