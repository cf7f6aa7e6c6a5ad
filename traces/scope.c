/* SPDX-License-Identifier: Apache-2.0 */
/* Scopes: one rank of a parallel layout, its coordinates and its global number. */
#include "traces/base.h"

static lp_status normalise_axis(int32_t *size, int32_t rank, const char *axis, lp_error *err)
{
    if (*size == 0)
        *size = 1;
    if (*size < 0)
        return lp_fail(err, LP_E_ARGUMENT, "%s size %d is negative", axis, *size);
    if (rank < 0 || rank >= *size)
        return lp_fail(err, LP_E_ARGUMENT, "%s rank %d is not below the %s size %d", axis, rank, axis, *size);
    return LP_OK;
}

lp_status lp_scope_normalise(lp_scope *scope, lp_error *err)
{
    lp_scope s = *scope;
    LP_TRY(normalise_axis(&s.pp, s.pp_rank, "pp", err));
    LP_TRY(normalise_axis(&s.dp, s.dp_rank, "dp", err));
    LP_TRY(normalise_axis(&s.tp, s.tp_rank, "tp", err));
    int32_t world;
    if (__builtin_mul_overflow(s.pp, s.dp, &world) || __builtin_mul_overflow(world, s.tp, &world))
        return lp_fail(err, LP_E_ARGUMENT, "a layout of pp %d x dp %d x tp %d has too many ranks", s.pp, s.dp, s.tp);
    *scope = s;
    return LP_OK;
}

int32_t lp_scope_rank(const lp_scope *scope)
{
    return (scope->pp_rank * scope->dp + scope->dp_rank) * scope->tp + scope->tp_rank;
}

int32_t lp_scope_world(const lp_scope *scope)
{
    return scope->pp * scope->dp * scope->tp;
}

int32_t lp_scope_experts_size(const lp_scope *scope)
{
    return scope->expert_parallel ? scope->dp * scope->tp : 1;
}

int32_t lp_scope_experts_rank(const lp_scope *scope)
{
    return scope->expert_parallel ? scope->dp_rank * scope->tp + scope->tp_rank : 0;
}
