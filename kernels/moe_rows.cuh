/* SPDX-License-Identifier: Apache-2.0 */
/* Where the row of a route goes that the second projection has made: into the workspace, or to the rank of its token.
 */
#ifndef LOADPLAN_MOE_ROWS_CUH
#define LOADPLAN_MOE_ROWS_CUH

#include "kernels/exchange_plan.h"
#include "kernels/megamoe_private.h"

/* The first byte of a row of out that is a route. */
__device__ __forceinline__ char *moe_row_place(const lp_moe_sink &sink, const int32_t *row_route, void *out,
                                               int64_t row, int hidden)
{
    if (sink.routes == 0)
        return static_cast<char *>(out) + row * hidden * 2;
    const lp_moe_slot_place place = lp_moe_slot_of(row_route[row], sink.routes);
    return sink.slots[place.rank] + static_cast<int64_t>(place.slot) * hidden * 2;
}

#endif
