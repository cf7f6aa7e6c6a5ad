/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loaders beside `dense`, `bert` and `megamoe` as catalogues in a table: each loads completely, survives the
 * failure of every allocation, and makes of contradictions errors about the checkpoint, never a misuse that names a
 * line of ours. What they load is held against numpy by tests/python/loader_breadth.py.
 */
#include "failing_memory.h"
#include "test_loader_run.h"
#include "tests/random_numbers.h"

/* One family of tensors; in its name '#' is a layer and '@' an expert. */
typedef struct row {
    const char *name;
    lp_dtype dtype;
    int ndim;
    int64_t shape[4];
} row;

typedef struct model {
    const char *title, *loader, *config;
    int layers, experts;
    row rows[40];
} model;

#define NORMS_AND_HEAD                                                                                                 \
    {"model.embed_tokens.weight", LP_BF16, 2, {100, 64}}, {"model.norm.weight", LP_BF16, 1, {64}},                     \
        {"lm_head.weight", LP_BF16, 2, {100, 64}}, {"model.layers.#.input_layernorm.weight", LP_BF16, 1, {64}},        \
    {                                                                                                                  \
        "model.layers.#.post_attention_layernorm.weight", LP_BF16, 1,                                                  \
        {                                                                                                              \
            64                                                                                                         \
        }                                                                                                              \
    }
#define ATTENTION                                                                                                      \
    {"model.layers.#.self_attn.q_proj.weight", LP_BF16, 2, {32, 64}},                                                  \
        {"model.layers.#.self_attn.k_proj.weight", LP_BF16, 2, {16, 64}},                                              \
        {"model.layers.#.self_attn.v_proj.weight", LP_BF16, 2, {16, 64}},                                              \
    {                                                                                                                  \
        "model.layers.#.self_attn.o_proj.weight", LP_BF16, 2,                                                          \
        {                                                                                                              \
            64, 32                                                                                                     \
        }                                                                                                              \
    }
#define HEADS "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"hidden_size\": 64"

static const model MODELS[] = {
    {"fp8 blocks",
     "moe",
     "{\"model_type\": \"qwen3_moe\", " HEADS "}",
     2,
     4,
     {NORMS_AND_HEAD,
      ATTENTION,
      {"model.layers.#.mlp.gate.weight", LP_BF16, 2, {4, 64}},
      {"model.layers.#.mlp.gate.e_score_correction_bias", LP_BF16, 1, {4}},
      {"model.layers.#.mlp.experts.@.gate_proj.weight", LP_F8_E4M3, 2, {32, 64}},
      {"model.layers.#.mlp.experts.@.gate_proj.weight_scale_inv", LP_F32, 2, {2, 4}},
      {"model.layers.#.mlp.experts.@.up_proj.weight", LP_F8_E4M3, 2, {32, 64}},
      {"model.layers.#.mlp.experts.@.up_proj.weight_scale_inv", LP_F32, 2, {2, 4}},
      {"model.layers.#.mlp.experts.@.down_proj.weight", LP_F8_E4M3, 2, {64, 32}},
      {"model.layers.#.mlp.experts.@.down_proj.weight_scale_inv", LP_F32, 2, {4, 2}},
      {"model.layers.#.mlp.shared_experts.gate_proj.weight", LP_BF16, 2, {16, 64}},
      {"model.layers.#.mlp.shared_experts.up_proj.weight", LP_BF16, 2, {16, 64}},
      {"model.layers.#.mlp.shared_experts.down_proj.weight", LP_BF16, 2, {64, 16}}}},
    {"scalars and biases",
     "moe",
     "{\"model_type\": \"mixtral\", " HEADS "}",
     1,
     4,
     {NORMS_AND_HEAD,
      ATTENTION,
      {"model.layers.#.self_attn.q_proj.input_scale", LP_F32, 0, {0}},
      {"model.layers.#.self_attn.k_proj.input_scale", LP_F32, 0, {0}},
      {"model.layers.#.self_attn.v_proj.input_scale", LP_F32, 0, {0}},
      {"model.layers.#.self_attn.o_proj.input_scale", LP_F32, 1, {1}},
      {"model.layers.#.block_sparse_moe.gate.weight", LP_BF16, 2, {4, 64}},
      {"model.layers.#.block_sparse_moe.experts.@.w1.weight_packed", LP_U8, 2, {32, 32}},
      {"model.layers.#.block_sparse_moe.experts.@.w1.weight_scale", LP_F8_E4M3, 2, {32, 4}},
      {"model.layers.#.block_sparse_moe.experts.@.w1.weight_global_scale", LP_F32, 1, {1}},
      {"model.layers.#.block_sparse_moe.experts.@.w1.bias", LP_BF16, 1, {32}},
      {"model.layers.#.block_sparse_moe.experts.@.w3.weight_packed", LP_U8, 2, {32, 32}},
      {"model.layers.#.block_sparse_moe.experts.@.w3.weight_scale", LP_F8_E4M3, 2, {32, 4}},
      {"model.layers.#.block_sparse_moe.experts.@.w3.weight_global_scale", LP_F32, 1, {1}},
      {"model.layers.#.block_sparse_moe.experts.@.w3.bias", LP_BF16, 1, {32}},
      {"model.layers.#.block_sparse_moe.experts.@.w2.weight_packed", LP_U8, 2, {64, 16}},
      {"model.layers.#.block_sparse_moe.experts.@.w2.weight_scale", LP_F8_E4M3, 2, {64, 2}},
      {"model.layers.#.block_sparse_moe.experts.@.w2.weight_global_scale", LP_F32, 1, {1}},
      {"model.layers.#.block_sparse_moe.experts.@.w2.bias", LP_BF16, 1, {64}},
      {"model.layers.#.block_sparse_moe.experts.@.w2.weight_shape", LP_I64, 1, {2}}}},
    {"blocks of all experts",
     "moe",
     "{\"model_type\": \"gpt_oss\", " HEADS "}",
     2,
     0,
     {NORMS_AND_HEAD,
      ATTENTION,
      {"model.layers.#.self_attn.sinks", LP_BF16, 1, {4}},
      {"model.layers.#.mlp.router.weight", LP_BF16, 2, {4, 64}},
      {"model.layers.#.mlp.experts.gate_up_proj_blocks", LP_U8, 4, {4, 128, 2, 16}},
      {"model.layers.#.mlp.experts.gate_up_proj_scales", LP_U8, 3, {4, 128, 2}},
      {"model.layers.#.mlp.experts.gate_up_proj_bias", LP_BF16, 2, {4, 128}},
      {"model.layers.#.mlp.experts.down_proj_blocks", LP_U8, 4, {4, 64, 2, 16}},
      {"model.layers.#.mlp.experts.down_proj_scales", LP_U8, 3, {4, 64, 2}},
      {"model.layers.#.mlp.experts.down_proj_bias", LP_BF16, 2, {4, 64}}}},
    {"all experts transposed",
     "moe",
     "{\"model_type\": \"llama4\", " HEADS "}",
     1,
     0,
     {NORMS_AND_HEAD,
      ATTENTION,
      {"model.layers.#.feed_forward.router.weight", LP_BF16, 2, {4, 64}},
      {"model.layers.#.feed_forward.experts.gate_up_proj", LP_BF16, 3, {4, 64, 64}},
      {"model.layers.#.feed_forward.experts.down_proj", LP_BF16, 3, {4, 32, 64}}}},
    {"latent attention",
     "moe",
     "{\"model_type\": \"deepseek_v3\", \"num_attention_heads\": 4, \"num_hidden_layers\": 1, "
     "\"num_nextn_predict_layers\": 1}",
     2,
     0,
     {NORMS_AND_HEAD,
      {"model.layers.#.self_attn.q_a_proj.weight", LP_F8_E4M3, 2, {32, 64}},
      {"model.layers.#.self_attn.q_a_proj.weight_scale_inv", LP_F32, 2, {2, 4}},
      {"model.layers.#.self_attn.q_a_layernorm.weight", LP_BF16, 1, {32}},
      {"model.layers.#.self_attn.q_b_proj.weight", LP_BF16, 2, {64, 32}},
      {"model.layers.#.self_attn.kv_a_proj_with_mqa.weight", LP_F8_E4M3, 2, {24, 64}},
      {"model.layers.#.self_attn.kv_a_proj_with_mqa.weight_scale_inv", LP_F32, 2, {2, 4}},
      {"model.layers.#.self_attn.kv_a_layernorm.weight", LP_BF16, 1, {16}},
      {"model.layers.#.self_attn.kv_b_proj.weight", LP_BF16, 2, {64, 16}},
      {"model.layers.#.self_attn.o_proj.weight", LP_BF16, 2, {64, 32}},
      {"model.layers.#.mlp.gate_proj.weight", LP_BF16, 2, {32, 64}},
      {"model.layers.#.mlp.up_proj.weight", LP_BF16, 2, {32, 64}},
      {"model.layers.#.mlp.down_proj.weight", LP_BF16, 2, {64, 32}},
      {"model.layers.1.eh_proj.weight", LP_BF16, 2, {64, 128}}}},
    {"gated delta net",
     "moe",
     "{\"model_type\": \"qwen3_next\", " HEADS ", \"linear_num_key_heads\": 2, \"linear_key_head_dim\": 4}",
     1,
     2,
     {NORMS_AND_HEAD,
      {"model.layers.#.linear_attn.A_log", LP_BF16, 1, {4}},
      {"model.layers.#.linear_attn.dt_bias", LP_BF16, 1, {4}},
      {"model.layers.#.linear_attn.conv1d.weight", LP_BF16, 3, {40, 1, 4}},
      {"model.layers.#.linear_attn.in_proj_qkvz.weight", LP_BF16, 2, {64, 64}},
      {"model.layers.#.linear_attn.in_proj_ba.weight", LP_BF16, 2, {8, 64}},
      {"model.layers.#.linear_attn.norm.weight", LP_BF16, 1, {6}},
      {"model.layers.#.linear_attn.out_proj.weight", LP_BF16, 2, {64, 24}},
      {"model.layers.#.mlp.gate.weight", LP_BF16, 2, {2, 64}},
      {"model.layers.#.mlp.experts.@.gate_proj.weight", LP_BF16, 2, {16, 64}},
      {"model.layers.#.mlp.experts.@.up_proj.weight", LP_BF16, 2, {16, 64}},
      {"model.layers.#.mlp.experts.@.down_proj.weight", LP_BF16, 2, {64, 16}},
      {"mtp.fc.weight", LP_BF16, 2, {64, 128}}}},
    {"fused on disk",
     "dense",
     "{\"model_type\": \"phi3\", " HEADS "}",
     2,
     0,
     {NORMS_AND_HEAD,
      {"model.layers.#.self_attn.qkv_proj.weight", LP_BF16, 2, {64, 64}},
      {"model.layers.#.self_attn.o_proj.weight", LP_BF16, 2, {64, 32}},
      {"model.layers.#.mlp.gate_up_proj.weight", LP_BF16, 2, {32, 64}},
      {"model.layers.#.mlp.down_proj.weight", LP_BF16, 2, {64, 16}}}},
    {"transposed matrices",
     "gpt2",
     "{\"model_type\": \"gpt2\", \"n_head\": 4}",
     2,
     0,
     {{"wte.weight", LP_F32, 2, {100, 16}},
      {"wpe.weight", LP_F32, 2, {8, 16}},
      {"h.#.attn.bias", LP_F32, 4, {1, 1, 8, 8}},
      {"h.#.attn.c_attn.weight", LP_F32, 2, {16, 48}},
      {"h.#.attn.c_attn.bias", LP_F32, 1, {48}},
      {"h.#.attn.c_proj.weight", LP_F32, 2, {16, 16}},
      {"h.#.attn.c_proj.bias", LP_F32, 1, {16}},
      {"h.#.mlp.c_fc.weight", LP_F32, 2, {16, 64}},
      {"h.#.mlp.c_fc.bias", LP_F32, 1, {64}},
      {"h.#.mlp.c_proj.weight", LP_F32, 2, {64, 16}},
      {"h.#.mlp.c_proj.bias", LP_F32, 1, {16}},
      {"h.#.ln_1.weight", LP_F32, 1, {16}},
      {"h.#.ln_2.weight", LP_F32, 1, {16}},
      {"ln_f.weight", LP_F32, 1, {16}}}},
    {"q, k and v in groups",
     "falcon",
     "{\"model_type\": \"falcon\", \"num_attention_heads\": 4, \"num_kv_heads\": 2, \"new_decoder_architecture\": "
     "true}",
     2,
     0,
     {{"transformer.word_embeddings.weight", LP_BF16, 2, {100, 16}},
      {"transformer.h.#.self_attention.query_key_value.weight", LP_BF16, 2, {32, 16}},
      {"transformer.h.#.self_attention.dense.weight", LP_BF16, 2, {16, 16}},
      {"transformer.h.#.mlp.dense_h_to_4h.weight", LP_BF16, 2, {64, 16}},
      {"transformer.h.#.mlp.dense_4h_to_h.weight", LP_BF16, 2, {16, 64}},
      {"transformer.h.#.ln_attn.weight", LP_BF16, 1, {16}},
      {"transformer.ln_f.weight", LP_BF16, 1, {16}}}},
    {"q, k and v in turns",
     "neox",
     "{\"model_type\": \"gpt_neox\", \"num_attention_heads\": 4}",
     1,
     0,
     {{"gpt_neox.embed_in.weight", LP_F16, 2, {100, 16}},
      {"embed_out.weight", LP_F16, 2, {100, 16}},
      {"gpt_neox.layers.#.attention.query_key_value.weight", LP_F16, 2, {48, 16}},
      {"gpt_neox.layers.#.attention.query_key_value.bias", LP_F16, 1, {48}},
      {"gpt_neox.layers.#.attention.dense.weight", LP_F16, 2, {16, 16}},
      {"gpt_neox.layers.#.mlp.dense_h_to_4h.weight", LP_F16, 2, {64, 16}},
      {"gpt_neox.layers.#.mlp.dense_4h_to_h.weight", LP_F16, 2, {16, 64}},
      {"gpt_neox.layers.#.input_layernorm.weight", LP_F16, 1, {16}},
      {"gpt_neox.layers.#.post_attention_layernorm.weight", LP_F16, 1, {16}},
      {"gpt_neox.final_layer_norm.weight", LP_F16, 1, {16}}}},
    {"state space",
     "mamba",
     "{\"model_type\": \"mamba\"}",
     2,
     0,
     {{"backbone.embeddings.weight", LP_F32, 2, {100, 16}},
      {"backbone.layers.#.norm.weight", LP_F32, 1, {16}},
      {"backbone.layers.#.mixer.A_log", LP_F32, 2, {32, 4}},
      {"backbone.layers.#.mixer.D", LP_F32, 1, {32}},
      {"backbone.layers.#.mixer.conv1d.weight", LP_F32, 3, {32, 1, 4}},
      {"backbone.layers.#.mixer.conv1d.bias", LP_F32, 1, {32}},
      {"backbone.layers.#.mixer.in_proj.weight", LP_F32, 2, {64, 16}},
      {"backbone.layers.#.mixer.x_proj.weight", LP_F32, 2, {12, 32}},
      {"backbone.layers.#.mixer.dt_proj.weight", LP_F32, 2, {32, 4}},
      {"backbone.layers.#.mixer.dt_proj.bias", LP_F32, 1, {32}},
      {"backbone.layers.#.mixer.out_proj.weight", LP_F32, 2, {16, 32}},
      {"backbone.norm_f.weight", LP_F32, 1, {16}}}},
    {"state space by heads",
     "mamba",
     "{\"model_type\": \"mamba2\", \"num_heads\": 4, \"n_groups\": 2, \"state_size\": 4}",
     1,
     0,
     {{"backbone.embeddings.weight", LP_BF16, 2, {100, 16}},
      {"lm_head.weight", LP_BF16, 2, {100, 16}},
      {"backbone.layers.#.norm.weight", LP_BF16, 1, {16}},
      {"backbone.layers.#.mixer.A_log", LP_BF16, 1, {4}},
      {"backbone.layers.#.mixer.D", LP_BF16, 1, {4}},
      {"backbone.layers.#.mixer.dt_bias", LP_BF16, 1, {4}},
      {"backbone.layers.#.mixer.conv1d.weight", LP_BF16, 3, {48, 1, 4}},
      {"backbone.layers.#.mixer.conv1d.bias", LP_BF16, 1, {48}},
      {"backbone.layers.#.mixer.in_proj.weight", LP_BF16, 2, {84, 16}},
      {"backbone.layers.#.mixer.norm.weight", LP_BF16, 1, {32}},
      {"backbone.layers.#.mixer.out_proj.weight", LP_BF16, 2, {16, 32}},
      {"backbone.norm_f.weight", LP_BF16, 1, {16}}}},
};
enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS };

/* ---- catalogues ---- */

typedef struct dice {
    uint64_t state;
} dice;

static uint32_t draw(dice *r, uint32_t below)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33) % below;
}

/* With dice, a tensor in sixty is missing, and one in twenty has another shape or dtype. */
static void add_row(lp_checkpoint *c, const row *x, int layer, int expert, dice *r)
{
    static const int64_t extent[] = {0, 1, 2, 3, 16, 32, 64, 128};
    static const lp_dtype dtypes[] = {LP_U8, LP_F8_E4M3, LP_BF16, LP_F32, LP_I64, LP_F4, LP_C64, LP_BOOL};
    int64_t size[4] = {x->shape[0], x->shape[1], x->shape[2], x->shape[3]}, bits;
    size_t ndim = (size_t)x->ndim, used = 0;
    lp_dtype dtype = x->dtype;
    char name[200];
    for (const char *p = x->name; *p != '\0'; p++) {
        if (*p == '#' || *p == '@')
            used += (size_t)snprintf(name + used, sizeof name - used, "%d", *p == '#' ? layer : expert);
        else
            name[used++] = *p;
    }
    name[used] = '\0';
    if (r != NULL && draw(r, 60) == 0)
        return;
    const uint32_t change = r != NULL ? draw(r, 60) : 60;
    if (change == 0) {
        ndim = draw(r, 5);
        for (size_t d = 0; d < ndim; d++)
            size[d] = extent[draw(r, 8)];
    } else if (change == 1 && ndim > 0) {
        size[draw(r, (uint32_t)ndim)] = extent[draw(r, 8)];
    } else if (change == 2) {
        dtype = dtypes[draw(r, 8)];
    }
    bits = lp_dtype_bits(dtype);
    for (size_t d = 0; d < ndim; d++)
        bits *= size[d];
    add_named(c, bits % 8 == 0 ? dtype : LP_U8, ndim, size, "%s", name);
}

static lp_checkpoint *checkpoint_of(const model *m, dice *r)
{
    lp_checkpoint *c = new_checkpoint();
    for (const row *x = m->rows; x->name != NULL; x++) {
        const int layers = strchr(x->name, '#') != NULL ? m->layers : 1;
        const int experts = strchr(x->name, '@') != NULL ? m->experts : 1;
        for (int layer = 0; layer < layers; layer++) {
            for (int e = 0; e < experts; e++)
                add_row(c, x, layer, e, r);
        }
    }
    seal_checkpoint(c);
    return c;
}

/* ---- tests ---- */

static void all_load_completely(void **state)
{
    (void)state;
    for (int i = 0; i < MODEL_COUNT; i++) {
        const model *m = &MODELS[i];
        lp_checkpoint *c = checkpoint_of(m, NULL);
        for (int32_t tp = 1; tp <= 2; tp++) {
            for (int ep = 0; ep < 2; ep++) {
                const lp_scope layout = {.tp = tp, .dp = ep ? 2 / tp : 1, .expert_parallel = ep > 0};
                lp_trace *t = load(c, (lp_loader_options){.loader = m->loader, .layout = layout}, m->config);
                assert_string_equal(lp_trace_header_of(t)->loader, m->loader);
                for (int32_t s = 0; s < lp_trace_scope_count(t); s++) {
                    run x = run_scope(t, s);
                    assert_all_written_once(&x);
                    free_run(&x);
                }
                assert_complete(t);
                lp_trace_close(t);
            }
        }
        lp_checkpoint_close(c);
    }
}

/* A half of 16 rows is a block, a quarter of 8 rows is not. */
static void blocks_are_not_cut(void **state)
{
    (void)state;
    lp_checkpoint *c = checkpoint_of(&MODELS[0], NULL);
    assert_load_fails(
        c, (lp_loader_options){.layout = {.tp = 4}}, MODELS[0].config, LP_E_ARGUMENT,
        "'model.layers.0.mlp.experts.0.gate_proj.weight_scale_inv' has a scale for a block of 16 rows, and 8 of 32 "
        "on a rank are not whole blocks");
    lp_checkpoint_close(c);
}

/* Four slots on each of two ranks hold four experts twice; gate and up alternate on disk. */
static void slots_repeat_fused_experts(void **state)
{
    (void)state;
    const model *m = &MODELS[2];
    lp_checkpoint *c = checkpoint_of(m, NULL);
    lp_trace *t = load(c, (lp_loader_options){.layout = {.dp = 2, .expert_parallel = true}, .slots = 3}, m->config);
    run x = run_scope(t, 1);
    const char *w13 = "layers.0.mlp.experts.w13_weight", *blocks = "model.layers.0.mlp.experts.gate_up_proj_blocks";
    assert_int_equal(dest_of(&x, w13)->shape[0], 3);
    for (int64_t slot = 0; slot < 3; slot++) {
        const int64_t expert = (3 + slot) % 4;
        for (int64_t i = 0; i < 64; i++) {
            assert_source(&x, w13, (slot * 128 + i) * 32, blocks, (expert * 128 + 2 * i) * 32, 32);
            assert_source(&x, w13, (slot * 128 + 64 + i) * 32, blocks, (expert * 128 + 2 * i + 1) * 32, 32);
        }
    }
    free_run(&x);
    lp_trace_close(t);
    assert_load_fails(c, (lp_loader_options){.layout = {.dp = 2, .expert_parallel = true}, .slots = 1}, m->config,
                      LP_E_ARGUMENT, "are too few for 4 experts");
    lp_checkpoint_close(c);
}

/* The second projection's bias is added by one rank only, because the ranks' outputs are added up. */
static void bias_of_sums_is_loaded_once(void **state)
{
    (void)state;
    lp_checkpoint *c = checkpoint_of(&MODELS[1], NULL);
    lp_trace *t = load(c, (lp_loader_options){.loader = "moe", .layout = {.tp = 2}}, MODELS[1].config);
    const char *bias = "layers.0.block_sparse_moe.experts.w2_bias";
    run x = run_scope(t, 0), y = run_scope(t, 1);
    assert_source(&x, bias, 128, "model.layers.0.block_sparse_moe.experts.1.w2.bias", 0, 128);
    assert_zero(&y, bias, 0, 4 * 128);
    free_run(&x);
    free_run(&y);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static bool is_fair(lp_status status)
{
    return status == LP_E_MISMATCH || status == LP_E_UNKNOWN_NAME || status == LP_E_UNSUPPORTED ||
           status == LP_E_ARGUMENT || status == LP_E_LIMIT || status == LP_E_CORRUPT || status == LP_E_DUPLICATE;
}

static bool one_contradiction(uint64_t seed)
{
    dice r = {.state = seed};
    const model *m = &MODELS[draw(&r, MODEL_COUNT)];
    lp_checkpoint *c = checkpoint_of(m, &r);
    const lp_loader_options o = {.loader = m->loader,
                                 .layout = {.tp = 1 + (int32_t)draw(&r, 4), .expert_parallel = draw(&r, 2) > 0},
                                 .rest = (lp_rest)draw(&r, 3),
                                 .slots = draw(&r, 3) ? 0 : (int32_t)draw(&r, 6),
                                 .config = m->config,
                                 .config_bytes = (int64_t)strlen(m->config)};
    lp_trace *t = NULL;
    lp_error err = {0};
    const lp_status status = lp_load_checkpoint(&t, c, &o, &err);
    if (status == LP_OK)
        assert_checked(t);
    else if (!is_fair(status) || strstr(err.text, ".c:") != NULL)
        fail_msg("seed %llu, %s: %s: %s", (unsigned long long)seed, m->title, lp_status_name(status), err.text);
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return status == LP_OK;
}

static void contradictions_are_errors_about_the_checkpoint(void **state)
{
    (void)state;
    const uint64_t count = random_rounds(3000);
    uint64_t loaded = 0;
    for (uint64_t seed = 1; seed <= count; seed++)
        loaded += one_contradiction(seed * 15485863);
    assert_true(loaded > count / 50 && loaded < count);
}

/* ---- failing allocations ---- */

static void allocations_may_fail(void **state)
{
    (void)state;
    for (int i = 0; i < MODEL_COUNT; i++) {
        const model *m = &MODELS[i];
        lp_checkpoint *c = checkpoint_of(m, NULL);
        for (int64_t n = 1;; n += n < 60 ? 1 : 7) {
            failing_alloc f = {.fail_at = n};
            const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_resize};
            const lp_platform platform = {.alloc = &alloc};
            const lp_loader_options o = {.loader = m->loader,
                                         .layout = {.tp = 2},
                                         .platform = &platform,
                                         .config = m->config,
                                         .config_bytes = (int64_t)strlen(m->config)};
            lp_trace *t = NULL;
            lp_error err = {0};
            const lp_status status = lp_load_checkpoint(&t, c, &o, &err);
            lp_trace_close(t);
            assert_int_equal(f.live, 0);
            if (status == LP_OK && f.calls < n)
                break;
            if (status != LP_E_MEMORY)
                fail_msg("%s, allocation %lld: %s: %s", m->title, (long long)n, lp_status_name(status), err.text);
        }
        lp_checkpoint_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_load_completely),
        cmocka_unit_test(blocks_are_not_cut),
        cmocka_unit_test(slots_repeat_fused_experts),
        cmocka_unit_test(bias_of_sums_is_loaded_once),
        cmocka_unit_test(contradictions_are_errors_about_the_checkpoint),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
