/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors: what is computed, cast, checked and replaced, as the rows that come of it; and what is refused, in words. */
#include "mirror_testing.h"

#include "traces/trace_dump.h"

static int append(void *context, const char *text, size_t bytes)
{
    lp_text_add(context, text, bytes);
    return 0;
}

/* Ends the recording; its rows must read like this. */
static void expect_rows(bench *b, const char *expected)
{
    lp_trace *t = end(b);
    lp_text text;
    lp_error err = {0};
    lp_text_init(&text, NULL);
    if (lp_trace_dump_with(t, false, append, &text, &err) != LP_OK)
        fail_msg("%s", err.text);
    const char *rows = strchr(strstr(text.data, "\n# rank 0"), '\n') + 1;
    rows = strchr(rows, '\n') + 1;
    const size_t bytes = (size_t)(strstr(rows, "END ") - rows);
    if (bytes != strlen(expected) || memcmp(rows, expected, bytes) != 0)
        fail_msg("recorded:\n%.*sexpected:\n%s", (int)bytes, rows, expected);
    lp_text_free(&text);
    lp_trace_close(t);
}

/* The call must be refused so; the recording goes on. */
#define REFUSED(b, code, words, call)                                                                                  \
    do {                                                                                                               \
        (b).err = (lp_error){0};                                                                                       \
        const lp_status status_ = call;                                                                                \
        if (status_ != (code) || strcmp((b).err.text, words) != 0)                                                     \
            fail_msg("%s: %s: '%s'", #call, lp_status_name(status_), (b).err.text);                                    \
    } while (0)

static lp_status compute(bench *b, lp_op op, lp_strided dst, uint32_t dims, int count, const lp_strided *const *arg)
{
    static const double constant[4] = {1, 2, 3, 4};
    return lp_mirror_compute(b->mirror, "l", 5, op, &dst, count, arg, constant, dims, &b->err);
}

static void operations_of_one_two_and_three(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), o = source(&b, "b"), w = destination(&b, "w", LP_F32, SHAPE(4, 6));
    const lp_strided neg = temporary(&b, LP_F32, SHAPE(4, 6)), sum = temporary(&b, LP_F32, SHAPE(4, 6)),
                     more = temporary(&b, LP_BOOL, SHAPE(4, 6)), pick = temporary(&b, LP_F32, SHAPE(4, 6));
    assert_int_equal(compute(&b, LP_OP_NEG, neg, 0, 1, (const lp_strided *const[]){&a}), LP_OK);
    assert_int_equal(compute(&b, LP_OP_ADD, sum, 0, 2, (const lp_strided *const[]){&neg, NULL}), LP_OK);
    assert_int_equal(compute(&b, LP_OP_GREATER, more, 0, 2, (const lp_strided *const[]){&sum, &o}), LP_OK);
    assert_int_equal(compute(&b, LP_OP_WHERE, pick, 0, 3, (const lp_strided *const[]){&more, &sum, NULL}), LP_OK);
    assert_int_equal(copy(&b, w, pick), LP_OK);
    expect_rows(&b, "dest \"w\" F32 [4,6] bytes=96 group=\"root\"\n"
                    "derive \"w\" map=96 inputs=(name \"a\" F32 24 96; name \"b\" F32 24 96) nodes=(input F32 24 0,0,0 "
                    "0x0; neg F32 24 0,0,0 0x0; const F32 1 0,0,0 0x40000000; add F32 24 1,2,0 0x0; input F32 24 1,0,0 "
                    "0x0; greater F32 24 3,4,0 0x0; const F32 1 0,0,0 0x40400000; where F32 24 5,3,6 0x0)\n");
}

static void reductions_over_some_dimensions(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a");
    const struct {
        const char *name;
        lp_op op;
        uint32_t dims;
        int64_t count;
    } cases[] = {
        {"all", LP_OP_MAX, 0, 1}, {"rows", LP_OP_SUM, 1, 6}, {"columns", LP_OP_MIN, 2, 4}, {"both", LP_OP_MAX, 3, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lp_strided to = temporary(&b, LP_F32, SHAPE(cases[i].count)),
                         w = destination(&b, cases[i].name, LP_F32, SHAPE(cases[i].count));
        assert_int_equal(compute(&b, cases[i].op, to, cases[i].dims, 1, (const lp_strided *const[]){&a}), LP_OK);
        assert_int_equal(copy(&b, w, to), LP_OK);
    }
    expect_rows(
        &b,
        "dest \"all\" F32 [1] bytes=4 group=\"root\"\n"
        "dest \"both\" F32 [1] bytes=4 group=\"root\"\n"
        "dest \"columns\" F32 [4] bytes=16 group=\"root\"\n"
        "dest \"rows\" F32 [6] bytes=24 group=\"root\"\n"
        "derive \"all\" map=4 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; max F32 1 0,0,0 0x0)\n"
        "derive \"both\" map=4 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; max F32 4 0,0,0 0x6; max "
        "F32 1 1,0,0 0x0)\n"
        "derive \"columns\" map=16 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; min F32 4 0,0,0 0x6)\n"
        "derive \"rows\" map=24 inputs=(name \"a\" F32 24 6x4:16,4x24:4,4) nodes=(input F32 24 0,0,0 0x0; sum F32 6 "
        "0,0,0 0x4)\n");
}

/* Row-major 4 x 6, read as columns 4 and 2, so 2 x 4. */
static lp_strided two_columns(lp_strided g)
{
    g.offset = 2;
    g.extent[0] = 2, g.extent[1] = 4, g.extent[2] = 2, g.extent[3] = 6;
    return g;
}

static void views_of_values_are_views_of_what_they_read(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), o = source(&b, "b"), w = destination(&b, "w", LP_F32, SHAPE(2, 4)),
                     v = destination(&b, "v", LP_F32, SHAPE(2));
    const lp_strided sum = temporary(&b, LP_F32, SHAPE(4, 6)), root = temporary(&b, LP_F32, SHAPE(2, 4)),
                     rows = temporary(&b, LP_F32, SHAPE(4)), last = temporary(&b, LP_F32, SHAPE(2));
    const lp_strided shared[2] = {narrowed(o, 0, 1, 1), two_columns(sum)};
    assert_int_equal(compute(&b, LP_OP_ADD, sum, 0, 2, (const lp_strided *const[]){&a, &shared[0]}), LP_OK);
    assert_int_equal(compute(&b, LP_OP_MUL, root, 0, 2, (const lp_strided *const[]){&shared[1], &shared[1]}), LP_OK);
    assert_int_equal(copy(&b, w, root), LP_OK);
    /* The last two of four maxima over rows: each one's group goes with it. */
    assert_int_equal(compute(&b, LP_OP_MAX, rows, 2, 1, (const lp_strided *const[]){&sum}), LP_OK);
    const lp_strided tail = narrowed(rows, 0, 2, 2);
    assert_int_equal(compute(&b, LP_OP_NEG, last, 0, 1, (const lp_strided *const[]){&tail}), LP_OK);
    assert_int_equal(copy(&b, v, last), LP_OK);
    expect_rows(
        &b, "dest \"v\" F32 [2] bytes=8 group=\"root\"\n"
            "dest \"w\" F32 [2,4] bytes=32 group=\"root\"\n"
            "derive \"v\" map=8 inputs=(name \"a\" F32 12 48+0:48; name \"b\" F32 12 24+0:2x0:24,24) nodes=(input F32 "
            "12 0,0,0 0x0; input F32 12 1,0,0 0x0; add F32 12 0,1,0 0x0; max F32 2 2,0,0 0x6; neg F32 2 3,0,0 0x0)\n"
            "derive \"w\" map=32 inputs=(name \"a\" F32 8 8+0:2x8:16,4x24:4,4; name \"b\" F32 8 32+0:2x8:16,4x0:4,4; "
            "name \"a\" F32 8 8+0:2x8:16,4x24:4,4; name \"b\" F32 8 32+0:2x8:16,4x0:4,4) nodes=(input F32 8 0,0,0 0x0; "
            "input F32 8 1,0,0 0x0; add F32 8 0,1,0 0x0; input F32 8 2,0,0 0x0; input F32 8 3,0,0 0x0; add F32 8 3,4,0 "
            "0x0; mul F32 8 2,5,0 0x0)\n");
}

static void the_later_write_counts_beside_derives_and_fills(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), o = source(&b, "b"), w = destination(&b, "w", LP_F32, SHAPE(4, 6)),
                     v = destination(&b, "v", LP_F32, SHAPE(4, 6)), neg = temporary(&b, LP_F32, SHAPE(4, 6));
    assert_int_equal(compute(&b, LP_OP_NEG, neg, 0, 1, (const lp_strided *const[]){&a}), LP_OK);
    assert_int_equal(copy(&b, w, neg), LP_OK);
    assert_int_equal(copy(&b, narrowed(w, 0, 1, 1), narrowed(o, 0, 1, 1)), LP_OK);
    const lp_strided first = narrowed(w, 0, 0, 1), middle = narrowed(v, 0, 1, 2);
    assert_int_equal(lp_mirror_fill(b.mirror, "l", 3, &first, 0, -1, &b.err), LP_OK);
    /* A fill of no name comes first in a load, so the copy that it overwrites is not done there. */
    assert_int_equal(copy(&b, v, o), LP_OK);
    assert_int_equal(lp_mirror_fill(b.mirror, "l", 4, &middle, 7, -1, &b.err), LP_OK);
    expect_rows(&b, "dest \"v\" F32 [4,6] bytes=96 group=\"root\"\n"
                    "dest \"w\" F32 [4,6] bytes=96 group=\"root\"\n"
                    "copy \"b\" -> \"v\" src=0 dst=0 map=2x72:72,24\n"
                    "copy \"b\" -> \"w\" src=24 dst=24 map=24\n"
                    "fill begin -> \"v\" value=0x7 dst=24 map=0>4|12\n"
                    "fill begin -> \"w\" value=0x0 dst=0 map=0>1|24\n"
                    "derive \"w\" map=48+48:48 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; neg F32 24 "
                    "0,0,0 0x0)\n");
}

static void what_a_derive_reads_may_be_overwritten(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        bench b;
        begin(&b);
        const lp_strided a = source(&b, "a"), o = source(&b, "b"), w = destination(&b, "w", LP_F32, SHAPE(4, 6)),
                         m = destination(&b, "m", LP_F32, SHAPE(1)), most = temporary(&b, LP_F32, SHAPE(1)),
                         last = narrowed(w, 0, 3, 1);
        assert_int_equal(copy(&b, w, a), LP_OK);
        if (both)
            assert_int_equal(copy(&b, narrowed(w, 0, 2, 2), narrowed(o, 0, 2, 2)), LP_OK);
        assert_int_equal(compute(&b, LP_OP_MAX, most, 0, 1, (const lp_strided *const[]){&w}), LP_OK);
        assert_int_equal(copy(&b, m, most), LP_OK);
        assert_int_equal(lp_mirror_fill(b.mirror, "l", 3, &last, 0, -1, &b.err), both ? LP_E_REFUSED : LP_OK);
        /* The maximum is of "a", not of what is in "w" in the end; one of both names no expression can read. */
        expect_rows(&b,
                    both ? "dest \"m\" F32 [1] bytes=4 group=\"root\"\n"
                           "dest \"w\" F32 [4,6] bytes=96 group=\"root\"\n"
                           "fill begin -> \"w\" value=0x0 dst=72 map=0>1|24\n"
                           "refuse \"a\" -> \"m\" map=0>1|4 op=\"derive\" reason=\"computes in place on bytes of "
                           "several names\"\n"
                           "refuse \"a\" -> \"w\" map=0>1|72 op=\"derive\" reason=\"computes in place on bytes of "
                           "several names\"\n"
                           "refuse \"b\" -> \"m\" map=0>1|4 op=\"derive\" reason=\"computes in place on bytes of "
                           "several names\"\n"
                           "refuse \"b\" -> \"w\" map=0>1|0+48:24 op=\"derive\" reason=\"computes in place on bytes of "
                           "several names\"\n"
                         : "dest \"m\" F32 [1] bytes=4 group=\"root\"\n"
                           "dest \"w\" F32 [4,6] bytes=96 group=\"root\"\n"
                           "copy \"a\" -> \"w\" src=0 dst=0 map=72\n"
                           "fill begin -> \"w\" value=0x0 dst=72 map=0>1|24\n"
                           "derive \"m\" map=4 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; max F32 1 "
                           "0,0,0 0x0)\n");
    }
}

static void values_are_put_together(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), o = source(&b, "b"), w = destination(&b, "w", LP_BF16, SHAPE(2, 4, 6)),
                     v = destination(&b, "v", LP_F32, SHAPE(4, 6));
    const lp_strided neg = temporary(&b, LP_F32, SHAPE(4, 6)), both = temporary(&b, LP_F32, SHAPE(2, 4, 6));
    lp_strided half = strided(both.storage, LP_F32, SHAPE(4, 6));
    assert_int_equal(compute(&b, LP_OP_NEG, neg, 0, 1, (const lp_strided *const[]){&a}), LP_OK);
    assert_int_equal(copy(&b, half, neg), LP_OK);
    half.offset = 24;
    assert_int_equal(copy(&b, half, o), LP_OK);
    assert_int_equal(copy(&b, w, both), LP_OK); /* cast on the way */
    assert_int_equal(copy(&b, narrowed(neg, 0, 3, 1), narrowed(o, 0, 0, 1)), LP_OK);
    assert_int_equal(copy(&b, v, neg), LP_OK);
    expect_rows(
        &b, "dest \"v\" F32 [4,6] bytes=96 group=\"root\"\n"
            "dest \"w\" BF16 [2,4,6] bytes=96 group=\"root\"\n"
            "copy \"b\" -> \"v\" src=0 dst=72 map=24\n"
            "cast \"b\" -> \"w\" F32>BF16 src=0 dst=48 map=4>2|24\n"
            "derive \"v\" map=72 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; neg F32 24 0,0,0 0x0)\n"
            "derive \"w\" map=48 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; neg F32 24 0,0,0 0x0; "
            "cast BF16 24 1,0,0 0x0)\n");
}

static void values_are_placed_and_cast(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), h = destination(&b, "h", LP_BF16, SHAPE(6, 4)),
                     w = destination(&b, "w", LP_F32, SHAPE(4, 6));
    const lp_strided neg = temporary(&b, LP_F32, SHAPE(4, 6)), half = temporary(&b, LP_BF16, SHAPE(4, 6)),
                     again = temporary(&b, LP_F32, SHAPE(4, 6));
    assert_int_equal(compute(&b, LP_OP_NEG, neg, 0, 1, (const lp_strided *const[]){&a}), LP_OK);
    /* Across, in another dtype: the value is cast where it is made, not where it is placed. */
    lp_strided across = neg;
    across.extent[0] = 6, across.extent[1] = 4, across.extent[2] = 1, across.extent[3] = 6;
    assert_int_equal(copy(&b, h, across), LP_OK);
    /* A cast of a value is a value, and so is a temporary that one overwrites as a whole. */
    assert_int_equal(lp_mirror_cast(b.mirror, "l", 6, &half, &neg, &b.err), LP_OK);
    assert_int_equal(copy(&b, again, half), LP_OK);
    assert_int_equal(copy(&b, w, again), LP_OK);
    expect_rows(&b, "dest \"h\" BF16 [6,4] bytes=48 group=\"root\"\n"
                    "dest \"w\" F32 [4,6] bytes=96 group=\"root\"\n"
                    "derive \"h\" map=6x2:8,4x12:2,2 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; neg "
                    "F32 24 0,0,0 0x0; cast BF16 24 1,0,0 0x0)\n"
                    "derive \"w\" map=96 inputs=(name \"a\" F32 24 96) nodes=(input F32 24 0,0,0 0x0; neg F32 24 0,0,0 "
                    "0x0; cast BF16 24 1,0,0 0x0; cast F32 24 2,0,0 0x0)\n");
}

static void casts_that_are_done_when_they_must_be(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided h = source(&b, "h"), w = destination(&b, "w", LP_F32, SHAPE(8)),
                     v = destination(&b, "v", LP_F32, SHAPE(8)), u = destination(&b, "u", LP_BF16, SHAPE(8));
    const lp_strided cast = temporary(&b, LP_F32, SHAPE(8)), same = temporary(&b, LP_BF16, SHAPE(8));
    lp_strided back = cast;
    back.offset = 7;
    back.extent[1] = -1;
    /* Written backwards: a copy knows the order. */
    assert_int_equal(lp_mirror_cast(b.mirror, "l", 1, &back, &h, &b.err), LP_OK);
    assert_int_equal(copy(&b, w, cast), LP_OK);
    /* A part of a cast that is overwritten: the cast is done first. */
    const lp_strided part = temporary(&b, LP_F32, SHAPE(8));
    assert_int_equal(lp_mirror_cast(b.mirror, "l", 2, &part, &h, &b.err), LP_OK);
    const lp_strided tail = narrowed(part, 0, 6, 2);
    assert_int_equal(lp_mirror_fill(b.mirror, "l", 3, &tail, 0x3f800000, -1, &b.err), LP_OK);
    assert_int_equal(copy(&b, v, part), LP_OK);
    /* To the dtype that it has: the same bytes. */
    assert_int_equal(lp_mirror_cast(b.mirror, "l", 4, &same, &h, &b.err), LP_OK);
    assert_int_equal(copy(&b, u, same), LP_OK);
    expect_rows(&b, "dest \"u\" BF16 [8] bytes=16 group=\"root\"\n"
                    "dest \"v\" F32 [8] bytes=32 group=\"root\"\n"
                    "dest \"w\" F32 [8] bytes=32 group=\"root\"\n"
                    "copy \"h\" -> \"u\" src=0 dst=0 map=16\n"
                    "cast \"h\" -> \"v\" BF16>F32 src=0 dst=0 map=2>4|6\n"
                    "cast \"h\" -> \"w\" BF16>F32 src=14 dst=0 map=2>4|8x-2:4,1\n"
                    "fill begin -> \"v\" value=0x3f800000 dst=24 map=0>4|2\n");
}

static void checks_are_recorded(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), o = source(&b, "b");
    assert_int_equal(lp_mirror_require_close(b.mirror, "l", 1, &a, &o, 1e-5, "a and b differ", &b.err), LP_OK);
    expect_rows(&b, "derive check error=\"a and b differ\" inputs=(name \"a\" F32 24 96; name \"b\" F32 24 96) "
                    "nodes=(input F32 24 0,0,0 0x0; input F32 24 1,0,0 0x0; all_close - 0 0,1,0 0x3727c5ac)\n");
}

static void a_check_of_nothing_refuses_what_it_reads(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), o = source(&b, "b"), hole = temporary(&b, LP_F32, SHAPE(4, 6));
    assert_int_equal(lp_mirror_require_close(b.mirror, "l", 1, &a, &o, 1e-5, "a and b differ", &b.err), LP_OK);
    REFUSED(b, LP_E_REFUSED,
            "l:2: copy_: computes on a tensor that was put together, before any checkpoint tensor is in it",
            lp_mirror_require_close(b.mirror, "l", 2, &a, &hole, 1e-5, "no", &b.err));
    expect_rows(&b, "refuse \"a\" op=\"allclose\" reason=\"copy_: computes on a tensor that was put together, before "
                    "any checkpoint tensor is in it\"\n"
                    "refuse \"b\" op=\"derive\" reason=\"a derive reads it together with 'a', a fallback\"\n");
}

static void replaced_destinations_may_share(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), w = destination(&b, "w", LP_F32, SHAPE(4, 6)),
                     v = destination(&b, "v", LP_F32, SHAPE(4, 6)), made = temporary(&b, LP_F32, SHAPE(4, 6));
    assert_int_equal(copy(&b, w, a), LP_OK);
    assert_int_equal(copy(&b, v, a), LP_OK);
    assert_int_equal(copy(&b, made, w), LP_OK);
    assert_int_equal(lp_mirror_rebind(b.mirror, "l", 1, "w", &made, NULL, &b.err), LP_OK);
    assert_int_equal(lp_mirror_rebind(b.mirror, "l", 2, "v", &made, "w", &b.err), LP_OK);
    REFUSED(b, LP_E_UNKNOWN_NAME, "no destination 'nobody' is declared",
            lp_mirror_rebind(b.mirror, "l", 3, "nobody", &made, NULL, &b.err));
    expect_rows(&b, "dest \"v\" F32 [4,6] storage=\"w\" bytes=96 group=\"root\" flags=tied\n"
                    "dest \"w\" F32 [4,6] bytes=96 group=\"root\" flags=tied\n"
                    "copy \"a\" -> \"w\" src=0 dst=0 map=96\n");
}

static void replacements_that_no_row_can_say(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a");
    lp_strided one = strided(-1, LP_F32, SHAPE(4, 6));
    one.storage = lp_mirror_destination(b.mirror, "one", &one, 112, LP_DEST_TIED, NULL, &b.err);
    lp_strided two = strided(one.storage, LP_BF16, SHAPE(8));
    two.offset = 48;
    assert_int_equal(lp_mirror_destination(b.mirror, "two", &two, 112, LP_DEST_TIED, NULL, &b.err), one.storage);
    lp_strided inner = strided(-1, LP_F32, SHAPE(2, 2));
    inner.offset = 2;
    inner.storage = lp_mirror_destination(b.mirror, "inner", &inner, 64, 0, NULL, &b.err);
    const lp_strided w = destination(&b, "w", LP_F32, SHAPE(4, 6)),
                     computed = destination(&b, "c", LP_F32, SHAPE(4, 6)), neg = temporary(&b, LP_F32, SHAPE(4, 6));
    (void)w;
    lp_strided repeated = a, outside = a, negative = a;
    repeated.extent[2] = 0;
    outside.offset = 1 << 20;
    negative.extent[3] = -1;
    assert_int_equal(compute(&b, LP_OP_NEG, neg, 0, 1, (const lp_strided *const[]){&a}), LP_OK);
    assert_int_equal(copy(&b, computed, neg), LP_OK);
    const struct {
        const char *name;
        const lp_strided *by;
        const char *tied_to, *words;
    } bad[] = {{"two", &a, NULL, "l:1: replaces a destination that shares its storage"},
               {"one", &a, NULL, "l:1: replaces a destination that shares its storage"},
               {"inner", &a, NULL, "l:1: replaces a destination inside a larger storage"},
               {"c", &a, NULL, "l:1: replaces a destination that was computed"},
               {"w", &repeated, NULL, "l:1: replaces 'w' by a tensor that repeats elements"},
               {"w", &outside, NULL, "l:1: replaces 'w' by a tensor outside its storage"},
               {"w", &negative, NULL, "l:1: replaces 'w' by a tensor that repeats elements"},
               {"w", &a, "nobody", "l:1: no destination 'nobody' is declared"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(b, LP_E_REFUSED, bad[i].words,
                lp_mirror_rebind(b.mirror, "l", 1, bad[i].name, bad[i].by, bad[i].tied_to, &b.err));
    expect_rows(
        &b, "dest \"c\" F32 [4,6] bytes=96 group=\"root\"\n"
            "dest \"inner\" F32 [2,2] bytes=64 off=8 group=\"root\"\n"
            "dest \"one\" F32 [4,6] bytes=112 group=\"root\" flags=tied\n"
            "dest \"two\" BF16 [8] storage=\"one\" bytes=112 off=96 group=\"root\" flags=tied\n"
            "dest \"w\" F32 [4,6] bytes=96 group=\"root\"\n"
            "refuse \"a\" -> \"c\" map=0>1|96 op=\"set\" reason=\"replaces a destination that shares its storage\"\n"
            "refuse \"a\" op=\"set\" reason=\"replaces a destination that shares its storage\"\n");
}

static void misuse_is_told_where_no_name_can_fall_back(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const lp_strided a = source(&b, "a"), w = destination(&b, "w", LP_F32, SHAPE(4, 6));
    const lp_strided neg = temporary(&b, LP_F32, SHAPE(4, 6)), more = temporary(&b, LP_BOOL, SHAPE(4, 6));
    const lp_strided *const operands[4] = {&a, &a, &a, &a};
    assert_int_equal(compute(&b, LP_OP_NEG, neg, 0, 1, operands), LP_OK);
    assert_int_equal(compute(&b, LP_OP_GREATER, more, 0, 2, operands), LP_OK);
    lp_strided nowhere = a, bytes = neg, many = a, odd = a, far = a, across = neg;
    across.extent[2] = 1, across.extent[3] = 4;
    nowhere.storage = 99;
    bytes.dtype = LP_I32;
    many.ndim = 17;
    odd.dtype = LP_F4;
    far.offset = INT64_MAX;
    REFUSED(b, LP_E_ARGUMENT, "an operation of 4 operands", compute(&b, LP_OP_NEG, neg, 0, 4, operands));
    REFUSED(b, LP_E_ARGUMENT, "an operation of 0 operands", compute(&b, LP_OP_NEG, neg, 0, 0, operands));
    REFUSED(b, LP_E_ARGUMENT, "an operation of 1 operands", compute(&b, LP_OP_NEG, nowhere, 0, 1, operands));
    REFUSED(b, LP_E_ARGUMENT, "a result that is not row-major", compute(&b, LP_OP_NEG, across, 0, 1, operands));
    REFUSED(b, LP_E_ARGUMENT, "there is no storage number 99", copy(&b, nowhere, a));
    REFUSED(b, LP_E_ARGUMENT, "there is no storage number 99", copy(&b, w, nowhere));
    REFUSED(b, LP_E_ARGUMENT, "a refusal of -1 operands",
            lp_mirror_refuse(b.mirror, "l", 1, NULL, -1, NULL, "o", "r", &b.err));
    REFUSED(b, LP_E_ARGUMENT, "a refusal of 0 operands",
            lp_mirror_refuse(b.mirror, "l", 1, &nowhere, 0, NULL, "o", "r", &b.err));
    REFUSED(b, LP_E_UNSUPPORTED, "o: r", lp_mirror_refuse(b.mirror, "l", 1, NULL, 0, NULL, "o", "r", &b.err));
    const struct {
        const lp_strided *tensor;
        const char *words;
    } bad[] = {{&bytes, "loader.py:7: other bytes of a computed value"},
               {&many, "loader.py:7: a tensor outside its storage"},
               {&odd, "loader.py:7: a tensor outside its storage"},
               {&far, "loader.py:7: a tensor outside its storage"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(b, LP_E_UNSUPPORTED, bad[i].words, copy(&b, w, *bad[i].tensor));
    const lp_strided some = narrowed(more, 0, 0, 2);
    REFUSED(b, LP_E_REFUSED, "loader.py:7: overwrites part of a comparison", copy(&b, some, a));
    expect_rows(&b, "dest \"w\" F32 [4,6] bytes=96 group=\"root\"\n"
                    "refuse \"a\" op=\"copy_\" reason=\"overwrites part of a comparison\"\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_of_one_two_and_three),
        cmocka_unit_test(reductions_over_some_dimensions),
        cmocka_unit_test(views_of_values_are_views_of_what_they_read),
        cmocka_unit_test(the_later_write_counts_beside_derives_and_fills),
        cmocka_unit_test(what_a_derive_reads_may_be_overwritten),
        cmocka_unit_test(values_are_put_together),
        cmocka_unit_test(values_are_placed_and_cast),
        cmocka_unit_test(casts_that_are_done_when_they_must_be),
        cmocka_unit_test(checks_are_recorded),
        cmocka_unit_test(a_check_of_nothing_refuses_what_it_reads),
        cmocka_unit_test(replaced_destinations_may_share),
        cmocka_unit_test(replacements_that_no_row_can_say),
        cmocka_unit_test(misuse_is_told_where_no_name_can_fall_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
