/* SPDX-License-Identifier: Apache-2.0 */
/* Another slot -> expert map at bind: whole experts move and repeat, nothing is recorded again. */
#include "replayer/replayer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, SLOTS = 2, EXPERTS = 4, ROWS = 3, COLUMNS = 4 };

typedef struct fixture {
    lp_checkpoint *checkpoint;
    lp_trace *trace;
    float weight[EXPERTS][ROWS][COLUMNS], w1[EXPERTS], w3[EXPERTS];
    uint8_t fused[EXPERTS][6];
    float plain[2];
    lp_error err;
} fixture;

#define assert_ok(f, expression)                                                                                       \
    do {                                                                                                               \
        const lp_status status_ = (expression);                                                                        \
        if (status_ != LP_OK) {                                                                                        \
            print_error("%s: %s: %s\n", #expression, lp_status_name(status_), (f)->err.text);                          \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

static void add_tensor(fixture *f, const char *name, lp_dtype dtype, int ndim, const int64_t *shape)
{
    const lp_checkpoint_tensor t = {
        .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = -1, .file_off = -1};
    assert_ok(f, lp_checkpoint_add(f->checkpoint, &t, &f->err));
}

static uint32_t add_dest(fixture *f, const char *name, lp_dtype dtype, int ndim, const int64_t *shape,
                         const int64_t *stride, int slot_dim)
{
    uint32_t index;
    int64_t bytes = lp_dtype_bits(dtype) / 8;
    for (int i = 0; i < ndim; i++)
        bytes *= shape[i];
    const lp_destination d = {.name = name,
                              .dtype = dtype,
                              .ndim = ndim,
                              .shape = shape,
                              .stride = stride,
                              .storage = name,
                              .storage_bytes = bytes,
                              .layout = "",
                              .group = "g",
                              .slot_dim = slot_dim,
                              .slot_count = slot_dim < 0 ? 0 : SLOTS};
    assert_ok(f, lp_trace_add_destination(f->trace, &d, &index, &f->err));
    return index;
}

/* Elements [dst_off, dst_off + count) of the destination, dense, from elements [src_off, ...) of the tensor. */
static void add_copy(fixture *f, const char *name, uint32_t dest, lp_dtype dtype, int64_t dst_off, int64_t src_off,
                     int64_t count, int64_t dst_elems, int64_t src_elems)
{
    const int64_t e = lp_dtype_bits(dtype) / 8;
    lp_view dst, src;
    const lp_map *map;
    assert_ok(f, lp_view_strided(&dst, dtype, 1, &count, &e, dst_off * e, &f->err));
    assert_ok(f, lp_view_strided(&src, dtype, 1, &count, &e, src_off * e, &f->err));
    assert_ok(f, lp_map_copy(&map, &dst, dst_elems * e, &src, src_elems * e, NULL, &f->err));
    const lp_record r = {
        .name = (uint32_t)lp_checkpoint_find(f->checkpoint, name), .dest = dest, .map = map, .provenance = LP_NONE};
    assert_ok(f, lp_trace_add_record(f->trace, &r, &f->err));
    lp_map_free(map, NULL);
}

static void add_rank(fixture *f, int rank)
{
    const lp_scope scope = {.tp = RANKS, .tp_rank = rank, .expert_parallel = true};
    const int64_t weight_shape[3] = {SLOTS, ROWS, COLUMNS}, weight_stride[3] = {ROWS * COLUMNS * 4, COLUMNS * 4, 4};
    const int64_t scale_shape[2] = {2, SLOTS}, scale_stride[2] = {SLOTS * 4, 4};
    const int64_t fused_shape[2] = {SLOTS, 6}, fused_stride[2] = {6, 1}, one = 1, four = 4;
    char name[32];
    assert_ok(f, lp_trace_begin_scope(f->trace, &scope, &f->err));
    const uint32_t weight = add_dest(f, "w13", LP_F32, 3, weight_shape, weight_stride, 0);
    const uint32_t scale = add_dest(f, "w13_weight_scale_2", LP_F32, 2, scale_shape, scale_stride, 1);
    const uint32_t fused = add_dest(f, "w2", LP_U8, 2, fused_shape, fused_stride, 0);
    const uint32_t plain = add_dest(f, "router", LP_F32, 1, &one, &four, -1);
    for (int slot = 0; slot < SLOTS; slot++) {
        const int e = rank * SLOTS + slot;
        snprintf(name, sizeof name, "experts.%d.w", e);
        add_copy(f, name, weight, LP_F32, slot * ROWS * COLUMNS, 0, ROWS * COLUMNS, SLOTS * ROWS * COLUMNS,
                 ROWS * COLUMNS);
        snprintf(name, sizeof name, "experts.%d.s1", e);
        add_copy(f, name, scale, LP_F32, slot, 0, 1, 2 * SLOTS, 1);
        snprintf(name, sizeof name, "experts.%d.s3", e);
        add_copy(f, name, scale, LP_F32, SLOTS + slot, 0, 1, 2 * SLOTS, 1);
    }
    /* all experts in one tensor: one record over all slots */
    add_copy(f, "fused", fused, LP_U8, 0, rank * SLOTS * 6, SLOTS * 6, SLOTS * 6, EXPERTS * 6);
    add_copy(f, "router", plain, LP_F32, 0, rank, 1, 1, 2);
}

static void open_fixture(fixture *f, int ranks)
{
    const lp_trace_header header = {"test", "1", "", "", {.tp = RANKS, .expert_parallel = true}};
    const int64_t weight[2] = {ROWS, COLUMNS}, one = 1, fused[2] = {EXPERTS, 6}, two = 2;
    char name[32];
    memset(f, 0, sizeof *f);
    assert_ok(f, lp_checkpoint_new(&f->checkpoint, NULL, &f->err));
    for (int e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, "experts.%d.w", e);
        add_tensor(f, name, LP_F32, 2, weight);
        snprintf(name, sizeof name, "experts.%d.s1", e);
        add_tensor(f, name, LP_F32, 1, &one);
        snprintf(name, sizeof name, "experts.%d.s3", e);
        add_tensor(f, name, LP_F32, 1, &one);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            f->weight[e][i / COLUMNS][i % COLUMNS] = (float)(100 * e + i);
        f->w1[e] = (float)e + 0.25f;
        f->w3[e] = (float)e + 0.5f;
        for (int i = 0; i < 6; i++)
            f->fused[e][i] = (uint8_t)(10 * e + i);
    }
    f->plain[0] = 7;
    f->plain[1] = 8;
    add_tensor(f, "fused", LP_U8, 2, fused);
    add_tensor(f, "router", LP_F32, 1, &two);
    assert_ok(f, lp_checkpoint_seal(f->checkpoint, &f->err));
    assert_ok(f, lp_trace_new(&f->trace, f->checkpoint, &header, NULL, &f->err));
    for (int rank = 0; rank < ranks; rank++)
        add_rank(f, rank);
    assert_ok(f, lp_trace_seal(f->trace, &f->err));
}

static void close_fixture(fixture *f)
{
    lp_trace_close(f->trace);
    lp_checkpoint_close(f->checkpoint);
}

static lp_status try_bind(fixture *f, int rank, const int32_t *logical, int64_t count, lp_destinations **d,
                          lp_plan **plan)
{
    const lp_scope scope = {.tp = RANKS, .tp_rank = rank, .expert_parallel = true};
    const lp_expert_map map = {logical, count, 41};
    int64_t n;
    *plan = NULL;
    assert_ok(f, lp_destinations_allocate(d, f->trace, &scope, false, NULL, &f->err));
    const lp_destination_memory *memory = lp_destinations_list(*d, &n);
    return lp_bind(plan, f->trace, &scope, memory, n, &(lp_bind_options){.experts = logical == NULL ? NULL : &map},
                   &f->err);
}

static void push_everything(fixture *f, lp_session *s)
{
    char name[32];
    for (int e = EXPERTS - 1; e >= 0; e--) { /* also experts of the other rank: ignored */
        snprintf(name, sizeof name, "experts.%d.w", e);
        assert_ok(f, lp_push_range(s, name, 0, f->weight[e], sizeof f->weight[e], &f->err));
        snprintf(name, sizeof name, "experts.%d.s3", e);
        assert_ok(f, lp_push_range(s, name, 0, &f->w3[e], 4, &f->err));
        snprintf(name, sizeof name, "experts.%d.s1", e);
        assert_ok(f, lp_push_range(s, name, 0, &f->w1[e], 4, &f->err));
    }
    assert_ok(f, lp_push_range(s, "router", 0, f->plain, 8, &f->err));
    assert_ok(f, lp_push_range(s, "fused", 5, &f->fused[0][5], EXPERTS * 6 - 5, &f->err));
    assert_ok(f, lp_push_range(s, "fused", 0, f->fused, 5, &f->err));
}

/* Loads rank `rank` by a map and compares every slot with the expert that it should hold. */
static void check_map(fixture *f, int rank, const int32_t *logical)
{
    static const int32_t by_default[RANKS * SLOTS] = {0, 1, 2, 3};
    const int32_t *mine = (logical == NULL ? by_default : logical) + rank * SLOTS;
    lp_destinations *d;
    lp_plan *plan;
    lp_session *s;
    int64_t n;
    assert_ok(f, try_bind(f, rank, logical, RANKS * SLOTS, &d, &plan));
    assert_int_equal(lp_plan_epoch(plan), logical == NULL ? 0 : 41);
    assert_ok(f, lp_begin(&s, plan, NULL, &f->err));
    push_everything(f, s);
    assert_ok(f, lp_finish(s, NULL, &f->err));
    lp_session_close(s);
    const lp_destination_memory *memory = lp_destinations_list(d, &n);
    assert_int_equal(n, 4); /* by name: router, w13, w13_weight_scale_2, w2 */
    const float(*weight)[ROWS][COLUMNS] = memory[1].data;
    const float(*scale)[SLOTS] = memory[2].data;
    const uint8_t(*fused)[6] = memory[3].data;
    for (int slot = 0; slot < SLOTS; slot++) {
        const int32_t e = mine[slot];
        assert_memory_equal(weight[slot], f->weight[e], sizeof f->weight[e]);
        assert_true(scale[0][slot] == f->w1[e] && scale[1][slot] == f->w3[e]);
        assert_memory_equal(fused[slot], f->fused[e], 6);
    }
    assert_memory_equal(memory[0].data, &f->plain[rank], 4);
    lp_plan_close(plan);
    lp_destinations_free(d);
}

static void test_experts_move_and_repeat(void **state)
{
    (void)state;
    fixture f;
    static const int32_t maps[][RANKS * SLOTS] = {
        {0, 1, 2, 3}, {1, 0, 3, 2}, {3, 2, 1, 0}, {2, 2, 2, 2}, {0, 3, 0, 1}, {1, 3, 2, 0},
    };
    open_fixture(&f, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        check_map(&f, rank, NULL);
        for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
            check_map(&f, rank, maps[i]);
    }
    close_fixture(&f);
}

static void test_bad_maps_are_refused(void **state)
{
    (void)state;
    fixture f;
    lp_destinations *d;
    lp_plan *plan;
    open_fixture(&f, 1); /* rank 1 is not in the trace */
    static const int32_t other[4] = {0, 2, 1, 3}, outside[4] = {0, 4, 1, 2}, negative[4] = {0, -1, 1, 2};
    assert_int_equal(try_bind(&f, 0, other, 4, &d, &plan), LP_E_UNKNOWN_NAME);
    assert_string_equal(f.err.text, "the trace lacks rank 1, which owns an expert of this rank");
    lp_destinations_free(d);
    assert_int_equal(try_bind(&f, 0, outside, 4, &d, &plan), LP_E_ARGUMENT);
    lp_destinations_free(d);
    assert_int_equal(try_bind(&f, 0, negative, 4, &d, &plan), LP_E_ARGUMENT);
    lp_destinations_free(d);
    assert_int_equal(try_bind(&f, 0, other, 3, &d, &plan), LP_E_ARGUMENT);
    assert_string_equal(f.err.text, "the expert map has 3 slots, the plan has 2 on each of 2 ranks");
    lp_destinations_free(d);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_move_and_repeat),
        cmocka_unit_test(test_bad_maps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
