/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaders over checkpoints that contradict themselves: right names with random dtypes and shapes, random
 * configurations. Every outcome is a plan that check can judge, or an error about the checkpoint; never a misuse of the
 * recorder by the loader, which would name a line of ours.
 */
#include "test_loader_run.h"
#include "tests/random_numbers.h"

typedef struct dice {
    uint64_t state;
} dice;

static uint32_t draw(dice *r, uint32_t below)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 33) % below;
}

static void add_any(lp_checkpoint *c, dice *r, lp_dtype dtype, size_t ndim, const int64_t *shape, const char *name)
{
    static const int64_t extent[] = {0, 1, 2, 3, 16, 64, 128, 256};
    static const lp_dtype dtypes[] = {LP_U8, LP_F8_E4M3, LP_F8_E8M0, LP_BF16, LP_F32, LP_I64, LP_F4, LP_C64, LP_BOOL};
    int64_t size[4] = {0};
    if (draw(r, 60) == 0)
        return;
    memcpy(size, shape, ndim * sizeof *shape);
    switch (draw(r, 40)) {
    case 0:
        ndim = draw(r, 4);
        for (size_t d = 0; d < ndim; d++)
            size[d] = extent[draw(r, 8)];
        break;
    case 1:
        if (ndim > 0)
            size[draw(r, (uint32_t)ndim)] = extent[draw(r, 8)];
        break;
    case 2:
        dtype = dtypes[draw(r, 9)];
        break;
    default:
        break;
    }
    int64_t bits = lp_dtype_bits(dtype);
    for (size_t d = 0; d < ndim; d++)
        bits *= size[d];
    add_named(c, bits % 8 == 0 ? dtype : LP_U8, ndim, size, "%s", name);
}

static void add_layer(lp_checkpoint *c, dice *r, int layer, int kind)
{
    static const char *const projection[] = {"gate_proj", "up_proj", "down_proj"};
    const char *stem = named("model.layers.%d", layer);
    char kept[64];
    snprintf(kept, sizeof kept, "%s", stem);
    add_any(c, r, LP_BF16, SHAPE(32, 256), named("%s.self_attn.q_proj.weight", kept));
    add_any(c, r, LP_BF16, SHAPE(16, 256), named("%s.self_attn.k_proj.weight", kept));
    add_any(c, r, LP_BF16, SHAPE(16, 256), named("%s.self_attn.v_proj.weight", kept));
    add_any(c, r, LP_BF16, SHAPE(16), named("%s.self_attn.v_proj.bias", kept));
    add_any(c, r, LP_BF16, SHAPE(256, 32), named("%s.self_attn.o_proj.weight", kept));
    add_any(c, r, LP_BF16, SHAPE(256), named("%s.input_layernorm.weight", kept));
    add_any(c, r, LP_BF16, SHAPE(256), named("%s.post_attention_layernorm.weight", kept));
    if (kind > 0)
        add_any(c, r, LP_BF16, SHAPE(2), named("%s.mlp.gate.e_score_correction_bias", kept));
    for (int p = 0; p < 3; p++) {
        const int64_t rows = p < 2 ? 128 : 256, columns = p < 2 ? 256 : 128;
        if (kind == 0)
            add_any(c, r, LP_BF16, SHAPE(rows, columns), named("%s.mlp.%s.weight", kept, projection[p]));
        for (int e = 0; kind > 0 && e < 2; e++) {
            char part[128];
            snprintf(part, sizeof part, "%s.mlp.experts.%d.%s", kept, e, projection[p]);
            add_any(c, r, LP_U8, SHAPE(rows, columns / 2), named("%s.weight", part));
            add_any(c, r, kind == 1 ? LP_F8_E4M3 : LP_U8, SHAPE(rows, columns / (kind == 1 ? 16 : 32)),
                    named("%s.weight_scale", part));
            if (kind == 1) {
                add_any(c, r, LP_F32, 0, (int64_t[]){0}, named("%s.weight_scale_2", part));
                add_any(c, r, LP_F32, 0, (int64_t[]){0}, named("%s.input_scale", part));
            }
        }
        if (kind > 0) {
            const char *shared = named("%s.mlp.shared_experts.%s.weight", kept, projection[p]);
            add_any(c, r, LP_F8_E4M3, SHAPE(rows, columns), shared);
            add_any(c, r, LP_U8, SHAPE(rows, columns / 32), named("%s_scale", shared));
        }
    }
}

static const char *random_config(dice *r)
{
    static const char *const value[] = {"0", "-1", "1", "2", "3", "4", "16", "4000000000", "9000000000000000000"};
    char head_dim[64] = "";
    if (draw(r, 4) == 0)
        snprintf(head_dim, sizeof head_dim, ", \"head_dim\": %s", draw(r, 2) ? "8" : value[draw(r, 9)]);
    return named("{\"model_type\": \"llama\", \"num_attention_heads\": %s, \"num_key_value_heads\": %s%s}",
                 draw(r, 6) ? "4" : value[draw(r, 9)], draw(r, 6) ? "2" : value[draw(r, 9)], head_dim);
}

static bool is_fair(lp_status status)
{
    return status == LP_E_MISMATCH || status == LP_E_UNKNOWN_NAME || status == LP_E_UNSUPPORTED ||
           status == LP_E_ARGUMENT || status == LP_E_LIMIT || status == LP_E_CORRUPT;
}

static bool one_checkpoint(uint64_t seed)
{
    dice r = {.state = seed};
    lp_checkpoint *c = new_checkpoint();
    const int kind = (int)draw(&r, 3);
    for (int layer = 0; layer < 2; layer++)
        add_layer(c, &r, layer, kind);
    add_any(c, &r, LP_BF16, SHAPE(100, 256), "model.embed_tokens.weight");
    add_any(c, &r, LP_BF16, SHAPE(256), "model.norm.weight");
    add_any(c, &r, LP_BF16, SHAPE(100, 256), "lm_head.weight");
    seal_checkpoint(c);
    const char *config = random_config(&r);
    lp_loader_options o = {.loader = kind > 0 ? "megamoe" : "dense",
                           .layout = {.tp = 1 + (int32_t)draw(&r, 3), .expert_parallel = draw(&r, 2) > 0},
                           .rest = (lp_rest)draw(&r, 3),
                           .slots = draw(&r, 3) ? 0 : (int32_t)draw(&r, 4),
                           .config = config,
                           .config_bytes = (int64_t)strlen(config)};
    lp_trace *t = NULL;
    lp_error err = {0};
    const lp_status status = lp_load_checkpoint(&t, c, &o, &err);
    if (status == LP_OK)
        assert_checked(t);
    else if (!is_fair(status) || strstr(err.text, ".c:") != NULL)
        fail_msg("seed %llu: %s: %s", (unsigned long long)seed, lp_status_name(status), err.text);
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return status == LP_OK;
}

static void contradictions_are_errors_about_the_checkpoint(void **state)
{
    (void)state;
    const uint64_t count = random_rounds(1500);
    uint64_t loaded = 0;
    for (uint64_t seed = 1; seed <= count; seed++)
        loaded += one_checkpoint(seed * 104729);
    assert_true(loaded > count / 50 && loaded < count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contradictions_are_errors_about_the_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
