/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the queues of the kernels for few tokens share: positions in rings, and which item a number is.
 *
 * Items are numbered: first the tiles that are fetched before routing is known, in the order of experts; then all tiles
 * of the first projection by chunk, then all of the second one. Whoever draws a number runs it, so the items that an
 * item of the second projection waits for are always done or running.
 */
#ifndef LOADPLAN_MOE_ITEMS_CUH
#define LOADPLAN_MOE_ITEMS_CUH

#include "kernels/megamoe_private.h"

/* A position in a ring or in the queue, and the parity of its round. */
struct moe_turn {
    int at, count;
    uint32_t phase;
    __device__ __forceinline__ void next()
    {
        if (++at == count)
            at = 0, phase ^= 1;
    }
};

/* Rows of each chunk of an expert with `count` routes but its last: `most`, or, where they do not fit into one chunk
 * and `even` is given, as many chunks of at most `even` rows as they need, each the same number of units. */
__device__ __forceinline__ int moe_chunk_rows(int count, int most, int even, int unit)
{
    if (even == 0 || count <= most)
        return most;
    const int chunks = (count + even - 1) / even, rows = (count + chunks - 1) / chunks;
    return (rows + unit - 1) / unit * unit;
}

/* Serves an item with its expert's first chunk, of a width of whole units. False: no tokens. */
template <typename Item>
__device__ __forceinline__ bool moe_serve(Item &item, int count, int start, int first_chunk, int chunk_rows, int unit)
{
    item.chunk = first_chunk;
    item.row = start;
    item.valid = min(count, chunk_rows);
    item.width = (item.valid + unit - 1) / unit * unit;
    return count > 0;
}

/* The same, by the tables of experts and without that of chunks, which would be one more wait. Arguments: what has
 * `routes`. */
template <typename Arguments, typename Item>
__device__ __forceinline__ bool moe_serve_first(const Arguments &p, Item &item, int most, int unit, int even = 0)
{
    const int count = p.routes.count[item.expert];
    return moe_serve(item, count, p.routes.start[item.expert], p.routes.first_chunk[item.expert],
                     moe_chunk_rows(count, most, even, unit), unit);
}

/* The tile of the first projection with that number, without what serves it. Stages: those of a tile, of a projection.
 */
template <typename Item, typename Arguments, typename Stages>
__device__ __forceinline__ Item moe_first_tile(const Arguments &p, int number, Stages stages)
{
    Item item = {};
    item.expert = number / p.projection[0].tiles;
    item.tile = number % p.projection[0].tiles;
    item.stages = stages(p.projection[0]);
    return item;
}

/* The item of a number; most, unit and even as for moe_serve_first. False: there is nothing to do for it. */
template <typename Item, typename Arguments, typename Stages>
__device__ __forceinline__ bool moe_find_item(const Arguments &p, int number, int chunks, int most, int unit, int even,
                                              Stages stages, Item &item)
{
    if (number < p.first_tiles) {
        item = moe_first_tile<Item>(p, number, stages);
        return moe_serve_first(p, item, most, unit, even);
    }
    number -= p.first_tiles;
    item.dropped = 0;
    item.projection = 0;
    if (number >= chunks * p.projection[0].tiles) {
        number -= chunks * p.projection[0].tiles;
        item.projection = number < chunks * p.projection[1].tiles ? 1 : -1;
    }
    if (item.projection < 0)
        return true;
    const auto &projection = p.projection[item.projection];
    const lp_moe_chunk any = p.routes.chunk[number / projection.tiles]; /* of the right expert */
    const int in_expert = number - any.first * projection.tiles;        /* chunks of one tile follow one another */
    const int own = any.first + in_expert % any.count;
    const lp_moe_chunk chunk = own == number / projection.tiles ? any : p.routes.chunk[own];
    item.tile = in_expert / any.count;
    item.stages = stages(projection);
    item.expert = chunk.expert;
    item.chunk = own;
    item.row = chunk.row;
    item.width = chunk.width;
    item.valid = chunk.valid;
    const bool is_first = own == any.first && any.expert * projection.tiles + item.tile < p.first_tiles;
    return item.projection == 1 || !is_first; /* first tiles have numbers of their own */
}

#endif
