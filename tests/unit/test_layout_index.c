/* SPDX-License-Identifier: Apache-2.0 */
/* Index functions: against the published index maps, their own inverses, and each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "layouts/layout_index.h"

#include <jansson.h>
#include <string.h>

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

static int64_t gate_gran8(int64_t row)
{
    return lp_row_gran8(0, row);
}
static int64_t up_gran8(int64_t row)
{
    return lp_row_gran8(1, row);
}
static int64_t gate_packed(int64_t row)
{
    return lp_row_packed(0, row);
}
static int64_t up_packed(int64_t row)
{
    return lp_row_packed(1, row);
}
static int64_t gate_slot_gran8(int64_t row)
{
    return lp_scale_slot_gran8(0, row);
}
static int64_t up_slot_gran8(int64_t row)
{
    return lp_scale_slot_gran8(1, row);
}
static int64_t gate_slot_packed(int64_t row)
{
    return lp_scale_slot_packed(0, row);
}
static int64_t up_slot_packed(int64_t row)
{
    return lp_scale_slot_packed(1, row);
}

static void index_maps_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t (*map)(int64_t row);
    } maps[] = {
        {"gate_row_gran8", gate_gran8},
        {"up_row_gran8", up_gran8},
        {"gate_row_packed", gate_packed},
        {"up_row_packed", up_packed},
        {"utccp_slot", lp_scale_slot},
        {"gate_scale_slot_gran8", gate_slot_gran8},
        {"up_scale_slot_gran8", up_slot_gran8},
        {"gate_scale_slot_packed", gate_slot_packed},
        {"up_scale_slot_packed", up_slot_packed},
    };
    const json_t *const published = json_object_get(vectors, "index_maps");
    assert_int_equal(json_object_size(published), sizeof maps / sizeof maps[0] + 1);
    for (size_t m = 0; m < sizeof maps / sizeof maps[0]; m++) {
        const json_t *const pairs = json_object_get(published, maps[m].name);
        assert_true(json_array_size(pairs) > 10);
        for (size_t i = 0; i < json_array_size(pairs); i++) {
            const json_t *const pair = json_array_get(pairs, i);
            assert_int_equal(maps[m].map(json_integer_value(json_array_get(pair, 0))),
                             json_integer_value(json_array_get(pair, 1)));
        }
    }
}

static void activation_rows_are_the_published_ones(void **state)
{
    (void)state;
    const char *block;
    json_t *pairs, *by_block = json_object_get(json_object_get(vectors, "index_maps"), "activation_scale_row");
    assert_int_equal(json_object_size(by_block), 8);
    json_object_foreach(by_block, block, pairs)
    {
        int64_t block_m = 0;
        for (const char *p = block; *p != '\0'; p++)
            block_m = block_m * 10 + (*p - '0');
        for (size_t i = 0; i < json_array_size(pairs); i++) {
            const json_t *const pair = json_array_get(pairs, i);
            assert_int_equal(lp_activation_scale_row(json_integer_value(json_array_get(pair, 0)), block_m),
                             json_integer_value(json_array_get(pair, 1)));
        }
    }
}

/* The stated values of the down scale, the packed order and the two activation blocks. */
static void stated_spots(void **state)
{
    (void)state;
    static const int64_t down[][2] = {{0, 0},  {1, 4},  {31, 124},  {32, 1},    {33, 5},   {63, 125},
                                      {64, 2}, {96, 3}, {127, 127}, {128, 128}, {129, 132}};
    for (size_t i = 0; i < sizeof down / sizeof down[0]; i++)
        assert_int_equal(lp_scale_slot(down[i][0]), down[i][1]);
    static const int64_t gate[][2] = {{0, 0}, {7, 7}, {8, 16}, {63, 119}};
    static const int64_t up[][2] = {{0, 8}, {7, 15}, {8, 24}, {63, 127}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(lp_row_gran8(0, gate[i][0]), gate[i][1]);
        assert_int_equal(lp_row_gran8(1, up[i][0]), up[i][1]);
    }
    static const int64_t packed[] = {0, 1, 2, 15, 16, 17};
    static const int64_t packed_gate[] = {0, 16, 1, 23, 32, 48}, packed_up[] = {8, 24, 9, 31, 40, 56};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(lp_row_packed(0, packed[i]), packed_gate[i]);
        assert_int_equal(lp_row_packed(1, packed[i]), packed_up[i]);
    }
    assert_int_equal(lp_activation_scale_row(64, 96), 2);
    assert_int_equal(lp_activation_scale_row(127, 96), 252);
    assert_int_equal(lp_activation_scale_row(240, 240), 256);
}

static void inverses_are_inverse(void **state)
{
    (void)state;
    for (int64_t row = 0; row < 4096; row++) {
        for (int half = 0; half < 2; half++) {
            const int64_t gran8 = lp_row_gran8(half, row), packed = lp_row_packed(half, row);
            assert_int_equal(lp_row_gran8_half(gran8), half);
            assert_int_equal(lp_row_gran8_source(gran8), row);
            assert_int_equal(lp_row_packed_half(packed), half);
            assert_int_equal(lp_row_packed_source(packed), row);
            assert_int_equal(lp_row_trt_half(lp_row_trt(half, row)), half);
            assert_int_equal(lp_row_trt_source(lp_row_trt(half, row)), row);
            assert_int_equal(lp_row_trt(half, row), packed ^ 8);
        }
        assert_int_equal(lp_scale_slot_source(lp_scale_slot(row)), row);
        assert_int_equal(lp_down_row_trt_source(lp_down_row_trt(row)), row);
    }
}

static void slots_of_halves_are_slots_of_rows(void **state)
{
    (void)state;
    for (int64_t row = 0; row < 4096; row++)
        for (int half = 0; half < 2; half++) {
            assert_int_equal(lp_scale_slot_gran8(half, row), lp_scale_slot(lp_row_gran8(half, row)));
            assert_int_equal(lp_scale_slot_packed(half, row), lp_scale_slot(lp_row_packed(half, row)));
        }
}

/* Twice the slot map is another map: the transform must never be applied again. */
static void the_slot_map_has_order_seven(void **state)
{
    (void)state;
    for (int64_t row = 0; row < 128; row++) {
        int64_t place = row;
        for (int i = 0; i < 7; i++)
            place = lp_scale_slot(place);
        assert_int_equal(place, row);
    }
    assert_int_not_equal(lp_scale_slot(lp_scale_slot(1)), 1);
}

static void trt_bf16_rows_are_a_permutation_of_each_32(void **state)
{
    (void)state;
    for (int64_t block = 0; block < 4; block++) {
        uint64_t seen = 0;
        for (int half = 0; half < 2; half++)
            for (int64_t row = 16 * block; row < 16 * block + 16; row++) {
                const int64_t place = lp_row_trt_bf16(half, row) - 32 * block;
                assert_in_range(place, 0, 31);
                seen |= UINT64_C(1) << place;
            }
        assert_true(seen == UINT64_C(0xffffffff));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_maps_are_the_published_ones),
        cmocka_unit_test(activation_rows_are_the_published_ones),
        cmocka_unit_test(stated_spots),
        cmocka_unit_test(inverses_are_inverse),
        cmocka_unit_test(slots_of_halves_are_slots_of_rows),
        cmocka_unit_test(the_slot_map_has_order_seven),
        cmocka_unit_test(trt_bf16_rows_are_a_permutation_of_each_32),
    };
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
