/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users of other loaders reported, as small checkpoints for the built-in ones: scales of blocks that do not
 * divide, names under which tools store the scales of a cache, vocabularies that miss tokens, heads that a
 * configuration ties, formats that nobody here reads. Each is right, or an error that says what stands in the way; none
 * is silent.
 */
#include "test_loader_run.h"

#include "recorder/rules_dialect.h"

#define HEADS "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"hidden_size\": 64"
static const char DENSE[] = "{\"model_type\": \"llama\", " HEADS "}";

/* A decoder of one layer without its MLP. */
static lp_checkpoint *decoder(int64_t vocabulary)
{
    static const char *const part[] = {"q_proj", "k_proj", "v_proj"};
    lp_checkpoint *c = new_checkpoint();
    add_named(c, LP_BF16, 2, (int64_t[]){vocabulary, 64}, "model.embed_tokens.weight");
    add_named(c, LP_BF16, 1, (int64_t[]){64}, "model.norm.weight");
    for (int i = 0; i < 3; i++)
        add_named(c, LP_BF16, 2, (int64_t[]){i == 0 ? 32 : 16, 64}, "model.layers.0.self_attn.%s.weight", part[i]);
    add_named(c, LP_BF16, 2, (int64_t[]){64, 32}, "model.layers.0.self_attn.o_proj.weight");
    add_named(c, LP_BF16, 1, (int64_t[]){64}, "model.layers.0.input_layernorm.weight");
    add_named(c, LP_BF16, 1, (int64_t[]){64}, "model.layers.0.post_attention_layernorm.weight");
    return c;
}

static void add_mlp(lp_checkpoint *c, lp_dtype dtype, int64_t rows, int64_t blocks)
{
    static const char *const part[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        const bool down = i == 2;
        add_named(c, dtype, 2, (int64_t[]){down ? 64 : rows, down ? rows : 64}, "model.layers.0.mlp.%s.weight",
                  part[i]);
        if (blocks > 0)
            add_named(c, LP_F32, 2, (int64_t[]){down ? 1 : blocks, down ? blocks : 1},
                      "model.layers.0.mlp.%s.weight_scale_inv", part[i]);
    }
}

/* ---- blocks ---- */

static void a_block_is_not_what_division_says(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        {1000, 8, 128}, {1024, 8, 128},  {320, 3, 128}, {300, 3, 128}, {192, 2, 128}, {64, 1, 64},
        {128, 128, 1},  {4096, 256, 16}, {12, 4, 3},    {7, 5, 0},     {5, 0, 0},     {3, 5, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(dialect_block(cases[i][0], cases[i][1]), cases[i][2]);
    dialect_block(INT64_MAX, 1); /* whatever it is, no overflow */
}

/* 1,000 rows have 8 scales, of 128 rows each but the last: 500 rows of a rank end inside the fourth block. Scales that
 * are shared out evenly would belong to other rows. */
static void scales_of_a_cut_block_are_refused(void **state)
{
    (void)state;
    lp_checkpoint *c = decoder(100);
    add_mlp(c, LP_F8_E4M3, 1000, 8);
    seal_checkpoint(c);
    assert_load_fails(
        c, (lp_loader_options){.layout = {.tp = 2}}, DENSE, LP_E_ARGUMENT,
        "gate_proj.weight_scale_inv' has a scale for a block of 128 rows, and 500 of 1000 on a rank are not");
    /* On one rank up's rows would follow gate's in the middle of a block. */
    assert_load_fails(c, (lp_loader_options){0}, DENSE, LP_E_MISMATCH, "a block of 128 rows, and 1000 of 1000");
    lp_checkpoint_close(c);
    c = decoder(100);
    add_mlp(c, LP_F8_E4M3, 1024, 8);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 2}}, DENSE);
    run x = run_scope(t, 1);
    const char *scale = "layers.0.mlp.gate_up_proj.weight_scale_inv";
    assert_source(&x, scale, 0, "model.layers.0.mlp.gate_proj.weight_scale_inv", 16, 16);
    assert_source(&x, scale, 16, "model.layers.0.mlp.up_proj.weight_scale_inv", 16, 16);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* Experts that are fused on disk, in FP8: `by_columns` [E, H, 2 I] with scales [E, H / 128, 2 I / 128]. */
static void fused_experts_take_their_scales_along(void **state)
{
    (void)state;
    enum { E = 2, H = 128, I = 256 };
    static const char config[] =
        "{\"model_type\": \"qwen3_moe\", \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 8, \"hidden_size\": 128, \"num_experts\": 2}";
    for (int by_columns = 0; by_columns < 2; by_columns++) {
        lp_checkpoint *c = new_checkpoint();
        add_named(c, LP_BF16, 2, (int64_t[]){100, H}, "model.embed_tokens.weight");
        add_named(c, LP_BF16, 1, (int64_t[]){H}, "model.norm.weight");
        add_named(c, LP_BF16, 1, (int64_t[]){H}, "model.layers.0.input_layernorm.weight");
        add_named(c, LP_BF16, 1, (int64_t[]){H}, "model.layers.0.post_attention_layernorm.weight");
        add_named(c, LP_BF16, 2, (int64_t[]){32, H}, "model.layers.0.self_attn.q_proj.weight");
        add_named(c, LP_BF16, 2, (int64_t[]){16, H}, "model.layers.0.self_attn.k_proj.weight");
        add_named(c, LP_BF16, 2, (int64_t[]){16, H}, "model.layers.0.self_attn.v_proj.weight");
        add_named(c, LP_BF16, 2, (int64_t[]){H, 32}, "model.layers.0.self_attn.o_proj.weight");
        add_named(c, LP_BF16, 2, (int64_t[]){E, H}, "model.layers.0.mlp.gate.weight");
        const int64_t first[] = {E, 2 * I, H}, second[] = {E, H, I};
        const int64_t a = by_columns ? 2 : 1, b = by_columns ? 1 : 2;
        add_named(c, LP_F8_E4M3, 3, (int64_t[]){E, first[a], first[b]}, "model.layers.0.mlp.experts.gate_up_proj");
        add_named(c, LP_F8_E4M3, 3, (int64_t[]){E, second[a], second[b]}, "model.layers.0.mlp.experts.down_proj");
        add_named(c, LP_F32, 3, (int64_t[]){E, first[a] / 128, first[b] / 128},
                  "model.layers.0.mlp.experts.gate_up_proj_scale_inv");
        add_named(c, LP_F32, 3, (int64_t[]){E, second[a] / 128, second[b] / 128},
                  "model.layers.0.mlp.experts.down_proj_scale_inv");
        seal_checkpoint(c);
        lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 2}}, config);
        assert_complete(t);
        run x = run_scope(t, 1);
        /* Two blocks of gate rows, then two of up rows; rank 1 has the second of each. One block of columns. */
        for (int64_t e = 0; e < E; e++) {
            const char *stored = "model.layers.0.mlp.experts.gate_up_proj_scale_inv";
            assert_source(&x, "layers.0.mlp.experts.w13_weight_scale_inv", e * 8, stored, e * 16 + 4, 4);
            assert_source(&x, "layers.0.mlp.experts.w13_weight_scale_inv", e * 8 + 4, stored, e * 16 + 12, 4);
            assert_source(&x, "layers.0.mlp.experts.w2_weight_scale_inv", e * 4,
                          "model.layers.0.mlp.experts.down_proj_scale_inv", e * 8 + 4, 4);
        }
        free_run(&x);
        lp_trace_close(t);
        assert_load_fails(
            c, (lp_loader_options){.layout = {.tp = 4}}, config, LP_E_ARGUMENT,
            "'model.layers.0.mlp.experts.gate_up_proj_scale_inv' has a scale for a block of 128 rows, and 64 "
            "of 512");
        lp_checkpoint_close(c);
    }
}

/* ---- names ---- */

static void scales_of_a_cache_have_many_names(void **state)
{
    (void)state;
    static const struct {
        const char *stored, *dest[2];
    } names[] = {
        {"k_proj.k_scale", {"attn.k_scale"}},       {"qkv_proj.k_scale", {"attn.k_scale"}},
        {"attn.k_scale", {"attn.k_scale"}},         {"k_scale", {"attn.k_scale"}},
        {"k_proj.output_scale", {"attn.k_scale"}},  {"v_proj.v_scale", {"attn.v_scale"}},
        {"qkv_proj.v_scale", {"attn.v_scale"}},     {"v_scale", {"attn.v_scale"}},
        {"q_proj.q_scale", {"attn.q_scale"}},       {"q_scale", {"attn.q_scale"}},
        {"prob_output_scale", {"attn.prob_scale"}}, {"kv_scale", {"attn.k_scale", "attn.v_scale"}},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lp_checkpoint *c = decoder(100);
        add_mlp(c, LP_BF16, 64, 0);
        add_named(c, LP_F32, 0, NULL, "model.layers.0.self_attn.%s", names[i].stored);
        seal_checkpoint(c);
        lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 2}}, DENSE);
        assert_complete(t);
        run x = run_scope(t, 1);
        for (int d = 0; d < 2 && names[i].dest[d] != NULL; d++)
            assert_source(&x, named("layers.0.self_attn.%s", names[i].dest[d]), 0,
                          named("model.layers.0.self_attn.%s", names[i].stored), 0, 4);
        free_run(&x);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
    lp_checkpoint *c = decoder(100); /* the same scale twice */
    add_mlp(c, LP_BF16, 64, 0);
    add_named(c, LP_F32, 0, NULL, "model.layers.0.self_attn.k_scale");
    add_named(c, LP_F32, 0, NULL, "model.layers.0.self_attn.k_proj.k_scale");
    seal_checkpoint(c);
    assert_load_fails(c, (lp_loader_options){0}, DENSE, LP_E_UNSUPPORTED,
                      "no rule takes 'model.layers.0.self_attn.k_scale'");
    lp_checkpoint_close(c);
}

static void every_token_needs_a_row(void **state)
{
    (void)state;
    lp_checkpoint *c = decoder(100);
    add_mlp(c, LP_BF16, 64, 0);
    seal_checkpoint(c);
    assert_load_fails(c, (lp_loader_options){0}, "{\"model_type\": \"llama\", \"vocab_size\": 128, " HEADS "}",
                      LP_E_MISMATCH,
                      "'model.embed_tokens.weight' has 100 rows, the configuration says a vocab_size of 128");
    lp_trace_close(load(c, (lp_loader_options){0}, "{\"model_type\": \"llama\", \"vocab_size\": 97, " HEADS "}"));
    lp_checkpoint_close(c);
}

/* A tensor of another model fits the rule that cuts it, and no engine of this configuration. */
static void shapes_must_agree_with_one_another(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        int ndim;
        int64_t shape[2];
    } wrong[] = {
        {"model.norm.weight", "BF16 [32], expected [64]", 1, {32}},
        {"model.layers.0.input_layernorm.weight", "BF16 [65], expected [64]", 1, {65}},
        {"model.layers.0.self_attn.q_proj.weight", "BF16 [32, 32], expected [*, 64]", 2, {32, 32}},
        {"model.layers.0.self_attn.o_proj.weight", "BF16 [63, 32], expected [64, 32]", 2, {63, 32}},
        {"model.layers.0.self_attn.o_proj.weight", "BF16 [64, 31], expected [64, 32]", 2, {64, 31}},
        {"model.layers.0.mlp.gate_proj.weight", "BF16 [95, 64], expected [96, 64]", 2, {95, 64}},
        {"model.layers.0.mlp.down_proj.weight", "BF16 [64, 95], expected [64, 96]", 2, {64, 95}},
        {"model.layers.0.mlp.down_proj.weight", "BF16 [60, 96], expected [64, 96]", 2, {60, 96}},
        {"model.embed_tokens.weight", "BF16 [100, 32], expected [*, 64]", 2, {100, 32}},
        {"lm_head.weight", "BF16 [100, 65], expected [*, 64]", 2, {100, 65}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        lp_checkpoint *all = decoder(100), *c = new_checkpoint();
        add_mlp(all, LP_BF16, 96, 0);
        add_named(all, LP_BF16, 2, (int64_t[]){100, 64}, "lm_head.weight");
        seal_checkpoint(all);
        for (int64_t t = 0; t < lp_checkpoint_count(all); t++) {
            const lp_checkpoint_tensor *at = lp_checkpoint_at(all, t);
            if (strcmp(at->name, wrong[i].name) == 0)
                add_tensor(c, at->name, LP_BF16, wrong[i].ndim, wrong[i].shape);
            else
                add_tensor(c, at->name, at->dtype, at->ndim, at->shape);
        }
        seal_checkpoint(c);
        assert_load_fails(c, (lp_loader_options){0}, DENSE, LP_E_MISMATCH,
                          named("'%s' is %s", wrong[i].name, wrong[i].text));
        lp_trace_close(load(all, (lp_loader_options){0}, DENSE));
        lp_checkpoint_close(c);
        lp_checkpoint_close(all);
    }
}

typedef struct heard {
    int warnings;
    char text[512];
} heard;

static void hear(void *context, int level, const char *module, const char *line)
{
    heard *h = context;
    (void)module;
    if (level != LP_LOG_WARNING)
        return;
    h->warnings++;
    snprintf(h->text, sizeof h->text, "%s", line);
}

static void a_stored_head_that_is_tied_is_said(void **state)
{
    (void)state;
    static const char tied[] = "{\"model_type\": \"llama\", \"tie_word_embeddings\": true, " HEADS "}";
    for (int stored = 0; stored < 2; stored++) {
        heard h = {0};
        const lp_platform platform = {.log = hear, .log_context = &h};
        lp_checkpoint *c = decoder(100);
        add_mlp(c, LP_BF16, 64, 0);
        if (stored)
            add_named(c, LP_BF16, 2, (int64_t[]){100, 64}, "lm_head.weight");
        seal_checkpoint(c);
        lp_trace_close(load(c, (lp_loader_options){.platform = &platform, .layout = {.tp = 2}}, tied));
        assert_int_equal(h.warnings, stored);
        if (stored)
            assert_non_null(strstr(h.text, "'lm_head.weight' is stored but not loaded"));
        lp_checkpoint_close(c);
    }
}

/* Experts were pruned and the router was not, or the configuration was not; by expert, and fused on disk. */
static void a_router_chooses_among_the_experts_there_are(void **state)
{
    (void)state;
    static const char config[] = "{\"model_type\": \"qwen3_moe\", " HEADS "}",
                      of_two[] = "{\"model_type\": \"qwen3_moe\", \"num_experts\": 2, " HEADS "}";
    static const char *const part[] = {"gate_proj", "up_proj", "down_proj"};
    for (int is_fused = 0; is_fused < 2; is_fused++)
        for (int64_t routed = 2; routed <= 4; routed++) { /* 2: there is none */
            heard h = {0};
            const lp_platform platform = {.log = hear, .log_context = &h};
            lp_checkpoint *c = decoder(100);
            if (routed > 2)
                add_named(c, LP_BF16, 2, (int64_t[]){routed, 64}, "model.layers.0.mlp.gate.weight");
            for (int e = 0; e < 3 && !is_fused; e++)
                for (int i = 0; i < 3; i++)
                    add_named(c, LP_BF16, 2, (int64_t[]){i == 2 ? 64 : 32, i == 2 ? 32 : 64},
                              "model.layers.0.mlp.experts.%d.%s.weight", e, part[i]);
            if (is_fused) {
                add_named(c, LP_BF16, 3, (int64_t[]){3, 64, 64}, "model.layers.0.mlp.experts.gate_up_proj");
                add_named(c, LP_BF16, 3, (int64_t[]){3, 64, 32}, "model.layers.0.mlp.experts.down_proj");
            }
            seal_checkpoint(c);
            if (routed < 4)
                lp_trace_close(load(c, (lp_loader_options){.platform = &platform, .layout = {.tp = 2}}, config));
            else
                assert_load_fails(c, (lp_loader_options){.layout = {.tp = 2}}, config, LP_E_MISMATCH,
                                  "'model.layers.0.mlp.gate.weight' chooses among 4 experts, the layer has 3");
            assert_int_equal(h.warnings, routed == 2);
            if (routed == 2)
                assert_non_null(strstr(h.text, "the experts of 'model.layers.0.mlp' have no router"));
            assert_load_fails(c, (lp_loader_options){0}, of_two, LP_E_MISMATCH,
                              "layer 0 of the checkpoint has 3 experts, the configuration says 2");
            lp_checkpoint_close(c);
        }
}

/* A head that is nowhere: silent where the configuration ties it, or says nothing. */
static void a_head_that_is_nowhere_is_said(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\": \"llama\", " HEADS "}",
        "{\"model_type\": \"llama\", \"tie_word_embeddings\": true, " HEADS "}",
        "{\"model_type\": \"llama\", \"tie_word_embeddings\": false, " HEADS "}",
    };
    for (int i = 0; i < 3; i++) {
        heard h = {0};
        const lp_platform platform = {.log = hear, .log_context = &h};
        lp_checkpoint *c = decoder(100);
        add_mlp(c, LP_BF16, 64, 0);
        seal_checkpoint(c);
        lp_trace_close(load(c, (lp_loader_options){.platform = &platform, .layout = {.tp = 2}}, configs[i]));
        assert_int_equal(h.warnings, i == 2);
        if (i == 2)
            assert_non_null(strstr(h.text, "the checkpoint has no 'lm_head.weight', and the configuration does not"));
        lp_checkpoint_close(c);
    }
}

/* A tool left the scales out: the codes of FP8 are numbers all the same, wrong by that factor. */
static void fp8_without_scales_is_said(void **state)
{
    (void)state;
    static const char *const scales[] = {"weight_scale_inv", "weight_scale", "input_scale", NULL};
    for (int i = 0; i < 4; i++) {
        heard h = {0};
        const lp_platform platform = {.log = hear, .log_context = &h};
        lp_checkpoint *c = decoder(100);
        add_mlp(c, LP_F8_E4M3, 128, 0);
        for (int part = 0; part < 3 && scales[i] != NULL; part++)
            add_named(c, LP_F32, 0, NULL, "model.layers.0.mlp.%s.%s",
                      (const char *const[]){"gate_proj", "up_proj", "down_proj"}[part], scales[i]);
        seal_checkpoint(c);
        lp_trace_close(load(c, (lp_loader_options){.platform = &platform, .layout = {.tp = 2}}, DENSE));
        assert_int_equal(h.warnings, i >= 2);
        if (i >= 2)
            assert_non_null(strstr(
                h.text, "3 weights in FP8 have no scale, such as 'model.layers.0.mlp.down_proj.weight': loaded as"));
        lp_checkpoint_close(c);
    }
}

static void unknown_formats_are_told_by_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *hint;
    } formats[] = {
        {"model.layers.0.mlp.gate_proj.qweight", "'model.layers.0.mlp.gate_proj.qweight' is packed by GPTQ or AWQ"},
        {"model.layers.0.mlp.gate_proj.weight.absmax", "is of bitsandbytes"},
        {"model.layers.0.mlp.gate_proj.lora_A.weight", "is an adapter: merge it"},
        {"model.layers.0.mlp.gate_proj.other", ""},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        lp_checkpoint *c = decoder(100);
        lp_trace *t = NULL;
        lp_error err = {0};
        add_named(c, LP_BF16, 2, (int64_t[]){64, 64}, "model.layers.0.mlp.up_proj.weight");
        add_named(c, LP_U8, 1, (int64_t[]){64}, "%s", formats[i].name);
        seal_checkpoint(c);
        const lp_loader_options o = {.config = DENSE, .config_bytes = (int64_t)strlen(DENSE)};
        assert_int_equal(lp_load_checkpoint(&t, c, &o, &err), LP_E_UNKNOWN_NAME);
        assert_non_null(strstr(err.text, "the checkpoint has no 'model.layers.0.mlp."));
        assert_int_equal(err.hint[0] == '\0', formats[i].hint[0] == '\0');
        assert_non_null(strstr(err.hint, formats[i].hint));
        lp_checkpoint_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_not_what_division_says),
        cmocka_unit_test(scales_of_a_cut_block_are_refused),
        cmocka_unit_test(fused_experts_take_their_scales_along),
        cmocka_unit_test(scales_of_a_cache_have_many_names),
        cmocka_unit_test(every_token_needs_a_row),
        cmocka_unit_test(shapes_must_agree_with_one_another),
        cmocka_unit_test(a_stored_head_that_is_tied_is_said),
        cmocka_unit_test(a_router_chooses_among_the_experts_there_are),
        cmocka_unit_test(a_head_that_is_nowhere_is_said),
        cmocka_unit_test(fp8_without_scales_is_said),
        cmocka_unit_test(unknown_formats_are_told_by_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
