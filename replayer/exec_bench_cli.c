/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU executor against memcpy: the rate at which it moves a map, as a share of a plain copy of the same bytes with
 * the same threads. The two are timed in turns, so that other work on the machine slows both; the median of the rounds'
 * ratios is the case's value, and the worst case's that of the bench. What was moved is compared with the reference
 * executor.
 */
#include "replayer/exec_bench.h"

#include "layouts/layout.h"
#include "replayer/exec_fast.h"
#include "replayer/exec_reference.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* One tensor of a case: which map moves it, and where it stands. */
typedef struct move {
    lp_step step;
    int64_t src_base, src_bytes;
} move;

typedef struct bench_case {
    char name[64];
    move *move;
    int64_t count, capacity;
    const lp_map *owned[2]; /* maps that the moves share */
    int owned_count;
    int64_t bytes, src_bytes, dst_bytes;
} bench_case;

typedef struct bench_work {
    const lp_bench_bed *bed;
    const lp_alloc *alloc;
    lp_pool *pool;
    lp_bench_result *result; /* of the worst case so far */
    lp_error *err;
} bench_work;

/* ---- what is moved ---- */

static void free_case(bench_work *w, bench_case *c)
{
    for (int i = 0; i < c->owned_count; i++)
        lp_map_free(c->owned[i], NULL);
    lp_release(w->alloc, c->move);
}

static lp_status add_move(bench_work *w, bench_case *c, const lp_map *map, int64_t src_bytes, int64_t dst_off)
{
    if (!lp_grow(w->alloc, (void **)&c->move, &c->capacity, c->count + 1, sizeof *c->move))
        return lp_fail_memory(w->err);
    const lp_step step = {.map = map, .kind = LP_KIND_COPY, .dst_off = dst_off};
    c->move[c->count++] = (move){step, c->src_bytes, src_bytes};
    c->src_bytes += src_bytes;
    c->bytes += map->dst_bytes;
    return LP_OK;
}

/* One map over `total` bytes on both sides. */
static lp_status add_box(bench_work *w, bench_case *c, int64_t run, const lp_mode mode[2], int64_t total)
{
    const lp_box box = {.run = run, .rank = 2, .mode = mode};
    LP_TRY(lp_map_from_boxes(&c->owned[0], 1, 1, 1, &box, NULL, w->err));
    c->owned_count = 1;
    c->dst_bytes = total;
    return add_move(w, c, c->owned[0], total, 0);
}

/* Runs of `run` bytes whose rows change places: what column-parallel slices and gate/up interleaving do. */
static lp_status make_runs(bench_work *w, bench_case *c, int64_t run)
{
    const int64_t total = w->bed->is_small ? 1 << 20 : 128 << 20, rows = total / run / 16;
    const lp_mode mode[] = {{rows, run, 16 * run}, {16, rows * run, run}};
    snprintf(c->name, sizeof c->name, "runs of %" PRId64 " bytes", run);
    return add_box(w, c, run, mode, total);
}

static lp_status make_transpose(bench_work *w, bench_case *c)
{
    enum { WORD = 4 };
    const int64_t rows = w->bed->is_small ? 256 : 8192, columns = rows / 4;
    const lp_mode mode[] = {{columns, WORD, rows * WORD}, {rows, columns * WORD, WORD}};
    snprintf(c->name, sizeof c->name, "a transpose of words");
    return add_box(w, c, WORD, mode, rows * columns * WORD);
}

static lp_status add_shard(bench_work *w, bench_case *c, const lp_layout *layout, const lp_layout_sizes *sizes,
                           const lp_layout_shape *shape, lp_shard shard)
{
    lp_view region, source;
    int64_t extent[2];
    const lp_map *map;
    LP_TRY(lp_layout_source_shape(layout, sizes, shard, layout->source[0], extent, w->err));
    LP_TRY(lp_layout_region(layout, sizes, shard, 0, &region, &source, w->err));
    const int64_t bytes = extent[0] * extent[1] * lp_dtype_bits(layout->source[0]) / 8;
    LP_TRY(lp_map_copy(&map, &region, shape->bytes, &source, bytes, NULL, w->err));
    c->owned[c->owned_count++] = map;
    for (int64_t e = 0; e < sizes->experts; e++)
        LP_TRY(add_move(w, c, map, bytes, e * shape->slot_stride));
    return LP_OK;
}

/* A kernel layout, all experts of a rank, expert by expert as a checkpoint has them. No moves where the layout is none
 * of experts. */
static lp_status make_layout(bench_work *w, bench_case *c, const lp_layout *layout, int64_t experts)
{
    lp_layout_sizes sizes = {.experts = 1, .hidden = 4096, .intermediate = 2048};
    lp_layout_shape shape;
    snprintf(c->name, sizeof c->name, "%s", layout->id);
    LP_TRY(lp_layout_describe(layout, &sizes, &shape, w->err));
    if (shape.slot_dim < 0)
        return LP_OK;
    sizes.experts = w->bed->is_small ? 2 : experts;
    LP_TRY(lp_layout_describe(layout, &sizes, &shape, w->err));
    c->dst_bytes = shape.bytes;
    for (int shard = LP_SHARD_GATE; shard <= LP_SHARD_DOWN; shard++)
        if (lp_layout_takes(layout, (lp_shard)shard))
            LP_TRY(add_shard(w, c, layout, &sizes, &shape, (lp_shard)shard));
    return LP_OK;
}

/* ---- how it is moved ---- */

typedef struct copy {
    uint8_t *dst;
    const uint8_t *src;
    int64_t bytes, tasks;
} copy;

static void copy_task(void *context, int64_t index)
{
    const copy *c = context;
    const int64_t lo = c->bytes * index / c->tasks, hi = c->bytes * (index + 1) / c->tasks;
    memcpy(c->dst + lo, c->src + lo, (size_t)(hi - lo));
}

static void plain_copy(lp_pool *pool, uint8_t *dst, const uint8_t *src, int64_t bytes)
{
    copy c = {dst, src, bytes, lp_pool_threads(pool)};
    lp_pool_run(pool, c.tasks, copy_task, &c);
}

static void move_all(lp_pool *pool, const bench_case *c, uint8_t *dst, const uint8_t *src)
{
    lp_batch batch;
    lp_batch_init(&batch, pool);
    for (int64_t i = 0; i < c->count; i++)
        lp_batch_part(&batch, &c->move[i].step, dst, src + c->move[i].src_base, 0, 0, c->move[i].src_bytes);
    lp_batch_flush(&batch);
}

static bool is_right(const bench_case *c, uint8_t *want, const uint8_t *dst, const uint8_t *src)
{
    memset(want, 0, (size_t)c->dst_bytes);
    for (int64_t i = 0; i < c->count; i++)
        lp_reference_part(&c->move[i].step, want, src + c->move[i].src_base, 0, 0, c->move[i].src_bytes);
    return memcmp(want, dst, (size_t)c->dst_bytes) == 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Small cases are done over and over: a round must outlast the waking of a thread. */
static int64_t repeats_of(const bench_work *w, const bench_case *c)
{
    const int64_t least = w->bed->is_small ? 1 : 64 << 20;
    return (least + c->bytes - 1) / c->bytes;
}

/* Times both in turns and returns the median of the ratios. Rounds are short: there are more of them than asked for. */
static double time_rounds(bench_work *w, const bench_case *c, const uint8_t *src, uint8_t *dst, uint8_t *other,
                          lp_bench_result *moved)
{
    enum { TIMES = 3 };
    double ratio[LP_BENCH_ROUNDS_MAX];
    const int wanted = w->bed->rounds * TIMES;
    const int rounds = wanted < LP_BENCH_ROUNDS_MAX ? wanted : LP_BENCH_ROUNDS_MAX;
    const int64_t repeats = repeats_of(w, c);
    moved->size = c->bytes * repeats;
    for (int i = 0; i < rounds; i++) {
        lp_bench_result copied = {0};
        lp_bench_clock started = lp_bench_start();
        for (int64_t k = 0; k < repeats; k++)
            plain_copy(w->pool, other, src, c->bytes);
        lp_bench_stop(&copied, started);
        started = lp_bench_start();
        for (int64_t k = 0; k < repeats; k++)
            move_all(w->pool, c, dst, src);
        lp_bench_stop(moved, started);
        ratio[i] = (double)copied.ns[0] / (double)moved->ns[i];
    }
    qsort(ratio, (size_t)rounds, sizeof ratio[0], by_value);
    return ratio[rounds / 2];
}

/* Times the case; its result becomes that of the bench when it is the worst so far. */
static void time_case(bench_work *w, const bench_case *c, uint8_t *src, uint8_t *dst, uint8_t *want)
{
    lp_bench_result moved = {0}, *worst = w->result;
    const int64_t bytes = c->src_bytes > c->dst_bytes ? c->src_bytes : c->dst_bytes;
    for (int64_t i = 0; i < bytes; i++)
        src[i] = (uint8_t)((uint64_t)i * 2654435761u >> 11);
    memset(dst, 0, (size_t)bytes);
    memset(want, 0, (size_t)bytes);
    moved.value = time_rounds(w, c, src, dst, want, &moved);
    moved.wrong = worst->wrong + !is_right(c, want, dst, src);
    if (worst->rounds > 0 && worst->value <= moved.value) {
        worst->wrong = moved.wrong;
        return;
    }
    snprintf(moved.note, sizeof moved.note, "worst: %s", c->name);
    *worst = moved;
}

static lp_status run_case(bench_work *w, const bench_case *c)
{
    const int64_t bytes = c->src_bytes > c->dst_bytes ? c->src_bytes : c->dst_bytes;
    uint8_t *buffer[3], *line[3]; /* at cache lines, as destinations are */
    bool is_whole = true;
    for (int i = 0; i < 3; i++) {
        is_whole = (buffer[i] = lp_allocate(w->alloc, (size_t)bytes + 63)) != NULL && is_whole;
        line[i] = buffer[i] + (-(uintptr_t)buffer[i] & 63);
    }
    if (is_whole)
        time_case(w, c, line[0], line[1], line[2]);
    for (int i = 0; i < 3; i++)
        lp_release(w->alloc, buffer[i]);
    return is_whole ? LP_OK : lp_fail_memory(w->err);
}

/* ---- the cases of the two bars ---- */

static int64_t run_bytes(const bench_case *c)
{
    return c->count > 0 ? c->move[0].step.map->box[0].run : 0;
}

/* Every layout whose runs are in [least, most] bytes. */
static lp_status run_layouts(bench_work *w, int64_t least, int64_t most, int64_t experts)
{
    lp_status status = LP_OK;
    for (int32_t i = 0; i < lp_layout_count() && status == LP_OK; i++) {
        bench_case c = {.count = 0};
        status = make_layout(w, &c, lp_layout_at(i), experts);
        if (status == LP_OK && run_bytes(&c) >= least && run_bytes(&c) <= most)
            status = run_case(w, &c);
        free_case(w, &c);
    }
    return status;
}

static lp_status run_long_runs(bench_work *w)
{
    static const int64_t runs[] = {1024, 2048, 4096, 65536};
    lp_status status = LP_OK;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0] && status == LP_OK; i++) {
        bench_case c = {.count = 0};
        status = make_runs(w, &c, runs[i]);
        if (status == LP_OK)
            status = run_case(w, &c);
        free_case(w, &c);
    }
    return status == LP_OK ? run_layouts(w, 1024, INT64_MAX, 8) : status;
}

static lp_status run_words(bench_work *w)
{
    bench_case c = {.count = 0};
    lp_status status = make_transpose(w, &c);
    if (status == LP_OK)
        status = run_case(w, &c);
    free_case(w, &c);
    return status == LP_OK ? run_layouts(w, 4, 4, 32) : status;
}

static lp_status with_pool(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err, lp_status (*run)(bench_work *w))
{
    bench_work w = {.bed = bed, .alloc = lp_platform_resolve(bed->platform).alloc, .result = r, .err = err};
    LP_TRY(lp_pool_new(&w.pool, bed->threads, w.alloc, err));
    const lp_status status = run(&w);
    lp_pool_free(w.pool);
    return status;
}

lp_status lp_bench_run_long_runs(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    return with_pool(bed, r, err, run_long_runs);
}

lp_status lp_bench_run_words(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    return with_pool(bed, r, err, run_words);
}
