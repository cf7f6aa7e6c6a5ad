/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shapes of a decoder's layer must agree on, beyond what each rule needs to cut its tensors: the width of the
 * model, the width of its MLP, and the heads. A tensor of another model, a pruned one or a wrong merge fits the rules
 * one by one; an engine of this configuration has no place for it.
 */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"

/* The tensor of that name without taking it up; invalid where there is none. */
static lp_tensor stored(lp_rules *l, const char *name)
{
    const int64_t index = rules_find(l, name);
    return index < 0 ? rec_invalid(l->r) : lp_source_index(l->r, index);
}

/* Whether an element is a weight: packed codes have other columns. */
static bool is_plain(lp_tensor t)
{
    switch (lp_dtype_of(t)) {
    case LP_BF16:
    case LP_F16:
    case LP_F32:
    case LP_F8_E4M3:
    case LP_F8_E5M2:
        return lp_dim(t) == 2;
    default:
        return false;
    }
}

/* The weight below `stem`, if it is plain, has that shape; -1 is anything. */
static lp_tensor expect(lp_rules *l, const char *stem, const char *name, int64_t rows, int64_t columns)
{
    const lp_tensor weight = stored(l, lp_name(l->r, "%s.%s.weight", stem, name));
    if (!lp_is_valid(weight) || !is_plain(weight) || rules_failed(l))
        return rec_invalid(l->r);
    return rules_expect(l, weight, 2, (int64_t[]){rows, columns}) ? weight : rec_invalid(l->r);
}

static void check_mlp(lp_rules *l, const char *stem, int64_t hidden)
{
    static const char *const pair[][2] = {
        {"up_proj", "down_proj"}, {"gate_up_proj", "down_proj"}, {"fc1", "fc2"}, {"c_fc", "c_proj"}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        const lp_tensor up = expect(l, stem, pair[i][0], -1, hidden);
        if (!lp_is_valid(up))
            continue;
        const int64_t width = lp_size(up, 0) / (i == 1 ? 2 : 1);
        expect(l, stem, "gate_proj", width, hidden);
        expect(l, stem, pair[i][1], hidden, width);
        return;
    }
}

static void check_attention(lp_rules *l, const char *stem, int64_t hidden)
{
    static const char *const in[] = {"q_proj", "k_proj", "v_proj", "qkv_proj"};
    int64_t heads = 0, head = 0;
    if (rules_has_latent_attention(l, stem))
        return;
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        expect(l, stem, in[i], -1, hidden);
    const bool is_known =
        lp_config_integer(l->config, "num_attention_heads", &heads) && lp_config_integer(l->config, "head_dim", &head);
    const int64_t columns =
        is_known && heads > 0 && head > 0 && heads < INT32_MAX && head < INT32_MAX ? heads * head : -1;
    expect(l, stem, "o_proj", hidden, columns);
    expect(l, stem, "dense", hidden, columns);
}

void rules_check_widths(lp_rules *l, int64_t layer)
{
    static const char *const norms[] = {"input_layernorm",           "post_attention_layernorm",
                                        "pre_feedforward_layernorm", "post_feedforward_layernorm",
                                        "post_self_attn_layernorm",  "post_mlp_layernorm"};
    int64_t hidden;
    if (rules_failed(l) || !lp_config_integer(l->config, "hidden_size", &hidden))
        return;
    const char *stem = lp_name(l->r, "layers.%" PRId64, layer);
    for (size_t i = 0; i < sizeof norms / sizeof *norms && !rules_failed(l); i++) {
        const lp_tensor norm = stored(l, lp_name(l->r, "%s.%s.weight", stem, norms[i]));
        if (lp_is_valid(norm))
            rules_expect(l, norm, 1, &hidden);
    }
    check_attention(l, lp_name(l->r, "%s.self_attn", stem), hidden);
    check_mlp(l, lp_name(l->r, "%s.mlp", stem), hidden);
    check_mlp(l, lp_name(l->r, "%s.feed_forward", stem), hidden);
}
