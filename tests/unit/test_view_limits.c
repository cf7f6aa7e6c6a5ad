/* SPDX-License-Identifier: Apache-2.0 */
/* What a view operation refuses, with which words, and that a refusal leaves the view as it was. */
#include "traces/trace.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})
#define DIMS(...)  ((const int[]){__VA_ARGS__})

static lp_view make(lp_dtype dtype, int ndim, const int64_t *shape)
{
    lp_view v;
    lp_error err = {0};
    if (lp_view_contiguous(&v, dtype, ndim, shape, &err) != LP_OK)
        fail_msg("%s", err.text);
    return v;
}

/* Equal in everything that has a meaning: the unused ends of the arrays are not. */
static void same_view(const lp_view *a, const lp_view *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_int_equal(a->nmode, b->nmode);
    assert_int_equal(a->offset_bits, b->offset_bits);
    assert_memory_equal(a->size, b->size, (size_t)a->ndim * sizeof *a->size);
    assert_memory_equal(a->mode, b->mode, (size_t)a->nmode * sizeof *a->mode);
}

/* The call on a copy of `before` named v must fail so. */
#define REFUSED(before, call, code, words)                                                                             \
    do {                                                                                                               \
        lp_view v = before;                                                                                            \
        lp_error err = {0};                                                                                            \
        const lp_status status_ = call;                                                                                \
        if (status_ != (code) || strcmp(err.text, words) != 0)                                                         \
            fail_msg("%s: %s: '%s'", #call, lp_status_name(status_), err.text);                                        \
        same_view(&v, &before);                                                                                        \
    } while (0)

static void dimensions_that_are_not_there(void **state)
{
    (void)state;
    const lp_view two = make(LP_F32, 2, SHAPE(4, 6)), none = make(LP_F32, 0, NULL);
    const char *third = "dimension 2 is out of range for a view of 2 dimensions";
    REFUSED(two, lp_view_permute(&v, 2, DIMS(0, 2), &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_permute(&v, 2, DIMS(1, -1), &err), LP_E_ARGUMENT, "permute names dimension 1 twice");
    REFUSED(two, lp_view_permute(&v, 3, DIMS(0, 1, 2), &err), LP_E_ARGUMENT,
            "permute names 3 dimensions of a view of 2");
    REFUSED(two, lp_view_transpose(&v, 2, 0, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_transpose(&v, 0, 2, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_movedim(&v, 2, 0, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_movedim(&v, 0, 2, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_squeeze(&v, 2, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_unsqueeze(&v, 3, &err), LP_E_ARGUMENT,
            "dimension 3 is out of range to unsqueeze a view of 2 dimensions");
    REFUSED(two, lp_view_unsqueeze(&v, -4, &err), LP_E_ARGUMENT,
            "dimension -4 is out of range to unsqueeze a view of 2 dimensions");
    REFUSED(two, lp_view_flatten(&v, 2, 0, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_flatten(&v, 0, 2, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_flatten(&v, 1, 0, &err), LP_E_ARGUMENT, "flatten from dimension 1 to 0");
    REFUSED(none, lp_view_flatten(&v, 1, 0, &err), LP_E_ARGUMENT,
            "dimension 1 is out of range for a view of 0 dimensions");
    REFUSED(none, lp_view_flatten(&v, 0, -2, &err), LP_E_ARGUMENT,
            "dimension -2 is out of range for a view of 0 dimensions");
    REFUSED(two, lp_view_unflatten(&v, 2, 1, SHAPE(4), &err), LP_E_ARGUMENT, third);
    REFUSED(none, lp_view_unflatten(&v, 0, 1, SHAPE(1), &err), LP_E_ARGUMENT, "unflatten of a view without dimensions");
    REFUSED(two, lp_view_narrow(&v, 2, 0, 1, &err), LP_E_ARGUMENT, third);
    REFUSED(none, lp_view_narrow(&v, 0, 0, 1, &err), LP_E_ARGUMENT, "narrow of a view without dimensions");
    REFUSED(none, lp_view_select(&v, 0, 0, &err), LP_E_ARGUMENT, "select of a view without dimensions");
    REFUSED(none, lp_view_slice(&v, 0, 0, 1, 1, &err), LP_E_ARGUMENT, "slice of a view without dimensions");
    REFUSED(none, lp_view_split(&v, 0, 1, 0, &err), LP_E_ARGUMENT, "split of a view without dimensions");
    REFUSED(none, lp_view_chunk(&v, 0, 1, 0, &err), LP_E_ARGUMENT, "chunk of a view without dimensions");
    REFUSED(two, lp_view_diagonal(&v, 0, 2, 0, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_diagonal(&v, 0, 0, 2, &err), LP_E_ARGUMENT, third);
    REFUSED(two, lp_view_diagonal(&v, 0, 1, -1, &err), LP_E_ARGUMENT, "diagonal of dimension 1 with itself");
    const lp_view three = make(LP_F32, 3, SHAPE(2, 2, 2));
    REFUSED(three, lp_view_t(&v, &err), LP_E_ARGUMENT, "t() takes at most 2 dimensions, and this view has 3");
}

static void parts_that_are_not_there(void **state)
{
    (void)state;
    const lp_view two = make(LP_F32, 2, SHAPE(4, 6)), empty = make(LP_F32, 2, SHAPE(0, 6));
    REFUSED(two, lp_view_narrow(&v, 0, -5, 1, &err), LP_E_ARGUMENT,
            "narrow of dimension 0 at -5 by 1 exceeds its size 4");
    REFUSED(two, lp_view_narrow(&v, 0, 5, 0, &err), LP_E_ARGUMENT,
            "narrow of dimension 0 at 5 by 0 exceeds its size 4");
    REFUSED(two, lp_view_narrow(&v, 0, 1, -1, &err), LP_E_ARGUMENT,
            "narrow of dimension 0 at 1 by -1 exceeds its size 4");
    REFUSED(two, lp_view_narrow(&v, 0, 1, INT64_MAX, &err), LP_E_ARGUMENT,
            "narrow of dimension 0 at 1 by 9223372036854775807 exceeds its size 4");
    REFUSED(two, lp_view_select(&v, 1, -7, &err), LP_E_ARGUMENT, "index -7 is out of range for dimension 1 of size 6");
    REFUSED(empty, lp_view_select(&v, 0, 0, &err), LP_E_ARGUMENT, "index 0 is out of range for dimension 0 of size 0");
    REFUSED(two, lp_view_slice(&v, 0, 0, 4, 0, &err), LP_E_ARGUMENT, "slice with step 0");
    REFUSED(two, lp_view_split(&v, 0, -1, 0, &err), LP_E_ARGUMENT, "split into parts of -1");
    REFUSED(two, lp_view_split(&v, 0, 0, 0, &err), LP_E_ARGUMENT, "split into parts of 0");
    REFUSED(two, lp_view_split(&v, 0, 3, 2, &err), LP_E_ARGUMENT, "part 2 of a split into 2");
    REFUSED(two, lp_view_split(&v, 0, 3, -1, &err), LP_E_ARGUMENT, "part -1 of a split into 2");
    REFUSED(two, lp_view_chunk(&v, 0, 0, 0, &err), LP_E_ARGUMENT, "chunk into 0 parts");
    REFUSED(two, lp_view_chunk(&v, 0, 3, 2, &err), LP_E_ARGUMENT, "part 2 of a split into 2");
    REFUSED(empty, lp_view_chunk(&v, 0, 3, 3, &err), LP_E_ARGUMENT, "part 3 of a chunk into 3");
    /* Steps beyond every size, in both directions, are legal. */
    lp_view v = two;
    assert_int_equal(lp_view_slice(&v, 1, LP_SLICE_END, LP_SLICE_END, INT64_MIN, NULL), LP_OK);
    assert_int_equal(v.size[1], 1);
    assert_int_equal(v.offset_bits, 5 * 32);
    v = two;
    assert_int_equal(lp_view_slice(&v, 1, INT64_MIN, INT64_MAX - 1, INT64_MAX, NULL), LP_OK);
    assert_int_equal(v.size[1], 1);
    assert_int_equal(v.offset_bits, 0);
}

static void shapes_that_do_not_fit(void **state)
{
    (void)state;
    const lp_view two = make(LP_F32, 2, SHAPE(4, 6)), empty = make(LP_F32, 2, SHAPE(0, 6));
    REFUSED(two, lp_view_reshape(&v, -1, SHAPE(0), &err), LP_E_ARGUMENT, "a view cannot have -1 dimensions");
    REFUSED(two, lp_view_reshape(&v, 17, SHAPE(0), &err), LP_E_LIMIT, "17 dimensions, and a view has at most 16");
    REFUSED(two, lp_view_reshape(&v, 2, SHAPE(-1, -1), &err), LP_E_ARGUMENT,
            "cannot reshape to [-1, -1]: dimension 1 is negative");
    REFUSED(two, lp_view_reshape(&v, 2, SHAPE(-2, 12), &err), LP_E_ARGUMENT,
            "cannot reshape to [-2, 12]: dimension 0 is negative");
    REFUSED(two, lp_view_reshape(&v, 2, SHAPE(-1, 5), &err), LP_E_ARGUMENT,
            "cannot reshape [4, 6] to [-1, 5]: the number of elements differs");
    REFUSED(two, lp_view_reshape(&v, 2, SHAPE(0, -1), &err), LP_E_ARGUMENT,
            "cannot reshape [4, 6] to [0, -1]: -1 can be any size here");
    REFUSED(empty, lp_view_reshape(&v, 2, SHAPE(-1, 0), &err), LP_E_ARGUMENT,
            "cannot reshape [0, 6] to [-1, 0]: -1 can be any size here");
    REFUSED(two, lp_view_reshape(&v, 3, SHAPE(INT64_MAX, 3, -1), &err), LP_E_ARGUMENT,
            "cannot reshape [4, 6] to [9223372036854775807, 3, -1]: the number of elements differs");
    REFUSED(two, lp_view_reshape(&v, 3, SHAPE(INT64_MAX, INT64_MAX, 24), &err), LP_E_ARGUMENT,
            "cannot reshape [4, 6] to [9223372036854775807, 9223372036854775807, 24]: the number of elements differs");
    REFUSED(two, lp_view_unflatten(&v, 0, 0, SHAPE(1), &err), LP_E_ARGUMENT, "unflatten into no dimensions");
    REFUSED(two, lp_view_unflatten(&v, 0, INT_MAX, SHAPE(1), &err), LP_E_LIMIT,
            "2147483647 more dimensions than 1, and a view has at most 16");
    REFUSED(two, lp_view_unflatten(&v, 0, 2, SHAPE(3, -1), &err), LP_E_ARGUMENT,
            "cannot reshape [4] to [3, -1]: the number of elements differs");
    REFUSED(two, lp_view_expand(&v, 1, SHAPE(4), &err), LP_E_ARGUMENT, "expand to 1 dimensions of a view of 2");
    REFUSED(two, lp_view_expand(&v, 3, SHAPE(-1, 4, 6), &err), LP_E_ARGUMENT, "expand to the size -1 in dimension 0");
    REFUSED(two, lp_view_expand(&v, 2, SHAPE(4, 12), &err), LP_E_ARGUMENT,
            "expand of dimension 1 from 6 to 12: only an extent of 1 expands");
    REFUSED(two, lp_view_expand(&v, 3, SHAPE(INT64_MAX, 4, 6), &err), LP_E_LIMIT,
            "the size of an expanded view does not fit 64 bits");
    REFUSED(two, lp_view_as_strided(&v, 1, SHAPE(2), SHAPE(1), -1, &err), LP_E_ARGUMENT,
            "as_strided with the negative offset -1");
    REFUSED(two, lp_view_as_strided(&v, 1, SHAPE(-2), SHAPE(1), 0, &err), LP_E_ARGUMENT,
            "dimension 0 has the negative size -2");
    REFUSED(two, lp_view_as_strided(&v, 1, SHAPE(2), SHAPE(1), INT64_MAX / 8, &err), LP_E_LIMIT,
            "the size of a tensor does not fit 64 bits");
    REFUSED(two, lp_view_as_strided(&v, 1, SHAPE(2), SHAPE(INT64_MAX / 8), 0, &err), LP_E_LIMIT,
            "the stride of dimension 0 does not fit 64 bits");
    REFUSED(two, lp_view_as_strided(&v, 2, SHAPE(4, 4), SHAPE(INT64_MAX / 256, INT64_MAX / 256), 0, &err), LP_E_LIMIT,
            "the addresses of a view do not fit 64 bits");
    REFUSED(two, lp_view_as_strided(&v, 2, SHAPE(INT64_MAX, 3), SHAPE(0, 0), 0, &err), LP_E_LIMIT,
            "the size of a tensor does not fit 64 bits");
    REFUSED(two, lp_view_strided(&v, (lp_dtype)99, 1, SHAPE(1), SHAPE(1), 0, &err), LP_E_ARGUMENT,
            "dtype 99 does not exist");
}

static void dtypes_that_do_not_divide(void **state)
{
    (void)state;
    const lp_view two = make(LP_U8, 2, SHAPE(4, 12)), none = make(LP_U8, 0, NULL);
    REFUSED(none, lp_view_dtype(&v, LP_F32, &err), LP_E_ARGUMENT, "view(F32) of another width needs a dimension");
    REFUSED(two, lp_view_dtype(&v, LP_F64, &err), LP_E_ARGUMENT,
            "view(F64): 12 elements of U8 in the last dimension are not whole elements");
    lp_view odd = two, turned = two, empty = make(LP_U8, 2, SHAPE(0, 6)), far = two;
    assert_int_equal(lp_view_narrow(&odd, 1, 1, 8, NULL), LP_OK);
    REFUSED(odd, lp_view_dtype(&v, LP_F32, &err), LP_E_UNSUPPORTED,
            "view(F32): offset or strides are not multiples of 32 bits");
    assert_int_equal(lp_view_t(&turned, NULL), LP_OK);
    REFUSED(turned, lp_view_dtype(&v, LP_F32, &err), LP_E_UNSUPPORTED,
            "view(F32): the last dimension is not contiguous");
    REFUSED(empty, lp_view_dtype(&v, LP_F32, &err), LP_E_ARGUMENT,
            "view(F32): the last dimension is not whole elements");
    assert_int_equal(lp_view_reshape(&empty, 2, SHAPE(0, INT64_MAX), NULL), LP_OK);
    REFUSED(empty, lp_view_dtype(&v, LP_BF16, &err), LP_E_ARGUMENT,
            "view(BF16): the last dimension is not whole elements");
    /* An expanded dimension is long without having bytes; in smaller elements its size does not fit any more. */
    far = make(LP_F64, 1, SHAPE(1));
    assert_int_equal(lp_view_expand(&far, 1, SHAPE(INT64_MAX), NULL), LP_OK);
    REFUSED(far, lp_view_dtype(&v, LP_U8, &err), LP_E_LIMIT, "the size of a view does not fit 64 bits");
    far.dtype = LP_U8;
    REFUSED(far, lp_view_dtype(&v, LP_F64, &err), LP_E_LIMIT, "the size of a view does not fit 64 bits");
}

/* Sixteen dimensions of two, each with a stride of its own that continues no other. */
static lp_view gapped(void)
{
    int64_t shape[16], stride[16], at = 3;
    lp_view v;
    for (int d = 15; d >= 0; d--) {
        shape[d] = 2;
        stride[d] = at;
        at *= 3;
    }
    assert_int_equal(lp_view_strided(&v, LP_U8, 16, shape, stride, 0, NULL), LP_OK);
    return v;
}

static void a_view_has_at_most_16_dimensions(void **state)
{
    (void)state;
    const lp_view full = gapped(), two = make(LP_F32, 2, SHAPE(4, 6));
    int64_t ones[17];
    for (int d = 0; d < 17; d++)
        ones[d] = 1;
    REFUSED(full, lp_view_unsqueeze(&v, 16, &err), LP_E_LIMIT, "a view has at most 16 dimensions");
    REFUSED(full, lp_view_unsqueeze(&v, 0, &err), LP_E_LIMIT, "a view has at most 16 dimensions");
    lp_view one = make(LP_U8, 0, NULL);
    REFUSED(one, lp_view_expand(&v, 17, ones, &err), LP_E_LIMIT, "a view has at most 16 dimensions");
    REFUSED(two, lp_view_as_strided(&v, 17, ones, ones, 0, &err), LP_E_LIMIT,
            "17 dimensions, and a view has at most 16");
}

static void a_view_has_at_most_32_strides(void **state)
{
    (void)state;
    const int64_t most[] = {-1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    lp_view w = gapped();
    assert_int_equal(lp_view_flatten(&w, 0, -1, NULL), LP_OK); /* one dimension of 16 strides */
    assert_int_equal(w.nmode, 16);
    for (int i = 0; i < 15; i++)
        assert_int_equal(lp_view_unsqueeze(&w, 1, NULL), LP_OK);
    assert_int_equal(lp_view_expand(&w, 16, most, NULL), LP_OK);
    assert_int_equal(w.nmode, 31);
    assert_int_equal(lp_view_flatten(&w, 0, -1, NULL), LP_OK); /* equal strides of 0 are one */
    assert_int_equal(w.nmode, 17);
    for (int i = 0; i < 15; i++)
        assert_int_equal(lp_view_unsqueeze(&w, 0, NULL), LP_OK);
    const int64_t again[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, -1};
    assert_int_equal(lp_view_expand(&w, 16, again, NULL), LP_OK);
    assert_int_equal(w.nmode, 32);
    const lp_view full = w;
    REFUSED(full, lp_view_dtype(&v, LP_F4, &err), LP_E_LIMIT, "a view has at most 32 strides");
    assert_int_equal(lp_view_flatten(&w, 0, -1, NULL), LP_OK);
    assert_int_equal(w.nmode, 18);
    for (int i = 0; i < 15; i++)
        assert_int_equal(lp_view_unsqueeze(&w, 0, NULL), LP_OK);
    const lp_view almost = w;
    REFUSED(almost, lp_view_expand(&v, 16, again, &err), LP_E_LIMIT, "a view has at most 32 strides");
}

static void progressions_that_cut_across_strides(void **state)
{
    (void)state;
    lp_view w;
    assert_int_equal(lp_view_strided(&w, LP_U8, 2, SHAPE(6, 4), SHAPE(100, 1), 0, NULL), LP_OK);
    assert_int_equal(lp_view_flatten(&w, 0, 1, NULL), LP_OK); /* 24 indices: 6 digits of 4 */
    const lp_view flat = w;
    const char *words = "slice of dimension 0 cuts across strides";
    REFUSED(flat, lp_view_slice(&v, 0, 0, 24, 3, &err), LP_E_UNSUPPORTED, words);
    REFUSED(flat, lp_view_slice(&v, 0, 2, 23, 2, &err), LP_E_UNSUPPORTED, words);
    REFUSED(flat, lp_view_slice(&v, 0, 0, 21, 2, &err), LP_E_UNSUPPORTED, words);
    REFUSED(flat, lp_view_split(&v, 0, 5, 1, &err), LP_E_UNSUPPORTED, "split of dimension 0 cuts across strides");
    assert_int_equal(lp_view_slice(&w, 0, 1, 24, 2, NULL), LP_OK);
    assert_int_equal(w.size[0], 12);
    w = flat;
    assert_int_equal(lp_view_slice(&w, 0, 3, 24, 8, NULL), LP_OK); /* steps of whole digits */
    assert_int_equal(w.size[0], 3);
    assert_int_equal(w.mode[0].stride_bits, 2 * 100 * 8);
    /* A diagonal through two dimensions of several strides each. */
    assert_int_equal(lp_view_strided(&w, LP_U8, 4, SHAPE(2, 3, 3, 2), SHAPE(1000, 100, 10, 1), 0, NULL), LP_OK);
    assert_int_equal(lp_view_flatten(&w, 2, 3, NULL), LP_OK);
    assert_int_equal(lp_view_flatten(&w, 0, 1, NULL), LP_OK);
    const lp_view grid = w;
    REFUSED(grid, lp_view_diagonal(&v, 0, 0, 1, &err), LP_E_UNSUPPORTED, "diagonal cuts across strides");
    REFUSED(grid, lp_view_diagonal(&v, 1, 0, 1, &err), LP_E_UNSUPPORTED, "diagonal of dimension 0 cuts across strides");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dimensions_that_are_not_there),
        cmocka_unit_test(parts_that_are_not_there),
        cmocka_unit_test(shapes_that_do_not_fit),
        cmocka_unit_test(dtypes_that_do_not_divide),
        cmocka_unit_test(a_view_has_at_most_16_dimensions),
        cmocka_unit_test(a_view_has_at_most_32_strides),
        cmocka_unit_test(progressions_that_cut_across_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
