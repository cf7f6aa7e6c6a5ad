/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `moe` loader: decoders with routed experts in fused parameters of the checkpoint's own dtypes, by expert or fused
 * on disk; the rest as in `dense`.
 */
#include "recorder/rules_experts_index.h"

/* Shared experts are a gated MLP that every token goes through; Qwen weighs it by a gate of its own. */
static void shared_experts(lp_rules *l, const char *module)
{
    static const char *const names[] = {"shared_experts", "shared_expert"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        rules_mlp(l, lp_name(l->r, "%s.%s", module, names[i]));
    rules_module_if_stored(l, lp_name(l->r, "%s.shared_expert_gate", module));
}

static void router(lp_rules *l, const char *module, int64_t experts)
{
    if (!rules_router(l, module, experts) && !rules_failed(l) && l->bare_experts == NULL)
        l->bare_experts = lp_arena_format(&l->arena, "%s%s", l->prefix, module);
}

static bool load_experts(lp_rules *l, int64_t layer)
{
    static const char *const modules[] = {"mlp", "feed_forward", "block_sparse_moe"};
    if (rules_has_experts(l, layer)) {
        const char *module = rules_experts_module(l, layer);
        rules_moe(l, layer);
        router(l, module, rules_experts_count(l, layer));
        shared_experts(l, module);
        return true;
    }
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const char *module = lp_name(l->r, "layers.%" PRId64 ".%s", layer, modules[i]);
        int64_t experts = 0;
        if (!rules_fused_experts(l, module, &experts))
            continue;
        if (!rules_failed(l) && rules_expect_experts(l, layer, experts))
            router(l, module, experts);
        shared_experts(l, module);
        return true;
    }
    return false;
}

void loader_moe(lp_rules *l)
{
    l->expert_kinds = EXPERT_KINDS;
    rules_embedding_and_head(l);
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++) {
        rules_decoder_layer(l, layer, false);
        if (!load_experts(l, layer) && !rules_failed(l) && !rules_decoder_mlp(l, layer))
            rules_gated_mlp(l, lp_name(l->r, "layers.%" PRId64 ".mlp", layer)); /* says what is missing */
    }
    rules_last_norm(l);
    rules_draft_layers(l);
}
