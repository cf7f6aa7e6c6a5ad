/* SPDX-License-Identifier: Apache-2.0 */
/* Views by hand: what error texts say, limits, dtypes below a byte, and that a failure leaves the view alone. */
#include "map_oracle.h"

static lp_view contiguous(lp_dtype dtype, int ndim, const int64_t *shape)
{
    lp_view v;
    lp_error err;
    if (lp_view_contiguous(&v, dtype, ndim, shape, &err) != LP_OK)
        fail_msg("%s", err.text);
    return v;
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

static bool same_view(const lp_view *a, const lp_view *b)
{
    if (a->dtype != b->dtype || a->ndim != b->ndim || a->nmode != b->nmode || a->offset_bits != b->offset_bits)
        return false;
    return memcmp(a->size, b->size, (size_t)a->ndim * sizeof *a->size) == 0 &&
           memcmp(a->first, b->first, (size_t)a->ndim + 1) == 0 &&
           memcmp(a->mode, b->mode, (size_t)a->nmode * sizeof *a->mode) == 0;
}

static void failures_leave_the_view_alone(void **state)
{
    (void)state;
    lp_view v = contiguous(LP_F32, 2, SHAPE(5, 4));
    lp_error err;
    assert_int_equal(lp_view_t(&v, NULL), LP_OK);
    const lp_view before = v;
    assert_int_equal(lp_view_reshape(&v, 2, SHAPE(10, 2), &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "cannot reshape [4, 5] to [10, 2]: dimension 1 cuts across strides");
    assert_int_equal(lp_view_reshape(&v, 2, SHAPE(3, 10), &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "cannot reshape [4, 5] to [3, 10]: the number of elements differs");
    assert_int_equal(lp_view_narrow(&v, 0, 3, 2, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "narrow of dimension 0 at 3 by 2 exceeds its size 4");
    assert_int_equal(lp_view_select(&v, 0, 4, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_view_expand(&v, 2, SHAPE(8, 5), &err), LP_E_ARGUMENT);
    assert_int_equal(lp_view_permute(&v, 2, (const int[]){0, 0}, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_view_as_strided(&v, 1, SHAPE(4), SHAPE(-1), 3, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_view_dtype(&v, LP_F64, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_view_dtype(&v, LP_DTYPE_NONE, &err), LP_E_ARGUMENT);
    assert_true(same_view(&v, &before));
}

static void a_permuted_tensor_reshapes_without_moving(void **state)
{
    (void)state;
    lp_view v = contiguous(LP_BF16, 3, SHAPE(4, 6, 8));
    assert_int_equal(lp_view_transpose(&v, 0, 1, NULL), LP_OK);
    assert_int_equal(lp_view_reshape(&v, 2, SHAPE(24, 8), NULL), LP_OK);
    assert_int_equal(v.first[1] - v.first[0], 2); /* torch would copy here */
    assert_false(lp_view_is_contiguous(&v));
    /* rows 4 .. 11 are two whole steps of the outer mode; rows 1 .. 6 cut it */
    lp_view part = v;
    assert_int_equal(lp_view_narrow(&part, 0, 4, 8, NULL), LP_OK);
    assert_int_equal(part.size[0], 8);
    lp_error err;
    assert_int_equal(lp_view_narrow(&v, 0, 1, 6, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "narrow of dimension 0 cuts across strides");
}

static void as_strided_starts_at_the_tensor(void **state)
{
    (void)state;
    lp_view v = contiguous(LP_F32, 2, SHAPE(8, 8));
    assert_int_equal(lp_view_select(&v, 0, 5, NULL), LP_OK);
    assert_int_equal(lp_view_as_strided(&v, 2, SHAPE(3, 2), SHAPE(1, 8), 2, NULL), LP_OK);
    assert_int_equal(v.offset_bits, 2 * 32);
    /* out of its tensor only when a map is made */
    assert_int_equal(lp_view_as_strided(&v, 1, SHAPE(2), SHAPE(64), 0, NULL), LP_OK);
    const lp_view dst = contiguous(LP_F32, 1, SHAPE(2));
    const lp_map *map = NULL;
    lp_error err;
    assert_int_equal(lp_map_copy(&map, &dst, 8, &v, 256, NULL, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "the source view touches bytes 0 to 260 of a tensor of 256 bytes");
}

static void elements_below_a_byte(void **state)
{
    (void)state;
    lp_error err;
    /* two F4 a byte: view as bytes and back */
    lp_view v = contiguous(LP_F4, 2, SHAPE(6, 8));
    assert_int_equal(lp_view_dtype(&v, LP_U8, NULL), LP_OK);
    assert_int_equal(v.size[1], 4);
    assert_int_equal(lp_view_dtype(&v, LP_F4, NULL), LP_OK);
    assert_int_equal(v.size[1], 8);
    assert_int_equal(lp_view_dtype(&v, LP_F6_E2M3, &err), LP_E_ARGUMENT); /* 32 bits are no whole 6-bit elements */
    lp_view odd = contiguous(LP_F4, 2, SHAPE(6, 3));
    assert_int_equal(lp_view_dtype(&odd, LP_U8, &err), LP_E_ARGUMENT);
    /* four F6 are three bytes */
    lp_view six = contiguous(LP_F6_E3M2, 2, SHAPE(2, 8));
    assert_int_equal(lp_view_dtype(&six, LP_U8, NULL), LP_OK);
    assert_int_equal(six.size[1], 6);

    /* half of the columns: whole bytes when the rows are, a refusal otherwise */
    const lp_map *map = NULL;
    lp_view src = contiguous(LP_F4, 2, SHAPE(4, 8)), dst = contiguous(LP_F4, 2, SHAPE(4, 4));
    assert_int_equal(lp_view_narrow(&src, 1, 2, 4, NULL), LP_OK);
    assert_int_equal(lp_map_copy(&map, &dst, 8, &src, 16, NULL, NULL), LP_OK);
    assert_int_equal(map->box[0].run, 2);
    assert_int_equal(map->box[0].src_off, 1);
    lp_map_free(map, NULL);
    src = contiguous(LP_F4, 2, SHAPE(4, 8));
    assert_int_equal(lp_view_narrow(&src, 1, 1, 4, NULL), LP_OK);
    assert_int_equal(lp_map_copy(&map, &dst, 8, &src, 16, NULL, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "rows of F4 are not whole bytes");
}

static void limits(void **state)
{
    (void)state;
    lp_view v;
    int64_t ones[20];
    for (int i = 0; i < 20; i++)
        ones[i] = 1;
    assert_int_equal(lp_view_contiguous(&v, LP_F32, 16, ones, NULL), LP_OK);
    assert_int_equal(lp_view_contiguous(&v, LP_F32, 17, ones, NULL), LP_E_LIMIT);
    assert_int_equal(lp_view_contiguous(&v, LP_F32, -1, ones, NULL), LP_E_ARGUMENT);
    assert_int_equal(lp_view_contiguous(&v, LP_F32, 1, SHAPE(-3), NULL), LP_E_ARGUMENT);
    assert_int_equal(lp_view_contiguous(&v, LP_F32, 2, SHAPE(INT64_MAX, 2), NULL), LP_E_LIMIT);
    assert_int_equal(lp_view_contiguous(&v, LP_F32, 3, SHAPE(INT64_MAX, 2, 0), NULL), LP_OK);
    assert_true(lp_view_is_empty(&v));
    assert_int_equal(lp_view_strided(&v, LP_F32, 1, SHAPE(3), SHAPE(INT64_MAX / 2), 0, NULL), LP_E_LIMIT);
    assert_int_equal(lp_view_strided(&v, LP_F4, 1, SHAPE(3), SHAPE(1), 0, NULL), LP_E_ARGUMENT);
    v = contiguous(LP_F32, 16, ones);
    assert_int_equal(lp_view_unsqueeze(&v, 0, NULL), LP_E_LIMIT);
    assert_int_equal(
        lp_view_expand(&v, 16, SHAPE(INT64_MAX, INT64_MAX, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), NULL),
        LP_E_LIMIT);
    assert_int_equal(lp_view_slice(&v, 0, INT64_MIN + 1, INT64_MAX, INT64_MIN, NULL), LP_OK);
    assert_int_equal(v.size[0], 0);
    assert_int_equal(lp_view_split(&v, 1, INT64_MAX, 0, NULL), LP_OK);
    assert_int_equal(lp_view_chunk(&v, 1, INT64_MAX, 0, NULL), LP_OK);
}

static void copies_that_are_none(void **state)
{
    (void)state;
    lp_error err;
    const lp_map *map = NULL;
    const lp_view a = contiguous(LP_F32, 2, SHAPE(4, 3)), b = contiguous(LP_F32, 1, SHAPE(4));
    assert_int_equal(lp_map_copy(&map, &a, 48, &b, 16, NULL, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "a copy of size 4 into size 3 in dimension 1");
    assert_int_equal(lp_map_copy(&map, &b, 16, &a, 48, NULL, &err), LP_E_ARGUMENT);
    const lp_view four = contiguous(LP_F4, 1, SHAPE(4));
    assert_int_equal(lp_map_copy(&map, &b, 16, &four, 2, NULL, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "a copy from F4 to F32 is no cast that a trace can hold");
    lp_view wide = contiguous(LP_F32, 2, SHAPE(1, 3));
    assert_int_equal(lp_view_expand(&wide, 2, SHAPE(4, 3), NULL), LP_OK);
    assert_int_equal(lp_map_copy(&map, &wide, 12, &a, 48, NULL, &err), LP_E_UNSUPPORTED);
    assert_string_equal(err.text, "the destination view writes one byte twice");
    assert_null(map);
    uint64_t reduced;
    assert_int_equal(lp_map_fill(&map, &reduced, &a, 48, 0, 2, NULL, NULL), LP_E_ARGUMENT);
    assert_int_equal(lp_map_fill(&map, &reduced, &a, 48, 0, 3, NULL, NULL), LP_E_ARGUMENT);
    assert_int_equal(lp_map_fill(&map, &reduced, &a, 48, 0x3f803f80, 4, NULL, NULL), LP_OK);
    assert_int_equal(map->dst_elem, 2);
    assert_int_equal(reduced, 0x3f80);
    assert_int_equal(map->box[0].run, 24);
    lp_map_free(map, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_leave_the_view_alone),
        cmocka_unit_test(a_permuted_tensor_reshapes_without_moving),
        cmocka_unit_test(as_strided_starts_at_the_tensor),
        cmocka_unit_test(elements_below_a_byte),
        cmocka_unit_test(limits),
        cmocka_unit_test(copies_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
