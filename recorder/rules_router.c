/* SPDX-License-Identifier: Apache-2.0 */
/* Rule set for routers: every rank chooses experts for all tokens by itself, so they are whole everywhere. */
#include "recorder/rule_sets.h"

#include <inttypes.h>

/* A router that chooses among other experts than there are: some were pruned, or another model's were put in. */
static bool chooses_among(lp_rules *l, const char *weight, int64_t experts)
{
    const int64_t index = rules_find(l, weight);
    if (index < 0 || rules_failed(l))
        return true;
    const lp_checkpoint_tensor *t = lp_checkpoint_at(l->checkpoint, index);
    if (t->ndim != 2 || t->shape[0] == experts)
        return true;
    rules_fail(l, LP_E_MISMATCH, t->name, "'%s' chooses among %" PRId64 " experts, the layer has %" PRId64, t->name,
               t->shape[0], experts);
    return false;
}

bool rules_router(lp_rules *l, const char *stem, int64_t experts)
{
    static const char *const weight[] = {"gate", "router", "router.layer"};
    static const char *const correction[] = {"gate.e_score_correction_bias", "e_score_correction_bias"};
    bool is_stored = false;
    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++) {
        const char *router = lp_name(l->r, "%s.%s", stem, weight[i]);
        if (!chooses_among(l, lp_name(l->r, "%s.weight", router), experts))
            return false;
        is_stored = is_stored || rules_find(l, lp_name(l->r, "%s.weight", router)) >= 0;
        rules_module_if_stored(l, router);
    }
    for (size_t i = 0; i < sizeof correction / sizeof *correction; i++) {
        const char *bias = lp_name(l->r, "%s.%s", stem, correction[i]);
        if (rules_find(l, bias) < 0)
            continue;
        const lp_tensor from = rules_take(l, bias); /* the router adds it in F32, however it is stored */
        lp_copy(rules_declare(l, bias, LP_F32, lp_dim(from), from.view.size), lp_to_f32(from));
    }
    return is_stored;
}
