/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for multi-head latent attention (DeepSeek V2 and V3): the projections into the latent space are whole on
 * every rank, those out of it are split by heads. kv_b_proj is kept as it is stored; an engine that absorbs it into
 * other matrices makes copies of its own.
 */
#include "recorder/rule_sets.h"

bool rules_has_latent_attention(lp_rules *l, const char *stem)
{
    return rules_has_weight(l, lp_name(l->r, "%s.kv_a_proj_with_mqa", stem));
}

static void split_by_heads(lp_rules *l, const char *stem, int64_t heads)
{
    const int64_t rows = lp_size(rules_take_weight(l, stem), 0), head = rules_share(l, stem, rows, heads);
    int64_t start, count;
    rules_heads(l, "attention heads", heads, false, &start, &count);
    if (!rules_failed(l))
        rules_stack_rows(l, stem, 1,
                         &(rules_rows){.stem = stem, .rows = rows, .start = start * head, .count = count * head});
}

void rules_latent_attention(lp_rules *l, const char *stem)
{
    const char *const into[] = {lp_name(l->r, "%s.q_a_proj", stem), lp_name(l->r, "%s.kv_a_proj_with_mqa", stem)};
    const char *back = lp_name(l->r, "%s.o_proj", stem);
    const int64_t heads = rules_need(l, "num_attention_heads");
    if (rules_has_weight(l, into[0])) {
        rules_replicated(l, lp_name(l->r, "%s.fused_qkv_a_proj", stem), 2, into);
        rules_whole_module(l, lp_name(l->r, "%s.q_a_layernorm", stem));
        split_by_heads(l, lp_name(l->r, "%s.q_b_proj", stem), heads);
    } else {
        rules_replicated(l, into[1], 1, &into[1]);
        split_by_heads(l, lp_name(l->r, "%s.q_proj", stem), heads); /* the small models project q at once */
    }
    rules_whole_module(l, lp_name(l->r, "%s.kv_a_layernorm", stem));
    split_by_heads(l, lp_name(l->r, "%s.kv_b_proj", stem), heads);
    rules_row_parallel(l, back, back);
    rules_decline(l, lp_name(l->r, "%s.rotary_emb.inv_freq", stem));
}
