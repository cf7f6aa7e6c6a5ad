/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that only move bytes, followed through. */
#include "test_recorder_run.h"

static void assert_materialises(const run *x, bool wanted)
{
    for (uint32_t i = 0; i < x->rows->nrecord; i++) {
        const uint32_t flags = lp_trace_provenance(x->trace, x->rows->record[i].provenance)->flags;
        assert_int_equal(flags & LP_PROV_MATERIALISES, wanted ? LP_PROV_MATERIALISES : 0);
    }
}

static void clone_and_contiguous(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    lp_tensor copy = lp_contiguous(lp_t(lp_clone(lp_source(r, "a"))));
    assert_int_equal(lp_size(copy, 0), 6);
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){3, 8}), lp_reshape(copy, 2, (int64_t[]){3, 8}));
    assert_int_equal(lp_contiguous(lp_source(r, "b")).kind, LP_TENSOR_SOURCE); /* nothing to do */
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_materialises(&x, true);
    for (int64_t i = 0; i < 24; i++)
        assert_source(&x, "d", 4 * i, "a", 4 * (i % 4 * 6 + i / 4), 4);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void cat_along_rows_and_columns(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    lp_tensor parts[] = {lp_source(r, "a"), lp_source(r, "b")};
    lp_copy(lp_declare(r, "rows", LP_F32, 2, (int64_t[]){8, 6}), lp_cat(2, parts, 0));
    lp_copy(lp_declare(r, "columns", LP_F32, 2, (int64_t[]){12, 4}), lp_t(lp_cat(2, parts, -1)));
    lp_copy(lp_declare(r, "stack", LP_F32, 2, (int64_t[]){4, 6}), lp_select(lp_stack(2, parts, 1), 1, 1));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(records_of(&x, "a"), 2);
    assert_int_equal(records_of(&x, "b"), 3);
    assert_source(&x, "rows", 0, "a", 0, 96);
    assert_source(&x, "rows", 96, "b", 0, 96);
    for (int64_t i = 0; i < 48; i++) {
        const int64_t column = i / 4, row = i % 4;
        assert_source(&x, "columns", 4 * i, column < 6 ? "a" : "b", 4 * (row * 6 + column % 6), 4);
    }
    assert_source(&x, "stack", 0, "b", 0, 96);
    assert_materialises(&x, true);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void selected_and_repeated(void **state)
{
    (void)state;
    static const int64_t index[] = {3, 1, 2, 0, 3};
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    lp_copy(lp_declare(r, "picked", LP_F32, 2, (int64_t[]){5, 6}), lp_index_select(lp_source(r, "a"), 0, 5, index));
    lp_copy(lp_declare(r, "inner", LP_F32, 2, (int64_t[]){4, 18}), lp_repeat_interleave(lp_source(r, "a"), 1, 3));
    lp_copy(lp_declare(r, "outer", LP_F32, 2, (int64_t[]){8, 6}), lp_repeat(lp_source(r, "b"), 0, 2));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    for (int64_t i = 0; i < 5; i++)
        assert_source(&x, "picked", 24 * i, "a", 24 * index[i], 24);
    for (int64_t i = 0; i < 72; i++)
        assert_source(&x, "inner", 4 * i, "a", i / 18 * 24 + i % 18 / 3 * 4, 4);
    assert_source(&x, "outer", 0, "b", 0, 96);
    assert_source(&x, "outer", 96, "b", 0, 96);
    for (uint32_t i = 0; i < x.rows->nrecord; i++) {
        if (strcmp(x.rows->dest[x.rows->record[i].dest].name, "picked") != 0)
            assert_int_equal(x.rows->record[i].kind, LP_KIND_REPLICATE);
    }
    assert_materialises(&x, true);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* Torch would copy here; a permuted reshape that does not cut stays a view. */
static void reshape_that_cuts_goes_through_a_temporary(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    lp_tensor cut = lp_reshape(lp_narrow(lp_source(r, "a"), 1, 0, 5), 2, (int64_t[]){10, 2});
    lp_copy(lp_declare(r, "cut", LP_F32, 2, (int64_t[]){10, 2}), cut);
    lp_tensor whole = lp_reshape(lp_t(lp_source(r, "b")), 1, (int64_t[]){24});
    assert_int_equal(whole.kind, LP_TENSOR_SOURCE);
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    for (int64_t i = 0; i < 20; i++)
        assert_source(&x, "cut", 4 * i, "a", 4 * (i / 5 * 6 + i % 5), 4);
    assert_materialises(&x, true);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A buffer that is filled first and then partly written: what remains of the fill is triggered by its name. */
static void temporary_with_a_fill(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    lp_tensor pad = lp_empty(r, LP_F32, 2, (int64_t[]){4, 8});
    lp_fill(pad, lp_bits_f32(3.0f), lp_source(r, "a"));
    lp_copy(lp_narrow(pad, 1, 1, 6), lp_source(r, "a"));
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){8, 4}), lp_t(pad));
    lp_copy(lp_declare(r, "h", LP_BF16, 2, (int64_t[]){4, 8}), lp_to(pad, LP_BF16));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    for (int64_t i = 0; i < 32; i++) {
        const int64_t column = i / 4, row = i % 4;
        float three;
        uint16_t bf16;
        memcpy(&three, element_of(&x, "d", (int64_t[]){column, row}), sizeof three);
        memcpy(&bf16, element_of(&x, "h", (int64_t[]){row, column}), sizeof bf16);
        if (column > 0 && column < 7) {
            assert_source(&x, "d", 4 * i, "a", 4 * (row * 6 + column - 1), 4);
        } else {
            assert_true(three == 3.0f);
            assert_int_equal(bf16, 0x4040);
        }
    }
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void bytes_that_nothing_wrote_are_not_copied(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_recorder(c);
    lp_error err;
    lp_tensor pad = lp_empty(r, LP_F32, 2, (int64_t[]){4, 8});
    lp_copy(lp_narrow(pad, 1, 0, 6), lp_source(r, "a"));
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 8}), pad);
    assert_int_equal(lp_recorder_status(r, &err), LP_E_MISUSE);
    assert_non_null(strstr(err.text, "32 bytes that nothing was written to"));
    lp_recorder_close(r);
    lp_checkpoint_close(c);
}

/* Through a temporary, a refusal still knows where the name would have gone. */
static void refusal_through_a_temporary(void **state)
{
    (void)state;
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "complex", LP_C64, SHAPE(4));
    add_tensor(c, "real", LP_F32, SHAPE(4));
    seal_checkpoint(c);
    lp_recorder *r = open_recorder(c);
    lp_tensor parts[] = {lp_to_f32(lp_source(r, "complex")), lp_source(r, "real")};
    parts[0] = lp_empty(r, LP_F32, 1, (int64_t[]){4});
    lp_copy(parts[0], lp_source(r, "complex"));
    lp_copy(lp_declare(r, "d", LP_F32, 1, (int64_t[]){8}), lp_cat(2, parts, 0));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_non_null(refusal_of(&x, "complex"));
    assert_source(&x, "d", 16, "real", 0, 16);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A vocabulary's worth of scattered rows is one record; more slices than a record can hold are a refusal. */
static void scattered_rows(void **state)
{
    (void)state;
    enum { ROWS = 140000, FEW = 5000 };
    lp_checkpoint *c = new_checkpoint();
    add_tensor(c, "table", LP_U8, SHAPE(ROWS, 2));
    seal_checkpoint(c);
    int64_t *index = malloc(ROWS * sizeof *index);
    for (int64_t i = 0; i < ROWS; i++)
        index[i] = i * i * 31 % ROWS;
    for (int many = 0; many < 2; many++) {
        const int64_t count = many ? ROWS : FEW;
        lp_recorder *r = open_recorder(c);
        lp_copy(lp_declare(r, "d", LP_U8, 2, (int64_t[]){count, 2}),
                lp_index_select(lp_source(r, "table"), 0, count, index));
        lp_trace *t = finish(r);
        run x = run_scope(t, 0);
        assert_int_equal(refusal_of(&x, "table") != NULL, many);
        assert_int_equal(x.rows->nrecord, many ? 0 : 1);
        for (int64_t i = 0; i < count && !many; i++)
            assert_source(&x, "d", 2 * i, "table", 2 * index[i], 2);
        assert_checked(t);
        free_run(&x);
        lp_trace_close(t);
    }
    free(index);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clone_and_contiguous),        cmocka_unit_test(cat_along_rows_and_columns),
        cmocka_unit_test(selected_and_repeated),       cmocka_unit_test(reshape_that_cuts_goes_through_a_temporary),
        cmocka_unit_test(temporary_with_a_fill),       cmocka_unit_test(bytes_that_nothing_wrote_are_not_copied),
        cmocka_unit_test(refusal_through_a_temporary), cmocka_unit_test(scattered_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
