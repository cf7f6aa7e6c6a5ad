/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `megamoe` loader. Where bytes must lie is computed here by the closed formulas of the kernels' row maps, not by
 * the layout table that the loader uses.
 */
#include "layouts/layout_index.h"

#include "failing_memory.h"
#include "test_loader_run.h"

enum { H = 256, I = 256, E = 4, LAYERS = 2 };

static const char *const PROJECTION[] = {"gate_proj", "up_proj", "down_proj"};

typedef struct model {
    bool nvfp4, scalars_as_vectors;
    lp_dtype scale;
    const char *prefix;
} model;

static const model NVFP4 = {.nvfp4 = true, .scale = LP_F8_E4M3, .prefix = "model."};
static const model MXFP4 = {.scale = LP_F8_E8M0, .prefix = ""};

static lp_checkpoint *experts(const model *m)
{
    lp_checkpoint *c = new_checkpoint();
    const int64_t per_scale = m->nvfp4 ? 16 : 32;
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int e = 0; e < E; e++) {
            for (int p = 0; p < 3; p++) {
                char stem[128];
                snprintf(stem, sizeof stem, "%slayers.%d.mlp.experts.%d.%s", m->prefix, layer, e, PROJECTION[p]);
                const int64_t rows = p < 2 ? I : H, columns = p < 2 ? H : I;
                add_named(c, LP_U8, SHAPE(rows, columns / 2), "%s.weight", stem);
                add_named(c, m->scale, SHAPE(rows, columns / per_scale), "%s.weight_scale", stem);
                if (m->nvfp4) {
                    const size_t ndim = m->scalars_as_vectors ? 1 : 0;
                    add_named(c, LP_F32, ndim, (int64_t[]){1}, "%s.weight_scale_2", stem);
                    add_named(c, LP_F32, ndim, (int64_t[]){1}, "%s.input_scale", stem);
                }
            }
        }
    }
    return c;
}

static const char *expert_name(const model *m, int layer, int64_t e, int p, const char *kind)
{
    return named("%slayers.%d.mlp.experts.%d.%s.%s", m->prefix, layer, (int)e, PROJECTION[p], kind);
}

/* ---- the kernels' row maps ---- */

static int64_t weight_row(int p, int64_t r)
{
    return p == 2 ? r : 16 * (r / 8) + 8 * p + r % 8;
}

static int64_t scale_row(int p, int64_t r)
{
    const int64_t m = weight_row(p, r);
    return (m & ~(int64_t)127) + (m & 31) * 4 + ((m >> 5) & 3);
}

/* Expert `e` fills slot `slot` of a rank that has rows [first, first + rows) of gate and up, and the same columns of
 * down. */
static void assert_expert(run *x, const model *m, int layer, int64_t slot, int64_t e, int64_t local, int64_t rank)
{
    const int64_t per_scale = m->nvfp4 ? 16 : 32;
    char l1[64], s1[64], l2[64], s2[64];
    snprintf(l1, sizeof l1, "layers.%d.mlp.experts.w13_weight", layer);
    snprintf(s1, sizeof s1, "layers.%d.mlp.experts.w13_weight_scale", layer);
    snprintf(l2, sizeof l2, "layers.%d.mlp.experts.w2_weight", layer);
    snprintf(s2, sizeof s2, "layers.%d.mlp.experts.w2_weight_scale", layer);
    for (int p = 0; p < 2; p++) {
        const int64_t row_bytes = H / 2, words = H / per_scale / 4;
        for (int64_t r = 0; r < local; r++) {
            const int64_t from = rank * local + r;
            assert_source(x, l1, (slot * 2 * local + weight_row(p, r)) * row_bytes,
                          expert_name(m, layer, e, p, "weight"), from * row_bytes, row_bytes);
            for (int64_t w = 0; w < words; w++)
                assert_source(x, s1, 4 * (slot * words * 2 * local + w * 2 * local + scale_row(p, r)),
                              expert_name(m, layer, e, p, "weight_scale"), (from * words + w) * 4, 4);
        }
    }
    const int64_t words = local / per_scale / 4, all_words = I / per_scale / 4;
    for (int64_t r = 0; r < H; r++) {
        assert_source(x, l2, (slot * H + r) * local / 2, expert_name(m, layer, e, 2, "weight"),
                      r * I / 2 + rank * local / 2, local / 2);
        for (int64_t w = 0; w < words; w++)
            assert_source(x, s2, 4 * (slot * words * H + w * H + scale_row(2, r)),
                          expert_name(m, layer, e, 2, "weight_scale"), (r * all_words + rank * words + w) * 4, 4);
    }
}

/* The same packed by tiles: 128 columns of a row are one run. */
static void assert_tiles(run *x, const model *m, int layer, int64_t slot, int64_t e)
{
    const int64_t bytes[2] = {64, m->nvfp4 ? 8 : 4}; /* of a row and step: codes, scales */
    static const char *const kind[2] = {"weight", "weight_scale"};
    for (int p = 0; p < 3; p++)
        for (int k = 0; k < 2; k++) {
            char dest[64];
            snprintf(dest, sizeof dest, "layers.%d.mlp.experts.%s_%s", layer, p < 2 ? "w13" : "w2", kind[k]);
            const int64_t rows = p < 2 ? I : H, steps = (p < 2 ? H : I) / 128;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t s = 0; s < steps; s++)
                    assert_source(x, dest,
                                  lp_tile_byte(slot, p < 2 ? lp_row_gran8(p, r) : r, s * bytes[k], p < 2 ? 2 * I : H,
                                               steps, bytes[k]),
                                  expert_name(m, layer, e, p, kind[k]), (r * steps + s) * bytes[k], bytes[k]);
        }
}

static const lp_destination *expert_dest(run *x, int layer, const char *name)
{
    return dest_of(x, named("layers.%d.mlp.experts.%s", layer, name));
}

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

/* ---- the rest of the model ---- */

static void add_rest(lp_checkpoint *c)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int i = 0; i < 3; i++)
            add_named(c, LP_BF16, SHAPE(8, H), "model.layers.%d.self_attn.%c_proj.weight", layer, "qkv"[i]);
        add_named(c, LP_BF16, SHAPE(H, 8), "model.layers.%d.self_attn.o_proj.weight", layer);
        add_named(c, LP_BF16, SHAPE(H), "model.layers.%d.input_layernorm.weight", layer);
        add_named(c, LP_BF16, SHAPE(H), "model.layers.%d.post_attention_layernorm.weight", layer);
        add_named(c, LP_BF16, SHAPE(E, H), "model.layers.%d.mlp.gate.weight", layer);
        add_named(c, LP_BF16, SHAPE(E), "model.layers.%d.mlp.gate.e_score_correction_bias", layer);
    }
    for (int p = 0; p < 3; p++) /* a dense layer behind */
        add_named(c, LP_BF16, SHAPE(16, 16), "model.layers.2.mlp.%s.weight", PROJECTION[p]);
    add_named(c, LP_BF16, SHAPE(64, H), "model.embed_tokens.weight");
    add_named(c, LP_BF16, SHAPE(64, H), "lm_head.weight");
    add_named(c, LP_BF16, SHAPE(H), "model.norm.weight");
}

static void add_shared(lp_checkpoint *c, bool mxfp8, int64_t rows_per_scale, int64_t columns_per_scale)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int p = 0; p < 3; p++) {
            const int64_t rows = p < 2 ? I : H, columns = p < 2 ? H : I;
            add_named(c, mxfp8 ? LP_F8_E4M3 : LP_BF16, SHAPE(rows, columns),
                      "model.layers.%d.mlp.shared_experts.%s.weight", layer, PROJECTION[p]);
            if (mxfp8)
                add_named(c, LP_U8, SHAPE(rows / rows_per_scale, columns / columns_per_scale),
                          "model.layers.%d.mlp.shared_experts.%s.weight_scale", layer, PROJECTION[p]);
        }
    }
}

static const char CONFIG[] = "{\"model_type\": \"some_moe\", \"n_routed_experts\": 4, \"num_attention_heads\": 2, "
                             "\"num_hidden_layers\": 3}";

static void whole_model(void **state)
{
    (void)state;
    lp_checkpoint *c = experts(&NVFP4);
    add_rest(c);
    add_shared(c, false, 1, 1);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 2, .expert_parallel = true}}, CONFIG);
    assert_string_equal(lp_trace_header_of(t)->loader, "megamoe");
    for (int rank = 0; rank < 2; rank++) {
        run x = run_scope(t, rank);
        assert_all_written_once(&x);
        assert_expert(&x, &NVFP4, 1, 0, 2 * rank, I, 0);
        assert_source(&x, "layers.0.mlp.gate.weight", 0, "model.layers.0.mlp.gate.weight", 0, E * H * 2);
        assert_int_equal(dest_of(&x, "layers.0.mlp.gate.e_score_correction_bias")->dtype, LP_F32);
        assert_source(&x, "layers.1.mlp.shared_experts.gate_up_proj.weight", 0,
                      "model.layers.1.mlp.shared_experts.gate_proj.weight", rank * I / 2 * H * 2, I / 2 * H * 2);
        assert_source(&x, "layers.2.mlp.gate_up_proj.weight", 0, "model.layers.2.mlp.gate_proj.weight", rank * 8 * 32,
                      8 * 32);
        for (uint32_t i = 0; i < x.rows->nrecord; i++) /* the router's bias is cast on purpose */
            assert_int_equal(lp_trace_provenance(t, x.rows->record[i].provenance)->flags, 0);
        free_run(&x);
    }
    assert_complete(t);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void assert_shared(run *x, int64_t rows_per_scale, int64_t columns_per_scale)
{
    for (int p = 0; p < 3; p++) {
        const int64_t rows = p < 2 ? I : H, columns = p < 2 ? H : I, all_rows = p < 2 ? 2 * I : H;
        const char *l = p < 2 ? "shared_l1" : "shared_l2";
        char weight[96], scale[96], weight_name[128], scale_name[160];
        snprintf(weight, sizeof weight, "layers.1.mlp.experts.%s_weight", l);
        snprintf(scale, sizeof scale, "layers.1.mlp.experts.%s_weight_scale", l);
        snprintf(weight_name, sizeof weight_name, "model.layers.1.mlp.shared_experts.%s.weight", PROJECTION[p]);
        snprintf(scale_name, sizeof scale_name, "%s_scale", weight_name);
        assert_int_equal(dest_of(x, scale)->dtype, LP_I32);
        for (int64_t r = 0; r < rows; r++) {
            assert_source(x, weight, weight_row(p, r) * columns, weight_name, r * columns, columns);
            for (int64_t b = 0; b < columns / 32; b++)
                assert_source(x, scale, 4 * (b / 4 * all_rows + scale_row(p, r)) + b % 4, scale_name,
                              r / rows_per_scale * (columns / columns_per_scale) + 32 * b / columns_per_scale, 1);
        }
    }
}

/* In MXFP8 the shared expert rides along in the kernel; only scales of coarser blocks are repeated. */
static void shared_experts_in_mxfp8(void **state)
{
    (void)state;
    static const int64_t blocks[][2] = {{1, 32}, {1, 128}, {128, 128}};
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
        lp_checkpoint *c = experts(&NVFP4);
        add_rest(c);
        add_shared(c, true, blocks[k][0], blocks[k][1]);
        seal_checkpoint(c);
        lp_trace *t = load(c, (lp_loader_options){.layout = {.dp = 2, .expert_parallel = true}}, CONFIG);
        run x = run_scope(t, 1);
        assert_all_written_once(&x);
        assert_shared(&x, blocks[k][0], blocks[k][1]);
        for (uint32_t i = 0; i < x.rows->nrecord; i++) {
            const lp_record *record = &x.rows->record[i];
            const bool repeated = k > 0 && strstr(x.rows->dest[record->dest].name, "shared_") != NULL &&
                                  strstr(x.rows->dest[record->dest].name, "_scale") != NULL;
            assert_int_equal(record->kind == LP_KIND_REPLICATE, repeated);
        }
        assert_complete(t);
        free_run(&x);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
}

/* ---- bad checkpoints ---- */

static void contradictions_name_the_tensor(void **state)
{
    (void)state;
    const lp_loader_options o = {.loader = "megamoe"};
    lp_checkpoint *c = experts(&NVFP4);
    seal_checkpoint(c);
    assert_load_fails(c, o, "{\"num_experts\": 8}", LP_E_MISMATCH,
                      "layer 0 of the checkpoint has 4 experts, the configuration says 8");
    lp_checkpoint_close(c);

    c = new_checkpoint(); /* expert 1 lacks a scale */
    for (int e = 0; e < 2; e++) {
        for (int p = 0; p < 3; p++) {
            add_named(c, LP_U8, SHAPE(256, 128), "layers.0.mlp.experts.%d.%s.weight", e, PROJECTION[p]);
            if (e != 1 || p != 2)
                add_named(c, LP_U8, SHAPE(256, 8), "layers.0.mlp.experts.%d.%s.weight_scale", e, PROJECTION[p]);
        }
    }
    seal_checkpoint(c);
    assert_load_fails(c, o, "{}", LP_E_UNKNOWN_NAME,
                      "the checkpoint has no 'layers.0.mlp.experts.1.down_proj.weight_scale'");
    lp_checkpoint_close(c);

    static const struct {
        int64_t rows, columns;
        lp_dtype weight, scale;
        lp_status status;
        const char *text;
    } cases[] = {
        {256, 128, LP_BF16, LP_U8, LP_E_UNSUPPORTED, "neither NVFP4"},
        {256, 128, LP_U8, LP_F32, LP_E_UNSUPPORTED, "has U8 weights with F32 scales"},
        {200, 128, LP_U8, LP_U8, LP_E_UNSUPPORTED, "multiple"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        c = new_checkpoint();
        for (int p = 0; p < 3; p++) {
            const int64_t rows = p < 2 ? cases[k].rows : 2 * cases[k].columns;
            const int64_t columns = p < 2 ? cases[k].columns : cases[k].rows / 2;
            add_named(c, cases[k].weight, SHAPE(rows, columns), "layers.0.mlp.experts.0.%s.weight", PROJECTION[p]);
            add_named(c, cases[k].scale, SHAPE(rows, columns / 16), "layers.0.mlp.experts.0.%s.weight_scale",
                      PROJECTION[p]);
        }
        seal_checkpoint(c);
        assert_load_fails(c, o, "{}", cases[k].status, cases[k].text);
        lp_checkpoint_close(c);
    }

    c = experts(&NVFP4);
    seal_checkpoint(c);
    assert_load_fails(c, (lp_loader_options){.loader = "megamoe", .layout = {.tp = 4}}, "{}", LP_E_ARGUMENT,
                      "multiple");
    lp_checkpoint_close(c);

    c = experts(&NVFP4);
    add_named(c, LP_U8, SHAPE(3), "model.layers.0.mlp.experts.0.gate_proj.bias");
    seal_checkpoint(c);
    assert_load_fails(c, o, "{}", LP_E_UNSUPPORTED, "no rule takes 'model.layers.0.mlp.experts.0.gate_proj.bias'");
    lp_checkpoint_close(c);
}

/* ---- memory ---- */

/* Every allocation of a load fails once: each of the first ones, then about every tenth. */
static void allocations_may_fail(void **state)
{
    (void)state;
    lp_checkpoint *c = experts(&NVFP4);
    add_rest(c);
    seal_checkpoint(c);
    for (int64_t n = 1;; n += n < 100 ? 1 : 10) {
        failing_alloc f = {.fail_at = n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_resize};
        const lp_platform platform = {.alloc = &alloc};
        const lp_loader_options o = {.layout = {.dp = 2, .expert_parallel = true},
                                     .platform = &platform,
                                     .config = CONFIG,
                                     .config_bytes = sizeof CONFIG - 1};
        lp_trace *t = NULL;
        lp_error err = {0};
        const lp_status status = lp_load_checkpoint(&t, c, &o, &err);
        lp_trace_close(t);
        assert_int_equal(f.live, 0);
        if (status == LP_OK && f.calls < n)
            break;
        if (status != LP_E_MEMORY)
            fail_msg("allocation %lld: %s: %s", (long long)n, lp_status_name(status), err.text);
    }
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
        cmocka_unit_test(whole_model),
        cmocka_unit_test(shared_experts_in_mxfp8),
        cmocka_unit_test(contradictions_name_the_tensor),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
