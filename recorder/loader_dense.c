/* SPDX-License-Identifier: Apache-2.0 */
/* The `dense` loader: decoder-only models of the Llama, Qwen2, Qwen3 and Mistral families. */
#include "recorder/rule_sets.h"

void loader_dense(lp_rules *l)
{
    rules_embedding_and_head(l);
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++) {
        const char *stem = lp_name(l->r, "layers.%" PRId64, layer);
        rules_attention(l, layer);
        rules_gated_mlp(l, lp_name(l->r, "%s.mlp", stem));
        rules_whole_module(l, lp_name(l->r, "%s.input_layernorm", stem));
        rules_whole_module(l, lp_name(l->r, "%s.post_attention_layernorm", stem));
    }
    rules_whole_module(l, "norm");
}
