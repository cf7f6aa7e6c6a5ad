/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast executor against the reference: random maps of every kind, whole and in parts, from odd addresses and with
 * several numbers of threads, must leave the same bytes (also around the destination) and report the same count.
 * LOADPLAN_EXEC_CASES sets how many, LOADPLAN_EXEC_SEED where they start.
 */
#include "map_oracle.h"

#include "layouts/layout.h"
#include "replayer/exec_fast.h"
#include "replayer/exec_reference.h"

#include <stdatomic.h>

enum { GUARD = 64 };

typedef struct memory {
    uint8_t *block, *at;
    int64_t bytes;
} memory;

static memory make_memory(int64_t bytes, int64_t shift)
{
    const int64_t whole = bytes + 2 * GUARD + 128;
    memory m = {malloc((size_t)whole), NULL, bytes};
    assert_non_null(m.block);
    memset(m.block, 0xa5, (size_t)whole);
    m.at = m.block + GUARD;
    m.at += (-(uintptr_t)m.at & 63) + (uintptr_t)shift; /* shift 0: at a cache line */
    return m;
}

static bool same_memory(const memory *a, const memory *b)
{
    return memcmp(a->at - GUARD, b->at - GUARD, (size_t)(a->bytes + 2 * GUARD)) == 0;
}

/* ---- random boxes ---- */

typedef struct random_boxes {
    lp_box box[4];
    lp_mode mode[4][8];
    int32_t count, src_elem, dst_elem;
} random_boxes;

static int64_t random_run(rng *r, bool large)
{
    static const int64_t usual[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 31, 32, 48, 63, 64, 65, 100, 256, 1000, 1024};
    if (large && rng_chance(r, 20))
        return rng_between(r, 100000, 1000000);
    return rng_chance(r, 50) ? (int64_t)1 << rng_between(r, 0, 4) : usual[rng_between(r, 0, 19)];
}

static int64_t random_extent(rng *r, int64_t left)
{
    static const int64_t usual[] = {2, 3, 4, 5, 8, 16, 17, 32, 40, 64, 128, 200, 1024, 2048};
    int64_t extent = usual[rng_between(r, 0, 13)];
    while (extent > 2 && extent > left)
        extent /= 2;
    return extent;
}

/* Source strides of a permuted dense tensor, with some made to overlap, repeat or run backwards. */
static void random_source(rng *r, random_boxes *b, int i, int32_t rank)
{
    int order[8];
    int64_t stride = b->box[i].run * b->src_elem, low = 0;
    for (int m = 0; m < rank; m++)
        order[m] = m;
    for (int m = rank - 1; m > 0; m--) {
        const int other = (int)rng_between(r, 0, m), kept = order[m];
        order[m] = order[other];
        order[other] = kept;
    }
    for (int m = 0; m < rank; m++) {
        lp_mode *mode = &b->mode[i][order[m]];
        mode->src_stride = stride;
        stride *= mode->extent;
        if (rng_chance(r, 10))
            stride += rng_between(r, 1, 40) * b->src_elem;
        if (rng_chance(r, 8))
            mode->src_stride = 0;
        else if (rng_chance(r, 8))
            mode->src_stride = -mode->src_stride;
        else if (rng_chance(r, 5))
            mode->src_stride = rng_between(r, -50, 50) * b->src_elem;
        if (mode->src_stride < 0)
            low += mode->src_stride * (mode->extent - 1);
    }
    b->box[i].src_off = -low + rng_between(r, 0, 3) * rng_between(r, 0, 64) * b->src_elem;
    if (b->src_elem == 0) {
        b->box[i].src_off = 0;
        for (int m = 0; m < rank; m++)
            b->mode[i][m].src_stride = 0;
    }
}

static void random_map_boxes(rng *r, random_boxes *b, bool large)
{
    int64_t end = rng_between(r, 0, 5) * b->dst_elem;
    b->count = (int32_t)(rng_chance(r, 70) ? 1 : rng_between(r, 2, 4));
    for (int i = 0; i < b->count; i++) {
        int64_t left = large ? 3000000 : 20000, span;
        lp_box *box = &b->box[i];
        box->run = random_run(r, large);
        box->rank = (int32_t)rng_between(r, 0, rng_chance(r, 90) ? 4 : 7);
        box->mode = b->mode[i];
        box->dst_off = end;
        span = box->run * b->dst_elem;
        left /= box->run;
        int32_t first = box->rank;
        while (first > 0 && left >= 2) {
            lp_mode *m = &b->mode[i][--first];
            m->extent = random_extent(r, left);
            m->dst_stride = span + (rng_chance(r, 25) ? rng_between(r, 1, 70) * b->dst_elem : 0);
            span += (m->extent - 1) * m->dst_stride;
            left /= m->extent;
        }
        box->rank -= first;
        memmove(b->mode[i], b->mode[i] + first, (size_t)box->rank * sizeof(lp_mode));
        end += span + rng_between(r, 0, 2) * b->dst_elem;
        random_source(r, b, i, box->rank);
    }
}

static const struct {
    lp_dtype from, to;
} casts[] = {{LP_BF16, LP_F32}, {LP_F32, LP_BF16}, {LP_F8_E8M0, LP_F32}, {LP_I64, LP_I32}, {LP_F32, LP_F64}};

/* ---- the comparison ---- */

static void compare_part(const lp_step *step, const memory *src, int64_t src_first, int64_t lo, int64_t hi,
                         int64_t shift, lp_pool *pool, uint64_t seed)
{
    const int64_t bytes = step->map->dst_hi + step->dst_off;
    memory want = make_memory(bytes, shift), have = make_memory(bytes, shift);
    lp_batch b;
    const int64_t wanted = lp_reference_part(step, want.at, src->at + src_first, src_first, lo, hi);
    lp_batch_init(&b, pool);
    const int64_t written = lp_batch_part(&b, step, have.at, src->at + src_first, src_first, lo, hi);
    lp_batch_flush(&b);
    if (wanted != written || !same_memory(&want, &have)) {
        print_map("map", step->map);
        print_message("bytes %" PRId64 " to %" PRId64 ", %" PRId64 " written, %" PRId64 " wanted\n", lo, hi, written,
                      wanted);
    }
    MUST(wanted == written, seed);
    MUST(same_memory(&want, &have), seed);
    free(want.block);
    free(have.block);
}

static void one_case(uint64_t seed, lp_pool *const *pools, int pool_count)
{
    rng r = {seed};
    random_boxes b = {.src_elem = 1, .dst_elem = 1};
    lp_step step = {.kind = LP_KIND_COPY};
    const bool is_cast = rng_chance(&r, 20), large = rng_chance(&r, 3);
    lp_error err;
    if (is_cast) {
        const int64_t which = rng_between(&r, 0, (int64_t)(sizeof casts / sizeof casts[0]) - 1);
        step.kind = LP_KIND_CAST;
        step.src_dtype = (uint8_t)casts[which].from;
        step.dst_dtype = (uint8_t)casts[which].to;
        b.src_elem = lp_dtype_bits(casts[which].from) / 8;
        b.dst_elem = lp_dtype_bits(casts[which].to) / 8;
    }
    random_map_boxes(&r, &b, large);
    MUST(lp_map_from_boxes(&step.map, b.src_elem, b.dst_elem, b.count, b.box, NULL, &err) == LP_OK, seed);
    step.src_off = rng_between(&r, 0, 9);
    step.dst_off = rng_chance(&r, 50) ? 0 : rng_between(&r, 0, 9);
    memory src = make_memory(step.map->src_hi + step.src_off, rng_between(&r, 0, 63));
    for (int64_t i = 0; i < src.bytes; i++)
        src.at[i] = (uint8_t)(rng_next(&r) >> 13);
    const int64_t shift = rng_chance(&r, 50) ? 16 * rng_between(&r, 0, 3) : rng_between(&r, 0, 63);
    lp_pool *pool = pools[rng_between(&r, 0, pool_count - 1)];
    compare_part(&step, &src, 0, 0, src.bytes, shift, pool, seed);
    for (int part = 0; part < (large ? 1 : 3); part++) {
        const int64_t lo = rng_between(&r, 0, src.bytes), hi = rng_between(&r, lo, src.bytes);
        compare_part(&step, &src, rng_between(&r, 0, lo), lo, hi, shift, pool, seed);
    }
    lp_map_free(step.map, NULL);
    free(src.block);
}

static void test_equals_the_reference(void **state)
{
    const uint64_t seed = (uint64_t)count_from("LOADPLAN_EXEC_SEED", 1);
    const int64_t cases = count_from("LOADPLAN_EXEC_CASES", 4000);
    lp_pool *pool[4] = {NULL};
    (void)state;
    for (int i = 1; i < 4; i++)
        assert_int_equal(lp_pool_new(&pool[i], 2 * i - 1, lp_alloc_default(), NULL), LP_OK);
    for (int64_t i = 0; i < cases; i++)
        one_case(seed + (uint64_t)i, pool, 4);
    for (int i = 1; i < 4; i++)
        lp_pool_free(pool[i]);
}

static void test_fills_equal_the_reference(void **state)
{
    const uint64_t seed = (uint64_t)count_from("LOADPLAN_EXEC_SEED", 1);
    lp_pool *pool;
    (void)state;
    assert_int_equal(lp_pool_new(&pool, 3, lp_alloc_default(), NULL), LP_OK);
    for (uint64_t i = 0; i < 500; i++) {
        rng r = {seed + i};
        random_boxes b = {.src_elem = 0, .dst_elem = 1 << rng_between(&r, 0, 3)};
        lp_step step = {.kind = LP_KIND_FILL, .fill_bits = rng_next(&r), .dst_off = rng_between(&r, 0, 9)};
        random_map_boxes(&r, &b, i % 20 == 0);
        MUST(lp_map_from_boxes(&step.map, 0, b.dst_elem, b.count, b.box, NULL, NULL) == LP_OK, r.state);
        const int64_t bytes = step.map->dst_hi + step.dst_off, shift = rng_between(&r, 0, 63);
        memory want = make_memory(bytes, shift), have = make_memory(bytes, shift);
        lp_batch batch;
        lp_batch_init(&batch, pool);
        MUST(lp_batch_fill(&batch, &step, have.at) == lp_reference_fill(&step, want.at), seed + i);
        lp_batch_flush(&batch);
        MUST(same_memory(&want, &have), seed + i);
        lp_map_free(step.map, NULL);
        free(want.block);
        free(have.block);
    }
    lp_pool_free(pool);
}

/* Parts that meet give the whole: what a chunked read does. */
static void test_parts_make_the_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rng r = {seed * 7919};
        random_boxes b = {.src_elem = 1, .dst_elem = 1};
        lp_step step = {.kind = LP_KIND_COPY};
        random_map_boxes(&r, &b, false);
        MUST(lp_map_from_boxes(&step.map, 1, 1, b.count, b.box, NULL, NULL) == LP_OK, seed);
        memory src = make_memory(step.map->src_hi, 0), want = make_memory(step.map->dst_hi, 5),
               have = make_memory(step.map->dst_hi, 5);
        for (int64_t i = 0; i < src.bytes; i++)
            src.at[i] = (uint8_t)(rng_next(&r) >> 13);
        MUST(lp_reference_part(&step, want.at, src.at, 0, 0, src.bytes) == step.map->dst_bytes, seed);
        int64_t written = 0;
        for (int64_t lo = 0; lo < src.bytes;) {
            const int64_t hi = lo + rng_between(&r, 1, src.bytes / 4 + 1);
            written += lp_exec_part(&step, have.at, src.at + lo, lo, lo, hi < src.bytes ? hi : src.bytes);
            lo = hi;
        }
        MUST(written == step.map->dst_bytes, seed);
        MUST(same_memory(&want, &have), seed);
        lp_map_free(step.map, NULL);
        free(src.block);
        free(want.block);
        free(have.block);
    }
}

/* Word transposes of every width at sizes that have edges, by a plain double loop. */
static void test_transposes_by_formula(void **state)
{
    static const int64_t edge[] = {1, 2, 3, 15, 16, 17, 64, 100, 1023, 1025};
    lp_pool *pool;
    (void)state;
    assert_int_equal(lp_pool_new(&pool, 2, lp_alloc_default(), NULL), LP_OK);
    for (int64_t width = 1; width <= 8; width *= 2)
        for (int i = 0; i < 10; i++)
            for (int j = 0; j < 10; j++) {
                const int64_t rows = edge[i], columns = edge[j], shape[] = {rows, columns};
                const int64_t bytes = rows * columns * width;
                const lp_dtype dtype = width == 1 ? LP_U8 : width == 2 ? LP_I16 : width == 4 ? LP_F32 : LP_F64;
                lp_view from, to;
                const lp_map *map;
                assert_int_equal(lp_view_contiguous(&from, dtype, 2, shape, NULL), LP_OK);
                assert_int_equal(lp_view_contiguous(&to, dtype, 2, (int64_t[]){columns, rows}, NULL), LP_OK);
                assert_int_equal(lp_view_t(&to, NULL), LP_OK);
                assert_int_equal(lp_map_copy(&map, &to, bytes, &from, bytes, NULL, NULL), LP_OK);
                memory src = make_memory(bytes, 3), dst = make_memory(bytes, 0);
                for (int64_t b = 0; b < bytes; b++)
                    src.at[b] = (uint8_t)((uint64_t)b * 2654435761u >> 11);
                const lp_step step = {.map = map, .kind = LP_KIND_COPY};
                lp_batch batch;
                lp_batch_init(&batch, pool);
                assert_int_equal(lp_batch_part(&batch, &step, dst.at, src.at, 0, 0, bytes), bytes);
                lp_batch_flush(&batch);
                for (int64_t y = 0; y < rows; y++)
                    for (int64_t x = 0; x < columns; x++)
                        assert_memory_equal(dst.at + (x * rows + y) * width, src.at + (y * columns + x) * width,
                                            (size_t)width);
                lp_map_free(map, NULL);
                free(src.block);
                free(dst.block);
            }
    lp_pool_free(pool);
}

/* The kernel layouts themselves, at sizes beyond one tile and beyond the streaming threshold. */
static void test_layouts(void **state)
{
    const lp_layout_sizes sizes = {.experts = 2, .hidden = 2048, .intermediate = 1024};
    lp_pool *pool;
    int moved = 0;
    (void)state;
    assert_int_equal(lp_pool_new(&pool, 4, lp_alloc_default(), NULL), LP_OK);
    for (int32_t i = 0; i < lp_layout_count(); i++)
        for (int shard = LP_SHARD_GATE; shard <= LP_SHARD_ALTERNATING; shard++) {
            const lp_layout *layout = lp_layout_at(i);
            lp_layout_shape shape;
            lp_view region, view;
            int64_t rows[2];
            if (!lp_layout_takes(layout, (lp_shard)shard) ||
                lp_layout_describe(layout, &sizes, &shape, NULL) != LP_OK ||
                lp_layout_source_shape(layout, &sizes, (lp_shard)shard, layout->source[0], rows, NULL) != LP_OK ||
                lp_layout_region(layout, &sizes, (lp_shard)shard, 1, &region, &view, NULL) != LP_OK)
                continue;
            const int64_t bytes = rows[0] * rows[1] * lp_dtype_bits(layout->source[0]) / 8;
            memory src = make_memory(bytes, 0), want = make_memory(shape.bytes, 0), have = make_memory(shape.bytes, 0);
            lp_step step = {.kind = LP_KIND_COPY};
            for (int64_t b = 0; b < bytes; b++)
                src.at[b] = (uint8_t)((uint64_t)b * 2654435761u >> 11);
            assert_int_equal(lp_map_copy(&step.map, &region, shape.bytes, &view, bytes, NULL, NULL), LP_OK);
            lp_batch batch;
            lp_batch_init(&batch, pool);
            assert_int_equal(lp_batch_part(&batch, &step, have.at, src.at, 0, 0, bytes), bytes);
            lp_batch_flush(&batch);
            assert_int_equal(lp_reference_part(&step, want.at, src.at, 0, 0, bytes), bytes);
            if (!same_memory(&want, &have))
                fail_msg("%s, shard %d", layout->id, shard);
            moved++;
            lp_map_free(step.map, NULL);
            free(src.block);
            free(want.block);
            free(have.block);
        }
    assert_true(moved >= 8);
    lp_pool_free(pool);
}

/* Runs of every length of interest, with and without gaps between them, large enough to be streamed. */
static void test_streamed_runs(void **state)
{
    static const int64_t runs[] = {64, 128, 192, 250, 256, 512, 1000, 1024, 4096, 12288, 16384, 20000, 200000};
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        for (int64_t shift = 0; shift < 64; shift += 21)
            for (int64_t gap = 0; gap <= 64; gap += 64) {
                const int64_t run = runs[i], rows = (1 << 20) / run / 4 + 3, wide = run + gap;
                const lp_mode mode[] = {{4, run, rows * wide}, {rows, 4 * run, wide}};
                const lp_box box = {.run = run, .rank = 2, .mode = mode};
                lp_step step = {.kind = LP_KIND_COPY};
                assert_int_equal(lp_map_from_boxes(&step.map, 1, 1, 1, &box, NULL, NULL), LP_OK);
                memory src = make_memory(4 * rows * run, 1);
                for (int64_t b = 0; b < src.bytes; b++)
                    src.at[b] = (uint8_t)((uint64_t)b * 2654435761u >> 11);
                compare_part(&step, &src, 0, 0, src.bytes, shift, NULL, (uint64_t)run);
                lp_map_free(step.map, NULL);
                free(src.block);
            }
}

/* More pieces than a batch holds, and several steps in one batch. */
static void test_many_boxes(void **state)
{
    enum { BOXES = 1000, STRIDE = 24 };
    static lp_box box[BOXES];
    uint8_t src[BOXES * 40], want[BOXES * STRIDE + 8], have[BOXES * STRIDE + 8];
    lp_step step = {.kind = LP_KIND_COPY};
    rng r = {99};
    (void)state;
    for (int i = 0; i < BOXES; i++)
        box[i] = (lp_box){.src_off = rng_between(&r, 0, BOXES * 40 - 30), .dst_off = i * STRIDE, .run = 7 + i % 17};
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (uint8_t)rng_next(&r);
    assert_int_equal(lp_map_from_boxes(&step.map, 1, 1, BOXES, box, NULL, NULL), LP_OK);
    memset(want, 1, sizeof want);
    memset(have, 1, sizeof have);
    lp_batch b;
    lp_batch_init(&b, NULL);
    for (int half = 0; half < 2; half++) {
        const int64_t lo = half * BOXES * 20, hi = lo + BOXES * 20;
        assert_int_equal(lp_batch_part(&b, &step, have, src, 0, lo, hi),
                         lp_reference_part(&step, want, src, 0, lo, hi));
    }
    lp_batch_flush(&b);
    assert_memory_equal(want, have, sizeof want);
    lp_map_free(step.map, NULL);
}

/* ---- the pool ---- */

typedef struct tally {
    atomic_int seen[1000];
} tally;

static void count_task(void *context, int64_t index)
{
    atomic_fetch_add(&((tally *)context)->seen[index], 1);
}

static void test_pool_does_each_task_once(void **state)
{
    (void)state;
    for (int32_t threads = 0; threads <= 9; threads += 3) {
        lp_pool *pool;
        static tally t;
        assert_int_equal(lp_pool_new(&pool, threads, lp_alloc_default(), NULL), LP_OK);
        assert_int_equal(lp_pool_threads(pool), threads == 0 ? lp_pool_cores() : threads);
        for (int round = 1; round <= 50; round++) {
            memset(&t, 0, sizeof t);
            const int64_t tasks = round * 20;
            lp_pool_run(pool, tasks, count_task, &t);
            for (int64_t i = 0; i < 1000; i++)
                assert_int_equal(atomic_load(&t.seen[i]), i < tasks);
        }
        lp_pool_free(pool);
    }
    lp_pool_free(NULL);
    assert_int_equal(lp_pool_threads(NULL), 1);
}

static void test_pool_refuses_absurd_counts(void **state)
{
    lp_pool *pool = NULL;
    lp_error err;
    (void)state;
    assert_int_equal(lp_pool_new(&pool, -1, lp_alloc_default(), &err), LP_E_ARGUMENT);
    assert_int_equal(lp_pool_new(&pool, LP_POOL_THREADS_MAX + 1, lp_alloc_default(), &err), LP_E_ARGUMENT);
    assert_string_equal(err.text, "cannot use 257 threads: 0 to 256 are possible");
    assert_null(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_reference),
        cmocka_unit_test(test_fills_equal_the_reference),
        cmocka_unit_test(test_parts_make_the_whole),
        cmocka_unit_test(test_transposes_by_formula),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_streamed_runs),
        cmocka_unit_test(test_many_boxes),
        cmocka_unit_test(test_pool_does_each_task_once),
        cmocka_unit_test(test_pool_refuses_absurd_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
