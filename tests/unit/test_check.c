/* SPDX-License-Identifier: Apache-2.0 */
/* What check tells of the bytes of destinations: holes, overlaps, ties and aliases, with the right witness. Other
 * rules: test_check_rules.c. */
#include "check_testing.h"

static void a_whole_plan_is_ok(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(3, 64, NULL);
    const uint32_t d = add_dest(t, "layers.0.w", 96), s = add_dest(t, "s", 16), out = add_dest(t, "max", 4);
    add_map(t, "n0", d, byte_map(0, 0, 8, 4, 8, 16), LP_NONE);
    add_map(t, "n1", d, byte_map(0, 8, 8, 4, 8, 16), LP_NONE);
    add_fill(t, LP_NAME_BEGIN, d, 64, 16, 7);
    add_fill(t, name_index(t, "n1"), d, 80, 16, 0);
    add_copy(t, "n2", s, 0, 0, 16);
    add_max_derive(t, out, false, s, 4, 1.0f);
    lp_findings *f = check(t);
    if (lp_findings_count(f) > 0)
        print_findings(f);
    assert_int_equal(lp_findings_count(f), 0);
    assert_string_equal(lp_findings_summary(f), "ok: every destination byte written exactly once, in any order and any "
                                                "split; 1 derive, 0 fallbacks");
    assert_int_equal(lp_findings_worst(f), LP_ALLOW);
    end(t, f);
}

static void equal_counts_do_not_hide_a_hole(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(2, 64, NULL);
    const uint32_t d = add_dest(t, "w", 64);
    add_map(t, "n0", d, byte_map(0, 0, 4, 8, 4, 8), LP_NONE);
    add_map(t, "n1", d, byte_map(0, 0, 4, 8, 4, 8), LP_NONE); /* left twice, right never */
    lp_findings *f = check(t);
    const lp_finding *gap = expect(f, 2, "dest_uncovered", "w");
    assert_int_equal(gap->level, LP_DENY);
    assert_int_equal(gap->byte_lo, 4);
    assert_int_equal(gap->byte_hi, 8);
    expect_text(gap, "32 bytes of 'w'");
    const lp_finding *order = finding_of(f, "order_dependent", "w"); /* the builder numbered them */
    assert_non_null(order);
    assert_int_equal(order->byte_lo, 0);
    assert_int_equal(order->byte_hi, 4);
    expect_text(order, "'n0' and 'n1'");
    assert_int_equal(lp_findings_worst(f), LP_DENY);
    assert_string_equal(lp_findings_summary(f), "1 denied, 1 warning: dest_uncovered in w (1 tensor), ...");
    end(t, f);
}

static void families_share_a_finding(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(1, 64, NULL);
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d.w", i);
        add_dest(t, name, 8 + i);
    }
    add_dest(t, "other", 3);
    add_copy(t, "n0", add_dest(t, "x", 64), 0, 0, 64);
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 2, "dest_uncovered", "layers.*.w");
    assert_int_equal(x->members, 12);
    assert_string_equal(x->tensor, "layers.0.w");
    assert_int_equal(x->rank, 0);
    assert_int_equal(expect(f, 2, "dest_uncovered", "other")->members, 1);
    end(t, f);
}

/* Two ranks say the same of one tensor: one member, and the first rank is the witness. */
static void ranks_count_a_tensor_once(void **unused)
{
    (void)unused;
    lp_checkpoint *c = small_checkpoint(1, 8);
    lp_trace *t;
    assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.loader = "test", .layout = {.tp = 2}}, NULL, ERR));
    lp_checkpoint_close(c);
    for (int rank = 0; rank < 2; rank++) {
        assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = rank}, ERR));
        const uint32_t d = add_dest(t, "w", 16);
        add_copy(t, "n0", d, 0, 0, 8);
    }
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 1, "dest_uncovered", "w");
    assert_int_equal(x->members, 1);
    assert_int_equal(x->rank, 0);
    end(t, f);
}

/* Every rank takes the first half: each destination is whole, and half of the checkpoint is nowhere. Of columns that
 * every rank takes, the last ones are. */
static void parts_that_no_rank_reads_are_told(void **unused)
{
    (void)unused;
    static const char *const said[] = {"no rank reads bytes [32, 64) of 'n0'", "no rank reads bytes [60, 64) of 'n0'",
                                       NULL};
    for (int shape = 0; shape < 3; shape++) {
        lp_checkpoint *c = small_checkpoint(1, 64);
        lp_trace *t;
        assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.loader = "test", .layout = {.tp = 2}}, NULL, ERR));
        lp_checkpoint_close(c);
        for (int rank = 0; rank < 2; rank++) {
            assert_ok(lp_trace_begin_scope(t, &(lp_scope){.tp = 2, .tp_rank = rank}, ERR));
            const uint32_t d = add_dest(t, "w", 32);
            if (shape == 0)
                add_copy(t, "n0", d, 0, 0, 32);
            else if (shape == 1)
                add_map(t, "n0", d, byte_map(0, 0, 4, 8, 8, 4), LP_NONE);
            else
                add_copy(t, "n0", d, rank * 32, 0, 32);
        }
        lp_findings *f = check(t);
        if (said[shape] == NULL)
            assert_int_equal(lp_findings_count(f), 0);
        else
            expect_text(expect(f, 1, "checkpoint_bytes_unused", "n0"), said[shape]);
        end(t, f);
    }
}

/* Nothing can be copied of a tensor without bytes, so nothing says that it was. */
static void a_tensor_without_bytes_is_not_left_behind(void **unused)
{
    (void)unused;
    for (int64_t bytes = 0; bytes <= 8; bytes += 8) {
        lp_trace *t = small_trace(2, bytes, NULL);
        const uint32_t d = add_dest(t, "w", bytes);
        if (bytes > 0)
            add_copy(t, "n0", d, 0, 0, bytes);
        lp_findings *f = check(t);
        if (bytes == 0)
            assert_int_equal(lp_findings_count(f), 0);
        else
            expect_text(expect(f, 1, "checkpoint_name_unused", "n1"),
                        "nothing loads, derives from, refuses or declines");
        end(t, f);
    }
}

/* A derive and a copy into the same bytes have no order. */
static void a_derive_over_a_copy_is_an_overlap(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(2, 16, NULL);
    const uint32_t s = add_dest(t, "s", 16), out = add_dest(t, "out", 4);
    add_copy(t, "n0", s, 0, 0, 16);
    add_copy(t, "n1", out, 0, 0, 4);
    add_max_derive(t, out, false, s, 4, 1.0f);
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 1 + 0, "dest_overlap", "out");
    assert_int_equal(x->level, LP_DENY);
    assert_int_equal(x->byte_lo, 0);
    assert_int_equal(x->byte_hi, 4);
    expect_text(x, "a derive");
    expect_text(x, "'n1'");
    end(t, f);
}

/* Two names without a seq cannot come from the builder, but from a file. */
static void records_without_order_are_denied(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(2, 16, NULL);
    const uint32_t d = add_dest(t, "w", 16);
    add_copy(t, "n0", d, 0, 0, 12);
    add_copy(t, "n1", d, 0, 8, 8);
    const lp_rows *rows = sealed_rows(t);
    assert_int_equal(rows->nrecord, 2);
    for (uint32_t i = 0; i < 2; i++)
        ((lp_record *)(uintptr_t)rows->record)[i].seq = 0;
    lp_findings *f;
    assert_ok(lp_check(&f, t, ERR));
    const lp_finding *x = expect(f, 1, "dest_overlap", "w");
    assert_int_equal(x->byte_lo, 8);
    assert_int_equal(x->byte_hi, 12);
    end(t, f);
}

static void writes_beyond_the_logical_bytes_are_told(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(1, 64, NULL);
    const uint32_t d = add_dest_with(t, (lp_destination){.name = "padded",
                                                         .dtype = LP_U8,
                                                         .ndim = 2,
                                                         .shape = (const int64_t[]){4, 6},
                                                         .stride = (const int64_t[]){8, 1},
                                                         .storage_bytes = 32});
    add_copy(t, "n0", d, 0, 0, 30);
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 1, "shape_mismatch", "padded");
    assert_int_equal(x->level, LP_DENY);
    assert_int_equal(x->byte_lo, 6);
    assert_int_equal(x->byte_hi, 8);
    end(t, f);
}

static void stride_gaps_are_not_waited_for(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(1, 64, NULL);
    const uint32_t d = add_dest_with(t, (lp_destination){.name = "padded",
                                                         .dtype = LP_U8,
                                                         .ndim = 2,
                                                         .shape = (const int64_t[]){4, 6},
                                                         .stride = (const int64_t[]){8, 1},
                                                         .storage_bytes = 32});
    add_map(t, "n0", d, byte_map(0, 0, 6, 4, 6, 8), LP_NONE);
    lp_findings *f = check(t);
    assert_int_equal(lp_findings_count(f), 0);
    end(t, f);
}

static void scratch_waits_for_nothing_and_takes_nothing(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(1, 64, NULL);
    const uint32_t d = add_dest(t, "w", 64);
    const int64_t shape[] = {16};
    add_dest_with(t, (lp_destination){
                         .name = "_l2_alpha", .dtype = LP_F32, .ndim = 1, .shape = shape, .flags = LP_DEST_NO_LOADER});
    add_copy(t, "n0", d, 0, 0, 64);
    lp_findings *f = check(t);
    assert_int_equal(lp_findings_count(f), 0);
    end(t, f);

    t = small_trace(1, 64, NULL);
    const uint32_t scratch = add_dest_with(
        t,
        (lp_destination){.name = "_l2_alpha", .dtype = LP_F32, .ndim = 1, .shape = shape, .flags = LP_DEST_NO_LOADER});
    add_copy(t, "n0", scratch, 0, 0, 64);
    f = check(t);
    expect_text(expect(f, 1, "dest_overlap", "_l2_alpha"), "no loader bytes");
    end(t, f);
}

/* Another name, tied, for the last bytes of "embed". */
static void add_tied_head(lp_trace *t, int64_t storage_bytes, int64_t offset)
{
    const int64_t shape[] = {storage_bytes - offset};
    add_dest_with(t, (lp_destination){.name = "lm_head",
                                      .dtype = LP_U8,
                                      .ndim = 1,
                                      .shape = shape,
                                      .storage = "embed",
                                      .storage_bytes = storage_bytes,
                                      .offset = offset,
                                      .flags = LP_DEST_TIED});
}

static void ties_are_covered_by_either_name(void **unused)
{
    (void)unused;
    for (int64_t copied = 64; copied >= 48; copied -= 16) {
        lp_trace *t = small_trace(1, 64, NULL);
        const uint32_t d = add_dest(t, "embed", 64);
        add_tied_head(t, 64, 0);
        add_copy(t, "n0", d, 0, 0, copied);
        lp_findings *f = check(t);
        if (copied == 64) {
            assert_int_equal(lp_findings_count(f), 0);
        } else {
            const lp_finding *x = expect(f, 2, "dest_uncovered", "lm_head");
            assert_int_equal(x->byte_lo, 48);
            assert_int_equal(x->byte_hi, 64);
        }
        end(t, f);
    }
}

/* A refusal of a whole destination leaves all its bytes to the engine, under each of their names. */
static void ties_fall_back_under_either_name(void **unused)
{
    (void)unused;
    lp_trace *t = small_trace(1, 64, NULL);
    add_refusal(t, "n0", add_dest(t, "embed", 64), NULL, LP_NONE);
    add_tied_head(t, 64, 16);
    lp_findings *f = check(t);
    expect(f, 1, "non_view_op", "n0");
    end(t, f);

    t = small_trace(1, 64, NULL);
    const uint32_t d = add_dest_with(
        t, (lp_destination){
               .name = "embed", .dtype = LP_U8, .ndim = 1, .shape = (const int64_t[]){64}, .storage_bytes = 80});
    add_refusal(t, "n0", d, NULL, LP_NONE);
    add_tied_head(t, 80, 16);
    f = check(t);
    const lp_finding *x = expect(f, 2, "dest_uncovered", "lm_head");
    assert_int_equal(x->byte_lo, 48);
    assert_int_equal(x->byte_hi, 64);
    end(t, f);
}

static void undeclared_aliases_are_denied(void **unused)
{
    (void)unused;
    const int64_t shape[] = {48};
    lp_trace *t = small_trace(1, 64, NULL);
    const uint32_t a = add_dest_with(
        t, (lp_destination){
               .name = "a", .dtype = LP_U8, .ndim = 1, .shape = shape, .storage = "pool", .storage_bytes = 64});
    add_dest_with(t, (lp_destination){.name = "b",
                                      .dtype = LP_U8,
                                      .ndim = 1,
                                      .shape = (const int64_t[]){16},
                                      .storage = "pool",
                                      .storage_bytes = 64,
                                      .offset = 32});
    add_dest_with(t, (lp_destination){.name = "c",
                                      .dtype = LP_U8,
                                      .ndim = 1,
                                      .shape = (const int64_t[]){16},
                                      .storage = "pool",
                                      .storage_bytes = 64,
                                      .offset = 48,
                                      .flags = LP_DEST_NO_LOADER});
    add_copy(t, "n0", a, 0, 0, 48);
    lp_findings *f = check(t);
    const lp_finding *x = expect(f, 1, "dest_alias", "b");
    assert_int_equal(x->byte_lo, 0);
    assert_int_equal(x->byte_hi, 16);
    expect_text(x, "'a' and 'b' share bytes [32, 48) of storage 'pool'");
    end(t, f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_plan_is_ok),
        cmocka_unit_test(equal_counts_do_not_hide_a_hole),
        cmocka_unit_test(families_share_a_finding),
        cmocka_unit_test(ranks_count_a_tensor_once),
        cmocka_unit_test(parts_that_no_rank_reads_are_told),
        cmocka_unit_test(a_tensor_without_bytes_is_not_left_behind),
        cmocka_unit_test(a_derive_over_a_copy_is_an_overlap),
        cmocka_unit_test(records_without_order_are_denied),
        cmocka_unit_test(writes_beyond_the_logical_bytes_are_told),
        cmocka_unit_test(stride_gaps_are_not_waited_for),
        cmocka_unit_test(scratch_waits_for_nothing_and_takes_nothing),
        cmocka_unit_test(ties_are_covered_by_either_name),
        cmocka_unit_test(ties_fall_back_under_either_name),
        cmocka_unit_test(undeclared_aliases_are_denied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
