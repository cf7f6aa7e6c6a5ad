/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for the layers of decoders: attention and norms around an MLP or experts. Norms are kept as they are stored,
 * those of Gemma too, whose weights are distances from 1: engines add the 1 when they compute.
 */
#include "recorder/rule_sets.h"

static bool is_stored(lp_rules *l, const char *stem, const char *module)
{
    return rules_find(l, lp_name(l->r, "%s.%s.weight", stem, module)) >= 0;
}

/* Models whose attention and MLP stand side by side behind one norm. */
static bool is_parallel(lp_rules *l)
{
    static const char *const types[] = {"cohere", "cohere2", "phi"};
    const char *type = lp_config_text(l->config, "model_type");
    for (size_t i = 0; type != NULL && i < sizeof types / sizeof *types; i++) {
        if (strcmp(type, types[i]) == 0)
            return true;
    }
    return false;
}

static void load_norms(lp_rules *l, const char *stem, bool partial)
{
    static const char *const optional[] = {"pre_feedforward_layernorm", "post_feedforward_layernorm",
                                           "post_self_attn_layernorm", "post_mlp_layernorm"};
    const bool only_behind = is_stored(l, stem, optional[1]) && !is_stored(l, stem, optional[0]); /* OLMo 2 */
    if (partial || only_behind)
        rules_module_if_stored(l, lp_name(l->r, "%s.input_layernorm", stem));
    else
        rules_whole_module(l, lp_name(l->r, "%s.input_layernorm", stem));
    if (partial || is_parallel(l))
        rules_module_if_stored(l, lp_name(l->r, "%s.post_attention_layernorm", stem));
    else
        rules_whole_module(l, lp_name(l->r, "%s.post_attention_layernorm", stem));
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        rules_module_if_stored(l, lp_name(l->r, "%s.%s", stem, optional[i]));
}

void rules_decoder_layer(lp_rules *l, int64_t layer, bool partial)
{
    const char *stem = lp_name(l->r, "layers.%" PRId64, layer);
    const char *attention = lp_name(l->r, "%s.self_attn", stem), *delta = lp_name(l->r, "%s.linear_attn", stem);
    rules_check_widths(l, layer);
    if (rules_find(l, lp_name(l->r, "%s.conv1d.weight", delta)) >= 0)
        rules_delta_net(l, delta);
    else if (!partial || rules_has_weight(l, lp_name(l->r, "%s.q_proj", attention)) ||
             rules_has_weight(l, lp_name(l->r, "%s.qkv_proj", attention)) || rules_has_latent_attention(l, attention))
        rules_attention(l, layer);
    load_norms(l, stem, partial);
}

bool rules_decoder_mlp(lp_rules *l, int64_t layer)
{
    return rules_mlp(l, lp_name(l->r, "layers.%" PRId64 ".mlp", layer)) ||
           rules_mlp(l, lp_name(l->r, "layers.%" PRId64 ".feed_forward", layer));
}

void rules_last_norm(lp_rules *l)
{
    int64_t hidden;
    const char *norm = rules_find(l, "final_layernorm.weight") >= 0 ? "final_layernorm" : "norm";
    if (lp_config_integer(l->config, "hidden_size", &hidden))
        rules_expect(l, rules_take(l, lp_name(l->r, "%s.weight", norm)), 1, &hidden);
    rules_whole_module(l, norm);
}

/* The number of the layer that a name belongs to, or -1; *rest: what follows the number. */
static int64_t layer_of(const lp_rules *l, const char *name, const char **rest)
{
    static const char mark[] = "layers.";
    const size_t prefix = strlen(l->prefix);
    int64_t layer = 0;
    if (strncmp(name, l->prefix, prefix) != 0 || strncmp(name + prefix, mark, sizeof mark - 1) != 0)
        return -1;
    const char *p = name + prefix + sizeof mark - 1;
    if (*p < '0' || *p > '9')
        return -1;
    for (; *p >= '0' && *p <= '9' && layer < INT32_MAX; p++)
        layer = layer * 10 + (*p - '0');
    *rest = p;
    return *p == '.' ? layer : -1;
}

/* Qwen3-Next keeps its draft model beside the model. */
static void decline_draft_model(lp_rules *l)
{
    static const char draft[] = "mtp.";
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        const char *name = lp_checkpoint_at(l->checkpoint, i)->name;
        if (strncmp(name, draft, sizeof draft - 1) != 0)
            continue;
        l->taken[i] = 1;
        lp_decline(l->r, name);
    }
}

void rules_draft_layers(lp_rules *l)
{
    int64_t drafts = 0;
    decline_draft_model(l);
    if (!lp_config_integer(l->config, "num_nextn_predict_layers", &drafts) || drafts < 1)
        return;
    for (int64_t i = 0; i < lp_checkpoint_count(l->checkpoint); i++) {
        const char *name = lp_checkpoint_at(l->checkpoint, i)->name;
        const char *rest = NULL;
        const int64_t layer = layer_of(l, name, &rest);
        if (layer < l->layers || layer - l->layers >= drafts)
            continue;
        l->taken[i] = 1;
        if (rules_find(l, lp_name(l->r, "layers.%" PRId64 "%s", l->layers - 1, rest)) < 0)
            lp_decline(l->r, name); /* of a family that the layers in front do not have */
    }
}
