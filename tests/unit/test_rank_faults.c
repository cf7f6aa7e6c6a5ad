/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the file of a rank when something fails: the file is whole, or it is the one that was there before. */
#include "checkpoint_files.h"
#include "replay_testing.h"

#include "replayer/rank_form.h"

#include <jansson.h>
#include <sys/wait.h>

/* ---- a loaded rank ---- */

typedef struct bed {
    world w;
    payload p;
    lp_destinations *memory;
    lp_plan *plan;
    faulty_io files;
    lp_platform platform;
    char folder[64], path[96], partial[112];
    char *whole; /* what is to be in the file */
    int64_t bytes;
} bed;

static char *read_all(const char *path, int64_t *bytes)
{
    struct stat st;
    char *text;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    *bytes = st.st_size;
    text = malloc((size_t)st.st_size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    return text;
}

static bool holds(const char *path, const char *text, int64_t bytes)
{
    int64_t have;
    char *now = read_all(path, &have);
    const bool is_same = have == bytes && memcmp(now, text, (size_t)bytes) == 0;
    free(now);
    return is_same;
}

static const char OLD[] = "the old file";

static void put_old(const bed *b)
{
    FILE *f = fopen(b->path, "wb");
    assert_non_null(f);
    assert_true(fputs(OLD, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static bool is_old(const bed *b)
{
    return holds(b->path, OLD, (int64_t)sizeof OLD - 1);
}

static void open_bed(bed *b)
{
    lp_session *s;
    int64_t count;
    memset(b, 0, sizeof *b);
    b->w.random = failing_seed = 5;
    const int a = add_source(&b->w, "a", LP_F32, 8, 6), c = add_source(&b->w, "c", LP_U8, 3, 100);
    const int x = add_dest(&b->w, "x", LP_F32, 8, 6, 0, "g"), z = add_dest(&b->w, "z", LP_U8, 3, 100, 0, "h");
    add_copy(&b->w, a, x, 0, 8, 0);
    add_copy(&b->w, c, z, 0, 3, 0);
    build_world(&b->w, NULL);
    b->p = make_payload(&b->w);
    faulty_io_init(&b->files, -1, -EIO);
    b->platform = (lp_platform){.io = &b->files.table};
    snprintf(b->folder, sizeof b->folder, "/tmp/loadplan-rank-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    snprintf(b->path, sizeof b->path, "%s/r.safetensors", b->folder);
    snprintf(b->partial, sizeof b->partial, "%s.partial", b->path);
    assert_ok(&b->w, lp_destinations_allocate(&b->memory, b->w.trace, NULL, false, NULL, &b->w.err));
    const lp_destination_memory *list = lp_destinations_list(b->memory, &count);
    const lp_bind_options o = {.threads = 1, .platform = &b->platform};
    assert_ok(&b->w, lp_bind(&b->plan, b->w.trace, NULL, list, count, &o, &b->w.err));
    assert_ok(&b->w, lp_begin(&s, b->plan, NULL, &b->w.err));
    push_all(&b->w, s, &b->p);
    assert_ok(&b->w, lp_finish(s, NULL, &b->w.err));
    lp_session_close(s);
    assert_ok(&b->w, lp_rank_file_write(b->plan, b->path, true, NULL, NULL, NULL, &b->w.err));
    b->whole = read_all(b->path, &b->bytes);
}

static void close_bed(bed *b)
{
    free(b->whole);
    unlink(b->path);
    assert_int_equal(rmdir(b->folder), 0);
    lp_plan_close(b->plan);
    lp_destinations_free(b->memory);
    free_payload(&b->w, &b->p);
    free_world(&b->w);
}

/* Call number `fail_at` and no other fails; 0: none. */
static lp_status write_again(bed *b, int64_t fail_at)
{
    b->files.calls = 0;
    b->files.countdown = fail_at - 1;
    b->files.is_once = true;
    return lp_rank_file_write(b->plan, b->path, true, NULL, NULL, NULL, &b->w.err);
}

static void every_file_call_may_fail(void **state)
{
    bed b;
    int64_t failed = 0, survived = 0;
    (void)state;
    open_bed(&b);
    for (int64_t n = 1;; n++) {
        put_old(&b);
        const lp_status status = write_again(&b, n);
        const bool is_past = b.files.calls < n;
        /* What comes after the rename, the sync of the folder, may fail with the new file in place. */
        if (status == LP_OK)
            assert_true(holds(b.path, b.whole, b.bytes));
        else
            assert_true(status == LP_E_IO && (is_old(&b) || holds(b.path, b.whole, b.bytes)));
        assert_int_not_equal(access(b.partial, F_OK), 0);
        failed += status != LP_OK;
        survived += status == LP_OK && !is_past;
        if (is_past)
            break;
    }
    print_message("%lld calls failed the write, %lld did not\n", (long long)failed, (long long)survived);
    assert_true(failed >= 4);
    close_bed(&b);
}

static void killed_at_every_file_call(void **state)
{
    bed b;
    int64_t kept = 0, replaced = 0;
    (void)state;
    open_bed(&b);
    for (int64_t n = 1;; n++) {
        int status = 0;
        put_old(&b);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            b.files.kills = true;
            _exit(write_again(&b, n) != LP_OK);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        const bool is_new = holds(b.path, b.whole, b.bytes);
        assert_true(is_new || is_old(&b));
        if (WIFEXITED(status)) {
            assert_true(WEXITSTATUS(status) == 0 && is_new);
            break;
        }
        kept += !is_new;
        replaced += is_new;
        /* What it left behind is in nobody's way. */
        assert_int_equal(write_again(&b, 0), LP_OK);
        assert_true(holds(b.path, b.whole, b.bytes) && access(b.partial, F_OK) != 0);
    }
    print_message("killed: old file %lld times, new file %lld times\n", (long long)kept, (long long)replaced);
    assert_true(kept >= 3);
    close_bed(&b);
}

/* ---- memory of the library that writes the header ---- */

static long json_takes, json_fails_at = -1;

static void *json_take(size_t bytes)
{
    return json_takes++ == json_fails_at ? NULL : malloc(bytes);
}

static void every_allocation_of_the_header_may_fail(void **state)
{
    bed b;
    long n = 0;
    (void)state;
    open_bed(&b);
    json_set_alloc_funcs(json_take, free);
    for (;; n++) {
        put_old(&b);
        json_takes = 0;
        json_fails_at = n;
        const lp_status status = write_again(&b, 0);
        const bool is_past = json_takes <= n;
        if (status == LP_OK)
            assert_true(holds(b.path, b.whole, b.bytes));
        else
            assert_true(status == LP_E_MEMORY && is_old(&b));
        if (is_past)
            break;
    }
    json_set_alloc_funcs(malloc, free);
    print_message("%ld allocations failed in turn\n", n);
    assert_true(n > 40);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_call_may_fail),
        cmocka_unit_test(killed_at_every_file_call),
        cmocka_unit_test(every_allocation_of_the_header_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
