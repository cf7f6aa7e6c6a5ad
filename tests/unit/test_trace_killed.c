/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is killed while it saves a trace: whoever looks afterwards finds the old file or the new one, whole.
 */
#include "trace_faults.h"
#include "trace_fixture.h"

#include <sys/wait.h>

/* In a process of its own: 0 when it saved, the signal when it was killed. */
static int save_and_be_killed(const char *from, const char *to, int64_t at_call)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fix_faults f = {.fail_call = at_call, .kills = true};
        const lp_io io = fix_io(&f);
        const lp_platform platform = {.io = &io};
        lp_trace *t = NULL;
        lp_error err;
        _exit(lp_trace_open_with(&t, from, &platform, &err) != LP_OK || lp_trace_save(t, to, true, &err) != LP_OK);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static bool holds(const char *path, const char *bytes, int64_t count)
{
    int64_t have;
    char *text = fix_read(path, &have);
    const bool is_same = have == count && memcmp(text, bytes, (size_t)count) == 0;
    lp_release(NULL, text);
    return is_same;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void killed_at_every_call(void **state) /* R9 */
{
    (void)state;
    static const char old[] = "the old file";
    const char *from = fix_path("killed-from.lpt"), *to = fix_path("killed-to.lpt");
    char partial[600];
    snprintf(partial, sizeof partial, "%s.partial", to);
    lp_trace *t = fix_trace(false);
    FIX_OK(lp_trace_save(t, from, true, &fix_err));
    lp_trace_close(t);
    int64_t bytes;
    char *whole = fix_read(from, &bytes);
    int64_t kept = 0, replaced = 0, n = 1;
    for (;; n++) {
        put(to, old);
        const int signal = save_and_be_killed(from, to, n);
        const bool is_old = holds(to, old, (int64_t)sizeof old - 1), is_new = holds(to, whole, bytes);
        assert_true(is_old || is_new);
        if (signal == 0) {
            assert_true(is_new);
            break;
        }
        assert_int_equal(signal, SIGKILL);
        kept += is_old;
        replaced += is_new;
        /* What it left behind is in nobody's way. */
        assert_int_equal(save_and_be_killed(from, to, 0), 0);
        assert_true(holds(to, whole, bytes));
        assert_int_not_equal(access(partial, F_OK), 0);
    }
    assert_true(kept > 10);
    printf("killed at %lld calls: old file %lld times, new file %lld times\n", (long long)n - 1, (long long)kept,
           (long long)replaced);
    lp_release(NULL, whole);
    unlink(from);
    unlink(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_every_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
