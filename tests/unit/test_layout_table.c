/* SPDX-License-Identifier: Apache-2.0 */
/* The table of layouts: every row is consistent, legal sizes, and every derived thing agrees with the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "layouts/layout_index.h"

#include "layout_testing.h"

#include <stdlib.h>
#include <string.h>

/* The smallest sizes that every kernel of the layout takes, and larger ones with other ratios. */
static lp_layout_sizes sizes_for(const lp_layout *layout, int64_t h, int64_t i)
{
    const int64_t experts = layout->slot_dim < 0 ? 1 : 3;
    return (lp_layout_sizes){experts, h * layout->rule[0].multiple, i * layout->rule[1].multiple};
}

static void ids_are_unique_and_found(void **state)
{
    (void)state;
    assert_true(lp_layout_count() >= 36);
    for (int32_t i = 0; i < lp_layout_count(); i++) {
        const lp_layout *const layout = lp_layout_at(i);
        assert_ptr_equal(lp_layout_find(layout->id), layout);
        assert_int_equal(layout->version, 1);
    }
    assert_null(lp_layout_find("mxfp4"));
    assert_null(lp_layout_at(-1));
    assert_null(lp_layout_at(lp_layout_count()));
}

static void rows_are_well_formed(void **state)
{
    (void)state;
    for (int32_t n = 0; n < lp_layout_count(); n++) {
        const lp_layout *const layout = lp_layout_at(n);
        unsigned seen = 0;
        int role = 0;
        for (int32_t a = 0; a < layout->axes; a++) {
            seen |= 1u << layout->memory_order[a];
            assert_true((int)layout->axis[a].role >= role); /* expert, half, rows, columns */
            role = (int)layout->axis[a].role;
        }
        assert_int_equal(seen, (1u << layout->axes) - 1);
        assert_int_equal(layout->rule[0].symbol, LP_SIZE_H);
        assert_int_equal(layout->rule[1].symbol, LP_SIZE_I);
        seen = 0;
        for (int32_t d = 0; d < layout->ndim; d++)
            seen |= 1u << layout->dim_order[d];
        assert_int_equal(seen, (1u << layout->ndim) - 1);
        assert_int_equal(layout->slot_dim >= 0, layout->axis[0].role == LP_AXIS_EXPERT);
        assert_false(lp_layout_takes(layout, LP_SHARD_DOWN) == lp_layout_takes(layout, LP_SHARD_UP));
    }
}

static void shapes_hold_all_checkpoint_bytes(void **state)
{
    (void)state;
    for (int32_t n = 0; n < lp_layout_count(); n++) {
        const lp_layout *const layout = lp_layout_at(n);
        const lp_layout_sizes sizes = sizes_for(layout, 3, 5);
        const bool down = lp_layout_takes(layout, LP_SHARD_DOWN);
        lp_layout_shape shape;
        int64_t source[2], fused[2];
        assert_int_equal(lp_layout_describe(layout, &sizes, &shape, NULL), LP_OK);
        assert_int_equal(
            lp_layout_source_shape(layout, &sizes, down ? LP_SHARD_DOWN : LP_SHARD_UP, layout->source[0], source, NULL),
            LP_OK);
        const int64_t bytes = source[0] * source[1] * lp_dtype_bits(layout->source[0]) / 8;
        assert_int_equal(shape.bytes, sizes.experts * bytes * (down ? 1 : 2));
        if (!down) {
            assert_int_equal(lp_layout_source_shape(layout, &sizes, LP_SHARD_GATE_UP, layout->source[0], fused, NULL),
                             LP_OK);
            assert_int_equal(fused[0], 2 * source[0]);
            assert_int_equal(fused[1], source[1]);
        }
        int64_t elements = lp_dtype_bits(shape.dtype) / 8;
        for (int32_t d = 0; d < shape.ndim; d++)
            elements *= shape.shape[d];
        assert_int_equal(elements, shape.bytes);
        if (layout->slot_dim >= 0)
            assert_int_equal(shape.slot_stride, shape.stride[shape.slot_dim]);
    }
}

/* Every destination byte comes from one checkpoint byte, and goes back there. */
static void the_formula_is_a_bijection(void **state)
{
    (void)state;
    for (int32_t n = 0; n < lp_layout_count(); n++) {
        const lp_layout *const layout = lp_layout_at(n);
        const lp_layout_sizes sizes = sizes_for(layout, 1, 1);
        lp_layout_shape shape;
        assert_int_equal(lp_layout_describe(layout, &sizes, &shape, NULL), LP_OK);
        for (int64_t off = 0; off < shape.bytes; off += 13) {
            lp_layout_place place;
            int64_t back = -1;
            assert_int_equal(lp_layout_origin(layout, &sizes, off, &place, NULL), LP_OK);
            assert_int_equal(lp_layout_locate(layout, &sizes, &place, &back, NULL), LP_OK);
            if (back != off)
                fail_msg("%s: offset %lld comes back as %lld", layout->id, (long long)off, (long long)back);
        }
        lp_layout_place place;
        assert_int_equal(lp_layout_origin(layout, &sizes, shape.bytes, &place, NULL), LP_E_ARGUMENT);
        assert_int_equal(lp_layout_origin(layout, &sizes, -1, &place, NULL), LP_E_ARGUMENT);
    }
}

/* Regions of all forms of the checkpoint tensors lie where the formula says. */
static void regions_follow_the_formula(void **state)
{
    (void)state;
    for (int32_t n = 0; n < lp_layout_count(); n++) {
        const lp_layout *const layout = lp_layout_at(n);
        const lp_layout_sizes sizes = sizes_for(layout, 2, 3);
        const int element = lp_dtype_bits(layout->dtype) / 8;
        for (int shard = 0; shard <= LP_SHARD_ALTERNATING; shard++) {
            lp_view region, source, stacked;
            const int64_t expert = sizes.experts - 1;
            const lp_status status = lp_layout_region(layout, &sizes, (lp_shard)shard, expert, &region, &source, NULL);
            if (!lp_layout_takes(layout, (lp_shard)shard)) {
                assert_int_equal(status, LP_E_ARGUMENT);
                continue;
            }
            assert_int_equal(status, LP_OK);
            assert_int_equal(lp_layout_region(layout, &sizes, (lp_shard)shard, -1, &stacked, NULL, NULL), LP_OK);
            assert_int_equal(region.ndim, 2);
            assert_int_equal(stacked.ndim, 3);
            assert_int_equal(stacked.size[0], sizes.experts);
            assert_int_equal(source.dtype, layout->dtype);
            assert_true(lp_view_is_contiguous(&source));
            assert_memory_equal(region.size, source.size, 2 * sizeof(int64_t));
            for (int64_t row = 0; row < region.size[0]; row += 1 + row % 5)
                for (int64_t column = 0; column < region.size[1]; column += 1 + column % 7) {
                    const lp_layout_place place = {(lp_shard)shard, expert, row, column * element};
                    const int64_t index[] = {expert, row, column};
                    int64_t off;
                    assert_int_equal(lp_layout_locate(layout, &sizes, &place, &off, NULL), LP_OK);
                    assert_int_equal(view_byte(&region, index + 1), off);
                    assert_int_equal(view_byte(&stacked, index), off);
                }
        }
    }
}

/* One scale for a block of 128 x 128 becomes one for each row and each 32 columns. */
static void block_scales_are_repeated(void **state)
{
    (void)state;
    const lp_layout *const layout = lp_layout_find("mxfp8_shared_l1_scale");
    const lp_layout_sizes sizes = {1, 512, 256};
    const int64_t rows = sizes.intermediate / 128, columns = sizes.hidden / 128;
    for (int shard = LP_SHARD_GATE; shard <= LP_SHARD_UP; shard++) {
        lp_view region, source;
        assert_int_equal(
            lp_layout_region_blocks(layout, &sizes, (lp_shard)shard, 0, rows, columns, &region, &source, NULL), LP_OK);
        assert_int_equal(region.size[0], sizes.intermediate);
        assert_int_equal(region.size[1], sizes.hidden / 32);
        assert_memory_equal(region.size, source.size, 2 * sizeof(int64_t));
        for (int64_t row = 0; row < region.size[0]; row++)
            for (int64_t byte = 0; byte < region.size[1]; byte++) {
                const lp_layout_place place = {(lp_shard)shard, 0, row, byte};
                const int64_t index[] = {row, byte};
                int64_t off;
                assert_int_equal(lp_layout_locate(layout, &sizes, &place, &off, NULL), LP_OK);
                assert_int_equal(view_byte(&region, index), off);
                assert_int_equal(view_byte(&source, index), row / 128 * columns + byte / 4);
            }
    }
    lp_view region, source;
    lp_error err = {0};
    assert_int_equal(lp_layout_region_blocks(layout, &sizes, LP_SHARD_UP, 0, 3, 4, &region, &source, &err),
                     LP_E_ARGUMENT);
    assert_string_equal(err.text, "layout 'mxfp8_shared_l1_scale': 3 x 4 scales do not divide its 256 x 16");
    assert_int_equal(lp_layout_region_blocks(lp_layout_find("mxfp8_l1_weight"), &sizes, LP_SHARD_UP, 0, 2, 4, &region,
                                             &source, &err),
                     LP_E_ARGUMENT);
    assert_int_equal(lp_layout_region_blocks(layout, &sizes, LP_SHARD_UP, -1, 2, 4, &region, &source, &err),
                     LP_E_ARGUMENT);
    /* without blocks it is the same map as the plain region */
    const lp_map *plain, *repeated;
    lp_view words, tensor;
    assert_int_equal(lp_layout_region(layout, &sizes, LP_SHARD_UP, 0, &words, &tensor, NULL), LP_OK);
    assert_int_equal(lp_layout_region_blocks(layout, &sizes, LP_SHARD_UP, 0, 256, 16, &region, &source, NULL), LP_OK);
    assert_int_equal(lp_map_copy(&plain, &words, 512 * 16, &tensor, 256 * 16, NULL, NULL), LP_OK);
    assert_int_equal(lp_map_copy(&repeated, &region, 512 * 16, &source, 256 * 16, NULL, NULL), LP_OK);
    assert_true(lp_map_equal(plain, repeated));
    lp_map_free(plain, NULL);
    lp_map_free(repeated, NULL);
}

/* Where a gate or up row starts in the kernel's row order, by the index functions. */
static int64_t written_out(const lp_layout *layout, const lp_layout_sizes *sizes, const lp_layout_place *place)
{
    const bool packed = strstr(layout->id, "_packed_") != NULL, trt = strstr(layout->id, "_trt_") != NULL;
    const bool scale = strstr(layout->id, "_scale") != NULL, first = strstr(layout->id, "_l1_") != NULL;
    const int half = place->shard == LP_SHARD_UP;
    const int64_t rows = first ? 2 * sizes->intermediate : sizes->hidden;
    lp_layout_shape shape;
    assert_int_equal(lp_layout_describe(layout, sizes, &shape, NULL), LP_OK);
    const int64_t row_bytes = shape.bytes / sizes->experts / rows;
    if (strstr(layout->id, "_sm90_") != NULL) {
        const int64_t steps = (first ? sizes->hidden : sizes->intermediate) / 128;
        return lp_tile_byte(place->expert, first ? lp_row_gran8(half, place->row) : place->row, place->byte, rows,
                            steps, row_bytes / steps);
    }
    if (strstr(layout->id, "bf16_trt") != NULL) { /* columns of 64 elements */
        const int64_t row = first ? lp_row_trt_bf16(half, place->row) : lp_down_row_trt(place->row);
        return place->expert * rows * row_bytes + place->byte / 128 * rows * 128 + row * 128 + place->byte % 128;
    }
    if (scale) {
        int64_t slot;
        if (first)
            slot = trt      ? lp_scale_slot_packed(1 - half, place->row)
                   : packed ? lp_scale_slot_packed(half, place->row)
                            : lp_scale_slot_gran8(half, place->row);
        else
            slot = trt ? lp_down_scale_slot_trt(place->row) : lp_scale_slot(place->row);
        const int64_t words = row_bytes / 4, column = place->byte / 4;
        const int64_t word = trt ? lp_scale_word_trt(place->expert, slot, column, rows, words)
                                 : lp_scale_word(place->expert, slot, column, rows, words);
        return 4 * word + place->byte % 4;
    }
    int64_t row;
    if (first)
        row = trt      ? lp_row_trt(half, place->row)
              : packed ? lp_row_packed(half, place->row)
                       : lp_row_gran8(half, place->row);
    else
        row = trt ? lp_down_row_trt(place->row) : place->row;
    if (strstr(layout->id, "_localised_") != NULL)
        return lp_localised_byte(place->expert, row, place->byte, sizes->experts, rows, row_bytes);
    return (place->expert * rows + row) * row_bytes + place->byte;
}

static void the_table_says_what_the_index_functions_say(void **state)
{
    (void)state;
    int compared = 0;
    for (int32_t n = 0; n < lp_layout_count(); n++) {
        const lp_layout *const layout = lp_layout_at(n);
        if (layout->dtype == LP_F32)
            continue; /* block scales have no index function: they stay as they are */
        const lp_layout_sizes sizes = sizes_for(layout, 2, 1);
        lp_layout_shape shape;
        assert_int_equal(lp_layout_describe(layout, &sizes, &shape, NULL), LP_OK);
        for (int64_t off = 0; off < shape.bytes; off += 13) {
            lp_layout_place place;
            assert_int_equal(lp_layout_origin(layout, &sizes, off, &place, NULL), LP_OK);
            const int64_t expected = written_out(layout, &sizes, &place);
            if (expected != off)
                fail_msg("%s: row %lld byte %lld lies at %lld, the index functions say %lld", layout->id,
                         (long long)place.row, (long long)place.byte, (long long)off, (long long)expected);
        }
        compared++;
    }
    assert_int_equal(compared, lp_layout_count() - 2);
}

static void illegal_sizes_name_the_multiple(void **state)
{
    (void)state;
    const lp_layout *const layout = lp_layout_find("mxfp4_l1_weight");
    static const struct {
        lp_layout_sizes sizes;
        lp_status status;
        const char *text;
    } cases[] = {
        {{128, 3072, 2880},
         LP_E_ARGUMENT,
         "layout 'mxfp4_l1_weight': I must be a multiple of 128, 2880 is not; pad to 2944"},
        {{128, 2880, 2944},
         LP_E_ARGUMENT,
         "layout 'mxfp4_l1_weight': H must be a multiple of 256, 2880 is not; pad to 3072"},
        {{0, 256, 128}, LP_E_ARGUMENT, "layout 'mxfp4_l1_weight': E must be at least 1, not 0"},
        {{1, 256, -128}, LP_E_ARGUMENT, "layout 'mxfp4_l1_weight': I must be at least 1, not -128"},
        {{1, INT64_MAX, 128},
         LP_E_LIMIT,
         "layout 'mxfp4_l1_weight': H is 9223372036854775807, the limit is 1099511627776"},
        {{INT64_C(1) << 40, INT64_C(1) << 40, INT64_C(1) << 40},
         LP_E_LIMIT,
         "layout 'mxfp4_l1_weight': a tensor of these sizes does not fit 64 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lp_error err = {0};
        lp_layout_shape shape;
        lp_view region;
        assert_int_equal(lp_layout_check(layout, &cases[i].sizes, &err), cases[i].status);
        assert_string_equal(err.text, cases[i].text);
        assert_int_equal(lp_layout_describe(layout, &cases[i].sizes, &shape, NULL), cases[i].status);
        assert_int_equal(lp_layout_region(layout, &cases[i].sizes, LP_SHARD_GATE, 0, &region, NULL, NULL),
                         cases[i].status);
    }
    const lp_layout_sizes shared = {2, 256, 128};
    assert_int_equal(lp_layout_check(lp_layout_find("mxfp8_shared_l1_weight"), &shared, NULL), LP_E_ARGUMENT);
}

static void wrong_sources_are_refused(void **state)
{
    (void)state;
    const lp_layout *const layout = lp_layout_find("nvfp4_l2_scale");
    const lp_layout_sizes sizes = {2, 256, 128};
    lp_error err = {0};
    int64_t shape[2];
    assert_int_equal(lp_layout_source_shape(layout, &sizes, LP_SHARD_DOWN, LP_F32, shape, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "layout 'nvfp4_l2_scale' wants F8_E4M3 or U8, not F32");
    assert_int_equal(lp_layout_source_shape(layout, &sizes, LP_SHARD_GATE, LP_U8, shape, &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "layout 'nvfp4_l2_scale' takes down, not gate or up");
    assert_int_equal(lp_layout_source_shape(layout, &sizes, LP_SHARD_DOWN, LP_U8, shape, &err), LP_OK);
    assert_int_equal(shape[0], 256);
    assert_int_equal(shape[1], 8);
    lp_view region;
    assert_int_equal(lp_layout_region(layout, &sizes, LP_SHARD_DOWN, 2, &region, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_layout_region(layout, &sizes, (lp_shard)5, 0, &region, NULL, &err), LP_E_ARGUMENT);
    /* FP4 rows may come as codes: twice as many columns */
    assert_int_equal(lp_layout_source_shape(lp_layout_find("mxfp4_l1_weight"), &sizes, LP_SHARD_UP, LP_F4, shape, &err),
                     LP_OK);
    assert_int_equal(shape[1], 256);
    const lp_layout_place outside[] = {{LP_SHARD_DOWN, 2, 0, 0},  {LP_SHARD_DOWN, -1, 0, 0}, {LP_SHARD_DOWN, 0, 256, 0},
                                       {LP_SHARD_DOWN, 0, -1, 0}, {LP_SHARD_DOWN, 0, 0, 8},  {LP_SHARD_DOWN, 0, 0, -1}};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        int64_t off;
        assert_int_equal(lp_layout_locate(layout, &sizes, &outside[i], &off, &err), LP_E_ARGUMENT);
    }
}

static void texts_say_the_chain_and_the_formula(void **state)
{
    (void)state;
    char text[1024];
    const lp_layout *const layout = lp_layout_find("mxfp4_l1_weight");
    const lp_layout_sizes sizes = {32, 4096, 2048};
    const size_t whole = lp_layout_chain_text(layout, text, sizeof text);
    assert_string_equal(text, "[E,2,I/8,8,H/2] as (e,half,g,i,c) -> memory (e,g,half,i,c)");
    assert_int_equal(whole, strlen(text));
    char small[10];
    assert_int_equal(lp_layout_chain_text(layout, small, sizeof small), whole);
    assert_string_equal(small, "[E,2,I/8,");
    assert_int_equal(lp_layout_chain_text(layout, NULL, 0), whole);
    lp_layout_forward_text(layout, &sizes, text, sizeof text);
    assert_string_equal(text, "off = 8388608*e + 16384*half + 32768*(t/8) + 2048*(t%8) + c");
    lp_layout_inverse_text(layout, &sizes, text, sizeof text);
    assert_string_equal(text, "e = off/8388608, half = off/16384%2, t = 8*(off/32768%256) + off/2048%8, c = off%2048");
    const lp_layout_sizes illegal = {1, 1, 1};
    assert_int_equal(lp_layout_forward_text(layout, &illegal, text, sizeof text), 0);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_unique_and_found),
        cmocka_unit_test(rows_are_well_formed),
        cmocka_unit_test(shapes_hold_all_checkpoint_bytes),
        cmocka_unit_test(the_formula_is_a_bijection),
        cmocka_unit_test(regions_follow_the_formula),
        cmocka_unit_test(block_scales_are_repeated),
        cmocka_unit_test(the_table_says_what_the_index_functions_say),
        cmocka_unit_test(illegal_sizes_name_the_multiple),
        cmocka_unit_test(wrong_sources_are_refused),
        cmocka_unit_test(texts_say_the_chain_and_the_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
