/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `megamoe` loader: NVFP4 and MXFP4 experts in MegaMoE's kernel layouts, the rest as in `dense`. The rest of a
 * model may be stored elsewhere: a checkpoint of experts alone is legal.
 */
#include "recorder/rules_experts_index.h"

static void decoder_layer(lp_rules *l, int64_t layer)
{
    rules_decoder_layer(l, layer, true);
    if (rules_has_experts(l, layer)) {
        rules_router(l, rules_experts_module(l, layer), rules_experts_count(l, layer));
        rules_megamoe(l, layer);
        rules_shared_experts(l, layer);
    } else {
        rules_decoder_mlp(l, layer);
    }
}

void loader_megamoe(lp_rules *l)
{
    if (rules_find(l, "embed_tokens.weight") >= 0)
        rules_embedding_and_head(l);
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++)
        decoder_layer(l, layer);
    rules_module_if_stored(l, "norm");
    rules_draft_layers(l);
}

/* The same with experts packed by tiles, as lp_megamoe reads them fastest. */
void loader_megamoe_sm90(lp_rules *l)
{
    l->expert_tiles = true;
    loader_megamoe(l);
}
