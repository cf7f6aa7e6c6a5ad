/* SPDX-License-Identifier: Apache-2.0 */
/* The `mamba` loader: models of state-space blocks alone, Mamba 1 and 2. */
#include "recorder/rule_sets.h"

void loader_mamba(lp_rules *l)
{
    /* Files of the original authors say `embedding`. */
    const bool plural = rules_find(l, "embeddings.weight") >= 0;
    rules_embedding_and_head_as(l, plural ? "embeddings" : "embedding", "lm_head");
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++) {
        const char *stem = lp_name(l->r, "layers.%" PRId64, layer), *mixer = lp_name(l->r, "%s.mixer", stem);
        rules_whole_module(l, lp_name(l->r, "%s.norm", stem));
        if (rules_find(l, lp_name(l->r, "%s.x_proj.weight", mixer)) >= 0)
            rules_mamba1(l, mixer);
        else
            rules_mamba2(l, mixer);
    }
    rules_whole_module(l, "norm_f");
}
