/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `gpt2` loader: GPT-2, whose matrices are stored as [input, output]. Destinations are [output, input], as those of
 * every other loader: the transposition is a view.
 */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"

static lp_tensor take_transposed(lp_rules *l, const char *name)
{
    const lp_tensor from = rules_take(l, name);
    return rules_expect(l, from, 2, (int64_t[]){-1, -1}) ? lp_t(from) : rec_invalid(l->r);
}

/* STEM.{weight,bias}: `parts` equal parts along the output, each split over the ranks. */
static void by_output(lp_rules *l, const char *stem, int64_t parts)
{
    const char *bias_name = lp_name(l->r, "%s.bias", stem), *weight_name = lp_name(l->r, "%s.weight", stem);
    const lp_tensor weight = take_transposed(l, weight_name), bias = rules_take(l, bias_name);
    const int64_t rows = lp_size(weight, 0), part = rules_share(l, stem, rows, parts);
    const int64_t share = rules_share(l, stem, part, l->at.tp);
    if (rules_failed(l) || !rules_expect(l, bias, 1, &rows))
        return;
    const lp_tensor weight_into =
        rules_declare(l, weight_name, lp_dtype_of(weight), 2, (int64_t[]){parts * share, lp_size(weight, 1)});
    const lp_tensor bias_into = rules_declare(l, bias_name, lp_dtype_of(bias), 1, (int64_t[]){parts * share});
    for (int64_t i = 0; i < parts; i++) {
        const int64_t from = i * part + l->at.tp_rank * share;
        lp_copy(lp_narrow(weight_into, 0, i * share, share), lp_narrow(weight, 0, from, share));
        lp_copy(lp_narrow(bias_into, 0, i * share, share), lp_narrow(bias, 0, from, share));
    }
}

static void by_input(lp_rules *l, const char *stem)
{
    const char *name = lp_name(l->r, "%s.weight", stem);
    const lp_tensor weight = take_transposed(l, name);
    const int64_t share = rules_share(l, stem, lp_size(weight, 1), l->at.tp);
    if (rules_failed(l))
        return;
    lp_copy(rules_declare(l, name, lp_dtype_of(weight), 2, (int64_t[]){lp_size(weight, 0), share}),
            lp_narrow(weight, 1, share * l->at.tp_rank, share));
    rules_whole(l, lp_name(l->r, "%s.bias", stem));
}

static void load_layer(lp_rules *l, int64_t layer)
{
    const char *stem = lp_name(l->r, "h.%" PRId64, layer);
    rules_whole_module(l, lp_name(l->r, "%s.ln_1", stem));
    rules_share(l, "attention heads", rules_need(l, "n_head"), l->at.tp); /* whole heads */
    by_output(l, lp_name(l->r, "%s.attn.c_attn", stem), 3);
    by_input(l, lp_name(l->r, "%s.attn.c_proj", stem));
    rules_decline(l, lp_name(l->r, "%s.attn.bias", stem)); /* the causal mask: every engine makes its own */
    rules_decline(l, lp_name(l->r, "%s.attn.masked_bias", stem));
    rules_whole_module(l, lp_name(l->r, "%s.ln_2", stem));
    by_output(l, lp_name(l->r, "%s.mlp.c_fc", stem), 1);
    by_input(l, lp_name(l->r, "%s.mlp.c_proj", stem));
}

void loader_gpt2(lp_rules *l)
{
    rules_embedding_and_head_as(l, "wte", "lm_head");
    rules_whole_module(l, "wpe");
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++)
        load_layer(l, layer);
    rules_whole_module(l, "ln_f");
}
