/* SPDX-License-Identifier: Apache-2.0 */
/* The trace model: rows that the builder refuses, and rows that it brings into one form. */
#include "model_testing.h"

static void records_outside_their_tensors_are_refused(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 10, NULL);
    const uint32_t d = add_dest(t, "d", 10);
    const struct {
        lp_record record;
        int64_t src_off, dst_off, run;
        const char *text;
    } bad[] = {
        {{.name = 0, .dest = d}, 1, 0, 10, "the copy of 'n0' into 'd' reads bytes outside the checkpoint tensor"},
        {{.name = 0, .dest = d}, 0, 1, 10, "the copy of 'n0' into 'd' writes bytes outside the storage"},
        {{.name = 0, .dest = d}, 0, INT64_MAX / 4, 1, "the copy of 'n0' into 'd' writes bytes outside the storage"},
        {{.name = 1, .dest = d}, 0, 0, 1, "a record names checkpoint tensor 1 of 1"},
        {{.name = 0, .dest = 1}, 0, 0, 1, "a record names destination 1 of 1"},
        {{.name = LP_NAME_BEGIN, .dest = d},
         0,
         0,
         1,
         "the record of 'begin' into 'd' reads no checkpoint tensor and is no fill"},
        {{.name = 0, .dest = d, .src_dtype = LP_BF16, .dst_dtype = LP_F32},
         0,
         0,
         1,
         "the record of 'n0' into 'd' is a cast with other element sizes than its dtypes"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lp_error err = {0};
        lp_record record = bad[i].record;
        record.map = byte_map(bad[i].src_off, bad[i].dst_off, bad[i].run, 1, 0, 0);
        record.provenance = LP_NONE;
        assert_int_equal(lp_trace_add_record(t, &record, &err), LP_E_ARGUMENT);
        assert_string_equal(err.text, bad[i].text);
        lp_map_free(record.map, NULL);
    }
    assert_int_equal(sealed_rows(t)->nrecord, 0); /* nothing was kept of them */
    lp_trace_close(t);
}

static void bad_destinations_are_refused(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 10, NULL);
    const int64_t big[] = {INT64_MAX / 2, 4}, two[] = {2, 2}, negative[] = {-1, 1}, row_major[] = {2, 1},
                  touching[] = {1, 1}, transposed[] = {1, 2}, odd[] = {2, 3};
    const struct {
        lp_destination dest;
        const char *text;
    } bad[] = {
        {{.name = ""}, "a destination has no name"},
        {{.name = "d\xff", .dtype = LP_U8}, "destination 'd\\xff' has a text that is too long or not UTF-8"},
        {{.name = "d"}, "destination 'd' has no dtype"},
        {{.name = "d", .dtype = LP_U8, .ndim = 17, .shape = big, .stride = big},
         "destination 'd' has more than 16 dimensions"},
        {{.name = "d", .dtype = LP_U8, .ndim = 2, .shape = negative, .stride = two},
         "destination 'd' has a negative extent or stride"},
        {{.name = "d", .dtype = LP_U8, .ndim = 2, .shape = big, .stride = two, .storage_bytes = INT64_MAX},
         "destination 'd' has an illegal size, offset or row that is not whole bytes"},
        {{.name = "d", .dtype = LP_U8, .ndim = 2, .shape = two, .stride = row_major, .storage_bytes = 3},
         "destination 'd' ends at byte 4 of a storage of 3 bytes"},
        {{.name = "d", .dtype = LP_U8, .ndim = 2, .shape = two, .stride = row_major, .storage_bytes = 4, .offset = 1},
         "destination 'd' ends at byte 5 of a storage of 4 bytes"},
        {{.name = "d", .dtype = LP_U8, .ndim = 2, .shape = two, .stride = touching, .storage_bytes = 4},
         "destination 'd' has strides that do not nest: elements could share bytes"},
        {{.name = "d", .dtype = LP_F4, .ndim = 2, .shape = odd, .stride = row_major, .storage_bytes = 4},
         "destination 'd' has an illegal size, offset or row that is not whole bytes"},
        {{.name = "d", .dtype = LP_U8, .ndim = 2, .shape = two, .stride = row_major, .storage_bytes = 4, .flags = 64},
         "destination 'd' has unknown flags or a negative layout version"},
        {{.name = "d",
          .dtype = LP_U8,
          .ndim = 2,
          .shape = two,
          .stride = row_major,
          .storage_bytes = 4,
          .flags = LP_DEST_HAS_DUMMY,
          .dummy_bits = 256},
         "destination 'd' has a dummy value of more bits than its dtype"},
        {{.name = "d",
          .dtype = LP_U8,
          .ndim = 2,
          .shape = two,
          .stride = row_major,
          .storage_bytes = 4,
          .slot_dim = 1,
          .slot_count = 3},
         "destination 'd' has expert slots that are not one of its dimensions"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lp_error err = {0};
        assert_int_equal(lp_trace_add_destination(t, &bad[i].dest, NULL, &err), LP_E_ARGUMENT);
        assert_string_equal(err.text, bad[i].text);
    }
    const lp_destination good = {
        .name = "d", .dtype = LP_U8, .ndim = 2, .shape = two, .stride = transposed, .storage_bytes = 4};
    lp_error err;
    assert_ok(lp_trace_add_destination(t, &good, NULL, ERR));
    assert_int_equal(lp_trace_add_destination(t, &good, NULL, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "destination 'd' is declared twice");
    lp_trace_close(t);
}

static void sub_byte_destinations_are_contiguous(void **state)
{
    (void)state;
    lp_trace *t = small_trace(1, 10, NULL);
    const int64_t shape[] = {3, 4};
    int64_t stride[2];
    assert_true(lp_destination_strides(LP_F4, 2, shape, stride));
    assert_int_equal(stride[0], 2);
    assert_int_equal(stride[1], 0);
    lp_destination dest = {
        .name = "d", .dtype = LP_F4, .ndim = 2, .shape = shape, .stride = stride, .storage_bytes = 6};
    assert_ok(lp_trace_add_destination(t, &dest, NULL, ERR));
    lp_view view;
    int64_t bytes;
    assert_ok(lp_destination_view(&dest, &view, &bytes, ERR));
    assert_int_equal(bytes, 6);
    assert_int_equal(lp_view_count(&view), 12);
    stride[0] = 3;
    dest.name = "e";
    dest.storage_bytes = 9;
    lp_error err;
    assert_int_equal(lp_trace_add_destination(t, &dest, NULL, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "destination 'e' has elements of less than a byte and is not contiguous");
    lp_trace_close(t);
}

static void strides_that_mean_nothing_have_one_form(void **state)
{
    (void)state;
    uint8_t digest[2][32];
    for (int i = 0; i < 2; i++) {
        lp_trace *t = small_trace(1, 10, NULL);
        const int64_t shape[] = {1, 4, 1}, stride[] = {i ? 77 : 4, 1, i ? 0 : 1};
        const lp_destination dest = {.name = "d",
                                     .dtype = LP_U8,
                                     .ndim = 3,
                                     .shape = shape,
                                     .stride = stride,
                                     .storage_bytes = 4,
                                     .dummy_bits = i ? 3 : 0};
        assert_ok(lp_trace_add_destination(t, &dest, NULL, ERR));
        memcpy(digest[i], sealed_rows(t)->digest, 32);
        lp_trace_close(t);
    }
    assert_memory_equal(digest[0], digest[1], 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_outside_their_tensors_are_refused),
        cmocka_unit_test(bad_destinations_are_refused),
        cmocka_unit_test(sub_byte_destinations_are_contiguous),
        cmocka_unit_test(strides_that_mean_nothing_have_one_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
