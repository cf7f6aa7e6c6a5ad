/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule set for shared experts. In MXFP8 they ride along in the MegaMoE kernel: whole on every rank, in kernel layout.
 * In any other format they are a gated MLP like that of a dense layer.
 */
#include "recorder/rule_sets.h"

#include "layouts/layout.h"
#include "recorder/record_private.h"
#include "recorder/rules_dialect.h"

enum { VALUES_PER_SCALE = 32 };

typedef struct shared_part {
    const char *stem;
    lp_tensor weight, scale;
} shared_part;

static shared_part part_of(lp_rules *l, const char *stem)
{
    return (shared_part){.stem = stem,
                         .weight = rules_take(l, lp_name(l->r, "%s.weight", stem)),
                         .scale = rules_take(l, lp_name(l->r, "%s.weight_scale", stem))};
}

/* Whether a projection is MXFP8: E4M3 with one exponent for 32 values, or for a coarser block of them. */
static bool is_mxfp8(lp_rules *l, const char *stem)
{
    const char *weight_name = lp_name(l->r, "%s.weight", stem), *scale_name = lp_name(l->r, "%s.weight_scale", stem);
    if (rules_find(l, weight_name) < 0 || rules_find(l, scale_name) < 0)
        return false;
    const lp_checkpoint_tensor *weight = lp_checkpoint_at(l->checkpoint, rules_find(l, weight_name));
    const lp_checkpoint_tensor *scale = lp_checkpoint_at(l->checkpoint, rules_find(l, scale_name));
    if (weight->dtype != LP_F8_E4M3 || weight->ndim != 2 || scale->ndim != 2 ||
        (scale->dtype != LP_U8 && scale->dtype != LP_F8_E8M0) || scale->shape[0] < 1 || scale->shape[1] < 1)
        return false;
    const int64_t rows = dialect_block(weight->shape[0], scale->shape[0]);
    const int64_t columns = dialect_block(weight->shape[1], scale->shape[1]);
    return rows > 0 && weight->shape[0] % rows == 0 && columns > 0 && weight->shape[1] % columns == 0 &&
           columns % VALUES_PER_SCALE == 0;
}

static lp_tensor declare_layout(lp_rules *l, const char *name, const lp_layout *layout, const lp_layout_sizes *sizes)
{
    lp_layout_shape shape;
    lp_error err;
    if (lp_layout_describe(layout, sizes, &shape, &err) != LP_OK) {
        rules_fail(l, err.code == LP_E_ARGUMENT ? LP_E_UNSUPPORTED : err.code, name, "'%s': %s", name, err.text);
        return rec_invalid(l->r);
    }
    return lp_declare_with(l->r, &(lp_declaration){.name = name,
                                                   .dtype = shape.dtype,
                                                   .ndim = shape.ndim,
                                                   .shape = shape.shape,
                                                   .stride = shape.stride,
                                                   .storage_bytes = shape.bytes,
                                                   .layout = layout->id,
                                                   .layout_version = layout->version});
}

static lp_tensor region_of(lp_rules *l, lp_tensor into, const lp_layout *layout, const lp_layout_sizes *sizes,
                           lp_shard shard)
{
    lp_view region;
    lp_error err;
    if (!lp_is_valid(into))
        return into;
    if (lp_layout_region(layout, sizes, shard, 0, &region, NULL, &err) != LP_OK) {
        rules_fail(l, err.code, layout->id, "%s", err.text);
        return rec_invalid(l->r);
    }
    return lp_with_view(into, &region);
}

/* Scales by bytes: a block that is coarser than 1 x 32 is repeated, which copies in torch and is a replicate here. The
 * words of the destination are seen as their bytes, because a repeated byte is not part of a word in the checkpoint. */
static void load_scale(lp_tensor region, shared_part part)
{
    const int64_t rows = lp_size(part.weight, 0), columns = lp_size(part.weight, 1) / VALUES_PER_SCALE;
    lp_tensor from = lp_reinterpret(part.scale, LP_U8);
    if (lp_size(from, 0) != rows)
        from = lp_repeat_interleave(from, 0, rows / lp_size(from, 0));
    if (lp_size(from, 1) != columns)
        from = lp_repeat_interleave(from, 1, columns / lp_size(from, 1));
    lp_copy(lp_flatten(lp_reinterpret(lp_unsqueeze(region, 2), LP_U8), 1, 2), from);
}

static void load_part(lp_rules *l, shared_part part, const char *dest, const char *const layout_id[2],
                      const lp_layout_sizes *sizes, lp_shard shard)
{
    const lp_layout *weight = lp_layout_find(layout_id[0]), *scale = lp_layout_find(layout_id[1]);
    const char *weight_name = lp_name(l->r, "%s_weight", dest), *scale_name = lp_name(l->r, "%s_weight_scale", dest);
    const lp_tensor into =
        shard == LP_SHARD_UP ? lp_dest(l->r, weight_name) : declare_layout(l, weight_name, weight, sizes);
    const lp_tensor scale_into =
        shard == LP_SHARD_UP ? lp_dest(l->r, scale_name) : declare_layout(l, scale_name, scale, sizes);
    const lp_tensor region = region_of(l, into, weight, sizes, shard);
    lp_copy(region, lp_reinterpret(part.weight, lp_dtype_of(region)));
    load_scale(region_of(l, scale_into, scale, sizes, shard), part);
}

static void load_mxfp8(lp_rules *l, int64_t layer, const char *stem)
{
    static const char *const first[] = {"mxfp8_shared_l1_weight", "mxfp8_shared_l1_scale"};
    static const char *const second[] = {"mxfp8_shared_l2_weight", "mxfp8_shared_l2_scale"};
    const shared_part gate = part_of(l, lp_name(l->r, "%s.gate_proj", stem));
    const shared_part up = part_of(l, lp_name(l->r, "%s.up_proj", stem));
    const shared_part down = part_of(l, lp_name(l->r, "%s.down_proj", stem));
    const lp_layout_sizes sizes = {.hidden = lp_size(gate.weight, 1), .intermediate = lp_size(gate.weight, 0)};
    if (!rules_expect(l, up.weight, 2, gate.weight.view.size) ||
        !rules_expect(l, down.weight, 2, (int64_t[]){sizes.hidden, sizes.intermediate}))
        return;
    const char *l1 = lp_name(l->r, "layers.%" PRId64 ".mlp.experts.shared_l1", layer);
    const char *l2 = lp_name(l->r, "layers.%" PRId64 ".mlp.experts.shared_l2", layer);
    load_part(l, gate, l1, first, &sizes, LP_SHARD_GATE);
    load_part(l, up, l1, first, &sizes, LP_SHARD_UP);
    load_part(l, down, l2, second, &sizes, LP_SHARD_DOWN);
}

void rules_shared_experts(lp_rules *l, int64_t layer)
{
    static const char *const names[] = {"shared_experts", "shared_expert"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *stem = lp_name(l->r, "layers.%" PRId64 ".mlp.%s", layer, names[i]);
        if (!rules_has_weight(l, lp_name(l->r, "%s.gate_proj", stem)))
            continue;
        if (is_mxfp8(l, lp_name(l->r, "%s.gate_proj", stem)) && is_mxfp8(l, lp_name(l->r, "%s.up_proj", stem)) &&
            is_mxfp8(l, lp_name(l->r, "%s.down_proj", stem)))
            load_mxfp8(l, layer, stem);
        else
            rules_gated_mlp(l, stem);
        rules_whole(l, lp_name(l->r, "layers.%" PRId64 ".mlp.%s_gate.weight", layer, names[i]));
    }
}
