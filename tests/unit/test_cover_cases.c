/* SPDX-License-Identifier: Apache-2.0 */
/* Named cases of the coverage sweep: what real layouts ask, what hostile files ask, and the limits. */
#include "failing_memory.h"
#include "cover_testing.h"

#include <time.h>

static lp_cover_report run(const shape *target, const lp_cover_item *item, int64_t n)
{
    lp_cover_report r;
    lp_error err;
    assert_int_equal(lp_cover(&r, target ? &target->map : NULL, item, n, NULL, NULL, &err), LP_OK);
    return r;
}

static void left_twice_right_never(void **unused)
{
    (void)unused;
    const shape target = whole(64);
    shape left = {0};
    BOX(&left, 0, 4, {{8, 8}});
    shape t = target;
    rebase(&t);
    const lp_cover_item item[] = {{.map = &left.map, .tag = 3}, {.map = &left.map, .tag = 5}};
    lp_cover_report r = run(&t, item, 2);
    assert_int_equal(r.npair, 1);
    assert_int_equal(r.pair[0].a, 3);
    assert_int_equal(r.pair[0].b, 5);
    assert_int_equal(r.pair[0].byte_lo, 0);
    assert_int_equal(r.pair[0].byte_hi, 4);
    assert_int_equal(r.uncovered_bytes, 32);
    assert_int_equal(r.gap_lo, 4);
    assert_int_equal(r.gap_hi, 8);
    lp_cover_report_free(&r, NULL);
}

/* 10^10 four-byte runs, as in a trillion parameters of block scales: never run by run. */
static void word_transposed_scales_are_not_enumerated(void **unused)
{
    (void)unused;
    shape a = {0}, b = {0};
    const int64_t words = INT64_C(1) << 32;
    BOX(&a, 0, 4, {{words, 512}, {32, 16}, {4, 4}});
    a.box[0].rank = 2;
    a.box[0].run = 4;
    put_box(&b, 4, 12, 2, (const int64_t[][2]){{words, 512}, {32, 16}});
    shape t = whole(words * 512);
    rebase(&t);
    const lp_cover_item item[] = {{.map = &a.map, .tag = 0}, {.map = &b.map, .tag = 1}};
    lp_cover_report r = run(&t, item, 2);
    assert_int_equal(r.npair, 0);
    assert_int_equal(r.uncovered_bytes, 0);
    assert_int_equal(r.outside_lo, -1);
    assert_false(r.undecided);
    const lp_cover_item half[] = {{.map = &a.map, .tag = 0}};
    r = run(&t, half, 1);
    assert_int_equal(r.uncovered_bytes, words * 32 * 12);
    assert_int_equal(r.gap_lo, 4);
    assert_int_equal(r.gap_hi, 16);
}

/* Strides 3 and 5 from offsets that meet at multiples of 15 only after a while, or never. */
static void coprime_periods_are_exact(void **unused)
{
    (void)unused;
    shape three = {0}, five = {0}, fifteen = {0};
    BOX(&three, 0, 1, {{100000, 3}});
    BOX(&five, 1, 1, {{60000, 5}});
    BOX(&fifteen, 2, 1, {{20000, 15}});
    const lp_cover_item item[] = {{.map = &three.map, .tag = 0}, {.map = &five.map, .tag = 1}};
    lp_cover_report r = run(NULL, item, 2);
    assert_int_equal(r.npair, 1);
    assert_int_equal(r.pair[0].byte_lo, 6);
    assert_int_equal(r.pair[0].byte_hi, 7);
    lp_cover_report_free(&r, NULL);
    const lp_cover_item apart[] = {{.map = &three.map, .tag = 0}, {.map = &fifteen.map, .tag = 1}};
    r = run(NULL, apart, 2);
    assert_false(r.undecided);
    assert_int_equal(r.npair, 0);
}

static void what_cannot_be_decided_says_so(void **unused)
{
    (void)unused;
    shape a = {0}, b = {0};
    BOX(&a, 0, 1, {{INT64_C(1) << 30, 3}});
    BOX(&b, 1, 1, {{INT64_C(1) << 30, 5}});
    const lp_cover_item item[] = {{.map = &a.map, .tag = 0}, {.map = &b.map, .tag = 1}};
    const clock_t start = clock();
    lp_cover_report r = run(NULL, item, 2);
    assert_true(r.undecided);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 5.0);
    lp_cover_report_free(&r, NULL);
}

/* A fragment per byte column, all over the same rows. */
static void sixty_five_thousand_fragments(void **unused)
{
    (void)unused;
    enum { N = 65536 };
    lp_box *box = malloc(N * sizeof(*box));
    lp_mode mode = {.extent = 4096, .dst_stride = N};
    for (int i = 0; i < N; i++)
        box[i] = (lp_box){.dst_off = i, .run = 1, .rank = 1, .mode = &mode};
    const lp_map columns = {.dst_elem = 1, .nbox = N, .nmode = N, .box = box};
    shape t = whole(INT64_C(4096) * N);
    rebase(&t);
    const lp_cover_item item = {.map = &columns, .tag = 7};
    lp_cover_report r = run(&t, &item, 1);
    assert_false(r.undecided);
    assert_int_equal(r.uncovered_bytes, 0);
    box[40000].dst_off = N + 3;
    r = run(&t, &item, 1);
    assert_int_equal(r.uncovered_bytes, 4096); /* the column that nobody writes; one more row below the last */
    assert_int_equal(r.gap_lo, 40000);
    lp_cover_report_free(&r, NULL);
    free(box);
}

static void thousands_of_one_byte_overlaps(void **unused)
{
    (void)unused;
    enum { N = 20000 };
    shape *s = calloc(N, sizeof(*s));
    lp_cover_item *item = calloc(N, sizeof(*item));
    for (int i = 0; i < N; i++) {
        put_box(&s[i], (int64_t)i * 9, 10, 0, NULL);
        item[i] = (lp_cover_item){.map = &s[i].map, .tag = (uint32_t)i};
    }
    lp_cover_report r = run(NULL, item, N);
    assert_false(r.undecided);
    assert_int_equal(r.npair, N - 1);
    for (int64_t i = 0; i < r.npair; i++) {
        assert_int_equal(r.pair[i].a, i);
        assert_int_equal(r.pair[i].byte_lo, 9 * (i + 1));
        assert_int_equal(r.pair[i].byte_hi, 9 * (i + 1) + 1);
    }
    lp_cover_report_free(&r, NULL);
    free(item);
    free(s);
}

/* All against all: the list ends at its limit and says so, in bounded time. */
static void too_many_pairs_are_truncated(void **unused)
{
    (void)unused;
    enum { N = 3000 };
    shape s = whole(16);
    rebase(&s);
    lp_cover_item *item = calloc(N, sizeof(*item));
    for (int i = 0; i < N; i++)
        item[i] = (lp_cover_item){.map = &s.map, .tag = (uint32_t)i};
    lp_cover_report r = run(NULL, item, N);
    assert_true(r.pairs_truncated);
    assert_int_equal(r.npair, LP_COVER_PAIRS_MAX);
    lp_cover_report_free(&r, NULL);
    free(item);
}

static void offsets_that_overflow_are_an_error(void **unused)
{
    (void)unused;
    shape s = whole(16);
    rebase(&s);
    const lp_cover_item item = {.map = &s.map, .dst_off = INT64_MAX - 3};
    lp_cover_report r;
    lp_error err;
    assert_int_equal(lp_cover(&r, NULL, &item, 1, NULL, NULL, &err), LP_E_ARGUMENT);
}

static void targets_follow_strides(void **unused)
{
    (void)unused;
    lp_cover_target t;
    lp_error err;
    lp_destination d = {.name = "x", .dtype = LP_I32, .ndim = 3};
    d.shape = (const int64_t[]){2, 3, 5};
    d.stride = (const int64_t[]){60, 4, 12}; /* the last two dimensions exchanged */
    assert_int_equal(lp_cover_target_of(&t, &d, &err), LP_OK);
    assert_int_equal(t.map.nbox, 1);
    assert_int_equal(t.box.rank, 0);
    assert_int_equal(t.box.run, 120);
    d.stride = (const int64_t[]){128, 20, 4};
    assert_int_equal(lp_cover_target_of(&t, &d, &err), LP_OK);
    assert_int_equal(t.box.rank, 1);
    assert_int_equal(t.box.run, 60);
    assert_int_equal(t.box.mode[0].extent, 2);
    assert_int_equal(t.map.dst_bytes, 120);
    assert_int_equal(t.map.dst_hi, 188);
    d.stride = (const int64_t[]){4, 4, 4};
    assert_int_equal(lp_cover_target_of(&t, &d, &err), LP_E_UNSUPPORTED);
    d.shape = (const int64_t[]){2, 0, 5};
    assert_int_equal(lp_cover_target_of(&t, &d, &err), LP_OK);
    assert_int_equal(t.map.nbox, 0);
    const lp_destination packed = {
        .name = "y", .dtype = LP_F4, .ndim = 2, .shape = (const int64_t[]){3, 6}, .stride = (const int64_t[]){3, 0}};
    assert_int_equal(lp_cover_target_of(&t, &packed, &err), LP_OK);
    assert_int_equal(t.box.run, 9);
}

/* ---- memory that runs out ---- */

static void every_allocation_may_fail(void **unused)
{
    (void)unused;
    scarce_alloc memory = {0};
    const lp_alloc failing = {.size = sizeof failing, .context = &memory, .resize = scarce_resize};
    shape s = {0}, t = whole(64);
    BOX(&s, 0, 4, {{8, 8}});
    rebase(&t);
    const lp_cover_item item[] = {{.map = &s.map, .tag = 0}, {.map = &s.map, .tag = 1}};
    for (int64_t n = 0;; n++) {
        lp_cover_memo *memo = NULL;
        lp_cover_report r = {0};
        lp_error err;
        memory.left = n;
        lp_status status = lp_cover_memo_new(&memo, &failing, &err);
        if (status == LP_OK) {
            status = lp_cover(&r, &t.map, item, 2, memo, &failing, &err);
            if (status == LP_OK) {
                assert_int_equal(r.npair, 1);
                lp_cover_report_free(&r, &failing);
                status = lp_cover(&r, NULL, item, 1, memo, &failing, &err);
            }
        }
        lp_cover_memo_free(memo);
        if (status == LP_OK) {
            assert_true(n > 3);
            return;
        }
        assert_int_equal(status, LP_E_MEMORY);
    }
}

static void the_memo_answers_again(void **unused)
{
    (void)unused;
    lp_cover_memo *memo = NULL;
    lp_error err;
    assert_int_equal(lp_cover_memo_new(&memo, NULL, &err), LP_OK);
    shape even = {0}, t = whole(16);
    BOX(&even, 0, 2, {{4, 4}});
    rebase(&t);
    for (int round = 0; round < 3; round++) {
        lp_cover_report r;
        const lp_cover_item good[] = {{.map = &even.map, .tag = 1}, {.map = &even.map, .dst_off = 2, .tag = 2}};
        assert_int_equal(lp_cover(&r, &t.map, good, 2, memo, NULL, &err), LP_OK);
        assert_int_equal(r.npair + r.uncovered_bytes, 0);
        /* one tag twice is no pair, and must not make two tags on the same bytes clean */
        const lp_cover_item twice[] = {{.map = &even.map, .tag = 1}, {.map = &even.map, .tag = 1}};
        assert_int_equal(lp_cover(&r, NULL, twice, 2, memo, NULL, &err), LP_OK);
        assert_int_equal(r.npair, 0);
        const lp_cover_item bad[] = {{.map = &even.map, .tag = 1}, {.map = &even.map, .tag = 2}};
        assert_int_equal(lp_cover(&r, NULL, bad, 2, memo, NULL, &err), LP_OK);
        assert_int_equal(r.npair, 1);
        lp_cover_report_free(&r, NULL);
    }
    lp_cover_memo_free(memo);
}

/* A memo that may look at little says so, and answers what it knows. */
static void a_limit_is_kept(void **unused)
{
    (void)unused;
    lp_cover_memo *memo = NULL;
    lp_cover_report r;
    lp_error err;
    shape even = {0}, other = {0}, t = whole(16);
    BOX(&even, 0, 2, {{4, 4}});
    BOX(&other, 0, 1, {{8, 2}});
    rebase(&t);
    const lp_cover_item known[] = {{.map = &even.map, .tag = 1}, {.map = &even.map, .dst_off = 2, .tag = 2}};
    const lp_cover_item novel[] = {{.map = &other.map, .tag = 1}, {.map = &other.map, .dst_off = 1, .tag = 2}};
    assert_int_equal(lp_cover_memo_new(&memo, NULL, &err), LP_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(lp_cover(&r, &t.map, known, 2, memo, NULL, &err), LP_OK);
        assert_true(!r.undecided && r.npair + r.uncovered_bytes == 0);
        lp_cover_memo_limit(memo, 1);
    }
    lp_cover_memo_limit(memo, 1000); /* it does not rise again */
    assert_int_equal(lp_cover(&r, &t.map, novel, 2, memo, NULL, &err), LP_OK);
    assert_true(r.undecided);
    lp_cover_report_free(&r, NULL);
    lp_cover_memo_free(memo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(left_twice_right_never),        cmocka_unit_test(word_transposed_scales_are_not_enumerated),
        cmocka_unit_test(coprime_periods_are_exact),     cmocka_unit_test(what_cannot_be_decided_says_so),
        cmocka_unit_test(sixty_five_thousand_fragments), cmocka_unit_test(thousands_of_one_byte_overlaps),
        cmocka_unit_test(too_many_pairs_are_truncated),  cmocka_unit_test(offsets_that_overflow_are_an_error),
        cmocka_unit_test(targets_follow_strides),        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(the_memo_answers_again),        cmocka_unit_test(a_limit_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
