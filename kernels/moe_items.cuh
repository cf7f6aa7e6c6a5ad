/* SPDX-License-Identifier: Apache-2.0 */
/* What the queues of the kernels for few tokens share: positions in rings, and tiles fetched before routing is known.
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

/* Serves an item with its expert's first chunk (moe_chunk_rows), of a width of whole units, without its entry of the
 * table, which would be one more wait. False: no tokens. Arguments: what has `routes`. */
template <typename Arguments, typename Item>
__device__ __forceinline__ bool moe_serve_first(const Arguments &p, Item &item, int most, int unit, int even = 0)
{
    const int count = p.routes.count[item.expert];
    item.chunk = p.routes.first_chunk[item.expert];
    item.row = p.routes.start[item.expert];
    item.valid = min(count, moe_chunk_rows(count, most, even, unit));
    item.width = (item.valid + unit - 1) / unit * unit;
    return count > 0;
}

#endif
