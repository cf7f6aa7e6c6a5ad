/* SPDX-License-Identifier: Apache-2.0 */
/* The `megamoe` loader: whole models, shared experts, checkpoints that contradict themselves, and memory that runs out.
 */
#include "megamoe_loader_testing.h"

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
        cmocka_unit_test(whole_model),
        cmocka_unit_test(shared_experts_in_mxfp8),
        cmocka_unit_test(contradictions_name_the_tensor),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
