/* SPDX-License-Identifier: Apache-2.0 */
/* Rule set for multi-head and grouped-query attention: q, k and v in one column-parallel parameter. */
#include "recorder/rule_sets.h"

void rules_heads(lp_rules *l, const char *what, int64_t heads, bool may_repeat, int64_t *start, int64_t *count)
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

/* One number for each head, such as the logit of an attention sink. */
static void head_vector(lp_rules *l, const char *name, int64_t heads)
{
    int64_t start, count;
    if (rules_find(l, name) < 0)
        return;
    const lp_tensor from = rules_take(l, name);
    if (!rules_expect(l, from, 1, (int64_t[]){heads}))
        return;
    rules_heads(l, "attention heads", heads, false, &start, &count);
    lp_copy(rules_declare(l, name, lp_dtype_of(from), 1, &count), lp_narrow(from, 0, start, count));
}

static void key_value_heads(lp_rules *l, const char *stem, const char *const qkv[3], bool fused)
{
    const int64_t rows = lp_size(rules_take_weight(l, qkv[0]), 0);
    const int64_t heads = rules_need(l, "num_attention_heads");
    int64_t kv_heads = heads, head_dim, start[2], count[2], first = 0;
    if (lp_config_integer(l->config, "num_key_value_heads", &kv_heads))
        kv_heads = rules_need(l, "num_key_value_heads");
    /* Qwen3-Next gates what attention gives: each head of q has a head of gates behind it. */
    const char *type = lp_config_text(l->config, "model_type");
    const int64_t query = type != NULL && strcmp(type, "qwen3_next") == 0 ? 2 : 1;
    const int64_t stored = fused ? heads + 2 * kv_heads : heads;
    if (lp_config_integer(l->config, "head_dim", &head_dim))
        head_dim = rules_need(l, "head_dim");
    else
        head_dim = rules_share(l, lp_name(l->r, "%s.weight over its heads", qkv[0]), rows, query * stored);
    rules_heads(l, "attention heads", heads, false, &start[0], &count[0]);
    rules_heads(l, "key/value heads", kv_heads, true, &start[1], &count[1]);

    rules_rows part[3];
    for (int i = 0; i < 3; i++) {
        const int kv = i > 0;
        const int64_t width = kv ? head_dim : query * head_dim, own = (kv ? kv_heads : heads) * width;
        part[i] = (rules_rows){.stem = qkv[i],
                               .rows = fused ? stored * head_dim : own,
                               .start = first + start[kv] * width,
                               .count = count[kv] * width};
        first += fused ? own : 0;
    }
    rules_stack_rows(l, lp_name(l->r, "%s.qkv_proj", stem), 3, part);
    head_vector(l, lp_name(l->r, "%s.sinks", stem), heads);
}

/* Names of the projection back: `dense` in Phi. */
static const char *output_projection(lp_rules *l, const char *stem)
{
    const char *dense = lp_name(l->r, "%s.dense", stem);
    return rules_has_weight(l, dense) ? dense : lp_name(l->r, "%s.o_proj", stem);
}

/* Scales of a quantised cache, and of what else attention computes with, by whatever name a tool stores them. The first
 * that is there is taken; another one of the same meaning is left over, and an error. */
static void cache_scales(lp_rules *l, const char *stem)
{
    static const struct {
        const char *dest, *stored[6];
    } scales[] = {
        {"attn.q_scale", {"q_proj.q_scale", "qkv_proj.q_scale", "attn.q_scale", "q_scale", "q_proj.output_scale"}},
        {"attn.k_scale", {"k_proj.k_scale", "qkv_proj.k_scale", "attn.k_scale", "k_scale", "k_proj.output_scale"}},
        {"attn.v_scale", {"v_proj.v_scale", "qkv_proj.v_scale", "attn.v_scale", "v_scale", "v_proj.output_scale"}},
        {"attn.prob_scale", {"attn.prob_scale", "prob_output_scale"}},
    };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (int n = 0; scales[i].stored[n] != NULL; n++) {
            const char *name = lp_name(l->r, "%s.%s", stem, scales[i].stored[n]);
            if (rules_find(l, name) < 0)
                continue;
            rules_copy_as(l, name, lp_name(l->r, "%s.%s", stem, scales[i].dest));
            break;
        }
    const char *both = lp_name(l->r, "%s.kv_scale", stem); /* one for keys and values, as older tools store it */
    rules_copy_as(l, both, lp_name(l->r, "%s.attn.k_scale", stem));
    rules_copy_as(l, both, lp_name(l->r, "%s.attn.v_scale", stem));
}

void rules_attention(lp_rules *l, int64_t layer)
{
    const char *stem = lp_name(l->r, "layers.%" PRId64 ".self_attn", layer);
    const char *fused = lp_name(l->r, "%s.qkv_proj", stem);
    if (rules_has_latent_attention(l, stem)) {
        rules_latent_attention(l, stem);
        return;
    }
    const char *const qkv[3] = {lp_name(l->r, "%s.q_proj", stem), lp_name(l->r, "%s.k_proj", stem),
                                lp_name(l->r, "%s.v_proj", stem)};
    if (rules_has_weight(l, fused)) {
        key_value_heads(l, stem, (const char *const[]){fused, fused, fused}, true);
    } else if (lp_is_valid(rules_take_weight(l, qkv[0]))) {
        key_value_heads(l, stem, qkv, false);
    } else {
        return;
    }
    const char *back = output_projection(l, stem);
    rules_row_parallel(l, back, back);
    rules_whole(l, lp_name(l->r, "%s.q_norm.weight", stem));
    rules_whole(l, lp_name(l->r, "%s.k_norm.weight", stem));
    cache_scales(l, stem);
    rules_decline(l, lp_name(l->r, "%s.rotary_emb.inv_freq", stem)); /* computed by every engine */
}
