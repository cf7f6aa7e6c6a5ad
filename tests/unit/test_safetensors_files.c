/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files that are cut off, foreign, too large, or read while memory and reads fail; time grows with names.
 */
#include "safetensors_testing.h"
#include "tests/unit/growth_testing.h"

static void every_byte_missing_or_extra_is_refused(void **state)
{
    (void)state;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("b", "BF16", "[2,2]", "[8,16]") "," A "}";
    const char *path = in_folder("cut.safetensors");
    write_safetensors(path, header, 16);
    const int64_t whole = 8 + (int64_t)strlen(header) + 16;
    lp_safetensors s;
    lp_error err;
    assert_int_equal(read_path(&s, path, NULL, &err), LP_OK);
    lp_safetensors_free(&s);
    for (int64_t bytes = whole - 1; bytes >= 0; bytes--) {
        assert_int_equal(truncate(path, bytes), 0);
        const lp_status status = read_path(&s, path, NULL, &err);
        assert_int_equal(status, bytes < 8 ? LP_E_FORMAT : LP_E_CORRUPT);
        /* The tensor that is cut off is named: a ends 8 bytes before b does. */
        if (bytes >= whole - 16)
            assert_non_null(strstr(err.text, bytes >= whole - 8 ? "tensor 'b' is cut off" : "tensor 'a' is cut off"));
    }
    write_safetensors(path, header, 17);
    assert_int_equal(read_path(&s, path, NULL, &err), LP_E_CORRUPT);
    assert_int_equal(err.byte_off, whole);
}

static void what_is_not_safetensors_gets_a_hint(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hint;
    } foreign[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git lfs pull"},
        {"PK\003\004................", "PyTorch"},
        {"GGUF\003...............", "GGUF"},
        {"<!DOCTYPE html><html>", "HTML"},
        {"some other text, longer", "server's answer"},
        {"\001\002\003\004\005\006\007\010 bytes of no kind", ""},
    };
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        const char *path = in_folder("foreign");
        lp_safetensors s;
        lp_error err;
        write_text(path, foreign[i].text);
        assert_int_equal(read_path(&s, path, NULL, &err), LP_E_FORMAT);
        assert_non_null(strstr(err.text, "is not a safetensors file"));
        assert_non_null(strstr(err.hint, foreign[i].hint));
        assert_int_equal(err.hint[0] == '\0', foreign[i].hint[0] == '\0');
    }
}

static void the_header_limit_is_exact(void **state)
{
    (void)state;
    const char *path = in_folder("large.safetensors");
    lp_safetensors s;
    lp_error err;
    for (uint32_t length = 99999999; length <= 100000001; length++) {
        unsigned char start[10] = {0};
        for (int i = 0; i < 4; i++)
            start[i] = (unsigned char)(length >> (8 * i));
        memcpy(start + 8, "{}", 2);
        write_file(path, start, sizeof start); /* the rest is a hole, that is NUL, which is no padding */
        assert_int_equal(truncate(path, 8 + (off_t)length), 0);
        assert_int_equal(read_path(&s, path, NULL, &err), length <= 100000000 ? LP_E_CORRUPT : LP_E_FORMAT);
        assert_non_null(strstr(err.text, length <= 100000000 ? "at byte 10: found byte 0x00" : "more than 100000000"));
    }
    assert_int_equal(unlink(path), 0);
}

/* Names over one range (a file that claims more than it has), and good ones in reverse order of offsets. */
static double seconds_for_names(int count)
{
    double seconds = 0;
    for (int is_good = 0; is_good < 2; is_good++) {
        char last[32];
        lp_text t;
        lp_text_init(&t, NULL);
        for (int i = 0; i < count; i++) {
            const int at = is_good ? (count - 1 - i) * 4 : 0;
            lp_text_format(&t, "%c\"tensor.%d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                           i > 0 ? ',' : '{', i, at, at + 4);
        }
        lp_text_add(&t, "}", 1);
        lp_safetensors s;
        lp_error err = {0};
        const double begin = processor_seconds();
        const lp_status status = parse(&s, t.data, (size_t)t.bytes, is_good ? count * 4 : 4, &err);
        seconds += processor_seconds() - begin;
        lp_text_free(&t);
        if (!is_good) {
            assert_int_equal(status, LP_E_CORRUPT);
            assert_non_null(strstr(err.text, "tensor 'tensor.1': its data begin at 0 where"));
            continue;
        }
        assert_int_equal(status, LP_OK);
        assert_int_equal(s.count, count);
        snprintf(last, sizeof last, "tensor.%d", count - 1);
        assert_string_equal(s.entry[0].name, last);
        lp_safetensors_free(&s);
    }
    return seconds;
}

static void many_names_take_no_quadratic_time(void **state)
{
    (void)state;
    assert_grows_linearly(seconds_for_names, 10000);
}

static const char rich[] = "{\"__metadata__\":{\"format\":\"pt\",\"esc\\u0061ped\":\"a\\nb\"},"
                           "\"\\u0077eight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":[{}]},"
                           "\"b\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[8,10]}}";

static void out_of_memory_anywhere_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    const char *path = in_folder("rich.safetensors");
    write_safetensors(path, rich, 10);
    lp_status status = LP_E_MEMORY;
    int64_t n = 0;
    for (; status != LP_OK; n++) {
        faulty_memory m;
        faulty_memory_init(&m, n);
        const lp_platform platform = {.alloc = &m.table};
        lp_safetensors s;
        lp_error err = {0};
        status = read_path(&s, path, &platform, &err);
        if (status == LP_OK) {
            assert_int_equal(s.count, 2);
            assert_string_equal(s.entry[0].name, "weight");
            assert_int_equal(s.metadata_keys.count, 2);
            assert_string_equal(s.metadata_keys.text[1], "escaped");
            assert_string_equal(s.metadata_value[1].data, "a\nb");
            lp_safetensors_free(&s);
        } else {
            assert_int_equal(status, LP_E_MEMORY);
            assert_int_equal(err.code, LP_E_MEMORY);
        }
        assert_int_equal(m.live, 0);
    }
    assert_true(n > 10);
}

static void short_reads_and_failing_reads_are_handled(void **state)
{
    (void)state;
    const char *path = in_folder("reads.safetensors");
    write_safetensors(path, rich, 10);
    lp_safetensors s;
    lp_error err;
    faulty_io io;
    const lp_platform platform = {.io = &io.table};
    faulty_io_init(&io, -1, 0);
    io.piece = 3;
    assert_int_equal(read_path(&s, path, &platform, &err), LP_OK);
    lp_safetensors_free(&s);
    const int64_t calls = io.calls;
    for (int64_t n = 0; n < calls; n++) {
        faulty_io_init(&io, n, -EIO);
        io.piece = 3;
        assert_int_equal(read_path(&s, path, &platform, &err), LP_E_IO);
        assert_non_null(strstr(err.text, "cannot read"));
        faulty_io_init(&io, n, 0); /* the file shrank behind our back */
        io.piece = 3;
        assert_int_equal(read_path(&s, path, &platform, &err), LP_E_CORRUPT);
        faulty_io_init(&io, n, -EINTR);
        io.piece = 3;
        io.is_once = true;
        assert_int_equal(read_path(&s, path, &platform, &err), LP_OK);
        lp_safetensors_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_missing_or_extra_is_refused),
        cmocka_unit_test(what_is_not_safetensors_gets_a_hint),
        cmocka_unit_test(the_header_limit_is_exact),
        cmocka_unit_test(many_names_take_no_quadratic_time),
        cmocka_unit_test(out_of_memory_anywhere_is_reported_and_leaks_nothing),
        cmocka_unit_test(short_reads_and_failing_reads_are_handled),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
