/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for experts that are fused on disk, a tensor for all of a layer: into the same w13 and w2 as experts that
 * are stored one by one. On disk gate and up stand
 *
 *   by rows [E, 2 I, H] or by columns [E, H, 2 I]   Qwen 3.5 MoE, Granite; Llama 4, Qwen3-VL, gpt-oss
 *   one after the other, or in turns                gpt-oss: gate, up, gate, up, ...
 *   in FP8, with a scale for each block of both    Qwen3-VL, Qwen 3.5 MoE: ..._scale_inv [E, 2 I / 128, H / 128]
 *   in MXFP4 blocks [E, 2 I, H / 32, 16]            gpt-oss, with scales [E, 2 I, H / 32]
 *
 * All of these are views of the source: w13 always has gate rows before up rows.
 */
#include "recorder/rule_sets.h"

#include "recorder/record_private.h"
#include "recorder/rules_dialect.h"

/* One layer on one rank. */
typedef struct fused_layer {
    lp_rules *l;
    const char *stem; /* of destinations: "layers.0.mlp.experts" */
    rules_split split;
    bool in_turns;
} fused_layer;

static lp_tensor declare_slots(const fused_layer *f, const char *name, lp_dtype dtype, int ndim, const int64_t *shape)
{
    const char *dest = lp_name(f->l->r, "%s.%s", f->stem, name);
    if (!rules_whole_bytes(f->l, dest, dtype, ndim, shape))
        return rec_invalid(f->l->r);
    return lp_declare_with(
        f->l->r, &(lp_declaration){
                     .name = dest, .dtype = dtype, .ndim = ndim, .shape = shape, .has_slots = true, .slot_dim = 0});
}

/* from: [E, 2 I, ...]. Gate rows, then up rows, of this rank's share. */
static void load_first(const fused_layer *f, const char *name, lp_tensor from)
{
    const rules_split *s = &f->split;
    lp_rules *l = f->l;
    const int64_t half = rules_share(l, name, lp_size(from, 1), 2), share = rules_share(l, name, half, s->share);
    if (rules_failed(l))
        return;
    const lp_tensor into =
        declare_slots(f, name, lp_dtype_of(from), lp_dim(from), (int64_t[]){s->slots, 2 * share, lp_size(from, 2)});
    for (int64_t slot = 0; slot < s->slots && !rules_failed(l); slot++) {
        const lp_tensor to = lp_select(into, 0, slot), expert = lp_select(from, 0, rules_expert_of_slot(s, slot));
        for (int i = 0; i < 2; i++) {
            const lp_tensor rows =
                f->in_turns ? lp_slice(expert, 0, i, 2 * half, 2) : lp_narrow(expert, 0, i * half, half);
            lp_copy(lp_narrow(to, 0, i * share, share), lp_narrow(rows, 0, s->share_rank * share, share));
        }
    }
}

/* from: [E, H, I, ...], of whose third dimension `units` are a share that must not be cut. Dimensions behind the third
 * are joined with it. */
static void load_second(const fused_layer *f, const char *name, lp_tensor from)
{
    const rules_split *s = &f->split;
    lp_rules *l = f->l;
    const int64_t share =
        rules_share(l, lp_name(l->r, "columns of '%s.%s'", f->stem, name), lp_size(from, 2), s->share);
    const int64_t inner = lp_size(from, 3);
    if (rules_failed(l))
        return;
    const lp_tensor into =
        declare_slots(f, name, lp_dtype_of(from), 3, (int64_t[]){s->slots, lp_size(from, 1), share * inner});
    for (int64_t slot = 0; slot < s->slots && !rules_failed(l); slot++) {
        const lp_tensor expert = lp_select(from, 0, rules_expert_of_slot(s, slot));
        const lp_tensor own = lp_narrow(expert, 1, s->share_rank * share, share);
        lp_copy(lp_select(into, 0, slot), lp_dim(own) == 3 ? lp_flatten(own, 1, 2) : own);
    }
}

/* [E, H]: added once, by the first tensor-parallel rank; zero on others, because outputs are added up. */
static void load_second_bias(const fused_layer *f, lp_tensor from)
{
    const rules_split *s = &f->split;
    const lp_tensor into = declare_slots(f, "w2_bias", lp_dtype_of(from), 2, (int64_t[]){s->slots, lp_size(from, 1)});
    for (int64_t slot = 0; slot < s->slots && !rules_failed(f->l); slot++) {
        const lp_tensor to = lp_select(into, 0, slot);
        if (s->share_rank > 0)
            lp_zero(to, from);
        else
            lp_copy(to, lp_select(from, 0, rules_expert_of_slot(s, slot)));
    }
}

/* ---- what stands on disk ---- */

static lp_tensor take_if_stored(lp_rules *l, const char *name, int ndim, const int64_t *shape)
{
    const lp_tensor none = rec_invalid(l->r);
    if (rules_find(l, name) < 0)
        return none;
    const lp_tensor t = rules_take(l, name);
    return rules_expect(l, t, ndim, shape) ? t : none;
}

static void load_biases(const fused_layer *f, int64_t hidden, int64_t twice)
{
    const int64_t experts = f->split.experts;
    const lp_tensor first =
        take_if_stored(f->l, lp_name(f->l->r, "%s.gate_up_proj_bias", f->stem), 2, (int64_t[]){experts, twice});
    const lp_tensor second =
        take_if_stored(f->l, lp_name(f->l->r, "%s.down_proj_bias", f->stem), 2, (int64_t[]){experts, hidden});
    if (lp_is_valid(first))
        load_first(f, "w13_bias", first);
    if (lp_is_valid(second))
        load_second_bias(f, second);
}

/* MXFP4 as gpt-oss has it: blocks of 32 values in 16 bytes, and a scale for each. */
static void load_blocks(fused_layer *f)
{
    lp_rules *l = f->l;
    const lp_tensor first = rules_take(l, lp_name(l->r, "%s.gate_up_proj_blocks", f->stem));
    const lp_tensor second = rules_take(l, lp_name(l->r, "%s.down_proj_blocks", f->stem));
    const lp_tensor first_scale = rules_take(l, lp_name(l->r, "%s.gate_up_proj_scales", f->stem));
    const lp_tensor second_scale = rules_take(l, lp_name(l->r, "%s.down_proj_scales", f->stem));
    const int64_t experts = lp_size(first, 0), twice = lp_size(first, 1), hidden = lp_size(second, 1);
    if (!rules_expect(l, first, 4, (int64_t[]){-1, -1, -1, 16}) ||
        !rules_expect(l, second, 4, (int64_t[]){experts, -1, -1, 16}) ||
        !rules_expect(l, first_scale, 3, (int64_t[]){experts, twice, lp_size(first, 2)}) ||
        !rules_expect(l, second_scale, 3, (int64_t[]){experts, hidden, lp_size(second, 2)}) ||
        !rules_split_experts(l, f->stem, experts, &f->split))
        return;
    f->in_turns = true;
    load_first(f, "w13_weight", lp_flatten(first, 2, 3));
    load_first(f, "w13_weight_scale", first_scale);
    load_second(f, "w2_weight", second);
    load_second(f, "w2_weight_scale", second_scale);
    load_biases(f, hidden, twice);
}

/* Whether input comes before output in both tensors. Where one of them is square in that sense, the other is not: I is
 * H in the one, and half of it in the other. False too where neither order fits: the shapes are checked afterwards. */
static bool is_transposed(lp_tensor first, lp_tensor second, int64_t hidden)
{
    const bool by_columns = lp_size(first, 1) == hidden && lp_size(second, 2) == hidden;
    const bool by_rows = lp_size(first, 2) == hidden && lp_size(second, 1) == hidden;
    if (by_columns && by_rows)
        return false;
    return by_columns;
}

/* Scales of blocks stand as their weight does, and are cut where it is: this rank's part of I must be whole blocks. */
static void load_block_scales(const fused_layer *f, const char *first_name, const char *second_name, lp_tensor first,
                              lp_tensor second, bool transposed)
{
    lp_rules *l = f->l;
    const char *name[] = {lp_name(l->r, "%s_scale_inv", first_name), lp_name(l->r, "%s_scale_inv", second_name)};
    const lp_tensor weight[] = {first, second};
    lp_tensor scale[2];
    if (rules_find(l, name[0]) < 0 && rules_find(l, name[1]) < 0)
        return;
    for (int i = 0; i < 2; i++) {
        scale[i] = rules_take(l, name[i]);
        if (!rules_expect(l, scale[i], 3, (int64_t[]){f->split.experts, -1, -1}))
            return;
        const lp_tensor stored = scale[i];
        if (transposed)
            scale[i] = lp_transpose(scale[i], 1, 2);
        const int64_t total = lp_size(weight[i], 1 + i), part = lp_size(second, 2) / f->split.share;
        const int64_t block = dialect_block(total, lp_size(scale[i], 1 + i));
        if (block < 1 || part % block != 0) {
            dialect_cuts_block(l, stored, i == 0 ? "rows" : "columns", block, part, total);
            return;
        }
    }
    load_first(f, "w13_weight_scale_inv", scale[0]);
    load_second(f, "w2_weight_scale_inv", scale[1]);
}

static void load_plain(fused_layer *f, const char *first_name, const char *second_name)
{
    lp_rules *l = f->l;
    lp_tensor first = rules_take(l, first_name), second = rules_take(l, second_name);
    const int64_t experts = lp_size(first, 0), hidden = rules_need(l, "hidden_size");
    if (!rules_expect(l, first, 3, (int64_t[]){-1, -1, -1}) ||
        !rules_expect(l, second, 3, (int64_t[]){experts, -1, -1}))
        return;
    const bool transposed = is_transposed(first, second, hidden);
    if (transposed) {
        const int64_t half = rules_share(l, first_name, lp_size(first, 2), 2);
        if (!rules_expect(l, second, 3, (int64_t[]){experts, half, hidden}))
            return;
        first = lp_transpose(first, 1, 2);
        second = lp_transpose(second, 1, 2);
    } else {
        const int64_t half = rules_share(l, first_name, lp_size(first, 1), 2);
        if (!rules_expect(l, first, 3, (int64_t[]){experts, -1, hidden}) ||
            !rules_expect(l, second, 3, (int64_t[]){experts, hidden, half}))
            return;
    }
    const char *type = lp_config_text(l->config, "model_type");
    f->in_turns = type != NULL && strcmp(type, "gpt_oss") == 0;
    if (!rules_split_experts(l, f->stem, experts, &f->split))
        return;
    load_first(f, "w13_weight", first);
    load_second(f, "w2_weight", second);
    load_block_scales(f, first_name, second_name, first, second, transposed);
    load_biases(f, hidden, lp_size(first, 1));
}

bool rules_fused_experts(lp_rules *l, const char *module, int64_t *experts)
{
    const char *names[][2] = {
        {lp_name(l->r, "%s.experts.gate_up_proj", module), lp_name(l->r, "%s.experts.down_proj", module)},
        {lp_name(l->r, "%s.input_linear.weight", module), lp_name(l->r, "%s.output_linear.weight", module)},
    };
    fused_layer f = {.l = l, .stem = lp_name(l->r, "%s.experts", module)};
    if (rules_find(l, lp_name(l->r, "%s_blocks", names[0][0])) >= 0) {
        load_blocks(&f);
        *experts = f.split.experts;
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (rules_find(l, names[i][0]) < 0)
            continue;
        load_plain(&f, names[i][0], names[i][1]);
        *experts = f.split.experts;
        return true;
    }
    return false;
}
