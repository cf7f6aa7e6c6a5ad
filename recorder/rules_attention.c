/* SPDX-License-Identifier: Apache-2.0 */
/* Rule set for multi-head and grouped-query attention: q, k and v in one column-parallel parameter. */
#include "recorder/rule_sets.h"

/* Heads [start, start + count) of one rank. With fewer key/value heads than ranks, several ranks hold the same one. */
static void heads_of_rank(lp_rules *l, const char *what, int64_t heads, bool may_repeat, int64_t *start, int64_t *count)
{
    const int64_t tp = l->at.tp;
    if (may_repeat && heads < tp) {
        const int64_t copies = rules_share(l, lp_name(l->r, "ranks of each of %" PRId64 " %s", heads, what), tp, heads);
        *start = l->at.tp_rank / copies;
        *count = 1;
        return;
    }
    *count = rules_share(l, what, heads, tp);
    *start = *count * l->at.tp_rank;
}

void rules_attention(lp_rules *l, int64_t layer)
{
    const char *stem = lp_name(l->r, "layers.%" PRId64 ".self_attn", layer);
    const lp_tensor q = rules_take(l, lp_name(l->r, "%s.q_proj.weight", stem));
    if (!lp_is_valid(q))
        return;
    const int64_t heads = rules_need(l, "num_attention_heads");
    int64_t kv_heads = heads, head_dim, start[2], count[2];
    if (lp_config_integer(l->config, "num_key_value_heads", &kv_heads))
        kv_heads = rules_need(l, "num_key_value_heads");
    if (lp_config_integer(l->config, "head_dim", &head_dim))
        head_dim = rules_need(l, "head_dim");
    else
        head_dim = rules_share(l, lp_name(l->r, "%s.q_proj.weight over its heads", stem), lp_size(q, 0), heads);
    heads_of_rank(l, "attention heads", heads, false, &start[0], &count[0]);
    heads_of_rank(l, "key/value heads", kv_heads, true, &start[1], &count[1]);

    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    rules_rows part[3];
    for (int i = 0; i < 3; i++) {
        const int kv = i > 0;
        part[i] = (rules_rows){.stem = lp_name(l->r, "%s.%s", stem, names[i]),
                               .rows = (kv ? kv_heads : heads) * head_dim,
                               .start = start[kv] * head_dim,
                               .count = count[kv] * head_dim};
    }
    rules_stack_rows(l, lp_name(l->r, "%s.qkv_proj", stem), 3, part);
    rules_row_parallel(l, lp_name(l->r, "%s.o_proj", stem), lp_name(l->r, "%s.o_proj", stem));
    rules_whole(l, lp_name(l->r, "%s.q_norm.weight", stem));
    rules_whole(l, lp_name(l->r, "%s.k_norm.weight", stem));
    rules_decline(l, lp_name(l->r, "%s.rotary_emb.inv_freq", stem)); /* computed by every engine */
}
