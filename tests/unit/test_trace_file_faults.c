/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing a trace file while each allocation and each call for a file fails in turn (docs/format.md R9). */
#include "trace_faults.h"
#include "trace_fixture.h"

#include "traces/trace_file.h"

#include <sys/stat.h>

static lp_platform faulty(fix_faults *f, lp_alloc *alloc, lp_io *io)
{
    *alloc = (lp_alloc){.size = sizeof *alloc, .context = f, .resize = fix_resize};
    *io = fix_io(f);
    return (lp_platform){.io = io, .alloc = alloc};
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* Opens, expands, saves to another path; everything is closed again. */
static lp_status work(const char *from, const char *to, const lp_platform *platform, lp_error *err)
{
    lp_trace *t = NULL;
    LP_TRY(lp_trace_open_with(&t, from, platform, err));
    lp_status status = LP_OK;
    for (int32_t s = 0; s < lp_trace_scope_count(t) && status == LP_OK; s++) {
        const lp_rows *rows;
        status = lp_trace_rows(t, s, &rows, err);
    }
    if (status == LP_OK)
        status = lp_trace_save(t, to, true, err);
    lp_trace_close(t);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    lp_alloc alloc;
    lp_io io;
    fix_faults f = {.code = 5};
    const lp_platform platform = faulty(&f, &alloc, &io);
    const char *from = fix_path("from.lpt"), *to = fix_path("to.lpt");
    char partial[600];
    snprintf(partial, sizeof partial, "%s.partial", to);
    lp_trace *t = fix_trace(false);
    FIX_OK(lp_trace_save(t, from, true, &fix_err));
    FIX_OK(lp_trace_save(t, to, true, &fix_err));
    lp_trace_close(t);
    int64_t bytes, after_bytes;
    char *old = fix_read(to, &bytes);
    lp_error err = {0};
    assert_int_equal(work(from, to, &platform, &err), LP_OK);
    assert_int_equal(f.live, 0);
    const int64_t allocations = f.allocations;
    assert_true(allocations > 50);
    for (int64_t n = 1; n <= allocations; n++) {
        f = (fix_faults){.fail_allocation = n, .code = 5};
        assert_int_equal(work(from, to, &platform, &err), LP_E_MEMORY);
        assert_int_equal(f.live, 0);
        assert_false(exists(partial));
    }
    char *now = fix_read(to, &after_bytes);
    assert_int_equal(bytes, after_bytes);
    assert_memory_equal(old, now, (size_t)bytes);
    lp_release(NULL, old);
    lp_release(NULL, now);
    printf("%lld allocations failed in turn\n", (long long)allocations);
    unlink(from);
    unlink(to);
}

static void every_file_call_may_fail(void **state) /* R9 */
{
    (void)state;
    lp_alloc alloc;
    lp_io io;
    fix_faults f = {.code = 28};
    const lp_platform platform = faulty(&f, &alloc, &io);
    const char *from = fix_path("io-from.lpt"), *to = fix_path("io-to.lpt");
    char partial[600];
    snprintf(partial, sizeof partial, "%s.partial", to);
    lp_trace *t = fix_trace(false), *back;
    FIX_OK(lp_trace_save(t, from, true, &fix_err));
    FILE *old = fopen(to, "wb");
    fputs("the old file", old);
    fclose(old);
    lp_error err = {0};
    assert_int_equal(work(from, fix_path("io-other.lpt"), &platform, &err), LP_OK);
    const int64_t calls = f.calls;
    assert_true(calls > 10);
    int64_t failed = 0;
    for (int64_t n = 1; n <= calls; n++) {
        f = (fix_faults){.fail_call = n, .code = 28};
        const lp_status status = work(from, to, &platform, &err);
        assert_int_equal(f.live, 0);
        assert_false(exists(partial));
        int64_t bytes;
        char *now = fix_read(to, &bytes);
        const bool is_old = bytes == 12 && memcmp(now, "the old file", 12) == 0;
        lp_release(NULL, now);
        if (status != LP_OK) {
            failed++;
            assert_int_equal(status, LP_E_IO);
        }
        /* Whole, whichever it is; the old one until the rename has happened. */
        if (!is_old) {
            FIX_OK(lp_trace_open(&back, to, &fix_err));
            fix_same(t, back, true);
            lp_trace_close(back);
            FILE *again = fopen(to, "wb");
            fputs("the old file", again);
            fclose(again);
        } else {
            assert_int_not_equal(status, LP_OK);
        }
    }
    printf("%lld of %lld file calls made it fail\n", (long long)failed, (long long)calls);
    assert_true(failed >= calls - 6); /* failures to close what was only read do not matter */
    lp_trace_close(t);
    unlink(from);
    unlink(to);
    unlink(fix_path("io-other.lpt"));
}

/* ---- faults inside SQLite, whose memory does not come from the platform ---- */

static sqlite3_mem_methods sqlite_memory;
static int64_t sqlite_allocations, sqlite_fail;

static void *failing_malloc(int bytes)
{
    return ++sqlite_allocations == sqlite_fail ? NULL : sqlite_memory.xMalloc(bytes);
}

static void *failing_realloc(void *old, int bytes)
{
    return ++sqlite_allocations == sqlite_fail ? NULL : sqlite_memory.xRealloc(old, bytes);
}

static void every_allocation_of_sqlite_may_fail(void **state)
{
    (void)state;
    lp_alloc alloc;
    lp_io io;
    fix_faults f = {.code = 5};
    const lp_platform platform = faulty(&f, &alloc, &io);
    const char *from = fix_path("sql-from.lpt"), *to = fix_path("sql-to.lpt");
    lp_trace *t = fix_trace(false), *back;
    lp_error err = {0};
    FIX_OK(lp_trace_save(t, from, true, &fix_err));
    sqlite_allocations = 0;
    assert_int_equal(work(from, to, &platform, &err), LP_OK);
    const int64_t allocations = sqlite_allocations;
    assert_true(allocations > 100);
    int64_t failed = 0;
    for (int64_t n = 1; n <= allocations; n += n < 200 ? 1 : 5) {
        sqlite_allocations = 0;
        sqlite_fail = n;
        const lp_status status = work(from, to, &platform, &err);
        sqlite_fail = 0;
        assert_int_equal(f.live, 0);
        /* SQLite does without some of its caches: then everything must be right. */
        if (status == LP_OK) {
            FIX_OK(lp_trace_open(&back, to, &fix_err));
            fix_same_digests(t, back);
            lp_trace_close(back);
        } else {
            failed++;
            if (status != LP_E_MEMORY)
                print_error("allocation %lld: %s: %s\n", (long long)n, lp_status_name(status), err.text);
            assert_int_equal(status, LP_E_MEMORY);
        }
    }
    printf("%lld of %lld allocations of SQLite made it fail\n", (long long)failed, (long long)allocations);
    assert_true(failed > 50);
    lp_trace_close(t);
    unlink(from);
    unlink(to);
}

int main(void)
{
    sqlite3_mem_methods failing;
    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory) != SQLITE_OK)
        return 1;
    failing = sqlite_memory;
    failing.xMalloc = failing_malloc;
    failing.xRealloc = failing_realloc;
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) != SQLITE_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_file_call_may_fail),
        cmocka_unit_test(every_allocation_of_sqlite_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
