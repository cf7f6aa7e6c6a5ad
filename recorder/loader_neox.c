/* SPDX-License-Identifier: Apache-2.0 */
/* The `neox` loader: GPT-NeoX and Pythia, whose q, k and v alternate head by head on disk. */
#include "recorder/rule_sets.h"

static void load_layer(lp_rules *l, int64_t layer)
{
    const char *stem = lp_name(l->r, "layers.%" PRId64, layer);
    const char *qkv = lp_name(l->r, "%s.attention.query_key_value", stem);
    const char *const up[] = {lp_name(l->r, "%s.mlp.dense_h_to_4h", stem)};
    const char *down = lp_name(l->r, "%s.mlp.dense_4h_to_h", stem), *back = lp_name(l->r, "%s.attention.dense", stem);
    const int64_t heads = rules_need(l, "num_attention_heads");
    const int64_t head_dim = rules_share(l, qkv, lp_size(rules_take_weight(l, qkv), 1), heads);
    if (rules_failed(l))
        return;
    rules_grouped_qkv(l, qkv, qkv, rules_share(l, "attention heads", heads, l->at.tp) * l->at.tp, 1, head_dim);
    rules_row_parallel(l, back, back);
    rules_decline(l, lp_name(l->r, "%s.attention.bias", stem)); /* causal mask and rotary table: computed */
    rules_decline(l, lp_name(l->r, "%s.attention.masked_bias", stem));
    rules_decline(l, lp_name(l->r, "%s.attention.rotary_emb.inv_freq", stem));
    rules_column_parallel(l, up[0], 1, up);
    rules_row_parallel(l, down, down);
    rules_whole_module(l, lp_name(l->r, "%s.input_layernorm", stem));
    rules_whole_module(l, lp_name(l->r, "%s.post_attention_layernorm", stem));
}

void loader_neox(lp_rules *l)
{
    rules_embedding_and_head_as(l, "embed_in", "embed_out");
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++)
        load_layer(l, layer);
    rules_whole_module(l, "final_layer_norm");
}
