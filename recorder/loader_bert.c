/* SPDX-License-Identifier: Apache-2.0 */
/* The `bert` loader: BERT encoders with Hugging Face names, with or without the prefix "bert.". */
#include "recorder/rule_sets.h"

static void encoder_layer(lp_rules *l, int64_t layer)
{
    const char *stem = lp_name(l->r, "encoder.layer.%" PRId64, layer);
    const char *const qkv[] = {lp_name(l->r, "%s.attention.self.query", stem),
                               lp_name(l->r, "%s.attention.self.key", stem),
                               lp_name(l->r, "%s.attention.self.value", stem)};
    const char *const up[] = {lp_name(l->r, "%s.intermediate.dense", stem)};
    const char *attention_out = lp_name(l->r, "%s.attention.output.dense", stem);
    const char *out = lp_name(l->r, "%s.output.dense", stem);

    /* Whole heads: a split inside one would be equal parts too, and wrong. */
    rules_share(l, "attention heads", rules_need(l, "num_attention_heads"), l->at.tp);
    rules_column_parallel(l, lp_name(l->r, "%s.attention.self.qkv_proj", stem), 3, qkv);
    rules_row_parallel(l, attention_out, attention_out);
    rules_whole_module(l, lp_name(l->r, "%s.attention.output.LayerNorm", stem));
    rules_column_parallel(l, up[0], 1, up);
    rules_row_parallel(l, out, out);
    rules_whole_module(l, lp_name(l->r, "%s.output.LayerNorm", stem));
}

void loader_bert(lp_rules *l)
{
    rules_vocabulary(l, "embeddings.word_embeddings", "embeddings.word_embeddings");
    rules_whole(l, "embeddings.position_embeddings.weight");
    rules_whole(l, "embeddings.token_type_embeddings.weight");
    rules_whole_module(l, "embeddings.LayerNorm");
    rules_decline(l, "embeddings.position_ids"); /* 0, 1, 2, ...: every engine counts by itself */
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++)
        encoder_layer(l, layer);
    rules_whole(l, "pooler.dense.weight");
    rules_whole(l, "pooler.dense.bias");
}
