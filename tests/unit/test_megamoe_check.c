/* SPDX-License-Identifier: Apache-2.0 */
/* What lp_megamoe refuses before it launches anything: sizes, layouts, strides, alignment, weights transformed twice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/f8_few.h"
#include "kernels/megamoe_private.h"

#include <math.h>
#include <string.h>

static _Alignas(256) char memory[4096]; /* stands for device memory: checks follow no pointer */

typedef struct setup {
    lp_megamoe_shape shape;
    lp_megamoe_weights weights;
    lp_megamoe_io io;
} setup;

static setup make(lp_moe_format format, int32_t family)
{
    setup s = {.shape = {.size = sizeof s.shape,
                         .experts = 4,
                         .hidden = 512,
                         .intermediate = 256,
                         .top_k = 2,
                         .max_tokens = 64,
                         .format = format,
                         .x_dtype = LP_BF16,
                         .id_dtype = LP_I32},
               .weights = {.size = sizeof s.weights},
               .io = {.size = sizeof s.io,
                      .x = memory,
                      .topk_ids = memory,
                      .topk_weight = (float *)memory,
                      .tokens = (int32_t *)memory,
                      .y = memory}};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        const char *const id = lp_megamoe_layout(format, (lp_moe_slot)slot, family);
        if (id != NULL)
            assert_int_equal(lp_megamoe_tensor_in(&s.weights.tensor[slot], &s.shape, id, memory, NULL), LP_OK);
    }
    if (format == LP_NVFP4) {
        s.weights.l1_alpha = s.weights.l2_alpha = (float *)memory;
        s.weights.l1_alpha_columns = 2;
    }
    return s;
}

static lp_status check(const setup *s, lp_error *err)
{
    return lp_megamoe_check(&s->shape, &s->weights, &s->io, memory, INT64_MAX, err);
}

static void expect(const setup *s, lp_status status, const char *part)
{
    lp_error err = {0};
    const lp_status got = check(s, &err);
    if (got != status || strstr(err.text, part) == NULL)
        fail_msg("status %d, '%s'; expected %d with '%s'", (int)got, err.text, (int)status, part);
}

static void right_calls_pass(void **state)
{
    (void)state;
    const setup mx = make(LP_MXFP4, 0), nv = make(LP_NVFP4, 0);
    assert_int_equal(check(&mx, NULL), LP_OK);
    assert_int_equal(check(&nv, NULL), LP_OK);
    assert_int_equal(lp_moe_family_of(&mx.weights), LP_MOE_PACKED);
    const setup contract = make(LP_MXFP4, 1);
    assert_int_equal(lp_moe_family_of(&contract.weights), LP_MOE_CONTRACT);
}

static void layouts_are_listed_and_exist(void **state)
{
    (void)state;
    for (int format = LP_MXFP4; format <= LP_MOE_BF16; format++)
        for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
            for (int32_t n = 0; n < 3; n++) {
                const char *const id = lp_megamoe_layout((lp_moe_format)format, (lp_moe_slot)slot, n);
                assert_true(id == NULL || lp_layout_find(id) != NULL);
            }
    assert_string_equal(lp_megamoe_layout(LP_NVFP4, LP_MOE_L2_SCALE, 0), "nvfp4_sm90_l2_scale");
    assert_string_equal(lp_megamoe_layout(LP_NVFP4, LP_MOE_L2_SCALE, 1), "nvfp4_l2_scale");
    assert_null(lp_megamoe_layout(LP_NVFP4, LP_MOE_L2_SCALE, 2));
    assert_null(lp_megamoe_layout(LP_MOE_BF16, LP_MOE_L1_SCALE, 0));
    assert_null(lp_megamoe_layout((lp_moe_format)77, LP_MOE_L1_SCALE, 0));
}

static void wrong_sizes_name_the_multiple(void **state)
{
    (void)state;
    setup s = make(LP_MXFP4, 0);
    s.shape.hidden = 640;
    expect(&s, LP_E_ARGUMENT, "256");
    s = make(LP_MXFP4, 0);
    s.shape.intermediate = 192;
    expect(&s, LP_E_ARGUMENT, "128");
    s = make(LP_MXFP4, 0);
    s.shape.experts = 0;
    expect(&s, LP_E_ARGUMENT, "experts is 0, not 1 to 512");
    s = make(LP_MXFP4, 0);
    s.shape.top_k = 33;
    expect(&s, LP_E_ARGUMENT, "top_k is 33");
    s = make(LP_MXFP4, 0);
    s.shape.tokens_bound = 65;
    expect(&s, LP_E_ARGUMENT, "tokens_bound is 65, not 0 to 64");
    s = make(LP_MXFP4, 0);
    s.shape.hidden = INT64_MAX;
    expect(&s, LP_E_ARGUMENT, "hidden");
    s = make(LP_MXFP4, 0);
    s.shape.size = 8;
    expect(&s, LP_E_ARGUMENT, "size field");
    s = make(LP_MXFP4, 0);
    s.shape.format = (lp_moe_format)9;
    expect(&s, LP_E_ARGUMENT, "unknown weight format 9");
}

/* Shared experts of LP_MXFP8 beside NVFP4 experts, as a replay leaves them. */
static setup make_shared(lp_megamoe_weights *shared)
{
    setup s = make(LP_NVFP4, 0);
    s.shape.shared_intermediate = 384;
    s.shape.shared_format = LP_MXFP8;
    const lp_megamoe_shape shape = lp_megamoe_shared_shape(&s.shape);
    static const char *const id[LP_MOE_SLOTS] = {"mxfp8_shared_l1_weight", "mxfp8_shared_l1_scale",
                                                 "mxfp8_shared_l2_weight", "mxfp8_shared_l2_scale"};
    *shared = (lp_megamoe_weights){.size = sizeof *shared};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
        assert_int_equal(lp_megamoe_tensor_in(&shared->tensor[slot], &shape, id[slot], memory, NULL), LP_OK);
    s.weights.shared = shared;
    return s;
}

static void shared_experts_are_checked_as_one_expert(void **state)
{
    (void)state;
    lp_megamoe_weights shared;
    setup s = make_shared(&shared);
    const lp_megamoe_shape one = lp_megamoe_shared_shape(&s.shape);
    assert_int_equal(one.experts, 1);
    assert_int_equal(one.intermediate, 384);
    assert_int_equal(one.format, LP_MXFP8);
    assert_int_equal(one.hidden, s.shape.hidden);
    assert_int_equal(check(&s, NULL), LP_OK);
    lp_megamoe_shape alone = s.shape; /* their part of the workspace comes on top */
    alone.shared_intermediate = 0, alone.shared_format = 0;
    assert_true(lp_megamoe_workspace(&s.shape, NULL) >=
                lp_megamoe_workspace(&alone, NULL) + lp_megamoe_workspace(&one, NULL) + 64 * 512 * 2);

    s.weights.shared = NULL;
    expect(&s, LP_E_ARGUMENT, "weights of the shared experts are missing");
    s = make_shared(&shared);
    s.shape.shared_intermediate = 0;
    expect(&s, LP_E_ARGUMENT, "shared_format is given");
    s.shape.shared_format = 0;
    expect(&s, LP_E_ARGUMENT, "weights of shared experts are given");
    s.shape.shared_intermediate = -1;
    expect(&s, LP_E_ARGUMENT, "negative");
    s = make_shared(&shared);
    s.shape.shared_intermediate = 320;
    expect(&s, LP_E_ARGUMENT, "of the shared experts: ");
    s = make_shared(&shared);
    s.shape.shared_intermediate = 256; /* weights of another width */
    expect(&s, LP_E_ARGUMENT, "of the shared experts: dimension 0");
    s = make_shared(&shared);
    shared.tensor[LP_MOE_L2_SCALE].transforms = 2;
    expect(&s, LP_E_MISMATCH, "of the shared experts: layout 'mxfp8_shared_l2_scale' was applied 2 times");
    s = make_shared(&shared);
    shared.shared = &shared;
    expect(&s, LP_E_ARGUMENT, "no shared experts of their own");
    s = make_shared(&shared);
    s.shape.shared_format = LP_FP8_BLOCK128;
    expect(&s, LP_E_ARGUMENT, "256"); /* the multiple that the format needs of I */
    s = make(LP_MXFP4, 0);
    s.shape.x_dtype = LP_F8_E4M3;
    s.io.x_scale = (float *)memory;
    s.shape.shared_intermediate = 256, s.shape.shared_format = LP_MOE_BF16;
    expect(&s, LP_E_ARGUMENT, "of the shared experts: x is F8_E4M3, but bf16 takes BF16");
    s.shape.shared_format = LP_MXFP8;
    expect(&s, LP_E_ARGUMENT, "cannot be both for the routed and the shared experts");
    s = make(LP_MXFP8, 0); /* several experts have a dimension for them */
    s.weights.tensor[LP_MOE_L2_WEIGHT].layout = "mxfp8_shared_l2_weight";
    expect(&s, LP_E_MISMATCH, "the kernel reads 'mxfp8_l2_weight'");
}

static void wrong_switches_are_refused(void **state)
{
    (void)state;
    setup s = make(LP_NVFP4, 0);
    s.shape.x_dtype = LP_F8_E4M3;
    expect(&s, LP_E_ARGUMENT, "x is F8_E4M3, but nvfp4 takes BF16");
    s = make(LP_MXFP4, 0);
    s.shape.id_dtype = LP_F32;
    expect(&s, LP_E_ARGUMENT, "ids are F32");
    s.shape.id_dtype = LP_I64;
    s.shape.activation_limit = -1.0f;
    expect(&s, LP_E_ARGUMENT, "limit");
    s.shape.activation_limit = NAN;
    expect(&s, LP_E_ARGUMENT, "not finite");
    s.shape.activation_limit = 0.0f;
    s.shape.activation = LP_MOE_SWIGLU_STEP;
    expect(&s, LP_E_ARGUMENT, "needs a limit");
}

static void other_layouts_are_refused(void **state)
{
    (void)state;
    setup s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L1_WEIGHT].layout = "mxfp4_packed";
    expect(&s, LP_E_MISMATCH, "unknown layout 'mxfp4_packed'");
    s.weights.tensor[LP_MOE_L1_WEIGHT].layout = "nvfp4_trt_l1_weight";
    expect(&s, LP_E_MISMATCH,
           "has layout 'nvfp4_trt_l1_weight', the kernel reads 'mxfp4_sm90_l1_weight' or "
           "'mxfp4_l1_weight'");
    s.weights.tensor[LP_MOE_L1_WEIGHT].layout = NULL;
    expect(&s, LP_E_ARGUMENT, "names no layout");
    s = make(LP_MXFP4, 0); /* weights in one family, scales in the other */
    assert_int_equal(lp_megamoe_tensor_in(&s.weights.tensor[LP_MOE_L2_SCALE], &s.shape, "mxfp4_l2_scale", memory, NULL),
                     LP_OK);
    expect(&s, LP_E_MISMATCH, "two families");
}

static void weights_transformed_twice_are_refused(void **state)
{
    (void)state;
    setup s = make(LP_NVFP4, 0);
    s.weights.tensor[LP_MOE_L1_SCALE].transforms = 2;
    expect(&s, LP_E_MISMATCH, "was applied 2 times");
    s.weights.tensor[LP_MOE_L1_SCALE].transforms = 0;
    expect(&s, LP_E_MISMATCH, "was applied 0 times");
}

static void other_versions_and_orders_are_refused(void **state)
{
    (void)state;
    setup s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L2_WEIGHT].version = 2;
    expect(&s, LP_E_MISMATCH, "version 2 of layout 'mxfp4_sm90_l2_weight', the kernel reads version 1");
    s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L1_WEIGHT].order = LP_MOE_UP_FIRST;
    expect(&s, LP_E_MISMATCH, "up first");
}

static void wrong_tensors_are_refused(void **state)
{
    (void)state;
    setup s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L1_WEIGHT].stride[1] += 16;
    expect(&s, LP_E_ARGUMENT, "stride");
    s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L1_WEIGHT].shape[0] = 5;
    expect(&s, LP_E_ARGUMENT, "dimension 0 of the weight of the first projection is 5, not 4");
    s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L2_SCALE].dtype = LP_U8;
    expect(&s, LP_E_ARGUMENT, "is U8");
    s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L2_SCALE].ndim = 3;
    expect(&s, LP_E_ARGUMENT, "3 dimensions");
    s = make(LP_MXFP4, 0);
    s.weights.tensor[LP_MOE_L2_WEIGHT].data = memory + 8;
    expect(&s, LP_E_ARGUMENT, "not aligned to 16 bytes");
    s.weights.tensor[LP_MOE_L2_WEIGHT].data = NULL;
    expect(&s, LP_E_ARGUMENT, "is missing");
    s = make(LP_MXFP4, 0);
    s.weights.l1_alpha = (float *)memory;
    expect(&s, LP_E_ARGUMENT, "takes no alphas");
    s = make(LP_NVFP4, 0);
    s.weights.l2_alpha = NULL;
    expect(&s, LP_E_ARGUMENT, "l2_alpha is missing");
    s = make(LP_NVFP4, 0);
    s.weights.l1_alpha_columns = 3;
    expect(&s, LP_E_ARGUMENT, "l1_alpha_columns");
}

static void wrong_inputs_are_refused(void **state)
{
    (void)state;
    setup s = make(LP_MXFP4, 0);
    s.io.x = memory + 2;
    expect(&s, LP_E_ARGUMENT, "x is not aligned");
    s = make(LP_MXFP4, 0);
    s.shape.x_dtype = LP_F8_E4M3;
    expect(&s, LP_E_ARGUMENT, "x_scale is missing");
    s = make(LP_MXFP4, 0);
    s.io.x_scale = (float *)memory;
    expect(&s, LP_E_ARGUMENT, "x_scale is given");
    s = make(LP_MXFP4, 0);
    s.io.tokens = NULL;
    expect(&s, LP_E_ARGUMENT, "tokens is missing");
    s = make(LP_MXFP4, 0);
    s.io.y = memory + 4;
    expect(&s, LP_E_ARGUMENT, "y is not aligned");
}

static void the_workspace_is_checked(void **state)
{
    (void)state;
    const setup s = make(LP_MXFP4, 0);
    lp_error err;
    const int64_t need = lp_megamoe_workspace(&s.shape, &err);
    assert_true(need > 0 && need % 256 == 0);
    assert_int_equal(lp_megamoe_check(&s.shape, &s.weights, &s.io, memory, need, &err), LP_OK);
    assert_int_equal(lp_megamoe_check(&s.shape, &s.weights, &s.io, memory, need - 1, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_megamoe_check(&s.shape, &s.weights, &s.io, memory + 16, need, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_megamoe_check(&s.shape, &s.weights, &s.io, NULL, need, &err), LP_E_ARGUMENT);
    setup larger = s;
    larger.shape.max_tokens = 65536;
    larger.shape.top_k = 32;
    larger.shape.hidden = larger.shape.intermediate = 1 << 20;
    assert_true(lp_megamoe_workspace(&larger.shape, &err) > need); /* terabytes, but no overflow */
    larger.shape.hidden = 100;
    assert_int_equal(lp_megamoe_workspace(&larger.shape, &err), 0);
    assert_non_null(strstr(err.text, "256"));
}

static void the_workspace_suffices_for_every_bound(void **state)
{
    (void)state;
    static const lp_moe_path *const paths[] = {&lp_moe_path_prefill_w4, &lp_moe_path_w4_decode, &lp_moe_path_f8_few,
                                               &lp_moe_path_m8, &lp_moe_path_prefill};
    for (int format = LP_MXFP4; format <= LP_MOE_BF16; format++)
        for (int64_t tokens = 1; tokens <= 8192; tokens *= 8)
            for (int64_t inner = 256; inner <= 2048; inner *= 8) {
                setup s = make((lp_moe_format)format, 0);
                lp_error err;
                s.shape.max_tokens = tokens;
                s.shape.intermediate = inner;
                const int64_t given = lp_megamoe_workspace(&s.shape, &err);
                int taken = 0;
                for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
                    for (int64_t bound = 1; bound <= tokens; bound *= 2)
                        for (int family = LP_MOE_CONTRACT; family <= LP_MOE_PACKED; family++) {
                            lp_megamoe_shape shape = s.shape;
                            shape.tokens_bound = bound;
                            if (!paths[i]->takes(&shape, (lp_moe_family)family))
                                continue;
                            assert_true(paths[i]->workspace(&shape) <= given);
                            taken++;
                        }
                assert_true(taken > 0);
            }
}

static void few_whole_bytes_have_a_path_of_their_own(void **state)
{
    (void)state;
    setup s = make(LP_FP8_BLOCK128, 0);
    s.shape.intermediate = 2048, s.shape.max_tokens = 8192;
    s.shape.tokens_bound = 64;
    assert_true(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
    s.shape.tokens_bound = 8192; /* too many */
    assert_false(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
    s.shape.tokens_bound = 64;
    s.shape.intermediate = 1792; /* multiplied as BF16 values, with any number of tokens */
    assert_false(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
    s.shape.format = LP_MOE_BF16;
    assert_true(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
    s.shape.format = LP_MXFP8;
    assert_false(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
}

static void whole_bytes_come_in_chunks_by_the_routes_that_are_expected(void **state)
{
    (void)state;
    setup s = make(LP_FP8_BLOCK128, 0);
    s.shape.intermediate = 2048, s.shape.max_tokens = 8192, s.shape.experts = 32, s.shape.top_k = 4;
    static const struct {
        int64_t tokens;
        int rows;
    } of[] = {{8, LP_F8_FEW_ROWS},    {160, LP_F8_FEW_ROWS},  {161, LP_F8_SOME_ROWS},
              {384, LP_F8_SOME_ROWS}, {385, LP_F8_MANY_ROWS}, {800, LP_F8_MANY_ROWS}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        s.shape.tokens_bound = of[i].tokens;
        assert_int_equal(lp_f8_chunk_rows(&s.shape), of[i].rows);
        s.shape.format = LP_FP8_BLOCK128;
        assert_true(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
        s.shape.format = LP_MOE_BF16; /* has no kernel for the largest chunks */
        assert_int_equal(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT), of[i].rows != LP_F8_MANY_ROWS);
    }
    s.shape.format = LP_FP8_BLOCK128;
    s.shape.tokens_bound = 32 * LP_F8_EXPECTED_MOST / 4 + 1;
    assert_false(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
}

static void mxfp8_has_a_path_of_its_own(void **state)
{
    (void)state;
    setup s = make(LP_MXFP8, 0);
    s.shape.max_tokens = 65536;
    for (s.shape.tokens_bound = 1; s.shape.tokens_bound <= 256; s.shape.tokens_bound *= 2) {
        assert_true(lp_moe_path_m8.takes(&s.shape, LP_MOE_CONTRACT));
        assert_false(lp_moe_path_f8_few.takes(&s.shape, LP_MOE_CONTRACT));
    }
    s.shape.tokens_bound = 65536; /* decoding once a call is faster */
    assert_false(lp_moe_path_m8.takes(&s.shape, LP_MOE_CONTRACT));
    assert_true(lp_moe_path_prefill.takes(&s.shape, LP_MOE_CONTRACT));
    s.shape.tokens_bound = 1, s.shape.format = LP_MXFP4;
    assert_false(lp_moe_path_m8.takes(&s.shape, LP_MOE_CONTRACT));
}

static void caps_hold_for_the_worst_routing(void **state)
{
    (void)state;
    assert_int_equal(lp_moe_rows_cap(1, 4, 8), 8);
    assert_int_equal(lp_moe_rows_cap(4, 4, 8), 32);  /* one route each */
    assert_int_equal(lp_moe_rows_cap(9, 1, 8), 16);  /* all on one */
    assert_int_equal(lp_moe_rows_cap(17, 4, 8), 40); /* 14, 1, 1, 1 */
    assert_int_equal(lp_moe_chunks_cap(17, 4, 8), 6);
    lp_moe_space space = {NULL, 0};
    assert_null(lp_moe_take(&space, INT64_MAX, 2));
    assert_int_equal(space.used, -1);
    (void)lp_moe_take(&space, 1, 1);
    assert_int_equal(space.used, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_calls_pass),
        cmocka_unit_test(layouts_are_listed_and_exist),
        cmocka_unit_test(wrong_sizes_name_the_multiple),
        cmocka_unit_test(shared_experts_are_checked_as_one_expert),
        cmocka_unit_test(wrong_switches_are_refused),
        cmocka_unit_test(other_layouts_are_refused),
        cmocka_unit_test(weights_transformed_twice_are_refused),
        cmocka_unit_test(other_versions_and_orders_are_refused),
        cmocka_unit_test(wrong_tensors_are_refused),
        cmocka_unit_test(wrong_inputs_are_refused),
        cmocka_unit_test(the_workspace_is_checked),
        cmocka_unit_test(the_workspace_suffices_for_every_bound),
        cmocka_unit_test(few_whole_bytes_have_a_path_of_their_own),
        cmocka_unit_test(whole_bytes_come_in_chunks_by_the_routes_that_are_expected),
        cmocka_unit_test(mxfp8_has_a_path_of_its_own),
        cmocka_unit_test(caps_hold_for_the_worst_routing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
