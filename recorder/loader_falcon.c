/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `falcon` loader: Falcon, whose q, k and v are fused on disk in groups. One key/value head for all (7B), one for
 * every group of query heads (40B, 180B), or one for each.
 */
#include "recorder/rule_sets.h"

static int64_t key_value_heads(lp_rules *l, int64_t heads)
{
    if (lp_config_flag(l->config, "new_decoder_architecture", false))
        return rules_need(l, "num_kv_heads");
    return lp_config_flag(l->config, "multi_query", true) ? 1 : heads;
}

static void load_layer(lp_rules *l, int64_t layer)
{
    static const char *const norms[] = {"input_layernorm", "post_attention_layernorm", "ln_attn", "ln_mlp"};
    const char *stem = lp_name(l->r, "h.%" PRId64, layer);
    const char *qkv = lp_name(l->r, "%s.self_attention.query_key_value", stem);
    const char *const up[] = {lp_name(l->r, "%s.mlp.dense_h_to_4h", stem)};
    const char *down = lp_name(l->r, "%s.mlp.dense_4h_to_h", stem);
    const char *back = lp_name(l->r, "%s.self_attention.dense", stem);
    const int64_t heads = rules_need(l, "num_attention_heads"), groups = key_value_heads(l, heads);
    const int64_t queries = rules_share(l, "query heads", heads, groups);
    const int64_t head_dim = rules_share(l, qkv, lp_size(rules_take_weight(l, qkv), 1), heads);
    if (rules_failed(l))
        return;
    rules_grouped_qkv(l, qkv, qkv, groups, queries, head_dim);
    rules_row_parallel(l, back, back);
    rules_column_parallel(l, up[0], 1, up);
    rules_row_parallel(l, down, down);
    rules_decline(l, lp_name(l->r, "%s.self_attention.rotary_emb.inv_freq", stem)); /* computed by every engine */
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        rules_module_if_stored(l, lp_name(l->r, "%s.%s", stem, norms[i]));
}

void loader_falcon(lp_rules *l)
{
    rules_embedding_and_head_as(l, "word_embeddings", "lm_head");
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++)
        load_layer(l, layer);
    rules_whole_module(l, "ln_f");
}
