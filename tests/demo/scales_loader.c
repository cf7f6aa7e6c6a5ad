/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loader, written twice: the input scales of a layer's second projections, and the one activation scale that the
 * kernel makes of them. `careful` writes each value into its own slot and lets a derive take the maximum. `careless`
 * keeps a running maximum on the host, as loaders do: it looks at values, so nobody can replay it.
 *
 *   scales_loader CHECKPOINT careful|careless TRACE
 */
#include "recorder/recorder.h"

#include <stdio.h>
#include <string.h>

static const char *scale_name(lp_recorder *r, int64_t expert)
{
    return lp_name(r, "model.layers.0.mlp.experts.%lld.down_proj.input_scale", (long long)expert);
}

static void load_careful(lp_recorder *r, int64_t experts, lp_tensor scales, lp_tensor activation_scale)
{
    for (int64_t e = 0; e < experts; e++)
        lp_copy(lp_select(scales, 0, e), lp_reshape(lp_source(r, scale_name(r, e)), 0, NULL));
    lp_derive(r, activation_scale, lp_or_if_zero(lp_max(scales), 1.0f));
}

static void load_careless(lp_recorder *r, int64_t experts, lp_tensor activation_scale)
{
    double largest = 0;
    for (int64_t e = 0; e < experts; e++) {
        const double scale = lp_max_value(lp_source(r, scale_name(r, e)));
        if (scale > largest)
            largest = scale;
    }
    lp_fill(activation_scale, lp_bits_f32(largest > 0 ? (float)largest : 1.0f), lp_at_begin(r));
}

static lp_status record(const lp_checkpoint *checkpoint, int careless, const char *path, lp_error *err)
{
    lp_recorder *r = NULL;
    lp_status status =
        lp_recorder_open_with(&r, checkpoint, &(lp_scope){.tp = 1}, &(lp_recorder_options){.loader = "scales"}, err);
    if (status != LP_OK)
        return status;
    int64_t experts = 0;
    while (lp_has(r, scale_name(r, experts)))
        experts++;
    const lp_tensor scales = lp_declare(r, "layers.0.w2_input_scale", LP_F32, 1, &experts);
    const lp_tensor activation_scale = lp_declare(r, "layers.0.l2_activation_scale", LP_F32, 0, NULL);
    if (careless)
        load_careless(r, experts, activation_scale);
    else
        load_careful(r, experts, scales, activation_scale);
    status = lp_recorder_save_over(r, path, err);
    lp_recorder_close(r);
    return status;
}

int main(int argc, char **argv)
{
    lp_error err;
    lp_checkpoint *checkpoint = NULL;
    if (argc != 4)
        return 2;
    lp_status status = lp_checkpoint_open(&checkpoint, argv[1], &err);
    if (status == LP_OK)
        status = record(checkpoint, strcmp(argv[2], "careless") == 0, argv[3], &err);
    if (status != LP_OK)
        fprintf(stderr, "%s\n", err.text);
    lp_checkpoint_close(checkpoint);
    return status != LP_OK;
}
