/* SPDX-License-Identifier: Apache-2.0 */
/* A trace as a checkpoint: its catalogue without files, for recording where the checkpoint is not. */
#include "tests/unit/checkpoint_files.h"

static const char *save_trace(const char *checkpoint_path)
{
    lp_checkpoint *c = NULL;
    lp_trace *t = NULL;
    lp_error err = {0};
    const lp_trace_header header = {
        .loader = "test", .loader_version = "1", .configuration = "", .target = "", .layout = {.tp = 1}};
    const lp_scope scope = {.tp = 1};
    const char *path = in_folder("x.lpt");
    if (lp_checkpoint_open(&c, checkpoint_path, &err) != LP_OK || lp_trace_new(&t, c, &header, NULL, &err) != LP_OK ||
        lp_trace_begin_scope(t, &scope, &err) != LP_OK || lp_trace_seal(t, &err) != LP_OK ||
        lp_trace_save(t, path, true, &err) != LP_OK)
        fail_msg("%s", err.text);
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return path;
}

static void a_trace_gives_its_catalogue(void **state)
{
    (void)state;
    const char *source = in_folder("one.safetensors");
    write_safetensors(source,
                      "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                      "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
                      "\"z\":{\"dtype\":\"F32\",\"shape\":[0,18446744073709551615],\"data_offsets\":[16,16]}}",
                      16);
    const char *path = save_trace(source);
    lp_checkpoint *c = NULL, *original = NULL;
    lp_error err = {0};
    assert_int_equal(lp_checkpoint_open(&original, source, &err), LP_OK);
    if (lp_checkpoint_open(&c, path, &err) != LP_OK)
        fail_msg("%s", err.text);
    assert_int_equal(lp_checkpoint_count(c), 3);
    assert_int_equal(lp_checkpoint_file_count(c), 0);
    assert_string_equal(lp_checkpoint_folder(c), "");
    assert_int_equal(lp_checkpoint_bytes(c), 16);
    for (int64_t i = 0; i < 3; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i), *from = lp_checkpoint_at(original, i);
        assert_string_equal(t->name, from->name);
        assert_int_equal(t->dtype, from->dtype);
        assert_int_equal(t->ndim, from->ndim);
        assert_memory_equal(t->shape, from->shape, (size_t)t->ndim * sizeof *t->shape);
        assert_int_equal(t->bytes, from->bytes);
        assert_int_equal(t->file, -1);
        assert_int_equal(t->file_off, -1);
        assert_int_equal(lp_checkpoint_find(c, t->name), i);
    }
    lp_checkpoint_close(c);
    lp_checkpoint_close(original);
}

static void another_database_is_no_checkpoint(void **state)
{
    (void)state;
    const char *path = in_folder("other.safetensors");
    char start[4096] = "SQLite format 3";
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    write_file(path, start, sizeof start);
    const lp_status status = lp_checkpoint_open(&c, path, &err);
    assert_true(status == LP_E_FORMAT || status == LP_E_CORRUPT);
    assert_null(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_gives_its_catalogue),
        cmocka_unit_test(another_database_is_no_checkpoint),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
