/* SPDX-License-Identifier: Apache-2.0 */
/* The recording API: destinations are kept as they are declared, and impossible ones are misuse. */
#include "test_recorder_run.h"

static void declarations_are_kept(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_declare_with(r, &(lp_declaration){.name = "model.layers.3.experts.7.w",
                                         .dtype = LP_I32,
                                         .ndim = 3,
                                         .shape = (int64_t[]){2, 4, 3},
                                         .stride = (int64_t[]){64, 4, 16},
                                         .layout = "nvfp4_l1_scale",
                                         .layout_version = 2,
                                         .flags = LP_DEST_HAS_DUMMY,
                                         .dummy_bits = 7,
                                         .has_slots = true,
                                         .slot_dim = 0});
    lp_declare_with(r, &(lp_declaration){.name = "plain",
                                         .dtype = LP_U8,
                                         .ndim = 1,
                                         .shape = (int64_t[]){5},
                                         .group = "mine",
                                         .storage = "pool",
                                         .offset = 8});
    lp_declare_with(r, &(lp_declaration){.name = "scratch",
                                         .dtype = LP_U8,
                                         .ndim = 1,
                                         .shape = (int64_t[]){8},
                                         .storage = "pool",
                                         .flags = LP_DEST_NO_LOADER});
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    const lp_destination *d = dest_of(&x, "model.layers.3.experts.7.w");
    assert_string_equal(d->group, "layers.3");
    assert_string_equal(d->storage, "model.layers.3.experts.7.w");
    assert_int_equal(d->storage_bytes, 64 + 12 + 32 + 4);
    assert_int_equal(d->layout_version, 2);
    assert_string_equal(d->layout, "nvfp4_l1_scale");
    assert_int_equal(d->slot_dim, 0);
    assert_int_equal(d->slot_count, 2);
    assert_int_equal(d->dummy_bits, 7);
    d = dest_of(&x, "plain");
    assert_string_equal(d->group, "mine");
    assert_int_equal(d->slot_dim, -1);
    assert_int_equal(d->storage_bytes, 13);
    assert_int_equal(dest_of(&x, "scratch")->storage_bytes, 13); /* the one pool */
    assert_string_equal(dest_of(&x, "scratch")->group, "root");
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void impossible_destinations_are_misuse(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    const struct {
        lp_declaration d;
        lp_status status;
        const char *text;
    } cases[] = {
        {{.name = "x", .dtype = LP_F32, .ndim = 17}, LP_E_LIMIT, "17 dimensions"},
        {{.name = "x", .ndim = 0}, LP_E_ARGUMENT, "no dtype"},
        {{.name = "x", .dtype = LP_F32, .ndim = 1, .shape = (const int64_t[]){-1}}, LP_E_ARGUMENT, "negative extent"},
        {{.name = "x", .dtype = LP_F32, .ndim = 2, .shape = (const int64_t[]){INT64_MAX / 4, 8}}, LP_E_LIMIT, "large"},
        {{.name = "x", .dtype = LP_F4, .ndim = 2, .shape = (const int64_t[]){2, 3}}, LP_E_UNSUPPORTED, "whole bytes"},
        {{.name = "x", .dtype = LP_F32, .ndim = 1, .shape = (const int64_t[]){4}, .storage_bytes = 12},
         LP_E_ARGUMENT,
         "needs 16 bytes of a storage of 12"},
        {{.name = "x", .dtype = LP_F32, .ndim = 1, .shape = (const int64_t[]){4}, .has_slots = true, .slot_dim = 1},
         LP_E_ARGUMENT,
         "no dimension 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_error err;
        lp_recorder *r = open_scope(c, (lp_scope){0});
        lp_declare_with(r, &cases[i].d);
        assert_int_equal(lp_recorder_status(r, &err), cases[i].status);
        if (strstr(err.text, cases[i].text) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
        lp_recorder_close(r);
    }
    lp_error err;
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor scratch = lp_declare_with(
        r, &(lp_declaration){
               .name = "scratch", .dtype = LP_F32, .ndim = 2, .shape = (int64_t[]){4, 6}, .flags = LP_DEST_NO_LOADER});
    lp_copy(scratch, lp_source(r, "a"));
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    assert_non_null(strstr(err.text, "a copy into 'scratch', which no loader writes"));
    lp_recorder_close(r);
    lp_checkpoint_close(c);
}

/* Four-bit elements move as the bytes that two of them make. */
static void sub_byte_destinations(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "codes", LP_F4, SHAPE(4, 6));
    seal_checkpoint(c);
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "d", LP_F4, 2, (int64_t[]){2, 6}), lp_narrow(lp_source(r, "codes"), 0, 1, 2));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(dest_of(&x, "d")->storage_bytes, 6);
    assert_source(&x, "d", 0, "codes", 3, 6);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void tied_destinations_share_bytes(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "embed", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_declare_tied(r, "head", "embed");
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_string_equal(dest_of(&x, "head")->storage, "embed");
    assert_true(dest_of(&x, "head")->flags & LP_DEST_TIED);
    assert_true(dest_of(&x, "embed")->flags & LP_DEST_TIED);
    assert_int_equal(x.rows->nrecord, 1);
    assert_source(&x, "head", 0, "a", 0, 96);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations_are_kept),
        cmocka_unit_test(impossible_destinations_are_misuse),
        cmocka_unit_test(sub_byte_destinations),
        cmocka_unit_test(tied_destinations_share_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
