/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts against the outputs of public reference code: digests of the whole memory, strides, and single bytes, by the
 * formula (one byte at a time) and by the byte map, for fused and for separate checkpoint tensors, and back again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "traces/base.h"

#include "layout_testing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *vectors;

static int load_vectors(void **state)
{
    (void)state;
    json_error_t error;
    vectors = json_load_file(TEST_CASES "/layout_vectors.json", 0, &error);
    return vectors == NULL;
}

static int free_vectors(void **state)
{
    (void)state;
    json_decref(vectors);
    return 0;
}

static void assert_sha256(const void *data, int64_t bytes, const json_t *expected, const char *what)
{
    uint8_t digest[32];
    char hex[65];
    lp_sha256 h;
    lp_sha256_begin(&h);
    lp_sha256_add(&h, data, (size_t)bytes);
    assert_true(lp_sha256_end(&h, digest));
    lp_format_hex(hex, digest, sizeof digest);
    if (strcmp(hex, json_string_value(expected)) != 0)
        fail_msg("%s: sha256 is %s, not %s", what, hex, json_string_value(expected));
}

/* An input of a case, made by its formula. */
static unsigned char *make_input(const json_t *one, int64_t *bytes)
{
    const char *const dtype = json_string_value(json_object_get(one, "dtype"));
    const bool is_f32 = strcmp(dtype, "f32") == 0;
    const uint32_t seed = (uint32_t)json_integer_value(json_object_get(one, "seed"));
    int64_t count = 1;
    size_t d;
    json_t *extent;
    json_array_foreach(json_object_get(one, "shape"), d, extent) count *= json_integer_value(extent);
    *bytes = is_f32 ? 4 * count : count;
    unsigned char *const data = malloc((size_t)*bytes);
    assert_non_null(data);
    const char *const expand = json_string_value(json_object_get(one, "expand"));
    for (int64_t i = 0; i < *bytes; i++)
        data[i] = formula_byte((uint32_t)i, seed);
    if (expand != NULL) {
        assert_string_equal(expand, "f32_exponent");
        for (int64_t i = 0; i < count; i++) {
            const uint32_t bits = (uint32_t)formula_byte((uint32_t)i, seed) << 23;
            memcpy(data + 4 * i, &bits, 4);
        }
    }
    assert_sha256(data, *bytes, json_object_get(one, "sha256"), json_string_value(json_object_get(one, "name")));
    return data;
}

static const json_t *input_named(const json_t *one, const char *name)
{
    size_t i;
    json_t *input;
    json_array_foreach(json_object_get(one, "inputs"), i, input)
    {
        if (strcmp(json_string_value(json_object_get(input, "name")), name) == 0)
            return input;
    }
    fail_msg("no input '%s'", name);
    return NULL;
}

typedef struct subject {
    const lp_layout *layout;
    lp_layout_sizes sizes;
    lp_layout_shape shape;
    const json_t *output;
    char id[64];
} subject;

static void assert_shape(const subject *s)
{
    const json_t *const shape = json_object_get(s->output, "shape"), *const stride =
                                                                         json_object_get(s->output, "stride");
    const int element = lp_dtype_bits(s->shape.dtype) / 8;
    assert_int_equal(json_array_size(shape), s->shape.ndim);
    for (int d = 0; d < s->shape.ndim; d++) {
        assert_int_equal(s->shape.shape[d], json_integer_value(json_array_get(shape, (size_t)d)));
        assert_int_equal(s->shape.stride[d], element * json_integer_value(json_array_get(stride, (size_t)d)));
    }
    assert_int_equal(s->shape.bytes, json_integer_value(json_object_get(s->output, "bytes")));
    assert_true(json_is_true(json_object_get(s->output, "dense")));
    static const struct {
        const char *name;
        lp_dtype dtype;
    } dtypes[] = {{"i8", LP_I8}, {"i32", LP_I32}, {"e4m3", LP_F8_E4M3}, {"f32", LP_F32}};
    const char *const wanted = json_string_value(json_object_get(s->output, "dtype"));
    bool known = false;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, wanted) == 0) {
            assert_int_equal(s->shape.dtype, dtypes[i].dtype);
            known = true;
        }
    assert_true(known);
}

static void assert_spots(const subject *s, const unsigned char *out)
{
    size_t i, d;
    json_t *spot, *index;
    const json_t *const spots = json_object_get(s->output, "spots");
    assert_true(json_array_size(spots) >= 8);
    json_array_foreach(spots, i, spot)
    {
        int64_t off = json_integer_value(json_object_get(spot, "byte")), src;
        json_array_foreach(json_object_get(spot, "index"), d, index) off +=
            s->shape.stride[d] * json_integer_value(index);
        assert_int_equal(off, json_integer_value(json_object_get(spot, "dst")));
        assert_int_equal(out[off], json_integer_value(json_object_get(spot, "value")));
        /* and it comes from the stated byte of the fused input */
        lp_layout_place place;
        assert_int_equal(lp_layout_origin(s->layout, &s->sizes, off, &place, NULL), LP_OK);
        int64_t rows[2];
        const lp_shard fused = place.shard == LP_SHARD_DOWN ? LP_SHARD_DOWN : LP_SHARD_GATE_UP;
        const lp_dtype dtype = s->layout->source[0];
        assert_int_equal(lp_layout_source_shape(s->layout, &s->sizes, fused, dtype, rows, NULL), LP_OK);
        const int64_t row_bytes = rows[1] * lp_dtype_bits(dtype) / 8;
        const int64_t row = place.row + (place.shard == LP_SHARD_UP ? rows[0] / 2 : 0);
        src = (place.expert * rows[0] + row) * row_bytes + place.byte;
        assert_int_equal(src, json_integer_value(json_object_get(spot, "src")));
    }
}

/* Byte by byte, by the region's modes. */
static void place_by_view(const subject *s, lp_shard shard, const unsigned char *in, unsigned char *out)
{
    const int element = lp_dtype_bits(s->shape.dtype) / 8;
    lp_view region;
    assert_int_equal(lp_layout_region(s->layout, &s->sizes, shard, -1, &region, NULL, NULL), LP_OK);
    for (int64_t e = 0; e < region.size[0]; e++)
        for (int64_t r = 0; r < region.size[1]; r++)
            for (int64_t c = 0; c < region.size[2]; c++, in += element) {
                const int64_t index[] = {e, r, c};
                memcpy(out + view_byte(&region, index), in, (size_t)element);
            }
}

/* The separate tensors w1 and w3 of one expert, as they stand in the fused input. */
static const unsigned char *half_of(const unsigned char *fused, int64_t bytes, int64_t experts, int64_t expert,
                                    int half)
{
    const int64_t part = bytes / experts / 2;
    return fused + (2 * expert + half) * part;
}

static void check_output(const subject *s, const unsigned char *in, int64_t bytes)
{
    assert_int_equal(bytes, s->shape.bytes);
    assert_shape(s);
    unsigned char *const out = malloc((size_t)bytes), *const back = malloc((size_t)bytes);
    assert_non_null(out);
    assert_non_null(back);
    const bool down = lp_layout_takes(s->layout, LP_SHARD_DOWN);
    const lp_shard fused = down ? LP_SHARD_DOWN : LP_SHARD_GATE_UP;
    const json_t *const sha256 = json_object_get(s->output, "sha256");

    memset(out, 0xa5, (size_t)bytes);
    place_by_view(s, fused, in, out);
    assert_sha256(out, bytes, sha256, s->id);
    assert_spots(s, out);

    memset(out, 0xa5, (size_t)bytes);
    assert_int_equal(lp_layout_apply(s->layout, &s->sizes, fused, -1, in, out, NULL, NULL), LP_OK);
    assert_sha256(out, bytes, sha256, s->id);
    memset(back, 0xa5, (size_t)bytes);
    assert_int_equal(lp_layout_undo(s->layout, &s->sizes, fused, -1, out, back, NULL, NULL), LP_OK);
    assert_memory_equal(back, in, (size_t)bytes);

    memset(out, 0xa5, (size_t)bytes);
    for (int64_t e = s->sizes.experts - 1; e >= 0; e--)
        if (down) {
            assert_int_equal(lp_layout_apply(s->layout, &s->sizes, LP_SHARD_DOWN, e,
                                             in + e * (bytes / s->sizes.experts), out, NULL, NULL),
                             LP_OK);
        } else {
            for (int half = 1; half >= 0; half--)
                assert_int_equal(lp_layout_apply(s->layout, &s->sizes, half ? LP_SHARD_UP : LP_SHARD_GATE, e,
                                                 half_of(in, bytes, s->sizes.experts, e, half), out, NULL, NULL),
                                 LP_OK);
        }
    assert_sha256(out, bytes, sha256, s->id);
    if (json_is_true(json_object_get(s->output, "alias")))
        assert_memory_equal(out, in, (size_t)bytes);
    free(out);
    free(back);
}

static void outputs_are_those_of_the_reference(void **state)
{
    (void)state;
    size_t c, o;
    json_t *one, *output;
    const json_t *const cases = json_object_get(vectors, "cases");
    assert_int_equal(json_array_size(cases), 3);
    json_array_foreach(cases, c, one)
    {
        const char *const format = json_string_value(json_object_get(one, "format"));
        const json_t *const params = json_object_get(one, "params");
        assert_int_equal(json_array_size(json_object_get(one, "outputs")), 4);
        json_array_foreach(json_object_get(one, "outputs"), o, output)
        {
            subject s = {.output = output};
            s.sizes.experts = json_integer_value(json_object_get(params, "E"));
            s.sizes.hidden = json_integer_value(json_object_get(params, "H"));
            s.sizes.intermediate = json_integer_value(json_object_get(params, "I"));
            snprintf(s.id, sizeof s.id, "%s_%s", format, json_string_value(json_object_get(output, "name")));
            s.layout = lp_layout_find(s.id);
            assert_non_null(s.layout);
            assert_int_equal(lp_layout_describe(s.layout, &s.sizes, &s.shape, NULL), LP_OK);
            int64_t bytes;
            unsigned char *const in =
                make_input(input_named(one, json_string_value(json_object_get(output, "source"))), &bytes);
            check_output(&s, in, bytes);
            free(in);
        }
    }
}

/* The strides that the loader's own test asserts. */
static void stated_strides(void **state)
{
    (void)state;
    const lp_layout_sizes sizes = {4, 256, 384};
    lp_layout_shape shape;
    assert_int_equal(lp_layout_describe(lp_layout_find("mxfp4_l1_scale"), &sizes, &shape, NULL), LP_OK);
    assert_int_equal(shape.stride[0], 4 * 1536);
    assert_int_equal(shape.stride[1], 4);
    assert_int_equal(shape.stride[2], 4 * 768);
    assert_int_equal(lp_layout_describe(lp_layout_find("mxfp4_l2_scale"), &sizes, &shape, NULL), LP_OK);
    assert_int_equal(shape.stride[0], 4 * 768);
    assert_int_equal(shape.stride[1], 4);
    assert_int_equal(shape.stride[2], 4 * 256);
    assert_int_equal(shape.slot_stride, 4 * 768);
}

/* Bytes an expert has in all four tensors, for the models whose sizes are published. */
static void bytes_of_known_models(void **state)
{
    (void)state;
    static const struct {
        int64_t experts, hidden, intermediate, mxfp4, nvfp4;
    } models[] = {
        {256, 4096, 2048, 13369344, 14155776},
        {384, 7168, 3072, 35094528, 37158912},
        {256, 7168, 2048, 23396352, 24772608},
        {384, 6144, 2048, 20054016, 21233664},
    };
    static const char *const parts[] = {"l1_weight", "l1_scale", "l2_weight", "l2_scale"};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        const lp_layout_sizes sizes = {models[m].experts, models[m].hidden, models[m].intermediate};
        int64_t total[2] = {0, 0};
        for (int f = 0; f < 2; f++)
            for (int p = 0; p < 4; p++) {
                char id[32];
                lp_layout_shape shape;
                snprintf(id, sizeof id, "%s_%s", f ? "nvfp4" : "mxfp4", parts[p]);
                assert_int_equal(lp_layout_describe(lp_layout_find(id), &sizes, &shape, NULL), LP_OK);
                total[f] += shape.slot_stride;
                assert_int_equal(shape.slot_stride * sizes.experts, shape.bytes);
            }
        assert_int_equal(total[0], models[m].mxfp4);
        assert_int_equal(total[1], models[m].nvfp4);
    }
}

/* ---- allocations that fail ---- */

static void *failing_resize(void *context, void *old, size_t bytes)
{
    int *const left = context;
    if (bytes > 0 && (*left)-- == 0)
        return NULL;
    return lp_alloc_default()->resize(NULL, old, bytes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const lp_layout *const layout = lp_layout_find("nvfp4_packed_l1_scale");
    const lp_layout_sizes sizes = {1, 256, 256};
    static unsigned char in[256 * 16], out[2 * 256 * 16];
    lp_status status = LP_E_MEMORY;
    int limit = 0;
    for (; status != LP_OK && limit < 100; limit++) {
        int left = limit;
        const lp_alloc alloc = {.size = sizeof alloc, .context = &left, .resize = failing_resize};
        memset(out, 0xa5, sizeof out);
        status = lp_layout_apply(layout, &sizes, LP_SHARD_UP, 0, in, out, &alloc, NULL);
        if (status != LP_OK) {
            assert_int_equal(status, LP_E_MEMORY);
            for (size_t i = 0; i < sizeof out; i++)
                assert_int_equal(out[i], 0xa5);
        }
    }
    assert_int_equal(status, LP_OK);
    assert_true(limit > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_those_of_the_reference),
        cmocka_unit_test(stated_strides),
        cmocka_unit_test(bytes_of_known_models),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
