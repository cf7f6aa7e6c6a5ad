/* SPDX-License-Identifier: Apache-2.0 */
/* The `dense` loader, against the sizes that real models have and the slices that engines take. */
#include "test_loader_run.h"

typedef struct shape {
    int64_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary;
    bool bias, norms, head;
} shape;

static const shape SMALL = {.layers = 2,
                            .hidden = 16,
                            .intermediate = 24,
                            .heads = 8,
                            .kv_heads = 2,
                            .head_dim = 4,
                            .vocabulary = 100,
                            .bias = true,
                            .norms = true,
                            .head = true};

static lp_checkpoint *dense_checkpoint(const shape *s)
{
    static const char *const projection[] = {"q_proj", "k_proj", "v_proj"};
    lp_checkpoint *c = new_checkpoint();
    for (int64_t layer = 0; layer < s->layers; layer++) {
        const char *stem = named("model.layers.%d", (int)layer);
        char kept[64];
        snprintf(kept, sizeof kept, "%s", stem);
        for (int i = 0; i < 3; i++) {
            const int64_t rows = (i == 0 ? s->heads : s->kv_heads) * s->head_dim;
            add_named(c, LP_BF16, SHAPE(rows, s->hidden), "%s.self_attn.%s.weight", kept, projection[i]);
            if (s->bias)
                add_named(c, LP_BF16, SHAPE(rows), "%s.self_attn.%s.bias", kept, projection[i]);
        }
        add_named(c, LP_BF16, SHAPE(s->hidden, s->heads * s->head_dim), "%s.self_attn.o_proj.weight", kept);
        if (s->norms) {
            add_named(c, LP_BF16, SHAPE(s->head_dim), "%s.self_attn.q_norm.weight", kept);
            add_named(c, LP_BF16, SHAPE(s->head_dim), "%s.self_attn.k_norm.weight", kept);
        }
        add_named(c, LP_BF16, SHAPE(s->intermediate, s->hidden), "%s.mlp.gate_proj.weight", kept);
        add_named(c, LP_BF16, SHAPE(s->intermediate, s->hidden), "%s.mlp.up_proj.weight", kept);
        add_named(c, LP_BF16, SHAPE(s->hidden, s->intermediate), "%s.mlp.down_proj.weight", kept);
        add_named(c, LP_BF16, SHAPE(s->hidden), "%s.input_layernorm.weight", kept);
        add_named(c, LP_BF16, SHAPE(s->hidden), "%s.post_attention_layernorm.weight", kept);
    }
    add_named(c, LP_BF16, SHAPE(s->vocabulary, s->hidden), "model.embed_tokens.weight");
    add_named(c, LP_BF16, SHAPE(s->hidden), "model.norm.weight");
    if (s->head)
        add_named(c, LP_BF16, SHAPE(s->vocabulary, s->hidden), "lm_head.weight");
    return c;
}

static const char *config_of(const shape *s, const char *more)
{
    return named("{\"model_type\": \"llama\", \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                 "\"head_dim\": %d, \"num_hidden_layers\": %d%s}",
                 (int)s->heads, (int)s->kv_heads, (int)s->head_dim, (int)s->layers, more);
}

static void one_rank_holds_everything(void **state)
{
    (void)state;
    lp_checkpoint *c = dense_checkpoint(&SMALL);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){0}, config_of(&SMALL, ""));
    assert_string_equal(lp_trace_header_of(t)->loader, "dense");
    assert_int_equal(lp_trace_scope_count(t), 1);
    run x = run_scope(t, 0);
    assert_all_written_once(&x);
    assert_source(&x, "layers.1.self_attn.qkv_proj.weight", 0, "model.layers.1.self_attn.q_proj.weight", 0, 32 * 32);
    assert_source(&x, "layers.1.self_attn.qkv_proj.weight", 32 * 32, "model.layers.1.self_attn.k_proj.weight", 0, 256);
    assert_source(&x, "layers.1.self_attn.qkv_proj.weight", 40 * 32, "model.layers.1.self_attn.v_proj.weight", 0, 256);
    assert_source(&x, "layers.0.self_attn.qkv_proj.bias", 64, "model.layers.0.self_attn.k_proj.bias", 0, 16);
    assert_source(&x, "layers.0.mlp.gate_up_proj.weight", 24 * 32, "model.layers.0.mlp.up_proj.weight", 0, 24 * 32);
    assert_source(&x, "layers.0.self_attn.q_norm.weight", 0, "model.layers.0.self_attn.q_norm.weight", 0, 8);
    assert_source(&x, "norm.weight", 0, "model.norm.weight", 0, 32);
    assert_string_equal(dest_of(&x, "layers.1.mlp.down_proj.weight")->group, "layers.1");
    assert_string_equal(dest_of(&x, "embed_tokens.weight")->group, "root");
    assert_source(&x, "lm_head.weight", 0, "lm_head.weight", 0, 3200);
    assert_zero(&x, "embed_tokens.weight", 3200, 28 * 32); /* 100 rows are padded to 128 */
    assert_complete(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* tp 4 over 2 key/value heads: ranks 0 and 1 hold head 0, ranks 2 and 3 hold head 1. */
static void tensor_parallel_with_repeated_heads(void **state)
{
    (void)state;
    lp_checkpoint *c = dense_checkpoint(&SMALL);
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 4}}, config_of(&SMALL, ""));
    assert_int_equal(lp_trace_scope_count(t), 4);
    for (int rank = 0; rank < 4; rank++) {
        run x = run_scope(t, rank);
        const char *qkv = "layers.0.self_attn.qkv_proj.weight", *down = "layers.0.mlp.down_proj.weight";
        assert_all_written_once(&x);
        assert_int_equal(dest_of(&x, qkv)->shape[0], 16);
        assert_source(&x, qkv, 0, "model.layers.0.self_attn.q_proj.weight", rank * 8 * 32, 8 * 32);
        assert_source(&x, qkv, 8 * 32, "model.layers.0.self_attn.k_proj.weight", rank / 2 * 128, 128);
        assert_source(&x, qkv, 12 * 32, "model.layers.0.self_attn.v_proj.weight", rank / 2 * 128, 128);
        assert_source(&x, "layers.0.self_attn.qkv_proj.bias", 24, "model.layers.0.self_attn.v_proj.bias", rank / 2 * 8,
                      8);
        assert_int_equal(dest_of(&x, down)->shape[1], 6);
        for (int64_t row = 0; row < 16; row++)
            assert_source(&x, down, row * 12, "model.layers.0.mlp.down_proj.weight", row * 48 + rank * 12, 12);
        for (int64_t row = 0; row < 16; row++)
            assert_source(&x, "layers.0.self_attn.o_proj.weight", row * 16, "model.layers.0.self_attn.o_proj.weight",
                          row * 64 + rank * 16, 16);
        assert_source(&x, "layers.1.mlp.gate_up_proj.weight", 0, "model.layers.1.mlp.gate_proj.weight", rank * 6 * 32,
                      6 * 32);
        free_run(&x);
    }
    assert_complete(t);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

typedef struct vocabulary_case {
    int64_t vocabulary, ranks, rows, last_own;
} vocabulary_case;

/* Padded to 64; the figures are those of published models. */
static void vocabulary_is_padded(void **state)
{
    (void)state;
    static const vocabulary_case cases[] = {{32003, 2, 16032, 15971},
                                            {50257, 4, 12576, 12529},
                                            {128256, 8, 16032, 16032},
                                            {100, 4, 32, 4},
                                            {100, 3, 64, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const vocabulary_case *v = &cases[i];
        shape s = {.layers = 1,
                   .hidden = 12,
                   .intermediate = 24,
                   .heads = 24,
                   .kv_heads = 24,
                   .head_dim = 1,
                   .vocabulary = v->vocabulary,
                   .head = true};
        lp_checkpoint *c = dense_checkpoint(&s);
        seal_checkpoint(c);
        lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = (int32_t)v->ranks}}, config_of(&s, ""));
        run x = run_scope(t, (int32_t)v->ranks - 1);
        assert_int_equal(dest_of(&x, "embed_tokens.weight")->shape[0], v->rows);
        if (v->last_own > 0)
            assert_source(&x, "embed_tokens.weight", 0, "model.embed_tokens.weight", v->rows * (v->ranks - 1) * 24,
                          v->last_own * 24);
        assert_zero(&x, "embed_tokens.weight", v->last_own * 24, (v->rows - v->last_own) * 24);
        assert_all_written_once(&x);
        assert_complete(t);
        free_run(&x);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
}

static void head_is_tied(void **state)
{
    (void)state;
    shape s = SMALL;
    for (int stored = 0; stored < 2; stored++) {
        s.head = stored;
        lp_checkpoint *c = dense_checkpoint(&s);
        seal_checkpoint(c);
        lp_trace *t = load(c, (lp_loader_options){0}, config_of(&s, stored ? ", \"tie_word_embeddings\": true" : ""));
        run x = run_scope(t, 0);
        const lp_destination *head = dest_of(&x, "lm_head.weight");
        assert_string_equal(head->storage, "embed_tokens.weight");
        assert_true(head->flags & LP_DEST_TIED);
        assert_int_equal(head->shape[0], 128);
        assert_source(&x, "lm_head.weight", 0, "model.embed_tokens.weight", 0, 3200);
        if (stored)
            assert_int_equal(records_of(&x, "lm_head.weight"), 0);
        assert_complete(t);
        free_run(&x);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
}

static void missing_bias_of_one_part_is_zero(void **state)
{
    (void)state;
    shape s = SMALL;
    s.bias = false;
    lp_checkpoint *c = dense_checkpoint(&s);
    for (int layer = 0; layer < 2; layer++)
        add_named(c, LP_BF16, SHAPE(32), "model.layers.%d.self_attn.q_proj.bias", layer);
    add_named(c, LP_BF16, SHAPE(16), "model.layers.0.self_attn.o_proj.bias");
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 2}}, config_of(&s, ""));
    run x = run_scope(t, 1);
    assert_source(&x, "layers.0.self_attn.qkv_proj.bias", 0, "model.layers.0.self_attn.q_proj.bias", 32, 32);
    assert_zero(&x, "layers.0.self_attn.qkv_proj.bias", 32, 16);
    assert_source(&x, "layers.0.self_attn.o_proj.bias", 0, "model.layers.0.self_attn.o_proj.bias", 0, 32);
    assert_complete(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void rest_is_an_error_a_copy_or_declined(void **state)
{
    (void)state;
    lp_checkpoint *c = dense_checkpoint(&SMALL);
    for (int i = 0; i < 5; i++)
        add_named(c, LP_F32, SHAPE(3), "model.extra.%d", i);
    seal_checkpoint(c);
    const char *config = config_of(&SMALL, "");
    assert_load_fails(c, (lp_loader_options){0}, config, LP_E_UNSUPPORTED,
                      "no rule takes 'model.extra.0', 'model.extra.1', 'model.extra.2' and 2 more");
    lp_trace *t = load(c, (lp_loader_options){.rest = LP_REST_COPY, .layout = {.tp = 2}}, config_of(&SMALL, ""));
    for (int rank = 0; rank < 2; rank++) {
        run x = run_scope(t, rank);
        assert_source(&x, "model.extra.4", 0, "model.extra.4", 0, 12);
        free_run(&x);
    }
    assert_complete(t);
    lp_trace_close(t);
    t = load(c, (lp_loader_options){.rest = LP_REST_DECLINE}, config_of(&SMALL, ""));
    run x = run_scope(t, 0);
    assert_int_equal(records_of(&x, "model.extra.4"), 0);
    assert_non_null(strstr(lp_trace_header_of(t)->configuration, "decline=model.extra.*\n"));
    assert_complete(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void contradictions_name_the_tensor(void **state)
{
    (void)state;
    lp_checkpoint *c = dense_checkpoint(&SMALL);
    seal_checkpoint(c);
    shape s = SMALL;
    s.head_dim = 8;
    assert_load_fails(c, (lp_loader_options){0}, config_of(&s, ""), LP_E_MISMATCH,
                      "'model.layers.0.self_attn.q_proj.weight' is BF16 [32, 16], expected [64, *]");
    s = SMALL;
    s.layers = 3;
    assert_load_fails(c, (lp_loader_options){0}, config_of(&s, ""), LP_E_MISMATCH,
                      "says 3 layers, the checkpoint has 2");
    assert_load_fails(c, (lp_loader_options){.layout = {.tp = 3}}, config_of(&SMALL, ""), LP_E_ARGUMENT,
                      "attention heads: 8 cannot be split into 3 equal parts");
    assert_load_fails(c, (lp_loader_options){.loader = "dense"}, "{}", LP_E_MISMATCH, "no 'num_attention_heads'");
    assert_load_fails(c, (lp_loader_options){0}, "{}", LP_E_ARGUMENT, "no 'model_type'");
    assert_load_fails(c, (lp_loader_options){0}, "{\"model_type\": \"whisper\"}", LP_E_UNSUPPORTED,
                      "models of type 'whisper'");
    assert_load_fails(c, (lp_loader_options){0}, "[1, 2", LP_E_CORRUPT, "config.json is not JSON");
    assert_load_fails(c, (lp_loader_options){0}, "{\"num_hidden_layers\": \"two\"}", LP_E_CORRUPT,
                      "'num_hidden_layers' in config.json is not an integer");
    assert_load_fails(c, (lp_loader_options){.loader = "nothing"}, "{}", LP_E_ARGUMENT, "no loader 'nothing'");
    assert_load_fails(c, (lp_loader_options){.layout = {.pp = 2}}, "{}", LP_E_UNSUPPORTED, "pp 2");
    assert_load_fails(c, (lp_loader_options){.loader = "dense"},
                      "{\"num_attention_heads\": 8, \"num_key_value_heads\": -2}", LP_E_MISMATCH,
                      "'num_key_value_heads' in the configuration is -2");
    lp_checkpoint_close(c);

    s = SMALL;
    s.layers = 1;
    c = dense_checkpoint(&s);
    add_named(c, LP_BF16, SHAPE(4), "model.layers.1.input_layernorm.weight");
    seal_checkpoint(c);
    s.layers = 2;
    assert_load_fails(c, (lp_loader_options){0}, config_of(&s, ""), LP_E_UNKNOWN_NAME,
                      "the checkpoint has no 'model.layers.1.self_attn.q_proj.weight'");
    lp_checkpoint_close(c);
}

/* A trace carries catalogue and configuration: recording from it gives the same plan. */
static void recording_from_a_trace_gives_the_same_plan(void **state)
{
    (void)state;
    lp_checkpoint *c = dense_checkpoint(&SMALL);
    lp_error err;
    uint8_t first[32], second[32];
    seal_checkpoint(c);
    lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 2}, .target = "sm90"}, config_of(&SMALL, ""));
    lp_trace *again =
        load(lp_trace_checkpoint(t), (lp_loader_options){.layout = {.tp = 2}, .target = "sm90", .base = t}, NULL);
    assert_string_equal(lp_trace_header_of(again)->configuration, lp_trace_header_of(t)->configuration);
    assert_int_equal(lp_trace_set_digest(t, first, &err), LP_OK);
    assert_int_equal(lp_trace_set_digest(again, second, &err), LP_OK);
    assert_memory_equal(first, second, 32);
    assert_int_equal(lp_trace_structure_key(t, first, &err), LP_OK);
    assert_int_equal(lp_trace_structure_key(again, second, &err), LP_OK);
    assert_memory_equal(first, second, 32);
    lp_trace_close(again);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void some_ranks_only(void **state)
{
    (void)state;
    lp_checkpoint *c = dense_checkpoint(&SMALL);
    seal_checkpoint(c);
    const int32_t ranks[] = {1, 3};
    lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 2, .dp = 2}, .ranks = ranks, .rank_count = 2},
                       config_of(&SMALL, ""));
    assert_int_equal(lp_trace_scope_count(t), 2);
    assert_int_equal(lp_trace_scope_at(t, 1)->dp_rank, 1);
    assert_int_equal(lp_trace_scope_at(t, 1)->tp_rank, 1);
    lp_trace_close(t);
    assert_load_fails(c, (lp_loader_options){.layout = {.tp = 2}, .ranks = (int32_t[]){2}, .rank_count = 1},
                      config_of(&SMALL, ""), LP_E_ARGUMENT, "no rank 2 among 2");
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_holds_everything),
        cmocka_unit_test(tensor_parallel_with_repeated_heads),
        cmocka_unit_test(vocabulary_is_padded),
        cmocka_unit_test(head_is_tied),
        cmocka_unit_test(missing_bias_of_one_part_is_zero),
        cmocka_unit_test(rest_is_an_error_a_copy_or_declined),
        cmocka_unit_test(contradictions_name_the_tensor),
        cmocka_unit_test(recording_from_a_trace_gives_the_same_plan),
        cmocka_unit_test(some_ranks_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
