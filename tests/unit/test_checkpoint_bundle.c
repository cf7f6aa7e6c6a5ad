/* SPDX-License-Identifier: Apache-2.0 */
/* Header bundles: the same catalogue without files, and every call that may fail, failing. */
#include "checkpoint_files.h"
#include "model_testing.h"

static const char head_a[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                             "\"__metadata__\":{\"format\":\"pt\"}}";
static const char head_b[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}";

static lp_checkpoint *open_folder(const lp_platform *platform)
{
    lp_checkpoint *c;
    write_safetensors(in_folder("one.safetensors"), head_a, 8);
    write_safetensors(in_folder("two.safetensors"), head_b, 12);
    write_text(in_folder("m.safetensors.index.json"),
               "{\"weight_map\":{\"b\":\"one.safetensors\",\"a\":\"two.safetensors\"}}");
    write_text(in_folder("config.json"), "{\"model_type\":\"llama\"}");
    assert_ok(lp_checkpoint_open_with(&c, test_folder, platform, ERR));
    return c;
}

static void a_bundle_is_the_catalogue_without_files(void **unused)
{
    (void)unused;
    lp_checkpoint *c = open_folder(NULL), *b;
    const char *path = in_folder("x.headers"), *value;
    lp_error err;
    assert_ok(lp_checkpoint_save_headers(c, path, false, ERR));
    assert_int_equal(lp_checkpoint_save_headers(c, path, false, &err), LP_E_EXISTS);
    assert_ok(lp_checkpoint_save_headers(c, path, true, ERR));
    assert_ok(lp_checkpoint_open(&b, path, ERR));
    assert_int_equal(lp_checkpoint_count(b), 2);
    assert_int_equal(lp_checkpoint_bytes(b), 20);
    assert_int_equal(lp_checkpoint_file_count(b), 0);
    assert_string_equal(lp_checkpoint_folder(b), "");
    for (int64_t i = 0; i < 2; i++) {
        const lp_checkpoint_tensor *x = lp_checkpoint_at(c, i), *y = lp_checkpoint_at(b, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->ndim, y->ndim);
        assert_memory_equal(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape);
        assert_int_equal(y->file, -1);
        assert_int_equal(y->file_off, -1);
    }
    assert_string_equal(lp_checkpoint_config(b), "{\"model_type\":\"llama\"}");
    assert_null(lp_checkpoint_config(c));
    assert_int_equal(lp_checkpoint_metadata_count(b), 1);
    assert_string_equal(lp_checkpoint_metadata_at(b, 0, &value), "format");
    assert_string_equal(value, "pt");
    assert_int_equal(lp_checkpoint_save_headers(b, in_folder("y.headers"), false, &err), LP_E_UNSUPPORTED);
    lp_checkpoint_close(b);
    lp_checkpoint_close(c);
}

static void every_allocation_may_fail(void **unused)
{
    (void)unused;
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize};
    const lp_platform platform = {.alloc = &alloc};
    lp_checkpoint *c = open_folder(&platform);
    const int64_t before = faults.live;
    char path[128];
    snprintf(path, sizeof path, "%s/faulty.headers", test_folder);
    lp_status status = LP_E_MEMORY;
    int64_t n = 0;
    while (status != LP_OK) {
        lp_error err;
        faults.calls = 0;
        faults.fail_at = ++n;
        status = lp_checkpoint_save_headers(c, path, false, &err);
        faults.fail_at = 0;
        assert_int_equal(faults.live, before);
        assert_true(status == LP_OK || status == LP_E_MEMORY);
        assert_int_equal(access(path, F_OK) == 0, status == LP_OK); /* whole or not at all */
    }
    assert_true(n > 5);
    lp_checkpoint_close(c);
    status = LP_E_MEMORY;
    for (n = 0; status != LP_OK;) {
        lp_error err;
        lp_checkpoint *b = NULL;
        faults = (failing_alloc){.fail_at = ++n};
        status = lp_checkpoint_open_with(&b, path, &platform, &err);
        assert_true(status == LP_OK || status == LP_E_MEMORY);
        faults.fail_at = 0;
        lp_checkpoint_close(b);
        assert_int_equal(faults.live, 0);
    }
    assert_true(n > 8);
}

/* Every call to the files fails once, also in the middle of a read or write: told, nothing left open, whole or nothing.
 */
static void every_file_call_may_fail(void **unused)
{
    (void)unused;
    static const int errors[] = {-EIO, 0};
    faulty_io io;
    char path[128], partial[128];
    snprintf(path, sizeof path, "%s/io.headers", test_folder);
    snprintf(partial, sizeof partial, "%s/io.headers.partial", test_folder);
    for (int e = 0; e < 2; e++) {
        for (int64_t n = 0;; n++) {
            faulty_io_init(&io, -1, 0);
            const lp_platform platform = {.io = &io.table};
            lp_checkpoint *c = open_folder(&platform);
            lp_error err = {0};
            io.countdown = n;
            io.error = errors[e];
            io.is_once = true;
            const lp_status status = lp_checkpoint_save_headers(c, path, true, &err);
            const bool is_through = io.countdown >= 0; /* no call was left to fail */
            io.countdown = -1;
            assert_true(status == LP_OK || err.text[0] != '\0');
            if (status == LP_OK) {
                lp_checkpoint *b = NULL;
                assert_ok(lp_checkpoint_open(&b, path, ERR));
                assert_int_equal(lp_checkpoint_count(b), 2);
                lp_checkpoint_close(b);
            }
            lp_checkpoint_close(c);
            assert_int_equal(io.open_files, 0);
            if (access(partial, F_OK) == 0)
                fail_msg("error %d, call %d: %s left (%s)", errors[e], (int)n, partial, err.text);
            unlink(path);
            if (is_through)
                break;
            assert_true(n < 200);
        }
    }
    lp_checkpoint *c = open_folder(NULL);
    assert_ok(lp_checkpoint_save_headers(c, path, true, ERR));
    lp_checkpoint_close(c);
    for (int64_t n = 0;; n++) {
        lp_checkpoint *b = NULL;
        lp_error err = {0};
        faulty_io_init(&io, n, -EIO);
        io.is_once = true;
        const lp_status status = lp_checkpoint_open_with(&b, path, &(lp_platform){.io = &io.table}, &err);
        const bool is_through = io.countdown >= 0;
        assert_true(status == LP_OK || err.code == LP_E_IO);
        lp_checkpoint_close(b);
        assert_int_equal(io.open_files, 0);
        if (is_through)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bundle_is_the_catalogue_without_files),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_file_call_may_fail),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
