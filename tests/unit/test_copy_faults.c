/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of every way through the code (one box, interleaved boxes, sides that cut each other, elements below
 * a byte, casts, nothing at all): with every allocation failing, and the words for those that no map can say.
 */
#include "model_testing.h"

#include <string.h>

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

typedef struct lp_copy_case {
    const char *name;
    lp_dtype dst_dtype, src_dtype;
    int ndim; /* both sides: shapes with strides in bytes, then flattened to one dimension */
    int64_t dst_shape[3], dst_stride[3], src_shape[3], src_stride[3];
    int64_t dst_bytes, src_bytes;
    lp_status status;
    const char *text; /* of the map, or of the error */
} lp_copy_case;

static const lp_copy_case copies[] = {
    {"one run", LP_U8, LP_U8, 2, {4, 6}, {6, 1}, {4, 6}, {6, 1}, 24, 24, LP_OK, "[s0,d0 run 24]"},
    {"rows", LP_U8, LP_I8, 2, {4, 6}, {6, 1}, {4, 6}, {10, 1}, 24, 36, LP_OK, "[s0,d0 (4:s10,d6) run 6]"},
    {"columns between columns",
     LP_U8,
     LP_U8,
     2,
     {2, 3},
     {1, 5},
     {2, 3},
     {3, 1},
     12,
     6,
     LP_OK,
     "[s0,d0 (3:s1,d5) (2:s3,d1) run 1]"},
    {"interleaved",
     LP_U8,
     LP_U8,
     2,
     {2, 4},
     {3, 2},
     {2, 4},
     {4, 1},
     10,
     8,
     LP_OK,
     "[s0,d0 (2:s1,d2) run 1] [s4,d3 (2:s1,d2) (2:s-2,d1) run 1] [s6,d7 (2:s1,d2) run 1]"},
    {"2 x 3 into 3 x 2",
     LP_U8,
     LP_U8,
     2,
     {3, 2},
     {10, 1},
     {2, 3},
     {10, 1},
     22,
     13,
     LP_OK,
     "[s0,d0 run 2] [s2,d10 (2:s8,d1) run 1] [s11,d20 run 2]"},
    {"the same of four bytes",
     LP_F32,
     LP_F32,
     2,
     {3, 2},
     {40, 4},
     {2, 3},
     {40, 4},
     88,
     52,
     LP_OK,
     "[s0,d0 run 8] [s8,d40 (2:s32,d4) run 4] [s44,d80 run 8]"},
    {"the same as a cast",
     LP_F32,
     LP_BF16,
     2,
     {3, 2},
     {40, 4},
     {2, 3},
     {20, 2},
     88,
     26,
     LP_OK,
     "[s0,d0 run 2 of 4 from 2] [s4,d40 (2:s16,d4) run 1 of 4 from 2] [s22,d80 run 2 of 4 from 2]"},
    {"nothing", LP_U8, LP_U8, 2, {0, 4}, {4, 1}, {0, 4}, {4, 1}, 0, 0, LP_OK, "[]"},
    {"beyond the destination",
     LP_U8,
     LP_U8,
     2,
     {4, 6},
     {6, 1},
     {4, 6},
     {6, 1},
     23,
     24,
     LP_E_ARGUMENT,
     "the destination view touches bytes 0 to 24 of a tensor of 23 bytes"},
    {"beyond the source",
     LP_U8,
     LP_U8,
     2,
     {4, 6},
     {6, 1},
     {4, 6},
     {6, 1},
     24,
     23,
     LP_E_ARGUMENT,
     "the source view touches bytes 0 to 24 of a tensor of 23 bytes"},
    {"beyond it in pieces",
     LP_U8,
     LP_U8,
     2,
     {3, 2},
     {10, 1},
     {2, 3},
     {10, 1},
     21,
     13,
     LP_E_ARGUMENT,
     "the destination view touches bytes 0 to 22 of a tensor of 21 bytes"},
    {"beyond the source in pieces",
     LP_U8,
     LP_U8,
     2,
     {3, 2},
     {10, 1},
     {2, 3},
     {10, 1},
     22,
     12,
     LP_E_ARGUMENT,
     "the source view touches bytes 0 to 13 of a tensor of 12 bytes"},
    {"one byte twice",
     LP_U8,
     LP_U8,
     2,
     {4, 6},
     {0, 1},
     {4, 6},
     {6, 1},
     24,
     24,
     LP_E_UNSUPPORTED,
     "the destination view writes one byte twice"},
    {"one byte twice in pieces",
     LP_U8,
     LP_U8,
     2,
     {3, 2},
     {0, 1},
     {2, 3},
     {10, 1},
     22,
     13,
     LP_E_UNSUPPORTED,
     "the destination view writes one byte twice"},
    {"rows that overlap",
     LP_U8,
     LP_U8,
     2,
     {3, 4},
     {2, 1},
     {3, 4},
     {4, 1},
     24,
     24,
     LP_E_UNSUPPORTED,
     "the destination view writes one byte twice"},
    {"a cast that there is not",
     LP_F32,
     LP_F4,
     1,
     {4},
     {4},
     {4},
     {0},
     16,
     2,
     LP_E_UNSUPPORTED,
     "a copy from F4 to F32 is no cast that a trace can hold"},
    {"too many pieces",
     LP_U8,
     LP_U8,
     2,
     {1000003, 1000033},
     {2000066, 1},
     {1000033, 1000003},
     {2000006, 1},
     INT64_MAX,
     INT64_MAX,
     LP_E_LIMIT,
     NULL},
};

static lp_view view_of(lp_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride)
{
    lp_view v;
    if (lp_dtype_bits(dtype) % 8 == 0)
        assert_ok(lp_view_strided(&v, dtype, ndim, shape, stride, 0, ERR));
    else
        assert_ok(lp_view_contiguous(&v, dtype, ndim, shape, ERR));
    assert_ok(lp_view_flatten(&v, 0, -1, ERR));
    return v;
}

typedef struct lp_copy_work {
    const lp_copy_case *c;
    lp_view dst, src;
    const lp_alloc *alloc;
    const lp_map *wanted;
} lp_copy_work;

static lp_status copy_once(void *context, lp_error *err)
{
    lp_copy_work *w = context;
    const lp_map *map = NULL;
    const lp_status status = lp_map_copy(&map, &w->dst, w->c->dst_bytes, &w->src, w->c->src_bytes, w->alloc, err);
    assert_true((status == LP_OK) == (map != NULL));
    if (map != NULL)
        assert_true(lp_map_equal(map, w->wanted));
    lp_map_free(map, w->alloc);
    return status;
}

static void copies_are_made_or_refused_in_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        const lp_copy_case *c = &copies[i];
        failing_alloc faults = {0};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize, .exact = true};
        lp_copy_work w = {.c = c, .alloc = &alloc};
        lp_error err = {0};
        char text[300] = "";
        w.dst = view_of(c->dst_dtype, c->ndim, c->dst_shape, c->dst_stride);
        w.src = view_of(c->src_dtype, c->ndim, c->src_shape, c->src_stride);
        const lp_status status = lp_map_copy(&w.wanted, &w.dst, c->dst_bytes, &w.src, c->src_bytes, NULL, &err);
        if (status == LP_OK)
            lp_map_text(w.wanted, text, sizeof text);
        const char *said = status == LP_OK ? text : err.text;
        if (status != c->status || (c->text != NULL && strcmp(said, c->text) != 0))
            fail_msg("%s: %s: '%s'", c->name, lp_status_name(status), said);
        if (status == LP_OK) {
            assert_true(fail_every_allocation(&faults, copy_once, &w) >= 1);
            lp_map_free(w.wanted, NULL);
        }
    }
}

/* ---- fills ---- */

typedef struct lp_fill_work {
    lp_view dst;
    int64_t bytes;
    uint64_t pattern;
    int pattern_bytes;
    const lp_alloc *alloc;
    const char *text;
} lp_fill_work;

static lp_status fill_once(void *context, lp_error *err)
{
    const lp_fill_work *w = context;
    const lp_map *map = NULL;
    uint64_t reduced = 99;
    char text[200];
    LP_TRY(lp_map_fill(&map, &reduced, &w->dst, w->bytes, w->pattern, w->pattern_bytes, w->alloc, err));
    lp_map_text(map, text, sizeof text);
    lp_map_free(map, w->alloc);
    assert_string_equal(text, w->text);
    return LP_OK;
}

static void fills_are_made_or_refused_in_words(void **state)
{
    (void)state;
    const lp_view words = view_of(LP_F32, 2, SHAPE(2, 3), SHAPE(20, 4)), none = view_of(LP_F32, 1, SHAPE(0), SHAPE(4));
    const lp_view halves = view_of(LP_F4, 1, SHAPE(8), NULL), twice = view_of(LP_U8, 2, SHAPE(2, 3), SHAPE(0, 1));
    const lp_view between = view_of(LP_U8, 2, SHAPE(2, 4), SHAPE(3, 2));
    const struct {
        lp_view dst;
        int64_t bytes;
        uint64_t pattern;
        int pattern_bytes;
        lp_status status;
        const char *text;
    } fills[] = {
        {words, 32, 0x3f800000, 4, LP_OK, "[d0 (2:d20) run 3 of 4]"},
        {words, 32, 0x3f803f80, 4, LP_OK, "[d0 (2:d20) run 6 of 2]"},
        {words, 32, 0x01010101, 4, LP_OK, "[d0 (2:d20) run 12]"},
        {between, 10, 7, 1, LP_OK, "[d0 run 1] [d2 run 6] [d9 run 1]"},
        {none, 0, 0, 4, LP_OK, "[]"},
        {halves, 4, 0x22, 1, LP_OK, "[d0 run 4]"},
        {halves, 4, 0x2222, 2, LP_OK, "[d0 run 4]"},
        {halves, 4, 0x2322, 2, LP_E_UNSUPPORTED, "a fill of F4 with a pattern of 2 bytes"},
        {words, 31, 0, 4, LP_E_ARGUMENT, "the destination view touches bytes 0 to 32 of a tensor of 31 bytes"},
        {words, 32, 0, 3, LP_E_ARGUMENT, "a fill with a pattern of 3 bytes"},
        {words, 32, 0, 8, LP_E_ARGUMENT, "a fill of F32 with a pattern of 8 bytes"},
        {twice, 3, 0, 1, LP_E_UNSUPPORTED, "the destination view writes one byte twice"},
    };
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        failing_alloc faults = {0};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize, .exact = true};
        lp_fill_work w = {.dst = fills[i].dst,
                          .bytes = fills[i].bytes,
                          .pattern = fills[i].pattern,
                          .pattern_bytes = fills[i].pattern_bytes,
                          .alloc = &alloc,
                          .text = fills[i].text};
        lp_error err = {0};
        assert_int_equal(fill_once(&w, &err), fills[i].status);
        if (fills[i].status == LP_OK)
            assert_true(fail_every_allocation(&faults, fill_once, &w) >= 1);
        else
            assert_string_equal(err.text, fills[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_made_or_refused_in_words),
        cmocka_unit_test(fills_are_made_or_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
