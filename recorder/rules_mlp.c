/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for MLPs. Gated ones: gate and up in one column-parallel parameter, down by its input dimension. Others have
 * one projection up and one down.
 */
#include "recorder/rule_sets.h"

void rules_gated_mlp(lp_rules *l, const char *stem)
{
    const char *const half[] = {lp_name(l->r, "%s.gate_proj", stem), lp_name(l->r, "%s.up_proj", stem)};
    const char *down = lp_name(l->r, "%s.down_proj", stem);
    rules_column_parallel(l, lp_name(l->r, "%s.gate_up_proj", stem), 2, half);
    rules_row_parallel(l, down, down);
}

static bool has_projection(lp_rules *l, const char *stem, const char *projection)
{
    return rules_has_weight(l, lp_name(l->r, "%s.%s", stem, projection));
}

bool rules_mlp(lp_rules *l, const char *stem)
{
    static const char *const plain[][2] = {
        {"fc1", "fc2"},          /* Phi, OPT */
        {"c_fc", "c_proj"},      /* StarCoder2 */
        {"up_proj", "down_proj"} /* Nemotron */
    };
    if (has_projection(l, stem, "gate_proj")) {
        rules_gated_mlp(l, stem);
        return true;
    }
    if (has_projection(l, stem, "gate_up_proj")) { /* Phi-3, GLM-4 */
        const char *fused = lp_name(l->r, "%s.gate_up_proj", stem), *down = lp_name(l->r, "%s.down_proj", stem);
        rules_column_parallel_fused(l, fused, 2, fused);
        rules_row_parallel(l, down, down);
        return true;
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (!has_projection(l, stem, plain[i][0]))
            continue;
        const char *const up[] = {lp_name(l->r, "%s.%s", stem, plain[i][0])};
        const char *down = lp_name(l->r, "%s.%s", stem, plain[i][1]);
        rules_column_parallel(l, up[0], 1, up);
        rules_row_parallel(l, down, down);
        return true;
    }
    return false;
}
