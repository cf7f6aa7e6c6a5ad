/* SPDX-License-Identifier: Apache-2.0 */
/* The recording API: what casts, fills and copies of one name to several places become. */
#include "test_recorder_run.h"

/* ---- casts ---- */

static uint32_t flags_of(const lp_trace *t, const lp_record *record)
{
    return lp_trace_provenance(t, record->provenance)->flags;
}

static void casts_say_whether_they_were_meant(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_copy(lp_declare(r, "implicit", LP_BF16, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_copy(lp_declare(r, "meant", LP_BF16, 2, (int64_t[]){6, 4}), lp_t(lp_to(lp_source(r, "a"), LP_BF16)));
    lp_copy(lp_declare(r, "other", LP_I8, 1, (int64_t[]){16}), lp_source(r, "bytes"));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nrecord, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const lp_record *record = &x.rows->record[i];
        const char *dest = x.rows->dest[record->dest].name;
        if (strcmp(dest, "other") == 0) {
            assert_int_equal(record->kind, LP_KIND_COPY);
            assert_int_equal(flags_of(t, record), 0);
            continue;
        }
        assert_int_equal(record->kind, LP_KIND_CAST);
        assert_int_equal(record->src_dtype, LP_F32);
        assert_int_equal(record->dst_dtype, LP_BF16);
        assert_int_equal(flags_of(t, record), strcmp(dest, "implicit") == 0 ? LP_PROV_IMPLICIT_CAST : 0);
    }
    for (int64_t i = 0; i < 24; i++) { /* the transposed one has the same values elsewhere */
        const uint8_t *one = element_of(&x, "implicit", (int64_t[]){i / 6, i % 6});
        const uint8_t *two = element_of(&x, "meant", (int64_t[]){i % 6, i / 6});
        assert_memory_equal(one, two, 2);
    }
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* ---- fills ---- */

static void fills_carry_their_trigger(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor d = lp_declare(r, "d", LP_F32, 2, (int64_t[]){5, 6});
    lp_tensor a = lp_source(r, "a");
    lp_copy(lp_narrow(d, 0, 0, 4), a);
    lp_fill(lp_narrow(d, 0, 4, 1), lp_bits_f32(1.0f), a);
    lp_zero(lp_declare(r, "begin", LP_F32, 1, (int64_t[]){3}), lp_at_begin(r));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_checked(t);
    int fills = 0;
    for (uint32_t i = 0; i < x.rows->nrecord; i++) {
        const lp_record *record = &x.rows->record[i];
        if (record->kind != LP_KIND_FILL)
            continue;
        fills++;
        const bool begin = strcmp(x.rows->dest[record->dest].name, "begin") == 0;
        assert_int_equal(record->name, begin ? LP_NAME_BEGIN : name_index(&x, "a"));
    }
    assert_int_equal(fills, 2);
    assert_zero(&x, "begin", 0, 12);
    float one;
    memcpy(&one, element_of(&x, "d", (int64_t[]){4, 5}), sizeof one);
    assert_true(one == 1.0f);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* A loader that zeroes its source before loading it: the plan fills the destination and leaves the source alone. */
static void zeroed_source_becomes_a_fill(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor a = lp_source(r, "a");
    lp_zero(lp_narrow(a, 0, 1, 2), a);
    lp_copy(lp_declare(r, "d", LP_F32, 2, (int64_t[]){4, 6}), a);
    lp_copy(lp_declare(r, "other", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "b"));
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(x.rows->nrefusal, 0);
    assert_source(&x, "d", 0, "a", 0, 24);
    assert_zero(&x, "d", 24, 48);
    assert_source(&x, "d", 72, "a", 72, 24);
    assert_source(&x, "other", 0, "b", 0, 96);
    for (uint32_t i = 0; i < x.rows->nrecord; i++)
        assert_int_not_equal(x.rows->record[i].name, LP_NAME_BEGIN);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

/* One name into two places keeps both. */
static void one_name_feeds_two_destinations(void **state)
{
    (void)state;
    lp_checkpoint *c = small_checkpoint();
    lp_recorder *r = open_scope(c, (lp_scope){0});
    lp_tensor one = lp_declare(r, "one", LP_F32, 2, (int64_t[]){4, 6});
    lp_copy(one, lp_source(r, "a"));
    lp_copy(lp_declare(r, "two", LP_F32, 2, (int64_t[]){4, 6}), lp_source(r, "a"));
    lp_copy(lp_declare(r, "side", LP_F32, 2, (int64_t[]){6, 2}),
            lp_t(lp_narrow(one, 0, 2, 2))); /* from a destination */
    lp_trace *t = finish(r);
    run x = run_scope(t, 0);
    assert_int_equal(records_of(&x, "a"), 3);
    assert_source(&x, "one", 0, "a", 0, 96);
    assert_source(&x, "two", 0, "a", 0, 96);
    for (int64_t i = 0; i < 12; i++)
        assert_memory_equal(element_of(&x, "side", (int64_t[]){i / 2, i % 2}),
                            element_of(&x, "one", (int64_t[]){2 + i % 2, i / 2}), 4);
    assert_checked(t);
    free_run(&x);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_say_whether_they_were_meant),
        cmocka_unit_test(fills_carry_their_trigger),
        cmocka_unit_test(zeroed_source_becomes_a_fill),
        cmocka_unit_test(one_name_feeds_two_destinations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
