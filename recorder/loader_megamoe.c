/* SPDX-License-Identifier: Apache-2.0 */
/* The `megamoe` loader: NVFP4 and MXFP4 experts in MegaMoE's kernel layouts, the rest as in `dense`. */
#include "recorder/rule_sets.h"

/* The rest of a model may be stored elsewhere: a checkpoint of experts alone is legal. */
static void whole_module_if_stored(lp_rules *l, const char *name)
{
    if (rules_find(l, lp_name(l->r, "%s.weight", name)) >= 0)
        rules_whole_module(l, name);
}

static void decoder_layer(lp_rules *l, int64_t layer)
{
    const char *stem = lp_name(l->r, "layers.%" PRId64, layer);
    if (rules_find(l, lp_name(l->r, "%s.self_attn.q_proj.weight", stem)) >= 0)
        rules_attention(l, layer);
    whole_module_if_stored(l, lp_name(l->r, "%s.input_layernorm", stem));
    whole_module_if_stored(l, lp_name(l->r, "%s.post_attention_layernorm", stem));
    if (rules_has_experts(l, layer)) {
        rules_megamoe(l, layer);
        rules_shared_experts(l, layer);
    } else if (rules_find(l, lp_name(l->r, "%s.mlp.gate_proj.weight", stem)) >= 0) {
        rules_gated_mlp(l, lp_name(l->r, "%s.mlp", stem));
    }
}

void loader_megamoe(lp_rules *l)
{
    if (rules_find(l, "embed_tokens.weight") >= 0)
        rules_embedding_and_head(l);
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++)
        decoder_layer(l, layer);
    whole_module_if_stored(l, "norm");
}
