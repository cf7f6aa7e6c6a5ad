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

/* Serves an item with its expert's first chunk, of at most `most` rows and a width of whole units, without its entry of
 * the table, which would be one more wait. False: no tokens. Arguments: what has `routes`. */
template <typename Arguments, typename Item>
__device__ __forceinline__ bool moe_serve_first(const Arguments &p, Item &item, int most, int unit)
{
    const int count = p.routes.count[item.expert];
    item.chunk = p.routes.first_chunk[item.expert];
    item.row = p.routes.start[item.expert];
    item.valid = min(count, most);
    item.width = (item.valid + unit - 1) / unit * unit;
    return count > 0;
}

#endif
