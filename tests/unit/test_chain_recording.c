/* SPDX-License-Identifier: Apache-2.0 */
/* Chains in a loader: a checkpoint tensor copied through the region of a chain, or piece by piece, gives a trace that
 * moves the same bytes as lp_chain_apply, of whole blocks and of padded tails. */
#include "test_recorder_run.h"

#include "chain_testing.h"

typedef struct chain_case {
    const char *id; /* or the chain */
    lp_dtype dtype;
    int64_t shape[2];
} chain_case;

/* What docs/layouts.md shows. */
static void load(lp_recorder *r, const lp_chain_form *form, lp_dtype dtype)
{
    lp_view region;
    lp_error err;
    lp_declare(r, "packed", dtype, form->chain.out_ndim, form->out_shape);
    if (lp_chain_region(form, dtype, &region, &err) != LP_OK)
        fail_msg("%s", err.text);
    if (form->units != form->source_units)
        lp_zero(lp_dest(r, "packed"), lp_at_begin(r));
    lp_copy(lp_with_view(lp_dest(r, "packed"), &region), lp_source(r, "plain"));
}

/* The same where no one view says it. */
static void load_pieces(lp_recorder *r, const lp_chain_form *form, lp_dtype dtype)
{
    lp_view region, source;
    lp_error err;
    lp_declare(r, "packed", dtype, form->chain.out_ndim, form->out_shape);
    if (form->units != form->source_units)
        lp_zero(lp_dest(r, "packed"), lp_at_begin(r));
    for (int64_t at = 0;;) {
        if (lp_chain_piece(form, dtype, &at, &region, &source, &err) != LP_OK)
            fail_msg("%s", err.text);
        if (at < 0)
            break;
        lp_copy(lp_with_view(lp_dest(r, "packed"), &region), lp_with_view(lp_source(r, "plain"), &source));
    }
}

/* Recorded, checked and run, the chain puts the bytes of "plain" where lp_chain_apply puts them. */
static void check_form(const lp_chain_form *form, lp_dtype dtype, bool pieces)
{
    const int unit_bits = lp_dtype_bits(dtype);
    lp_checkpoint *const ck = new_checkpoint();
    add_tensor(ck, "plain", dtype, form->chain.ndim, form->shape);
    seal_checkpoint(ck);
    lp_recorder *const r = open_recorder(ck);
    (pieces ? load_pieces : load)(r, form, dtype);
    lp_trace *const t = finish(r);
    assert_checked(t);

    const int64_t bytes = form->units * unit_bits / 8, source = form->source_units * unit_bits / 8;
    uint8_t *const in = malloc((size_t)source), *const wanted = malloc((size_t)bytes);
    for (int64_t i = 0; i < source; i++)
        in[i] = source_byte("plain", i);
    assert_int_equal(lp_chain_apply(form, unit_bits, in, wanted, NULL), LP_OK);
    run loaded = run_scope(t, 0);
    assert_memory_equal(storage_of(&loaded, dest_of(&loaded, "packed"))->byte, wanted, (size_t)bytes);
    free_run(&loaded);
    free(wanted);
    free(in);
    lp_trace_close(t);
    lp_checkpoint_close(ck);
}

static void check_case(const chain_case *c, bool pieces)
{
    lp_chain chain;
    lp_chain_form form;
    const lp_chain_known *const known = lp_chain_known_find(c->id);
    const int unit_bits = lp_dtype_bits(c->dtype);
    assert_int_equal(known != NULL ? known->unit_bits : unit_bits, unit_bits);
    assert_int_equal(lp_chain_read(&chain, known != NULL ? known->chain : c->id, NULL), LP_OK);
    assert_int_equal(lp_chain_resolve(&form, &chain, c->shape, known == NULL || known->pads, NULL), LP_OK);
    check_form(&form, c->dtype, pieces);
}

static void recorded_as_applied(void **state)
{
    (void)state;
    static const chain_case cases[] = {
        {"scale_128x4", LP_F8_E8M0, {256, 8}},
        {"scale_by_column_f32", LP_F32, {10, 3}},
        {"scale_hopper_triton_w4", LP_U8, {128, 4}},
        {"amd_16x32_16bit", LP_BF16, {32, 64}},
        {"up_gate", LP_F8_E4M3, {6, 5}},
        {"marlin_fp8", LP_F8_E4M3, {128, 32}},
        {"cublaslt_col4_4r2_8c", LP_I8, {16, 64}},
        {"marlin_scale", LP_F16, {3, 128}},
        {"trtllm_gated_rows_32", LP_F8_E4M3, {64, 6}},
        {"padded_32x33_32bit", LP_F32, {64, 32}},
        {"mma_m16n8k16_a", LP_BF16, {32, 32}},
        {"(8,32):(33,1)", LP_U8, {8, 32}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i], false);
}

static void recorded_in_pieces(void **state)
{
    (void)state;
    static const chain_case cases[] = {
        {"scale_128x4", LP_F8_E8M0, {256, 8}}, /* one view, too */
        {"scale_128x4", LP_F8_E8M0, {300, 6}},
        {"ascend_nz_16bit", LP_BF16, {17, 33}},
        {"N(r a=8) K(b c=8 v=16) -> b r (a c^a v)", LP_U8, {24, 256}},
        {"N(r i=4) P(d=2 | c=4 v=4) -> r (i d | c i v)", LP_U8, {12, 18}},
        {"R(g n=4 d=2 | g d | g d) K -> g (n d | d | d) K", LP_BF16, {36, 5}},
        {"skewed_32x32_32bit", LP_F32, {32, 64}},
        {"cannon_left", LP_U8, {5, 7}},
        {"gguf_q4_0_soa", LP_U8, {7, 18}},
        {"N(r i=4) P(d=2 | q=6) -> r (i q | i d)=40", LP_U8, {12, 8}},
        {"Sw<2,0,2> o (8,4):(4,1)", LP_U8, {8, 4}},
        {"[[1, 1], [2, 1], [4, 3], [0, 3], [0, 2]]", LP_U8, {8, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i], true);
}

/* Chains drawn at random, half of them with turned axes, a third with tails and a fifth with room. */
static void random_chains_recorded(void **state)
{
    (void)state;
    uint32_t seed = 41;
    for (int round = 0; round < 60; round++) {
        int64_t shape[LP_CHAIN_DIMS];
        lp_chain chain = random_chain(&seed, shape, false);
        lp_chain_form form;
        if (round % 2 == 0)
            turn_at_random(&chain, &seed);
        if (round % 5 == 0)
            chain.room[0] = 8000;
        for (int32_t d = 0; d < chain.ndim && round % 3 == 0; d++)
            shape[d] -= formula_byte(seed++, 6) % shape[d];
        assert_int_equal(lp_chain_resolve(&form, &chain, shape, true, NULL), LP_OK);
        check_form(&form, LP_U8, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_as_applied), cmocka_unit_test(recorded_in_pieces),
                                       cmocka_unit_test(random_chains_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
