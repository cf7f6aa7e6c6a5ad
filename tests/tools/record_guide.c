/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader of docs/recording.md, before and after: the scales of an NVFP4 model's experts.
 *
 *   record_guide before|after CHECKPOINT TRACE
 *
 * `before` keeps a running maximum on the host and clones what it copies; `after` says the same with views, copies and
 * a derive. `loadplan diff after.lpt before.lpt` shows what the difference costs.
 */
#include "recorder/recorder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static lp_tensor expert_source(lp_recorder *r, int layer, int expert, const char *kind)
{
    return lp_source(r, lp_name(r, "model.layers.%d.mlp.experts.%d.down_proj.%s", layer, expert, kind));
}

/* Scales are stored [rows, columns] by expert; the kernel wants them by column. */
static void declare_scales(lp_recorder *r, int layer, int experts)
{
    lp_tensor first = expert_source(r, layer, 0, "weight_scale");
    const int64_t shape[] = {experts, lp_size(first, 1), lp_size(first, 0)};
    lp_declare(r, lp_name(r, "layers.%d.experts.w2_weight_scale", layer), lp_dtype_of(first), 3, shape);
    lp_declare(r, lp_name(r, "layers.%d.experts.w2_input_scale", layer), LP_F32, 1, (int64_t[]){experts});
    lp_declare(r, lp_name(r, "layers.%d.experts.l2_activation_scale", layer), LP_F32, 0, NULL);
}

static void load_scales_before(lp_recorder *r, int layer, int experts)
{
    lp_tensor blocks = lp_dest(r, lp_name(r, "layers.%d.experts.w2_weight_scale", layer));
    lp_tensor inputs = lp_dest(r, lp_name(r, "layers.%d.experts.w2_input_scale", layer));
    lp_tensor activation = lp_dest(r, lp_name(r, "layers.%d.experts.l2_activation_scale", layer));
    double most = 0;
    for (int e = 0; e < experts; e++) {
        lp_tensor input = expert_source(r, layer, e, "input_scale");
        lp_copy(lp_select(blocks, 0, e), lp_clone(lp_t(expert_source(r, layer, e, "weight_scale"))));
        lp_copy(lp_select(inputs, 0, e), input);
        most = fmax(most, lp_item(input));
        lp_fill(activation, lp_bits_f32(most == 0 ? 1.0f : (float)most), input);
    }
}

static void load_scales_after(lp_recorder *r, int layer, int experts)
{
    lp_tensor blocks = lp_dest(r, lp_name(r, "layers.%d.experts.w2_weight_scale", layer));
    lp_tensor inputs = lp_dest(r, lp_name(r, "layers.%d.experts.w2_input_scale", layer));
    lp_tensor activation = lp_dest(r, lp_name(r, "layers.%d.experts.l2_activation_scale", layer));
    for (int e = 0; e < experts; e++) {
        lp_copy(lp_select(blocks, 0, e), lp_t(expert_source(r, layer, e, "weight_scale")));
        lp_copy(lp_select(inputs, 0, e), expert_source(r, layer, e, "input_scale"));
    }
    lp_derive(r, activation, lp_or_if_zero(lp_max(inputs), 1.0f));
}

static bool ends_with(const char *name, const char *end)
{
    const size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

/* What this loader leaves alone on purpose. */
static void decline_rest(lp_recorder *r)
{
    const lp_checkpoint *c = lp_recorder_checkpoint(r);
    for (int64_t i = 0; i < lp_checkpoint_count(c); i++) {
        const char *name = lp_checkpoint_at(c, i)->name;
        if (!ends_with(name, ".down_proj.weight_scale") && !ends_with(name, ".down_proj.input_scale"))
            lp_decline(r, name);
    }
}

static void load_model(lp_recorder *r, bool after)
{
    for (int layer = 0; lp_has(r, lp_name(r, "model.layers.%d.mlp.experts.0.down_proj.weight_scale", layer)); layer++) {
        int experts = 0;
        while (lp_has(r, lp_name(r, "model.layers.%d.mlp.experts.%d.down_proj.weight_scale", layer, experts)))
            experts++;
        declare_scales(r, layer, experts);
        if (after)
            load_scales_after(r, layer, experts);
        else
            load_scales_before(r, layer, experts);
    }
    decline_rest(r);
}

int main(int argc, char **argv)
{
    lp_error err;
    lp_checkpoint *checkpoint = NULL;
    lp_recorder *r = NULL;
    int code = 1;
    if (argc != 4 || (strcmp(argv[1], "before") != 0 && strcmp(argv[1], "after") != 0)) {
        fputs("usage: record_guide before|after CHECKPOINT TRACE\n", stderr);
        return 2;
    }
    if (lp_checkpoint_open(&checkpoint, argv[2], &err) != LP_OK ||
        lp_recorder_open(&r, checkpoint, &(lp_scope){0}, &err) != LP_OK)
        goto failed;
    load_model(r, strcmp(argv[1], "after") == 0);
    if (lp_recorder_save_over(r, argv[3], &err) != LP_OK)
        goto failed;
    code = 0;
failed:
    if (code != 0)
        fprintf(stderr, "record_guide: %s\n", err.text);
    lp_recorder_close(r);
    lp_checkpoint_close(checkpoint);
    return code;
}
