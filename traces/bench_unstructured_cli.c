/* SPDX-License-Identifier: Apache-2.0 */
/* A trace in which nothing is shared: names, shapes, destinations, offsets and maps without a pattern. */
#include "traces/bench_work.h"

#include "traces/base.h"

#include <inttypes.h>
#include <stdio.h>

/* splitmix64: every run of the bench sees the same numbers. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t random_below(uint64_t *state, int64_t limit)
{
    return (int64_t)(next_random(state) % (uint64_t)limit);
}

static lp_status random_catalogue(lp_checkpoint *c, int64_t count, uint64_t *state, lp_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        char name[32];
        const int64_t rows = 1024 + random_below(state, 4096), columns = 1024 + random_below(state, 4096);
        const int64_t shape[] = {rows, columns};
        snprintf(name, sizeof name, "%016" PRIx64, next_random(state));
        const lp_checkpoint_tensor tensor = {
            .name = name, .dtype = LP_U8, .ndim = 2, .shape = shape, .file = -1, .file_off = -1};
        LP_TRY(lp_checkpoint_add(c, &tensor, err));
    }
    return lp_checkpoint_seal(c, err);
}

/* Some columns of some rows of the tensor, to somewhere in a destination of its own. */
static lp_status add_random_record(lp_trace *t, uint32_t name, uint64_t *state, lp_error *err)
{
    static const int64_t dense = 1;
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(lp_trace_checkpoint(t), name);
    const int64_t rows = 2 + random_below(state, tensor->shape[0] - 2);
    const int64_t run = 1 + random_below(state, tensor->shape[1] - 1);
    const lp_mode mode = {rows, tensor->shape[1], run + 1 + random_below(state, 500)};
    const lp_box box = {.src_off = random_below(state, tensor->bytes - (rows - 1) * mode.src_stride - run + 1),
                        .dst_off = random_below(state, 100000),
                        .run = run,
                        .rank = 1,
                        .mode = &mode};
    const int64_t bytes = box.dst_off + rows * mode.dst_stride;
    char text[32];
    uint32_t dest;
    const lp_map *map;
    snprintf(text, sizeof text, "d.%012" PRIx64, next_random(state) >> 16);
    const lp_destination row = {.name = text,
                                .dtype = LP_U8,
                                .ndim = 1,
                                .shape = &bytes,
                                .stride = &dense,
                                .storage = text,
                                .storage_bytes = bytes,
                                .layout = "",
                                .group = "root",
                                .slot_dim = -1};
    LP_TRY(lp_trace_add_destination(t, &row, &dest, err));
    LP_TRY(lp_map_from_boxes(&map, 1, 1, 1, &box, NULL, err));
    const lp_status status =
        lp_trace_add_record(t, &(lp_record){.name = name, .dest = dest, .map = map, .provenance = LP_NONE}, err);
    lp_map_free(map, NULL);
    return status;
}

static lp_status make_unstructured(lp_trace **out, int64_t records, const lp_platform *platform, lp_error *err)
{
    lp_checkpoint *c = NULL;
    lp_trace *t = NULL;
    uint64_t state = 20261130;
    lp_status status;
    LP_TRY(lp_checkpoint_new(&c, platform, err));
    LP_TRY_GOTO(random_catalogue(c, records, &state, err), failed);
    LP_TRY_GOTO(lp_trace_new(&t, c, NULL, platform, err), failed);
    LP_TRY_GOTO(lp_trace_begin_scope(t, &(lp_scope){0}, err), failed);
    for (int64_t i = 0; i < records; i++)
        LP_TRY_GOTO(add_random_record(t, (uint32_t)i, &state, err), failed);
    LP_TRY_GOTO(lp_trace_seal(t, err), failed);
    lp_checkpoint_close(c);
    *out = t;
    return LP_OK;
failed:
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return status;
}

lp_status lp_bench_run_unstructured(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    lp_trace *t = NULL;
    lp_status status = LP_OK;
    char path[512];
    r->size = bed->is_small ? 1000 : 20000;
    lp_bench_path(bed, "unstructured.lpt", path);
    LP_TRY(make_unstructured(&t, r->size, bed->platform, err));
    for (int i = 0; i < bed->rounds; i++) {
        const lp_bench_clock started = lp_bench_start();
        LP_TRY_GOTO(lp_trace_save(t, path, true, err), close_trace);
        lp_bench_stop(r, started);
    }
    LP_TRY_GOTO(lp_bench_file_bytes(path, &r->value, err), close_trace);
    r->value /= (double)r->size;
close_trace:
    lp_trace_close(t);
    return status;
}
