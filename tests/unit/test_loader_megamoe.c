/* SPDX-License-Identifier: Apache-2.0 */
/* The `megamoe` loader: experts over ranks and slots, their layouts, scalars and derives. */
#include "megamoe_loader_testing.h"

/* ---- NVFP4, expert parallel ---- */

static void nvfp4_over_expert_ranks(void **state)
{
    (void)state;
    lp_checkpoint *c = experts(&NVFP4);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.loader = "megamoe", .layout = {.dp = 2, .expert_parallel = true}}, "{}");
    assert_int_equal(lp_trace_scope_count(t), 2);
    for (int rank = 0; rank < 2; rank++) {
        run x = run_scope(t, rank);
        assert_all_written_once(&x);
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int64_t slot = 0; slot < 2; slot++) {
                const int64_t e = 2 * rank + slot;
                assert_expert(&x, &NVFP4, layer, slot, e, I, 0);
                const char *scale_2 = named("layers.%d.mlp.experts.w13_weight_scale_2", layer);
                assert_source(&x, scale_2, 4 * slot, expert_name(&NVFP4, layer, e, 0, "weight_scale_2"), 0, 4);
                assert_source(&x, scale_2, 4 * (2 + slot), expert_name(&NVFP4, layer, e, 1, "weight_scale_2"), 0, 4);
                assert_source(&x, named("layers.%d.mlp.experts.w2_weight_scale_2", layer), 4 * slot,
                              expert_name(&NVFP4, layer, e, 2, "weight_scale_2"), 0, 4);
            }
            for (int64_t e = 0; e < E; e++) /* every expert's, on every rank */
                assert_source(&x, named("layers.%d.mlp.experts.w2_input_scale", layer), 4 * e,
                              expert_name(&NVFP4, layer, e, 2, "input_scale"), 0, 4);
        }
        /* what is not loaded here: foreign experts, and the input scales of w1 and w3 */
        assert_int_equal(records_of(&x, "model.layers.0.mlp.experts.0.gate_proj.weight"), rank == 0 ? 1 : 0);
        assert_int_equal(records_of(&x, "model.layers.0.mlp.experts.0.gate_proj.input_scale"), 0);
        assert_int_equal(x.rows->nrecord, LAYERS * (2 * 9 + E));
        assert_int_equal(x.rows->nrefusal, 0);
        free_run(&x);
    }
    assert_complete(t);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void experts_packed_by_tiles(void **state)
{
    (void)state;
    const model *const models[] = {&NVFP4, &MXFP4};
    for (int n = 0; n < 2; n++) {
        lp_checkpoint *c = experts(models[n]);
        seal_checkpoint(c);
        lp_trace *t =
            load(c, (lp_loader_options){.loader = "megamoe-sm90", .layout = {.dp = 2, .expert_parallel = true}}, "{}");
        run x = run_scope(t, 1);
        assert_all_written_once(&x);
        for (int64_t slot = 0; slot < 2; slot++)
            assert_tiles(&x, models[n], 0, slot, 2 + slot);
        const lp_destination *const d = dest_of(&x, "layers.0.mlp.experts.w2_weight_scale");
        assert_string_equal(d->layout, n == 0 ? "nvfp4_sm90_l2_scale" : "mxfp4_sm90_l2_scale");
        assert_int_equal(d->layout_version, 1);
        assert_int_equal(x.rows->nrefusal, 0);
        free_run(&x);
        assert_complete(t);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
}

static void nvfp4_destinations_are_what_kernels_take(void **state)
{
    (void)state;
    lp_checkpoint *c = experts(&NVFP4);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.loader = "megamoe", .layout = {.dp = 2, .expert_parallel = true}}, "{}");
    run x = run_scope(t, 1);
    const lp_destination *d = expert_dest(&x, 0, "w13_weight");
    assert_int_equal(d->dtype, LP_I8);
    assert_int_equal(d->shape[0], 2);
    assert_int_equal(d->shape[1], 2 * I);
    assert_int_equal(d->shape[2], H / 2);
    assert_string_equal(d->layout, "nvfp4_l1_weight");
    assert_int_equal(d->layout_version, 1);
    assert_int_equal(d->slot_dim, 0);
    assert_int_equal(d->slot_count, 2);
    assert_string_equal(d->group, "layers.0");
    d = expert_dest(&x, 0, "w13_weight_scale");
    assert_int_equal(d->dtype, LP_I32);
    assert_int_equal(d->shape[2], H / 64);
    assert_int_equal(d->stride[0], 4 * 2 * I * H / 64);
    assert_int_equal(d->stride[1], 4);
    assert_int_equal(d->stride[2], 4 * 2 * I);
    d = expert_dest(&x, 1, "w2_weight_scale");
    assert_int_equal(d->stride[2], 4 * H);
    assert_string_equal(d->layout, "nvfp4_l2_scale");
    d = expert_dest(&x, 1, "w13_weight_scale_2");
    assert_int_equal(d->ndim, 2);
    assert_int_equal(d->shape[0], 2);
    assert_int_equal(d->shape[1], 2);
    assert_int_equal(d->slot_dim, 1);
    assert_int_equal(d->dummy_bits, lp_bits_f32(1e-3f));
    assert_true(d->flags & LP_DEST_HAS_DUMMY);
    d = expert_dest(&x, 1, "w2_input_scale");
    assert_int_equal(d->shape[0], E);
    assert_int_equal(d->slot_dim, -1); /* not an expert tensor: a rebalancing leaves it alone */
    assert_int_equal(d->dummy_bits, lp_bits_f32(1.0f));
    d = expert_dest(&x, 1, "_l2_alpha");
    assert_int_equal(d->shape[0], 2);
    assert_true(d->flags & LP_DEST_NO_LOADER);
    d = expert_dest(&x, 1, "l2_activation_scale");
    assert_int_equal(d->ndim, 0);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* Both derives read destinations that the checkpoint fills, so they run again on every load. */
static void nvfp4_derives(void **state)
{
    (void)state;
    lp_checkpoint *c = experts(&NVFP4);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.loader = "megamoe", .layout = {.dp = 2, .expert_parallel = true}}, "{}");
    run x = run_scope(t, 0);
    int checks = 0, scales = 0;
    for (uint32_t i = 0; i < x.rows->nderive; i++) {
        const lp_derive *d = &x.rows->derive[i];
        const lp_node *last = &d->node[d->nnode - 1];
        for (uint32_t k = 0; k < d->ninput; k++)
            assert_false(d->input[k].staged);
        if (d->dest == LP_NONE) {
            checks++;
            assert_int_equal(last->op, LP_OP_ALL_CLOSE);
            assert_int_equal(last->bits, lp_bits_f32(1e-5f));
            assert_int_equal(d->input[0].count, 2);
            assert_int_equal(d->input[0].map->src_lo, 0);
            assert_int_equal(d->input[1].map->src_lo, 8);
            assert_non_null(strstr(d->error_text, "w1 and w3 weight_scale_2 differ"));
            assert_non_null(strstr(d->error_text, "{index}"));
            continue;
        }
        scales++;
        assert_int_equal(last->op, LP_OP_OR_IF_ZERO);
        assert_int_equal(d->node[last->arg[0]].op, LP_OP_MAX);
        assert_int_equal(d->node[last->arg[1]].bits, lp_bits_f32(1.0f));
        assert_int_equal(d->input[0].count, E);
    }
    assert_int_equal(checks, LAYERS);
    assert_int_equal(scales, LAYERS);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void scalars_may_be_vectors_of_one(void **state)
{
    (void)state;
    model m = NVFP4;
    m.scalars_as_vectors = true;
    lp_checkpoint *c = experts(&m);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.loader = "megamoe"}, "{}");
    run x = run_scope(t, 0);
    assert_all_written_once(&x);
    assert_complete(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- tensor parallel, MXFP4, slots ---- */

static void experts_split_by_tensor_parallel_ranks(void **state)
{
    (void)state;
    const model *both[] = {&NVFP4, &MXFP4};
    for (int k = 0; k < 2; k++) {
        lp_checkpoint *c = experts(both[k]);
        seal_checkpoint(c);
        lp_trace *t = load(c, (lp_loader_options){.loader = "megamoe", .layout = {.tp = 2}}, "{}");
        for (int rank = 0; rank < 2; rank++) {
            run x = run_scope(t, rank);
            assert_all_written_once(&x);
            for (int64_t e = 0; e < E; e++)
                assert_expert(&x, both[k], 1, e, e, I / 2, rank);
            free_run(&x);
        }
        assert_complete(t);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
}

static void mxfp4_has_no_global_scales(void **state)
{
    (void)state;
    model m = MXFP4;
    for (int k = 0; k < 2; k++) {
        m.scale = k == 0 ? LP_F8_E8M0 : LP_U8;
        lp_checkpoint *c = experts(&m);
        seal_checkpoint(c);
        lp_trace *t = load(c, (lp_loader_options){.loader = "megamoe"}, "{}");
        run x = run_scope(t, 0);
        assert_int_equal(x.rows->ndest, 4 * LAYERS);
        assert_int_equal(x.rows->nderive, 0);
        for (int64_t e = 0; e < E; e++)
            assert_expert(&x, &m, 0, e, e, I, 0);
        for (uint32_t i = 0; i < x.rows->nrecord; i++)
            assert_int_equal(x.rows->record[i].kind, LP_KIND_COPY); /* exponents move as bytes, never as numbers */
        assert_string_equal(expert_dest(&x, 0, "w2_weight_scale")->layout, "mxfp4_l2_scale");
        assert_complete(t);
        free_run(&x);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
}

/* More slots than experts: they start again from the first. */
static void slots_beyond_the_experts(void **state)
{
    (void)state;
    lp_checkpoint *c = experts(&NVFP4);
    seal_checkpoint(c);
    const lp_scope layout = {.dp = 2, .expert_parallel = true};
    lp_trace *t = load(c, (lp_loader_options){.loader = "megamoe", .layout = layout, .slots = 3}, "{}");
    run x = run_scope(t, 1);
    assert_all_written_once(&x);
    assert_int_equal(expert_dest(&x, 0, "w13_weight")->slot_count, 3);
    assert_expert(&x, &NVFP4, 0, 0, 3, I, 0);
    assert_expert(&x, &NVFP4, 0, 1, 0, I, 0);
    assert_expert(&x, &NVFP4, 0, 2, 1, I, 0);
    assert_complete(t);
    free_run(&x);
    lp_trace_close(t);
    assert_load_fails(c, (lp_loader_options){.loader = "megamoe", .layout = layout, .slots = 1}, "{}", LP_E_ARGUMENT,
                      "1 slots on each of 2 ranks are too few for 4 experts");
    assert_load_fails(c, (lp_loader_options){.loader = "megamoe", .layout = {.dp = 3, .expert_parallel = true}}, "{}",
                      LP_E_ARGUMENT, "4 cannot be split into 3 equal parts");
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvfp4_over_expert_ranks),
        cmocka_unit_test(experts_packed_by_tiles),
        cmocka_unit_test(nvfp4_destinations_are_what_kernels_take),
        cmocka_unit_test(nvfp4_derives),
        cmocka_unit_test(scalars_may_be_vectors_of_one),
        cmocka_unit_test(experts_split_by_tensor_parallel_ranks),
        cmocka_unit_test(mxfp4_has_no_global_scales),
        cmocka_unit_test(slots_beyond_the_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
