/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels that draw tiles from a counter are given alike, from their call. Host code. */
#ifndef LOADPLAN_MOE_ARGUMENTS_CUH
#define LOADPLAN_MOE_ARGUMENTS_CUH

extern "C" { /* a header of a C room */
#include "kernels/megamoe_private.h"
}

/* For `blocks` blocks; p.projection is there already. Words of `sync`, which are 0 when the projections begin: those of
 * moe_start.cuh, the ticket, and a counter for each chunk. */
template <typename Arguments, typename Areas>
void moe_set_arguments(Arguments &p, const lp_moe_call *call, const Areas &areas, int blocks)
{
    const lp_megamoe_shape &s = *call->shape;
    const int64_t tiles = s.experts * p.projection[0].tiles;
    p.routes = areas.routes;
    p.h = static_cast<char *>(areas.h), p.out = areas.out;
    if (call->sink != nullptr)
        p.sink = *call->sink;
    p.hidden = static_cast<int>(s.hidden), p.intermediate = static_cast<int>(s.intermediate);
    p.first_tiles = static_cast<int>(blocks < tiles ? blocks : tiles);
    p.activation = s.activation, p.alpha = s.activation_alpha, p.beta = s.activation_beta, p.limit = s.activation_limit;
    p.ticket = areas.routes.sync + LP_MOE_START_WORDS, p.ready = p.ticket + 1;
}

#endif
