/* SPDX-License-Identifier: Apache-2.0 */
/* Where the row of a route goes that the second projection has made: into the workspace, or to the rank of its token.
 */
#ifndef LOADPLAN_MOE_ROWS_CUH
#define LOADPLAN_MOE_ROWS_CUH

#include "kernels/megamoe_private.h"

/* The first byte of a row of out that is a route. */
__device__ __forceinline__ char *moe_row_place(const lp_moe_sink &sink, const int32_t *row_route, void *out,
                                               int64_t row, int hidden)
{
    if (sink.routes == 0)
        return static_cast<char *>(out) + row * hidden * 2;
    const int route = row_route[row], rank = route / sink.routes;
    return sink.slots[rank] + static_cast<int64_t>(route - rank * sink.routes) * hidden * 2;
}

#endif
