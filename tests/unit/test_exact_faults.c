/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces read, written and compared with every single piece of memory failing: no piece is cut from a larger block, so
 * that a test for each of them is seen to work. (Where blocks are shared, most pieces cannot fail.)
 */
#define FIX_SMALL
#include "trace_faults.h"
#include "trace_fixture.h"

#include "traces/findings.h"
#include "traces/trace_dump.h"
#include "traces/trace_file.h"

#include <string.h>

static int append(void *context, const char *text, size_t bytes)
{
    lp_text_add(context, text, bytes);
    return 0;
}

typedef struct lp_step {
    const lp_platform *platform;
    lp_text text;   /* of the trace */
    uint8_t *image; /* as a file */
    int64_t bytes;
    lp_trace *other; /* a trace to compare with, in usual memory */
} lp_step;

static lp_status read_text(const lp_step *s, lp_error *err)
{
    lp_trace *t = NULL;
    lp_text out;
    LP_TRY(lp_trace_undump(&t, s->text.data, (size_t)s->text.bytes, s->platform, err));
    lp_text_init(&out, NULL);
    const lp_status status = lp_trace_dump_with(t, true, append, &out, err);
    if (status == LP_OK) {
        assert_int_equal(out.bytes, s->text.bytes);
        assert_memory_equal(out.data, s->text.data, (size_t)out.bytes);
    }
    lp_text_free(&out);
    lp_trace_close(t);
    return status;
}

static lp_status open_file(const lp_step *s, lp_trace **t, lp_error *err)
{
    LP_TRY(lp_trace_open_image(t, s->image, s->bytes, "x.lpt", s->platform, err));
    lp_status status = LP_OK;
    for (int32_t i = 0; i < lp_trace_scope_count(*t) && status == LP_OK; i++) {
        const lp_rows *rows;
        status = lp_trace_rows(*t, i, &rows, err);
    }
    if (status != LP_OK) {
        lp_trace_close(*t);
        *t = NULL;
    }
    return status;
}

static lp_status read_file(const lp_step *s, lp_error *err)
{
    lp_trace *t = NULL;
    uint8_t read[32], key[32], written[32];
    LP_TRY(open_file(s, &t, err));
    lp_status status = lp_trace_set_digest(t, read, err);
    if (status == LP_OK)
        status = lp_trace_structure_key(t, key, err);
    if (status == LP_OK) {
        FIX_OK(lp_trace_set_digest(s->other, written, &fix_err));
        assert_memory_equal(read, written, 32);
        FIX_OK(lp_trace_structure_key(s->other, written, &fix_err));
        assert_memory_equal(key, written, 32);
    }
    lp_trace_close(t);
    return status;
}

static lp_status write_file(const lp_step *s, lp_error *err)
{
    lp_trace *t = NULL;
    uint8_t *image = NULL;
    int64_t bytes;
    LP_TRY(lp_trace_open_image(&t, s->image, s->bytes, "x.lpt", s->platform, err));
    const lp_status status = lp_trace_image(t, &image, &bytes, err);
    if (status == LP_OK) {
        assert_int_equal(bytes, s->bytes);
        assert_memory_equal(image, s->image, (size_t)bytes);
    }
    sqlite3_free(image);
    lp_trace_close(t);
    return status;
}

static lp_status compare(const lp_step *s, lp_error *err)
{
    lp_trace *t = NULL;
    lp_findings *f = NULL;
    LP_TRY(open_file(s, &t, err));
    lp_status status = lp_diff(&f, s->other, t, err);
    if (status == LP_OK)
        assert_int_equal(lp_findings_count(f), 0);
    lp_findings_free(f);
    f = NULL;
    if (status == LP_OK)
        status = lp_check(&f, t, err);
    lp_findings_free(f);
    lp_trace_close(t);
    return status;
}

/* Runs a step with its first, second, ... piece of memory failing. */
static void every_piece_may_fail(lp_step *s, lp_status (*step)(const lp_step *s, lp_error *err), int64_t least)
{
    fix_faults f = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = fix_resize, .exact = true};
    const lp_platform platform = {.alloc = &alloc};
    lp_error err = {0};
    s->platform = &platform;
    FIX_OK(step(s, &fix_err));
    const int64_t pieces = f.allocations;
    int64_t survived = 0;
    assert_int_equal(f.live, 0);
    assert_true(pieces > least);
    for (int64_t n = 1; n <= pieces; n++) {
        f = (fix_faults){.fail_allocation = n};
        const lp_status status = step(s, &err);
        if (status != LP_E_MEMORY && status != LP_OK)
            fail_msg("piece %lld: %s: %s", (long long)n, lp_status_name(status), err.text);
        survived += status == LP_OK;
        assert_int_equal(f.live, 0);
    }
    printf("%lld pieces failed in turn, %lld were not needed\n", (long long)pieces, (long long)survived);
    assert_true(survived <= 2); /* the table in which names are looked up makes it faster only */
}

static void traces_are_read_written_and_compared(void **state)
{
    (void)state;
    lp_step s = {.other = fix_trace(false)};
    lp_text_init(&s.text, NULL);
    FIX_OK(lp_trace_dump_with(s.other, true, append, &s.text, &fix_err));
    FIX_OK(lp_trace_image(s.other, &s.image, &s.bytes, &fix_err));
    every_piece_may_fail(&s, read_text, 300);
    every_piece_may_fail(&s, read_file, 200);
    every_piece_may_fail(&s, write_file, 200);
    every_piece_may_fail(&s, compare, 200);
    lp_trace_close(s.other);
    lp_text_free(&s.text);
    sqlite3_free(s.image);
}

/* The end of each piece is the end of its block: what goes beyond it is seen by a memory checker. */
static void an_older_table_has_shared_blocks(void **state)
{
    (void)state;
    fix_faults f = {0};
    lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = fix_resize, .exact = true};
    lp_arena a;
    for (int is_old = 0; is_old < 2; is_old++) {
        alloc.size = is_old ? offsetof(lp_alloc, exact) : sizeof alloc;
        f = (fix_faults){0};
        lp_arena_init(&a, &alloc);
        uint8_t *piece[3];
        for (int i = 0; i < 3; i++) {
            piece[i] = lp_arena_get(&a, 5);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % 16, 0);
            memset(piece[i], i, 5);
        }
        assert_int_equal(f.allocations, is_old ? 1 : 3);
        assert_int_equal(piece[0][4], 0);
        assert_int_equal(piece[1][4], 1);
        lp_arena_free(&a);
        assert_int_equal(f.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_are_read_written_and_compared),
        cmocka_unit_test(an_older_table_has_shared_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
