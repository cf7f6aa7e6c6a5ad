/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of single ranks, joined: the trace that one recording of all ranks makes, or an error about the right part. */
#include "failing_memory.h"
#include "trace_fixture.h"

static const lp_trace_header usual = {.loader = "fixture",
                                      .loader_version = "1",
                                      .configuration = "a=1\nb=\xc3\xa4\n",
                                      .layout = {.tp = 2, .expert_parallel = true}};

/* What one process of the two records; `declined` may be NULL. */
static lp_trace *one_rank(int rank, const lp_trace_header *header, const char *declined)
{
    lp_trace *t;
    lp_checkpoint *c = fix_checkpoint();
    FIX_OK(lp_trace_new(&t, c, header, NULL, &fix_err));
    lp_checkpoint_close(c);
    fix_scope(t, rank);
    if (declined != NULL)
        FIX_OK(lp_trace_decline(t, declined, &fix_err));
    FIX_OK(lp_trace_seal(t, &fix_err));
    return t;
}

static void in_any_order_they_are_the_whole(void **state) /* R8a: ranks are grouped otherwise alone and together */
{
    (void)state;
    const char *path = fix_path("join.lpt");
    lp_trace *whole = fix_trace(false), *saved = one_rank(1, &usual, NULL), *rank[2] = {one_rank(0, &usual, NULL)};
    FIX_OK(lp_trace_save(saved, path, true, &fix_err));
    lp_trace_close(saved);
    FIX_OK(lp_trace_open(&rank[1], path, &fix_err));
    for (int first = 0; first < 2; first++) {
        lp_trace *joined;
        const lp_trace *part[] = {rank[first], rank[1 - first]};
        FIX_OK(lp_trace_join(&joined, part, 2, NULL, NULL, &fix_err));
        fix_same(whole, joined, true);
        lp_trace_close(joined);
    }
    lp_trace *alone;
    FIX_OK(lp_trace_join(&alone, (const lp_trace *const[]){rank[1]}, 1, NULL, NULL, &fix_err));
    fix_same(rank[1], alone, true);
    lp_trace_close(alone);
    for (int i = 0; i < 2; i++)
        lp_trace_close(rank[i]);
    lp_trace_close(whole);
    unlink(path);
}

static void what_any_of_them_declines_is_declined(void **state)
{
    (void)state;
    lp_trace *joined;
    lp_trace *rank[] = {one_rank(0, &usual, "rotary.3.inv_freq"), one_rank(1, &usual, "mask")};
    FIX_OK(lp_trace_join(&joined, (const lp_trace *const *)rank, 2, NULL, NULL, &fix_err));
    assert_string_equal(lp_trace_header_of(joined)->configuration,
                        "a=1\nb=\xc3\xa4\ndecline=mask\ndecline=rotary.*.inv_freq\n");
    lp_trace_close(joined);
    lp_trace_close(rank[0]);
    lp_trace_close(rank[1]);
}

static void parts_that_do_not_belong_together_are_named(void **state)
{
    (void)state;
    lp_trace_header header[5];
    for (int i = 0; i < 5; i++)
        header[i] = usual;
    header[0].loader = "other";
    header[1].loader_version = "2";
    header[2].target = "sm90";
    header[3].configuration = "a=1\nb=2\n";
    header[4].configuration = "a=1\n";
    const char *text[] = {
        "loader 'other' is not 'fixture', as in the first trace",
        "loader version '2' is not '1', as in the first trace", "target 'sm90' is not '', as in the first trace",
        "the configuration is not that of the first trace", "the configuration is not that of the first trace"};
    lp_trace *first = one_rank(0, &usual, "mask"), *joined = NULL;
    for (int i = 0; i < 5; i++) {
        int32_t culprit = -2;
        lp_error err = {0};
        lp_trace *second = one_rank(1, &header[i], NULL);
        assert_int_equal(lp_trace_join(&joined, (const lp_trace *const[]){first, second}, 2, &culprit, NULL, &err),
                         LP_E_MISMATCH);
        assert_string_equal(err.text, text[i]);
        assert_int_equal(culprit, 1);
        lp_trace_close(second);
    }
    int32_t culprit = -2;
    lp_error err = {0};
    lp_trace *again = one_rank(0, &usual, NULL), *second = one_rank(1, &usual, NULL);
    assert_int_equal(lp_trace_join(&joined, (const lp_trace *const[]){first, second, again}, 3, &culprit, NULL, &err),
                     LP_E_MISMATCH);
    assert_string_equal(err.text, "rank 0 is in an earlier trace already");
    assert_int_equal(culprit, 2);
    assert_int_equal(lp_trace_join(&joined, NULL, 0, &culprit, NULL, &err), LP_E_ARGUMENT);
    assert_null(joined);
    lp_trace_close(again);
    lp_trace_close(second);
    lp_trace_close(first);
}

/* An empty trace of another layout or checkpoint is as wrong as a full one. */
static void other_layouts_and_checkpoints_are_refused(void **state)
{
    (void)state;
    lp_checkpoint *c = fix_checkpoint(), *other;
    lp_trace *first = one_rank(0, &usual, NULL), *joined = NULL;
    int64_t off = 0;
    FIX_OK(lp_checkpoint_new(&other, NULL, &fix_err));
    FIX_OK(lp_checkpoint_add_file(other, &(lp_checkpoint_file){.path = "x.safetensors", .size_bytes = -1}, &fix_err));
    fix_add(other, "embed", LP_F32, 1, (int64_t[]){3}, 0, &off);
    FIX_OK(lp_checkpoint_seal(other, &fix_err));
    const struct {
        const lp_checkpoint *checkpoint;
        lp_scope layout;
        lp_status status;
        const char *begin;
    } bad[] = {
        {c,
         {.tp = 4, .expert_parallel = true},
         LP_E_MISMATCH,
         "pp 1, dp 1, tp 4, whole experts is not pp 1, dp 1, tp 2, "},
        {c, {.tp = 2}, LP_E_MISMATCH, "pp 1, dp 1, tp 2 is not pp 1, dp 1, tp 2, whole experts, "},
        {c, {.tp = 2, .dp = 2, .expert_parallel = true}, LP_E_MISMATCH, "pp 1, dp 2, tp 2, whole experts is not "},
        {c, {.tp = 2, .pp = 2, .expert_parallel = true}, LP_E_MISMATCH, "pp 2, dp 1, tp 2, whole experts is not "},
        {other, {.tp = 2, .expert_parallel = true}, LP_E_STALE, ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lp_trace *second;
        lp_trace_header header = usual;
        lp_error err = {0};
        header.layout = bad[i].layout;
        FIX_OK(lp_trace_new(&second, bad[i].checkpoint, &header, NULL, &fix_err));
        FIX_OK(lp_trace_seal(second, &fix_err));
        assert_int_equal(lp_trace_join(&joined, (const lp_trace *const[]){first, second}, 2, NULL, NULL, &err),
                         bad[i].status);
        assert_memory_equal(err.text, bad[i].begin, strlen(bad[i].begin));
        assert_null(joined);
        lp_trace_close(second);
    }
    lp_trace_close(first);
    lp_checkpoint_close(other);
    lp_checkpoint_close(c);
}

typedef struct join_step {
    lp_trace *rank[2];
    lp_platform platform;
} join_step;

static lp_status join_both(void *context, lp_error *err)
{
    const join_step *s = context;
    lp_trace *joined;
    LP_TRY(lp_trace_join(&joined, (const lp_trace *const *)s->rank, 2, NULL, &s->platform, err));
    lp_trace_close(joined);
    return LP_OK;
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    failing_alloc failing = {0};
    const lp_alloc alloc = {.context = &failing, .resize = failing_resize};
    join_step step = {.rank = {one_rank(0, &usual, "mask"), one_rank(1, &usual, NULL)}, .platform = {.alloc = &alloc}};
    assert_true(fail_every_allocation(&failing, join_both, &step) > 30);
    lp_trace_close(step.rank[0]);
    lp_trace_close(step.rank[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_order_they_are_the_whole),
        cmocka_unit_test(what_any_of_them_declines_is_declined),
        cmocka_unit_test(parts_that_do_not_belong_together_are_named),
        cmocka_unit_test(other_layouts_and_checkpoints_are_refused),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
