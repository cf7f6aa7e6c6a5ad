/* SPDX-License-Identifier: Apache-2.0 */
/* Rule set for routers: every rank chooses experts for all tokens by itself, so they are whole everywhere. */
#include "recorder/rule_sets.h"

void rules_router(lp_rules *l, const char *stem)
{
    static const char *const weight[] = {"gate", "router", "router.layer"};
    static const char *const correction[] = {"gate.e_score_correction_bias", "e_score_correction_bias"};
    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++)
        rules_module_if_stored(l, lp_name(l->r, "%s.%s", stem, weight[i]));
    for (size_t i = 0; i < sizeof correction / sizeof *correction; i++) {
        const char *bias = lp_name(l->r, "%s.%s", stem, correction[i]);
        if (rules_find(l, bias) < 0)
            continue;
        const lp_tensor from = rules_take(l, bias); /* the router adds it in F32, however it is stored */
        lp_copy(rules_declare(l, bias, LP_F32, lp_dim(from), from.view.size), lp_to_f32(from));
    }
}
