/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for MegaMoE experts in NVFP4 and MXFP4. Every checkpoint tensor goes by itself into its place in the kernel
 * layout; what combines tensors is a derive, which runs again on every load:
 *
 *   w13_weight_scale_2   f32 (2, slots): w1 and w3 have a row each, and must agree; the kernel reads row 0
 *   w2_input_scale       f32 (experts,): of every expert, on every rank, so that all agree on the maximum
 *   l2_activation_scale  max(w2_input_scale), or 1.0 where that is 0
 *   _l2_alpha            scratch of the kernel: no loader writes it, and nothing waits for it
 */
#include "recorder/rules_experts_index.h"

#include "layouts/layout.h"
#include "recorder/record_private.h"

static const double AGREEMENT = 1e-5;
static const float DUMMY_SCALE_2 = 1e-3f, DUMMY_INPUT_SCALE = 1.0f;

typedef struct expert_format {
    const char *name;
    const char *layout[2][2]; /* [first or second projection][weight or scale] */
    const char *tiles[2][2];  /* the same, packed for Hopper */
    int64_t values_per_scale; /* along the input dimension */
    bool has_global_scales;
} expert_format;

static const expert_format NVFP4 = {
    .name = "NVFP4",
    .layout = {{"nvfp4_l1_weight", "nvfp4_l1_scale"}, {"nvfp4_l2_weight", "nvfp4_l2_scale"}},
    .tiles = {{"nvfp4_sm90_l1_weight", "nvfp4_sm90_l1_scale"}, {"nvfp4_sm90_l2_weight", "nvfp4_sm90_l2_scale"}},
    .values_per_scale = 16,
    .has_global_scales = true,
};
static const expert_format MXFP4 = {
    .name = "MXFP4",
    .layout = {{"mxfp4_l1_weight", "mxfp4_l1_scale"}, {"mxfp4_l2_weight", "mxfp4_l2_scale"}},
    .tiles = {{"mxfp4_sm90_l1_weight", "mxfp4_sm90_l1_scale"}, {"mxfp4_sm90_l2_weight", "mxfp4_sm90_l2_scale"}},
    .values_per_scale = 32,
};

/* One layer on one rank. */
typedef struct expert_layer {
    lp_rules *l;
    const rules_experts *x;
    const expert_format *format;
    const char *stem;
    int64_t layer, experts; /* logical ones */
    int64_t hidden, intermediate;
    rules_split split;
    lp_layout_sizes sizes; /* local */
} expert_layer;

static lp_tensor part_of(const expert_layer *e, int64_t expert, int projection, int kind)
{
    return lp_source_index(e->l->r, rules_expert_tensor(e->x, e->layer, expert, projection, kind));
}

static bool has_part(const expert_layer *e, int projection, int kind)
{
    return rules_expert_tensor(e->x, e->layer, 0, projection, kind) >= 0;
}

/* ---- what the layer is ---- */

static bool find_format(expert_layer *e)
{
    static const char *const needed[] = {"gate_proj", "up_proj", "down_proj"};
    for (int p = 0; p < EXPERT_PROJECTIONS; p++) {
        if (has_part(e, p, EXPERT_WEIGHT) && has_part(e, p, EXPERT_SCALE))
            continue;
        rules_fail(e->l, LP_E_UNKNOWN_NAME, e->stem, "the checkpoint has no '%s%s.0.%s.%s'", e->l->prefix, e->stem,
                   needed[p], has_part(e, p, EXPERT_WEIGHT) ? "weight_scale" : "weight");
        return false;
    }
    const lp_dtype weight = lp_dtype_of(part_of(e, 0, EXPERT_GATE, EXPERT_WEIGHT));
    const lp_dtype scale = lp_dtype_of(part_of(e, 0, EXPERT_GATE, EXPERT_SCALE));
    if (weight == LP_U8 && scale == LP_F8_E4M3)
        e->format = &NVFP4;
    else if (weight == LP_U8 && (scale == LP_U8 || scale == LP_F8_E8M0))
        e->format = &MXFP4;
    else
        rules_fail(e->l, LP_E_UNSUPPORTED, e->stem,
                   "'%s%s' has %s weights with %s scales, neither NVFP4 (U8, F8_E4M3) nor MXFP4 (U8, F8_E8M0 or U8)",
                   e->l->prefix, e->stem, lp_dtype_name(weight), lp_dtype_name(scale));
    return e->format != NULL;
}

static bool find_sizes(expert_layer *e)
{
    const lp_tensor gate = part_of(e, 0, EXPERT_GATE, EXPERT_WEIGHT);
    if (!rules_expect(e->l, gate, 2, (int64_t[]){-1, -1}))
        return false;
    e->intermediate = lp_size(gate, 0);
    e->hidden = 2 * lp_size(gate, 1);
    e->sizes = (lp_layout_sizes){
        .experts = e->split.slots,
        .hidden = e->hidden,
        .intermediate = rules_share(e->l, lp_name(e->l->r, "rows of '%s%s'", e->l->prefix, e->stem), e->intermediate,
                                    e->split.share),
    };
    return !rules_failed(e->l);
}

/* ---- weights and block scales ---- */

/* Sizes that the kernels cannot use are the checkpoint's, or come of splitting it by --tp. */
static void fail_layout(const expert_layer *e, const lp_error *err)
{
    const lp_status code = err->code == LP_E_ARGUMENT && e->split.share == 1 ? LP_E_UNSUPPORTED : err->code;
    rules_fail(e->l, code, e->stem, "'%s%s': %s", e->l->prefix, e->stem, err->text);
    if (e->l->r->misuse.hint[0] == '\0')
        lp_hint(&e->l->r->misuse, "--loader moe loads experts as they are stored, in no kernel layout");
}

static lp_tensor declare_layout(const expert_layer *e, const char *name, const lp_layout *layout)
{
    lp_layout_shape shape;
    lp_error err;
    if (lp_layout_describe(layout, &e->sizes, &shape, &err) != LP_OK) {
        fail_layout(e, &err);
        return rec_invalid(e->l->r);
    }
    return lp_declare_with(e->l->r, &(lp_declaration){.name = lp_name(e->l->r, "%s.%s", e->stem, name),
                                                      .dtype = shape.dtype,
                                                      .ndim = shape.ndim,
                                                      .shape = shape.shape,
                                                      .stride = shape.stride,
                                                      .storage_bytes = shape.bytes,
                                                      .layout = layout->id,
                                                      .layout_version = layout->version,
                                                      .has_slots = true,
                                                      .slot_dim = shape.slot_dim});
}

static bool has_dtype_of_format(const expert_layer *e, lp_tensor t, int kind)
{
    const lp_dtype dtype = lp_dtype_of(t);
    if (kind == EXPERT_WEIGHT)
        return dtype == LP_U8;
    return e->format == &NVFP4 ? dtype == LP_F8_E4M3 : dtype == LP_U8 || dtype == LP_F8_E8M0;
}

/* One projection's tensors into `into`: of every slot, this rank's share. */
static void load_projection(const expert_layer *e, lp_tensor into, const lp_layout *layout, int projection, int kind)
{
    static const lp_shard shard[] = {LP_SHARD_GATE, LP_SHARD_UP, LP_SHARD_DOWN};
    const bool down = projection == EXPERT_DOWN;
    const int64_t per_byte = kind == EXPERT_WEIGHT ? 2 : e->format->values_per_scale;
    const int64_t rows = down ? e->hidden : e->intermediate, columns = (down ? e->intermediate : e->hidden) / per_byte;
    const int64_t share = (down ? columns : rows) / e->split.share;
    lp_layout_shape shape;
    lp_view region;
    lp_error err;
    if (!lp_is_valid(into))
        return;
    if (lp_layout_describe(layout, &e->sizes, &shape, &err) != LP_OK ||
        lp_layout_region(layout, &e->sizes, shard[projection], 0, &region, NULL, &err) != LP_OK) {
        fail_layout(e, &err);
        return;
    }
    const int64_t first_bits = region.offset_bits;
    for (int64_t slot = 0; slot < e->split.slots; slot++) {
        lp_tensor from = part_of(e, rules_expert_of_slot(&e->split, slot), projection, kind);
        if (!rules_expect(e->l, from, 2, (int64_t[]){rows, columns}))
            return;
        if (!has_dtype_of_format(e, from, kind)) {
            const char *name = lp_checkpoint_at(e->l->checkpoint, from.base)->name;
            rules_fail(e->l, LP_E_MISMATCH, name, "'%s' is %s, which %s does not have", name,
                       lp_dtype_name(lp_dtype_of(from)), e->format->name);
            return;
        }
        if (e->split.share > 1)
            from = lp_narrow(from, down ? 1 : 0, share * e->split.share_rank, share);
        region.offset_bits = first_bits + 8 * slot * shape.slot_stride;
        lp_copy(lp_with_view(into, &region), lp_reinterpret(from, shape.dtype));
    }
}

static void load_blocks(const expert_layer *e)
{
    static const char *const name[2][2] = {{"w13_weight", "w13_weight_scale"}, {"w2_weight", "w2_weight_scale"}};
    for (int second = 0; second < 2; second++) {
        for (int kind = EXPERT_WEIGHT; kind <= EXPERT_SCALE; kind++) {
            const lp_layout *layout =
                lp_layout_find(e->l->expert_tiles ? e->format->tiles[second][kind] : e->format->layout[second][kind]);
            const lp_tensor into = declare_layout(e, name[second][kind], layout);
            if (second) {
                load_projection(e, into, layout, EXPERT_DOWN, kind);
            } else {
                load_projection(e, into, layout, EXPERT_GATE, kind);
                load_projection(e, into, layout, EXPERT_UP, kind);
            }
        }
    }
}

/* ---- global scales ---- */

/* A checkpoint scalar, stored as [] or [1]. */
static lp_tensor scalar_of(const expert_layer *e, int64_t expert, int projection, int kind)
{
    const lp_tensor t = part_of(e, expert, projection, kind);
    if (lp_is_valid(t) && lp_count(t) != 1)
        rules_expect(e->l, t, 0, NULL);
    return lp_reshape(t, 0, NULL);
}

static lp_tensor declare_scales(const expert_layer *e, const char *name, int ndim, const int64_t *shape, int slot_dim,
                                uint32_t flags, float dummy)
{
    return lp_declare_with(e->l->r, &(lp_declaration){.name = lp_name(e->l->r, "%s.%s", e->stem, name),
                                                      .dtype = LP_F32,
                                                      .ndim = ndim,
                                                      .shape = shape,
                                                      .flags = flags,
                                                      .dummy_bits = flags & LP_DEST_HAS_DUMMY ? lp_bits_f32(dummy) : 0,
                                                      .has_slots = slot_dim >= 0,
                                                      .slot_dim = slot_dim >= 0 ? slot_dim : 0});
}

/* How a dialect calls the scales of whole tensors. In compressed-tensors they are divisors, and are kept beside the
 * scales that the kernel reads. */
typedef struct global_scales {
    int weight, input; /* kinds */
    bool divisors;
    const char *w13, *w2, *w2_input;
} global_scales;

static const global_scales MODELOPT = {.weight = EXPERT_SCALE_2,
                                       .input = EXPERT_INPUT_SCALE,
                                       .w13 = "w13_weight_scale_2",
                                       .w2 = "w2_weight_scale_2",
                                       .w2_input = "w2_input_scale"};
static const global_scales COMPRESSED_TENSORS = {.weight = EXPERT_GLOBAL_SCALE,
                                                 .input = EXPERT_INPUT_GLOBAL_SCALE,
                                                 .divisors = true,
                                                 .w13 = "w13_weight_global_scale",
                                                 .w2 = "w2_weight_global_scale",
                                                 .w2_input = "w2_input_global_scale"};

/* Scales that the kernel multiplies by, from those that the dialect divides by. */
static void derive_scales(const expert_layer *e, lp_tensor w13, lp_tensor w2)
{
    lp_recorder *r = e->l->r;
    lp_derive(r, declare_scales(e, MODELOPT.w13, 2, w13.view.size, 1, LP_DEST_BUFFER, 0), lp_reciprocal(w13));
    lp_derive(r, declare_scales(e, MODELOPT.w2, 1, w2.view.size, 0, LP_DEST_BUFFER, 0), lp_reciprocal(w2));
}

static void load_global_scales(const expert_layer *e, const global_scales *g)
{
    lp_rules *l = e->l;
    const uint32_t dummy = LP_DEST_HAS_DUMMY;
    const float w13_dummy = g->divisors ? 1.0f / DUMMY_SCALE_2 : DUMMY_SCALE_2;
    const lp_tensor w13 = declare_scales(e, g->w13, 2, (int64_t[]){2, e->split.slots}, 1, dummy, w13_dummy);
    const lp_tensor w2 = declare_scales(e, g->w2, 1, (int64_t[]){e->split.slots}, 0, 0, 0);
    const lp_tensor input = declare_scales(e, g->w2_input, 1, (int64_t[]){e->experts}, -1, dummy, DUMMY_INPUT_SCALE);
    for (int64_t slot = 0; slot < e->split.slots; slot++) {
        const int64_t expert = rules_expert_of_slot(&e->split, slot);
        for (int p = EXPERT_GATE; p <= EXPERT_UP; p++)
            lp_copy(lp_select(lp_select(w13, 0, p), 0, slot), scalar_of(e, expert, p, g->weight));
        lp_copy(lp_select(w2, 0, slot), scalar_of(e, expert, EXPERT_DOWN, g->weight));
    }
    for (int p = EXPERT_GATE; p <= EXPERT_UP; p++) { /* the kernel scales its input token by token */
        if (has_part(e, p, g->input))
            lp_decline(l->r, lp_checkpoint_at(l->checkpoint, part_of(e, 0, p, g->input).base)->name);
    }
    for (int64_t expert = 0; expert < e->experts; expert++)
        lp_copy(lp_select(input, 0, expert), scalar_of(e, expert, EXPERT_DOWN, g->input));

    lp_require_close(
        l->r, lp_select(w13, 0, EXPERT_GATE), lp_select(w13, 0, EXPERT_UP), AGREEMENT,
        lp_name(l->r, "%s: w1 and w3 %s differ for local expert {index}", e->stem, EXPERT_KIND[g->weight]));
    if (g->divisors)
        derive_scales(e, w13, w2);
    lp_derive(l->r, declare_scales(e, "l2_activation_scale", 0, NULL, -1, LP_DEST_BUFFER, 0),
              lp_or_if_zero(lp_max(g->divisors ? lp_reciprocal(input) : input), 1.0f));
    declare_scales(e, "_l2_alpha", 1, (int64_t[]){e->split.slots}, -1, LP_DEST_BUFFER | LP_DEST_NO_LOADER, 0);
}

static bool has_global_scales(const expert_layer *e, const global_scales *g)
{
    static const char *const projection[] = {"gate_proj", "up_proj", "down_proj"};
    for (int p = 0; p < EXPERT_PROJECTIONS; p++) {
        const bool scale_2 = has_part(e, p, g->weight);
        if (scale_2 && (p != EXPERT_DOWN || has_part(e, p, g->input)))
            continue;
        rules_fail(e->l, LP_E_UNKNOWN_NAME, e->stem, "the checkpoint has no '%s%s.0.%s.%s'", e->l->prefix, e->stem,
                   projection[p], EXPERT_KIND[scale_2 ? g->input : g->weight]);
        return false;
    }
    return true;
}

/* What this dialect or format does not have: it would be left out without a word. */
static bool has_only_known(const expert_layer *e, const global_scales *g)
{
    for (int p = 0; p < EXPERT_PROJECTIONS; p++) {
        for (int kind = EXPERT_SCALE_2; kind < EXPERT_MEGAMOE_KINDS; kind++) {
            if (!has_part(e, p, kind) || (e->format->has_global_scales && (kind == g->weight || kind == g->input)))
                continue;
            const char *name = lp_checkpoint_at(e->l->checkpoint, part_of(e, 0, p, kind).base)->name;
            rules_fail(e->l, LP_E_UNSUPPORTED, name, "no rule takes '%s'", name);
            return false;
        }
    }
    return true;
}

/* ---- the layer ---- */

void rules_megamoe(lp_rules *l, int64_t layer)
{
    expert_layer e = {.l = l, .x = rules_experts_of(l), .layer = layer};
    if (e.x == NULL)
        return;
    e.stem = lp_name(l->r, "%s.experts", rules_experts_module(l, layer));
    e.experts = e.x->of_layer[layer];
    if (!find_format(&e) || !rules_split_experts(l, e.stem, e.experts, &e.split) || !find_sizes(&e))
        return;
    const global_scales *g = has_part(&e, EXPERT_GATE, EXPERT_GLOBAL_SCALE) ? &COMPRESSED_TENSORS : &MODELOPT;
    load_blocks(&e);
    if (has_only_known(&e, g) && e.format->has_global_scales && has_global_scales(&e, g))
        load_global_scales(&e, g);
}
