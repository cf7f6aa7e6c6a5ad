/* SPDX-License-Identifier: Apache-2.0 */
/* What every path asks of routing, from its call. */
#ifndef LOADPLAN_MOE_ROUTE_JOB_CUH
#define LOADPLAN_MOE_ROUTE_JOB_CUH

extern "C" { /* a header of a C room */
#include "kernels/megamoe_private.h"
}

/* The caller adds the words to set to 0, and what is gathered and where: nothing so far. */
inline lp_moe_route_job moe_route_job_of(const lp_moe_call *call, const lp_moe_routes &routes, int align,
                                         int chunk_rows)
{
    const lp_megamoe_shape &s = *call->shape;
    lp_moe_route_job job = {};
    job.routes = routes;
    job.experts = s.experts, job.hidden = s.hidden, job.top_k = s.top_k, job.max_tokens = s.tokens_bound;
    job.first_expert = s.first_expert;
    job.align = align, job.chunk_rows = chunk_rows;
    job.x_dtype = s.x_dtype, job.id_dtype = s.id_dtype;
    job.gather = LP_MOE_GATHER_NONE;
    job.x = call->io->x, job.topk_ids = call->io->topk_ids;
    job.x_scale = static_cast<const float *>(call->io->x_scale), job.topk_weight = call->io->topk_weight;
    job.tokens = call->io->tokens, job.received = call->io->received;
    job.early = call->sink != nullptr && call->sink->early;
    return job;
}

#endif
