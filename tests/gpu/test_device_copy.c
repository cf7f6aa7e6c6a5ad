/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random plans on the device against the byte-by-byte reference: runs from one byte on, misaligned bases, permuted,
 * reversed and repeated sources, casts and fills, many items a push, pushes of some of the items. Bytes that no plan
 * owns must keep their poison.
 *
 *   test_device_copy [plans] [seed]      default 4096 plans; the long run is 100000
 */
#include "gpu_testing.h"

enum { ITEMS = 64, STEPS = 3, ARENA_BYTES = 24 << 20, SOURCE_BYTES = 24 << 20, POISON = 0xa5 };

typedef struct plan {
    lp_step step[ITEMS][STEPS];
    int64_t dst[ITEMS][STEPS]; /* offset in the arena that dst_off 0 means */
    int steps[ITEMS];
    int64_t base[ITEMS]; /* offset of the item's payload in the source */
} plan;

static uint64_t seed;

static void fail(uint64_t plan_seed, const char *what, const lp_error *err)
{
    fprintf(stderr, "plan seed %llu: %s: %s\n", (unsigned long long)plan_seed, what, err->text);
    exit(1);
}

/* A box whose destination is nested with random gaps and whose source is dense in another order of the modes, reversed
 * or repeated here and there. */
static const lp_map *random_map(uint64_t *state, int kind, int src_elem, int dst_elem, int64_t *span, int64_t *src_span)
{
    static const int64_t runs[] = {1,  1,  2,  2,  4,  4,   4,   8,   16,  3,   5,    7,   12,
                                   17, 32, 48, 64, 96, 100, 128, 256, 333, 512, 1024, 4096};
    lp_error err;
    lp_mode mode[5];
    const int rank = (int)random_below(state, 6);
    int64_t budget = 1 + random_below(state, 1 << random_below(state, 18));
    lp_box box = {.run = 1, .rank = rank, .mode = mode};
    if (kind == LP_KIND_COPY || kind == LP_KIND_REPLICATE)
        box.run = runs[random_below(state, sizeof runs / sizeof runs[0])];
    else
        box.run = 1 + random_below(state, 40);
    if (random_below(state, 12) == 0)
        box.run = 1 + random_below(state, 150000);
    int64_t dst = box.run * dst_elem, order[5];
    for (int k = rank - 1; k >= 0; k--) { /* outermost first in the box */
        int64_t extent = 1 + random_below(state, random_below(state, 3) == 0 ? 70 : 9);
        if (extent * box.run > budget * 64)
            extent = 2;
        if (dst * extent > 2 << 20)
            extent = 1;
        if (random_below(state, 3) == 0)
            dst += random_below(state, 20);
        mode[k] = (lp_mode){.extent = extent, .dst_stride = dst};
        dst *= extent;
        order[k] = k;
    }
    for (int k = rank - 1; k > 0; k--) {
        const int64_t j = random_below(state, k + 1), swap = order[k];
        order[k] = order[j];
        order[j] = swap;
    }
    int64_t src = box.run * src_elem;
    if (rank > 0 && box.run <= 8 && random_below(state, 2) == 0)
        src = box.run * src_elem; /* a transpose: the next mode in source order continues the run */
    for (int i = rank - 1; i >= 0; i--) {
        lp_mode *m = &mode[order[i]];
        if (src_elem == 0)
            continue;
        if (random_below(state, 5) == 0)
            src += random_below(state, 16);
        if (kind == LP_KIND_REPLICATE && random_below(state, 2) == 0)
            continue;
        m->src_stride = src;
        if (random_below(state, 8) == 0) {
            box.src_off += src * (m->extent - 1);
            m->src_stride = -src;
        }
        src *= m->extent;
        if (src > 4 << 20)
            break;
    }
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, src_elem, dst_elem, 1, &box, NULL, &err) != LP_OK)
        return NULL; /* what the generator must not make, such as a source before the tensor's start */
    if (map->nbox == 0 || map->src_lo < 0) {
        lp_map_free(map, NULL);
        return NULL;
    }
    *span = map->dst_hi;
    *src_span = map->src_hi;
    return map;
}

/* What the kernel for words takes, or nearly takes: dense modes of even extents in another order on either side. */
static const lp_map *random_transpose(uint64_t *state, int64_t *span, int64_t *src_span)
{
    static const int64_t extents[] = {4, 4, 8, 8, 16, 32, 64, 12, 24, 48, 56, 2, 3};
    lp_error err;
    lp_mode mode[5];
    const int rank = 2 + (int)random_below(state, 4);
    const int64_t gap = random_below(state, 4) == 0 ? 4 : random_below(state, 3) == 0 ? 16 : 0;
    lp_box box = {.run = random_below(state, 6) == 0 ? 2 : 4, .rank = rank, .mode = mode};
    int64_t dst = box.run, src = box.run;
    int order[5];
    for (int k = rank - 1; k >= 0; k--) {
        int64_t extent = extents[random_below(state, sizeof extents / sizeof extents[0])];
        if (dst * extent > 1 << 20)
            extent = 2;
        mode[k] = (lp_mode){.extent = extent, .dst_stride = dst};
        dst = dst * extent + (random_below(state, 3) == 0 ? gap : 0);
        order[k] = k;
    }
    const int fast = (int)random_below(state, rank - 1); /* not the destination's */
    order[fast] = order[rank - 1];
    order[rank - 1] = fast;
    for (int k = rank - 2; k > 0; k--) {
        const int j = (int)random_below(state, k + 1), swap = order[k];
        order[k] = order[j];
        order[j] = swap;
    }
    for (int i = rank - 1; i >= 0; i--) {
        mode[order[i]].src_stride = src;
        src = src * mode[order[i]].extent + (random_below(state, 5) == 0 ? gap : 0);
    }
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, 1, 1, 1, &box, NULL, &err) != LP_OK)
        return NULL;
    *span = map->dst_hi;
    *src_span = map->src_hi;
    return map;
}

/* What the kernel for rows takes, or nearly takes: runs of some hundred bytes to some ten thousand, most of them and
 * most strides multiples of 16. */
static const lp_map *random_rows(uint64_t *state, int64_t *span, int64_t *src_span)
{
    static const int64_t runs[] = {512,  768,  1024,  1360,  2048,  4080,  4096, 4112,
                                   5120, 8192, 16384, 28672, 32752, 32768, 40960};
    lp_error err;
    lp_mode mode[3];
    const int rank = (int)random_below(state, 4);
    lp_box box = {.run = runs[random_below(state, sizeof runs / sizeof runs[0])], .rank = rank, .mode = mode};
    if (random_below(state, 8) == 0)
        box.run += 1 + random_below(state, 15);
    int64_t dst = box.run, src = box.run;
    for (int k = rank - 1; k >= 0; k--) {
        const int64_t extent = 1 + random_below(state, random_below(state, 3) == 0 ? 40 : 6);
        mode[k].extent = dst * extent > 1 << 20 ? 1 : extent;
        dst += random_below(state, 2) == 0 ? 16 * random_below(state, 40) : 0;
        mode[k].dst_stride = dst;
        dst *= mode[k].extent;
    }
    for (int k = 0; k < rank; k++) { /* the source runs the other way round */
        src += random_below(state, 3) == 0 ? 16 * random_below(state, 9) : 0;
        mode[k].src_stride = src;
        src *= mode[k].extent;
    }
    const lp_map *map = NULL;
    if (lp_map_from_boxes(&map, 1, 1, 1, &box, NULL, &err) != LP_OK)
        return NULL;
    *span = map->dst_hi;
    *src_span = map->src_hi;
    return map;
}

static void random_step(uint64_t *state, lp_step *step, int64_t *span, int64_t *src_span)
{
    static const uint8_t pairs[][2] = {{LP_BF16, LP_F32},    {LP_F32, LP_BF16},    {LP_F16, LP_BF16},
                                       {LP_F8_E4M3, LP_F32}, {LP_F32, LP_F8_E4M3}, {LP_F8_E8M0, LP_F32},
                                       {LP_I64, LP_I32},     {LP_I32, LP_I64}};
    for (;;) {
        *step = (lp_step){.dest = 0, .stage = LP_NONE};
        const int64_t draw = random_below(state, 10);
        int src_elem = 1, dst_elem = 1;
        step->kind = draw < 6 ? LP_KIND_COPY : draw < 7 ? LP_KIND_REPLICATE : draw < 9 ? LP_KIND_CAST : LP_KIND_FILL;
        if (step->kind == LP_KIND_CAST) {
            const uint8_t *pair = pairs[random_below(state, sizeof pairs / sizeof pairs[0])];
            step->src_dtype = pair[0];
            step->dst_dtype = pair[1];
            src_elem = lp_dtype_bits(pair[0]) / 8;
            dst_elem = lp_dtype_bits(pair[1]) / 8;
        } else if (step->kind == LP_KIND_FILL) {
            src_elem = 0;
            dst_elem = 1 << random_below(state, 4);
            step->fill_bits = next_random(state);
            if (dst_elem < 8)
                step->fill_bits &= ((uint64_t)1 << (8 * dst_elem)) - 1;
        }
        const int64_t tidy = step->kind == LP_KIND_COPY ? random_below(state, 6) : 6;
        if (tidy < 2)
            step->map = random_transpose(state, span, src_span);
        else if (tidy < 3)
            step->map = random_rows(state, span, src_span);
        else
            step->map = random_map(state, step->kind, src_elem, dst_elem, span, src_span);
        if (step->map != NULL)
            return;
    }
}

static int64_t make_plan(plan *p, uint64_t *state)
{
    const bool is_aligned = random_below(state, 2) == 0; /* only then a push of all items is one for the device */
    int64_t at = random_below(state, 64), source = 0;
    for (int i = 0; i < ITEMS; i++) {
        int64_t needs = 0;
        p->steps[i] = (int)random_below(state, STEPS + 1);
        for (int s = 0; s < p->steps[i]; s++) {
            int64_t span, src_span;
            lp_step *step = &p->step[i][s];
            random_step(state, step, &span, &src_span);
            step->src_off = random_below(state, 4) == 0 ? random_below(state, 40) : 0;
            step->dst_off = random_below(state, 4) == 0 ? random_below(state, 40) : 0;
            if (step->kind == LP_KIND_FILL)
                step->src_off = 0;
            const int64_t start = random_below(state, 2) == 0 ? (at + 15) / 16 * 16 : at;
            if (start + step->dst_off + span > ARENA_BYTES || source + step->src_off + src_span + 64 > SOURCE_BYTES) {
                lp_map_free(step->map, NULL);
                p->steps[i] = s;
                break;
            }
            p->dst[i][s] = start;
            at = start + step->dst_off + span + random_below(state, 24);
            if (step->src_off + src_span > needs)
                needs = step->src_off + src_span;
        }
        source += is_aligned || random_below(state, 2) == 0 ? (16 - source % 16) % 16 : random_below(state, 16);
        p->base[i] = source;
        source += needs;
        if (source > SOURCE_BYTES - (1 << 20))
            source = random_below(state, 1 << 12) * 16;
    }
    return at;
}

typedef struct walk {
    const lp_step *step;
    const uint8_t *src;
    uint8_t *dst;
} walk;

static int reference_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const walk *w = context;
    const lp_step *s = w->step;
    uint8_t *to = w->dst + s->dst_off + dst_off;
    const uint8_t *from = w->src + s->src_off + src_off;
    if (s->kind == LP_KIND_CAST)
        return lp_cast_elements(s->src_dtype, from, s->dst_dtype, to, count) != LP_OK;
    if (s->kind == LP_KIND_FILL) {
        for (int64_t i = 0; i < count * s->map->dst_elem; i++)
            to[i] = (uint8_t)(s->fill_bits >> (8 * (i % s->map->dst_elem)));
        return 0;
    }
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
    return 0;
}

int main(int argc, char **argv)
{
    const long plans = argc > 1 ? strtol(argv[1], NULL, 10) : 4096;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    need_gpu();
    uint8_t *source = malloc(SOURCE_BYTES), *wanted = malloc(ARENA_BYTES), *seen = malloc(ARENA_BYTES);
    char *device_source, *arena;
    CHECK(source != NULL && wanted != NULL && seen != NULL, "out of memory");
    CUDA(cudaMalloc((void **)&device_source, SOURCE_BYTES));
    CUDA(cudaMalloc((void **)&arena, ARENA_BYTES));
    uint64_t state = seed;
    for (int64_t i = 0; i < SOURCE_BYTES; i += 8) {
        const uint64_t word = next_random(&state);
        memcpy(source + i, &word, 8);
    }
    CUDA(cudaMemcpy(device_source, source, SOURCE_BYTES, cudaMemcpyHostToDevice));
    static plan p;
    long done = 0, moves[5] = {0}, tiles[3] = {0};
    for (uint64_t round = 0; done < plans; round++) {
        uint64_t plan_seed = seed * 1000003 + round, s = plan_seed;
        lp_error err;
        const int64_t used = make_plan(&p, &s);
        lp_device_program *program;
        if (lp_device_program_new(&program, ITEMS, lp_alloc_default(), &err) != LP_OK)
            fail(plan_seed, "program", &err);
        for (uint32_t i = 0; i < ITEMS; i++)
            for (int k = 0; k < p.steps[i]; k++)
                if (lp_device_program_add(program, i, &p.step[i][k], (uint64_t)(uintptr_t)(arena + p.dst[i][k]),
                                          &err) != LP_OK)
                    fail(plan_seed, "step", &err);
        if (lp_device_program_end(program, &err) != LP_OK)
            fail(plan_seed, "end", &err);
        for (int64_t i = 0; i < program->desc_count; i++)
            moves[program->desc[i].move]++;
        tiles[0] += program->rows.count;
        tiles[1] += program->words.count;
        tiles[2] += program->others.count;

        /* One push of some items, one of the others; or all at once. */
        memset(wanted, POISON, ARENA_BYTES);
        CUDA(cudaMemset(arena, POISON, (size_t)used));
        lp_device_exec *exec;
        lp_device_push *push;
        CUDA(lp_device_exec_open(&exec, program));
        CUDA(lp_device_push_open(&push, exec, ITEMS));
        for (uint64_t half = 0; half < 2; half++) {
            uint32_t item[ITEMS], count = 0;
            const void *base[ITEMS];
            for (uint32_t i = 0; i < ITEMS; i++)
                if (round % 4 == 0 ? half == 0 : (plan_seed >> (i % 13) & 1) == half) {
                    item[count] = i;
                    base[count++] = device_source + p.base[i];
                }
            CUDA(lp_device_push_set(push, item, base, count, NULL));
            CUDA(lp_device_push_run(push, NULL));
        }
        for (int i = 0; i < ITEMS; i++)
            for (int k = 0; k < p.steps[i]; k++) {
                walk w = {&p.step[i][k], source + p.base[i], wanted + p.dst[i][k]};
                CHECK(lp_map_walk(w.step->map, reference_run, &w) == 0, "the reference cannot cast");
                lp_map_free(p.step[i][k].map, NULL);
                done++;
            }
        CUDA(cudaMemcpy(seen, arena, (size_t)used, cudaMemcpyDeviceToHost));
        for (int64_t i = 0; i < used; i++)
            CHECK(seen[i] == wanted[i], "plan seed %llu: byte %lld is %02x, should be %02x",
                  (unsigned long long)plan_seed, (long long)i, seen[i], wanted[i]);
        lp_device_push_close(push);
        lp_device_exec_close(exec);
        lp_device_program_free(program);
    }
    printf(
        "%ld plans: %ld runs, %ld transposes, %ld casts, %ld fills; tiles: %ld rows, %ld words, %ld others: equal to "
        "the reference\n",
        done, moves[LP_MOVE_RUNS], moves[LP_MOVE_WORDS], moves[LP_MOVE_CAST], moves[LP_MOVE_FILL], tiles[0], tiles[1],
        tiles[2]);
    for (int m = LP_MOVE_RUNS; m <= LP_MOVE_FILL; m++)
        CHECK(moves[m] > 0, "no plan took way %d", m);
    for (int t = 0; t < 3; t++)
        CHECK(tiles[t] > 0, "no plan took kernel %d", t);
    free(source);
    free(wanted);
    free(seen);
    CUDA(cudaFree(device_source));
    CUDA(cudaFree(arena));
    return 0;
}
