/* SPDX-License-Identifier: Apache-2.0 */
/* Small checkpoints, destinations and maps for the tests of the trace model. */
#ifndef LOADPLAN_MODEL_TESTING_H
#define LOADPLAN_MODEL_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "traces/trace_private.h"
#include "tests/random_numbers.h"
#include "failing_memory.h"

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        lp_error error_ = {0};                                                                                         \
        const lp_status got_ = (call);                                                                                 \
        if (got_ != LP_OK)                                                                                             \
            fail_msg("%s: %s", lp_status_name(got_), error_.text);                                                     \
        (void)error_;                                                                                                  \
    } while (0)

/* The call's error goes to `error_`, so that a failing test says why. */
#define ERR (&error_)

/* A checkpoint of `count` U8 tensors n0, n1, ... of `bytes` bytes each. */
static inline lp_checkpoint *small_checkpoint(int count, int64_t bytes)
{
    lp_checkpoint *c;
    assert_ok(lp_checkpoint_new(&c, NULL, ERR));
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "n%d", i);
        const lp_checkpoint_tensor tensor = {
            .name = name, .dtype = LP_U8, .ndim = 1, .shape = &bytes, .file = -1, .file_off = -1};
        assert_ok(lp_checkpoint_add(c, &tensor, ERR));
    }
    assert_ok(lp_checkpoint_seal(c, ERR));
    return c;
}

/* A trace for it with one open scope. */
static inline lp_trace *small_trace(int count, int64_t bytes, const lp_platform *platform)
{
    lp_checkpoint *c = small_checkpoint(count, bytes);
    lp_trace *t;
    assert_ok(lp_trace_new(&t, c, &(lp_trace_header){.loader = "test"}, platform, ERR));
    lp_checkpoint_close(c);
    assert_ok(lp_trace_begin_scope(t, &(lp_scope){0}, ERR));
    return t;
}

static inline uint32_t name_index(const lp_trace *t, const char *name)
{
    const int64_t index = lp_checkpoint_find(lp_trace_checkpoint(t), name);
    assert_true(index >= 0);
    return (uint32_t)index;
}

/* A one-dimensional U8 destination of its own storage. */
static inline uint32_t add_dest(lp_trace *t, const char *name, int64_t bytes)
{
    uint32_t index;
    const int64_t stride = 1;
    const lp_destination dest = {.name = name,
                                 .dtype = LP_U8,
                                 .ndim = 1,
                                 .shape = &bytes,
                                 .stride = &stride,
                                 .storage_bytes = bytes,
                                 .group = "root",
                                 .slot_dim = -1};
    assert_ok(lp_trace_add_destination(t, &dest, &index, ERR));
    return index;
}

/* `run` bytes, repeated `times` at the given steps; times 1: no repetition. */
static inline const lp_map *byte_map(int64_t src_off, int64_t dst_off, int64_t run, int64_t times, int64_t src_step,
                                     int64_t dst_step)
{
    const lp_mode mode = {times, src_step, dst_step};
    const lp_box box = {.src_off = src_off, .dst_off = dst_off, .run = run, .rank = times > 1 ? 1 : 0, .mode = &mode};
    const lp_map *map;
    assert_ok(lp_map_from_boxes(&map, 1, 1, 1, &box, NULL, ERR));
    return map;
}

static inline const lp_map *fill_map(int64_t dst_off, int64_t run, int64_t times, int64_t dst_step)
{
    const lp_mode mode = {times, 0, dst_step};
    const lp_box box = {.dst_off = dst_off, .run = run, .rank = times > 1 ? 1 : 0, .mode = &mode};
    const lp_map *map;
    assert_ok(lp_map_from_boxes(&map, 0, 1, 1, &box, NULL, ERR));
    return map;
}

static inline void add_copy(lp_trace *t, const char *name, uint32_t dest, int64_t src_off, int64_t dst_off, int64_t run)
{
    const lp_map *map = byte_map(src_off, dst_off, run, 1, 0, 0);
    assert_ok(lp_trace_add_record(
        t, &(lp_record){.name = name_index(t, name), .dest = dest, .map = map, .provenance = LP_NONE}, ERR));
    lp_map_free(map, NULL);
}

static inline void add_fill(lp_trace *t, uint32_t name, uint32_t dest, int64_t dst_off, int64_t run, uint8_t value)
{
    const lp_map *map = fill_map(dst_off, run, 1, 0);
    assert_ok(lp_trace_add_record(
        t, &(lp_record){.name = name, .dest = dest, .map = map, .fill_bits = value, .provenance = LP_NONE}, ERR));
    lp_map_free(map, NULL);
}

static inline const lp_rows *sealed_rows(lp_trace *t)
{
    const lp_rows *rows;
    assert_ok(lp_trace_seal(t, ERR));
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    return rows;
}

#endif
