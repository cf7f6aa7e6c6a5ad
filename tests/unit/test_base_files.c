/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole or not at all, and reading with a limit. */
#include "tests/unit/checkpoint_files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/wait.h>

static void expect_content(const char *path, const char *expected)
{
    char *text = NULL;
    int64_t bytes;
    lp_error err = {0};
    if (lp_read_file(NULL, path, 1 << 20, &text, &bytes, &err) != LP_OK)
        fail_msg("%s", err.text);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(text, expected);
    lp_release(NULL, text);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static lp_status write_output(const lp_platform *platform, const char *path, bool overwrite, lp_error *err)
{
    lp_outfile f;
    lp_status status;
    LP_TRY(lp_outfile_open(&f, platform, path, overwrite, err));
    LP_TRY_GOTO(lp_outfile_write(&f, "new ", 4, err), abandon);
    LP_TRY_GOTO(lp_outfile_write(&f, "", 0, err), abandon);
    LP_TRY_GOTO(lp_outfile_write(&f, "content", 7, err), abandon);
    return lp_outfile_commit(&f, err);
abandon:
    lp_outfile_abandon(&f);
    return status;
}

static void outputs_appear_whole(void **state)
{
    (void)state;
    const char *path = in_folder("out"), *partial = in_folder("out.partial");
    lp_error err = {0};
    assert_int_equal(write_output(NULL, path, false, &err), LP_OK);
    expect_content(path, "new content");
    assert_false(exists(partial));

    write_text(path, "old");
    assert_int_equal(write_output(NULL, path, false, &err), LP_E_EXISTS);
    assert_string_equal(err.hint, "use -f to replace it");
    expect_content(path, "old");
    assert_false(exists(partial));

    lp_outfile f;
    assert_int_equal(lp_outfile_open(&f, NULL, path, true, &err), LP_OK);
    assert_int_equal(lp_outfile_write(&f, "half", 4, &err), LP_OK);
    assert_true(exists(partial));
    expect_content(path, "old"); /* until commit */
    lp_outfile_abandon(&f);
    lp_outfile_abandon(&f);
    lp_outfile_abandon(&(lp_outfile){0});
    expect_content(path, "old");
    assert_false(exists(partial));

    write_text(partial, "left over by a crash, and longer than what follows");
    assert_int_equal(write_output(NULL, path, true, &err), LP_OK);
    expect_content(path, "new content");
    assert_int_equal(write_output(NULL, in_folder("no/such/folder"), false, &err), LP_E_IO);
}

static void a_failing_output_keeps_the_old_file(void **state)
{
    (void)state;
    const char *path = in_folder("kept"), *partial = in_folder("kept.partial");
    lp_error err = {0};
    faulty_io io;
    faulty_memory m;
    faulty_io_init(&io, -1, 0);
    faulty_memory_init(&m, -1);
    io.piece = 2; /* short writes */
    const lp_platform platform = {.io = &io.table, .alloc = &m.table};
    assert_int_equal(write_output(&platform, path, true, &err), LP_OK);
    expect_content(path, "new content");
    const int64_t calls = io.calls;
    assert_true(calls > 10);
    static const int errors[] = {-ENOSPC, -EIO, 0};
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++)
        for (int64_t n = 0; n < calls; n++) {
            write_text(path, "old");
            faulty_io_init(&io, n, errors[e]);
            io.piece = 2;
            io.is_once = true;
            const lp_status status = write_output(&platform, path, true, &err);
            assert_int_equal(io.open_files, 0);
            assert_int_equal(m.live, 0);
            assert_false(exists(partial));
            char *text = NULL;
            int64_t bytes;
            assert_int_equal(lp_read_file(NULL, path, 100, &text, &bytes, &err), LP_OK);
            /* Only the fsync of the folder comes after the rename; then the new file stands, and is whole. */
            if (status == LP_OK || strcmp(text, "old") != 0)
                assert_string_equal(text, "new content");
            else
                assert_int_equal(status, LP_E_IO);
            lp_release(NULL, text);
        }
    for (int64_t n = 0; n < 3; n++) {
        write_text(path, "old");
        faulty_io_init(&io, -1, 0);
        faulty_memory_init(&m, n);
        const lp_status status = write_output(&platform, path, true, &err);
        assert_int_equal(status, n < 2 ? LP_E_MEMORY : LP_OK);
        expect_content(path, n < 2 ? "old" : "new content");
        assert_int_equal(m.live, 0);
        assert_int_equal(io.open_files, 0);
        assert_false(exists(partial));
    }
}

/* The first request is refused; every other block is as the one before left it, with the name of a file in it. */
typedef struct littered {
    const char *name;
    int calls;
} littered;

static void *littered_resize(void *context, void *old, size_t bytes)
{
    littered *l = context;
    assert_true(old == NULL || bytes == 0);
    free(old);
    if (bytes == 0 || l->calls++ == 0)
        return NULL;
    const size_t length = strlen(l->name) + 1;
    char *block = malloc(bytes + length);
    assert_non_null(block);
    memcpy(block, l->name, length);
    return block;
}

/* Without memory for one of its names, an output that was never begun removes nothing. */
static void an_output_without_memory_removes_nothing(void **state)
{
    (void)state;
    const char *victim = in_folder("victim");
    littered l = {.name = victim};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &l, .resize = littered_resize};
    const lp_platform platform = {.alloc = &alloc};
    lp_outfile f;
    lp_error err;
    write_text(victim, "kept");
    assert_int_equal(lp_outfile_open(&f, &platform, in_folder("other"), true, &err), LP_E_MEMORY);
    expect_content(victim, "kept");
}

static void interrupted_calls_go_on(void **state)
{
    (void)state;
    const char *path = in_folder("interrupted");
    lp_error err = {0};
    faulty_io io;
    const lp_platform platform = {.io = &io.table};
    /* Calls 0 to 2 look at the old file, call 3 makes the new one, 4 to 6 look once more; calls 7 to 10 write its
     * pieces. */
    for (int64_t n = 7; n <= 10; n++) {
        write_text(path, "old");
        faulty_io_init(&io, n, -EINTR);
        io.is_once = true;
        io.piece = 3;
        assert_int_equal(write_output(&platform, path, true, &err), LP_OK);
        expect_content(path, "new content");
    }
}

/* ---- two writers of one file ---- */

static void an_output_has_one_writer(void **state)
{
    (void)state;
    const char *path = in_folder("shared"), *partial = in_folder("shared.partial");
    lp_error err = {0};
    lp_outfile first, second;
    assert_int_equal(lp_outfile_open(&first, NULL, path, false, &err), LP_OK);
    assert_int_equal(lp_outfile_write(&first, "the first", 9, &err), LP_OK);
    assert_int_equal(lp_outfile_open(&second, NULL, path, true, &err), LP_E_IO);
    assert_non_null(strstr(err.text, "another process writes '"));
    assert_non_null(strstr(err.text, "/shared' at this moment"));
    assert_true(exists(partial)); /* what the other has written so far */
    assert_int_equal(lp_outfile_commit(&first, &err), LP_OK);
    expect_content(path, "the first");
    assert_int_equal(lp_outfile_open(&second, NULL, path, true, &err), LP_OK);
    assert_int_equal(lp_outfile_commit(&second, &err), LP_OK);
    expect_content(path, "");
}

/* Writer number `w` writes 1,000 + w times the letter `w`, in pieces. False: it failed, and not for another writer. */
static bool write_letters(const char *path, int w)
{
    char letters[100];
    memset(letters, 'a' + w, sizeof letters);
    lp_error err = {0};
    lp_outfile f;
    if (lp_outfile_open(&f, NULL, path, true, &err) != LP_OK)
        return strstr(err.text, "another process writes") != NULL;
    for (int i = 0; i < 10; i++)
        if (lp_outfile_write(&f, letters, sizeof letters, &err) != LP_OK)
            return false;
    return lp_outfile_write(&f, letters, w, &err) == LP_OK && lp_outfile_commit(&f, &err) == LP_OK;
}

static void expect_letters_of_one(const char *path)
{
    char *text = NULL;
    int64_t bytes;
    lp_error err = {0};
    assert_int_equal(lp_read_file(NULL, path, 4096, &text, &bytes, &err), LP_OK);
    assert_true(bytes >= 1000);
    assert_int_equal(bytes, 1000 + text[0] - 'a');
    for (int64_t i = 1; i < bytes; i++)
        assert_int_equal(text[i], text[0]);
    lp_release(NULL, text);
}

/* Ranks that are given one output by mistake: whichever file stands there at any moment is that of one of them. */
static void writers_do_not_mix(void **state)
{
    (void)state;
    enum { WRITERS = 4, ROUNDS = 25 };
    const char *path = in_folder("letters");
    pid_t child[WRITERS];
    assert_true(write_letters(path, 0));
    for (int w = 0; w < WRITERS; w++) {
        child[w] = fork();
        assert_true(child[w] >= 0);
        if (child[w] == 0) {
            bool is_ok = true;
            for (int i = 0; i < ROUNDS && is_ok; i++)
                is_ok = write_letters(path, w);
            _exit(is_ok ? 0 : 1);
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        while (waitpid(child[w], &status, WNOHANG) == 0)
            expect_letters_of_one(path);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    expect_letters_of_one(path);
    assert_false(exists(in_folder("letters.partial")));
}

static int64_t judged_bytes, judged_file_bytes;

static lp_status takes_digits(const char *path, const char *start, int64_t start_bytes, int64_t file_bytes,
                              lp_error *err)
{
    judged_bytes = start_bytes;
    judged_file_bytes = file_bytes;
    return start_bytes > 0 && start[0] == '0' ? LP_OK : lp_fail(err, LP_E_UNSUPPORTED, "'%s': no digits", path);
}

/* Of a file that is not what it was taken for, however large, no more is read than its start, and no memory taken. */
static void files_are_judged_before_they_are_read(void **state)
{
    (void)state;
    const char *path = in_folder("judged");
    char *text = NULL;
    int64_t bytes = -1;
    lp_error err = {0};
    faulty_memory m;
    faulty_memory_init(&m, 0);
    const lp_platform no_memory = {.alloc = &m.table};
    write_text(path, "not what is wanted");
    assert_int_equal(truncate(path, INT64_C(1) << 40), 0);
    assert_int_equal(lp_read_judged(&no_memory, path, 4, takes_digits, &text, &bytes, &err), LP_E_UNSUPPORTED);
    assert_int_equal(judged_bytes, LP_JUDGED_BYTES);
    assert_int_equal(judged_file_bytes, INT64_C(1) << 40);
    write_text(path, "0123456789");
    assert_int_equal(lp_read_judged(NULL, path, 9, takes_digits, &text, &bytes, &err), LP_E_HOSTILE);
    assert_int_equal(lp_read_judged(NULL, path, 10, takes_digits, &text, &bytes, &err), LP_OK);
    assert_int_equal(judged_bytes, 10);
    assert_string_equal(text, "0123456789");
    lp_release(NULL, text);
    write_text(path, "");
    assert_int_equal(lp_read_judged(NULL, path, 10, takes_digits, &text, &bytes, &err), LP_E_UNSUPPORTED);
    assert_int_equal(judged_bytes, 0);
    assert_int_equal(lp_read_judged(NULL, test_folder, 10, takes_digits, &text, &bytes, &err), LP_E_FORMAT);
}

static void whole_files_are_read_with_a_limit(void **state)
{
    (void)state;
    const char *path = in_folder("text");
    char *text = NULL;
    int64_t bytes = -1;
    lp_error err = {0};
    write_file(path, "a\0bc", 4);
    assert_int_equal(lp_read_file(NULL, path, 4, &text, &bytes, &err), LP_OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(text, "a\0bc", 5);
    lp_release(NULL, text);
    text = NULL;
    assert_int_equal(lp_read_file(NULL, path, 3, &text, &bytes, &err), LP_E_HOSTILE);
    assert_int_equal(lp_read_file(NULL, test_folder, 100, &text, &bytes, &err), LP_E_FORMAT);
    assert_int_equal(lp_read_file(NULL, in_folder("absent"), 100, &text, &bytes, &err), LP_E_IO);
    assert_null(text);
    write_text(path, "");
    assert_int_equal(lp_read_file(NULL, path, 0, &text, &bytes, &err), LP_OK);
    assert_int_equal(bytes, 0);
    assert_string_equal(text, "");
    lp_release(NULL, text);

    write_text(path, "0123456789");
    faulty_io io;
    faulty_memory m;
    const lp_platform platform = {.io = &io.table, .alloc = &m.table};
    lp_status status = LP_E_IO;
    for (int64_t n = 0; status != LP_OK; n++) {
        faulty_io_init(&io, n, -EIO);
        faulty_memory_init(&m, -1);
        io.piece = 3;
        io.is_once = true;
        text = NULL;
        status = lp_read_file(&platform, path, 100, &text, &bytes, &err);
        lp_release(&m.table, text);
        assert_int_equal(m.live, 0);
        assert_int_equal(io.open_files, 0);
        assert_true(status == LP_E_IO || n > 5);
    }
    const int fd = open(path, O_RDONLY);
    char buffer[20];
    assert_int_equal(lp_read_exact(lp_io_default(), fd, path, buffer, 11, 0, &err), LP_E_CORRUPT);
    assert_non_null(strstr(err.text, "ends at byte 10"));
    assert_int_equal(err.byte_off, 10);
    assert_int_equal(lp_read_exact(lp_io_default(), fd, path, buffer, 5, 5, &err), LP_OK);
    assert_memory_equal(buffer, "56789", 5);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_appear_whole),
        cmocka_unit_test(a_failing_output_keeps_the_old_file),
        cmocka_unit_test(an_output_without_memory_removes_nothing),
        cmocka_unit_test(interrupted_calls_go_on),
        cmocka_unit_test(an_output_has_one_writer),
        cmocka_unit_test(writers_do_not_mix),
        cmocka_unit_test(files_are_judged_before_they_are_read),
        cmocka_unit_test(whole_files_are_read_with_a_limit),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
