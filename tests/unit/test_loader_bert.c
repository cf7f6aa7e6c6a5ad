/* SPDX-License-Identifier: Apache-2.0 */
/* The `bert` loader, on the names and shapes of a 6-layer sentence encoder. */
#include "test_loader_run.h"

static const char CONFIG[] = "{\"architectures\": [\"BertModel\"], \"model_type\": \"bert\", \"hidden_size\": 48, "
                             "\"num_attention_heads\": 12, \"num_hidden_layers\": 6, \"vocab_size\": 30522}";

static void add_linear(lp_checkpoint *c, const char *stem, int64_t rows, int64_t columns)
{
    add_named(c, LP_F32, SHAPE(rows, columns), "%s.weight", stem);
    add_named(c, LP_F32, SHAPE(rows), "%s.bias", stem);
}

static void add_norm(lp_checkpoint *c, const char *stem)
{
    add_named(c, LP_F32, SHAPE(48), "%s.weight", stem);
    add_named(c, LP_F32, SHAPE(48), "%s.bias", stem);
}

static lp_checkpoint *encoder(const char *prefix)
{
    lp_checkpoint *c = new_checkpoint();
    char stem[128];
    add_named(c, LP_F32, SHAPE(30522, 48), "%sembeddings.word_embeddings.weight", prefix);
    add_named(c, LP_F32, SHAPE(512, 48), "%sembeddings.position_embeddings.weight", prefix);
    add_named(c, LP_F32, SHAPE(2, 48), "%sembeddings.token_type_embeddings.weight", prefix);
    add_named(c, LP_I64, SHAPE(1, 512), "%sembeddings.position_ids", prefix);
    snprintf(stem, sizeof stem, "%sembeddings.LayerNorm", prefix);
    add_norm(c, stem);
    for (int layer = 0; layer < 6; layer++) {
        static const char *const attention[] = {"query", "key", "value"};
        for (int i = 0; i < 3; i++) {
            snprintf(stem, sizeof stem, "%sencoder.layer.%d.attention.self.%s", prefix, layer, attention[i]);
            add_linear(c, stem, 48, 48);
        }
        snprintf(stem, sizeof stem, "%sencoder.layer.%d.attention.output.dense", prefix, layer);
        add_linear(c, stem, 48, 48);
        snprintf(stem, sizeof stem, "%sencoder.layer.%d.attention.output.LayerNorm", prefix, layer);
        add_norm(c, stem);
        snprintf(stem, sizeof stem, "%sencoder.layer.%d.intermediate.dense", prefix, layer);
        add_linear(c, stem, 192, 48);
        snprintf(stem, sizeof stem, "%sencoder.layer.%d.output.dense", prefix, layer);
        add_linear(c, stem, 48, 192);
        snprintf(stem, sizeof stem, "%sencoder.layer.%d.output.LayerNorm", prefix, layer);
        add_norm(c, stem);
    }
    snprintf(stem, sizeof stem, "%spooler.dense", prefix);
    add_linear(c, stem, 48, 48);
    seal_checkpoint(c);
    return c;
}

static void every_tensor_is_loaded_or_declined(void **state)
{
    (void)state;
    static const char *const prefix[] = {"", "bert."};
    for (int k = 0; k < 2; k++) {
        lp_checkpoint *c = encoder(prefix[k]);
        lp_trace *t = load(c, (lp_loader_options){0}, CONFIG);
        run x = run_scope(t, 0);
        assert_string_equal(lp_trace_header_of(t)->loader, "bert");
        assert_all_written_once(&x);
        assert_complete(t);
        for (int64_t i = 0; i < lp_checkpoint_count(c); i++) {
            const char *name = lp_checkpoint_at(c, i)->name;
            assert_int_equal(records_of(&x, name) > 0, strstr(name, "position_ids") == NULL);
        }
        free_run(&x);
        lp_trace_close(t);
        lp_checkpoint_close(c);
    }
}

static void tensor_parallel_ranks(void **state)
{
    (void)state;
    enum { ROW = 48 * 4 };
    static const char *const part[] = {"query", "key", "value"};
    lp_checkpoint *c = encoder("");
    lp_trace *t = load(c, (lp_loader_options){.layout = {.tp = 4}}, CONFIG);
    for (int rank = 0; rank < 4; rank++) {
        run x = run_scope(t, rank);
        assert_all_written_once(&x);
        for (int i = 0; i < 3; i++) {
            assert_source(&x, "encoder.layer.5.attention.self.qkv_proj.weight", i * 12 * ROW,
                          named("encoder.layer.5.attention.self.%s.weight", part[i]), rank * 12 * ROW, 12 * ROW);
            assert_source(&x, "encoder.layer.5.attention.self.qkv_proj.bias", i * 12 * 4,
                          named("encoder.layer.5.attention.self.%s.bias", part[i]), rank * 12 * 4, 12 * 4);
        }
        assert_source(&x, "encoder.layer.2.intermediate.dense.bias", 0, "encoder.layer.2.intermediate.dense.bias",
                      rank * 48 * 4, 48 * 4);
        for (int64_t row = 0; row < 48; row++)
            assert_source(&x, "encoder.layer.0.output.dense.weight", row * ROW, "encoder.layer.0.output.dense.weight",
                          row * 4 * ROW + rank * ROW, ROW);
        assert_source(&x, "encoder.layer.0.output.dense.bias", 0, "encoder.layer.0.output.dense.bias", 0, ROW);
        assert_source(&x, "pooler.dense.weight", 0, "pooler.dense.weight", 0, 48 * ROW);
        assert_int_equal(dest_of(&x, "embeddings.word_embeddings.weight")->shape[0], 7632);
        if (rank == 3)
            assert_zero(&x, "embeddings.word_embeddings.weight", 7626 * ROW, 6 * ROW);
        assert_string_equal(dest_of(&x, "encoder.layer.0.output.dense.bias")->group, "encoder.layer.0");
        free_run(&x);
    }
    assert_complete(t);
    lp_trace_close(t);
    assert_load_fails(c, (lp_loader_options){.layout = {.tp = 8}}, CONFIG, LP_E_ARGUMENT,
                      "attention heads: 12 cannot be split into 8 equal parts");
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_loaded_or_declined),
        cmocka_unit_test(tensor_parallel_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
