/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct reload of one NVFP4 MegaMoE layer from device memory, one tensor for each checkpoint name, beside cudaMemcpy
 * of the same bytes in the same run; and the host's share of a push of 37,000 tensors. docs/device.md defines the
 * columns, docs/measurements/ keeps what was printed.
 *
 *   bench_device [--json]
 */
#include "gpu_timing.h"
#include "layouts/layout.h"

enum { SETS = 4 }; /* layers that take turns, so that none finds its bytes in the cache */

static bool is_json;

typedef struct layer {
    lp_device_program *program;
    lp_device_exec *exec;
    lp_device_push *push;
    uint32_t items;
    int64_t bytes;
    char *source, *dest;
    const void **base;
    uint32_t *item;
} layer;

enum { WEIGHTS = 1, SCALES = 2, SCALARS = 4 };

static void must(lp_status status, const lp_error *err)
{
    CHECK(status == LP_OK, "%s", err->text);
}

/* Adds one checkpoint tensor: its map into the layout's destination at `dest`. */
static void add(layer *l, const char *id, const lp_layout_sizes *sizes, lp_shard shard, int64_t expert, char *dest,
                int64_t *src_at)
{
    lp_error err;
    const lp_layout *layout = lp_layout_find(id);
    CHECK(layout != NULL, "no layout %s", id);
    lp_view region, source;
    lp_layout_shape shape;
    must(lp_layout_describe(layout, sizes, &shape, &err), &err);
    must(lp_layout_region(layout, sizes, shard, expert, &region, &source, &err), &err);
    const int64_t bytes = lp_view_count(&source) * lp_dtype_bits(source.dtype) / 8;
    lp_step step = {.kind = LP_KIND_COPY, .stage = LP_NONE};
    must(lp_map_copy(&step.map, &region, shape.bytes, &source, bytes, NULL, &err), &err);
    must(lp_device_program_add(l->program, l->items, &step, (uint64_t)(uintptr_t)dest, &err), &err);
    lp_map_free(step.map, NULL);
    l->item[l->items] = l->items;
    l->base[l->items++] = l->source + *src_at;
    *src_at += (bytes + 15) / 16 * 16;
    l->bytes += bytes;
}

static void add_scalar(layer *l, char *dest, int64_t *src_at)
{
    lp_error err;
    const lp_box box = {.run = 4};
    lp_step step = {.kind = LP_KIND_COPY, .stage = LP_NONE};
    must(lp_map_from_boxes(&step.map, 1, 1, 1, &box, NULL, &err), &err);
    must(lp_device_program_add(l->program, l->items, &step, (uint64_t)(uintptr_t)dest, &err), &err);
    lp_map_free(step.map, NULL);
    l->item[l->items] = l->items;
    l->base[l->items++] = l->source + *src_at;
    *src_at += 16;
    l->bytes += 4;
}

static layer make_layer(int64_t experts, int64_t hidden, int64_t intermediate, int parts)
{
    lp_error err;
    const lp_layout_sizes sizes = {experts, hidden, intermediate};
    layer l = {0};
    const int64_t weights = experts * hidden * intermediate * 3 / 2, scales = experts * hidden * intermediate * 3 / 16;
    const int64_t total = weights + scales + 4096 * (experts + 8);
    CUDA(cudaMalloc((void **)&l.source, (size_t)total));
    CUDA(cudaMalloc((void **)&l.dest, (size_t)total));
    fill_random(l.source, total);
    l.base = malloc((size_t)experts * 12 * sizeof *l.base);
    l.item = malloc((size_t)experts * 12 * sizeof *l.item);
    const int kinds = !!(parts & WEIGHTS) + !!(parts & SCALES) + !!(parts & SCALARS);
    must(lp_device_program_new(&l.program, (uint32_t)(experts * 3 * kinds), lp_alloc_default(), &err), &err);
    char *w13 = l.dest, *w2 = w13 + experts * hidden * intermediate, *s13 = w2 + experts * hidden * intermediate / 2;
    char *s2 = s13 + experts * hidden * intermediate / 8, *scalars = s2 + experts * hidden * intermediate / 16;
    int64_t at = 0;
    for (int64_t e = 0; e < experts; e++)
        for (int shard = LP_SHARD_GATE; shard <= LP_SHARD_DOWN; shard++) {
            const bool down = shard == LP_SHARD_DOWN;
            if (parts & WEIGHTS)
                add(&l, down ? "nvfp4_l2_weight" : "nvfp4_l1_weight", &sizes, (lp_shard)shard, e, down ? w2 : w13, &at);
            if (parts & SCALES)
                add(&l, down ? "nvfp4_l2_scale" : "nvfp4_l1_scale", &sizes, (lp_shard)shard, e, down ? s2 : s13, &at);
            if (parts & SCALARS)
                add_scalar(&l, scalars + 4 * (e * 3 + shard), &at);
        }
    must(lp_device_program_end(l.program, &err), &err);
    CUDA(lp_device_exec_open(&l.exec, l.program));
    CUDA(lp_device_push_open(&l.push, l.exec, l.items));
    return l;
}

static void free_layer(layer *l)
{
    lp_device_push_close(l->push);
    lp_device_exec_close(l->exec);
    lp_device_program_free(l->program);
    CUDA(cudaFree(l->source));
    CUDA(cudaFree(l->dest));
    free(l->base);
    free(l->item);
}

/* The layers of one measurement. */
typedef struct turns {
    layer *set;
    int sets;
} turns;

static void run_push(void *context, int round)
{
    const turns *t = context;
    const layer *l = &t->set[round % t->sets];
    CUDA(lp_device_push_set(l->push, l->item, l->base, l->items, NULL));
    CUDA(lp_device_push_run(l->push, NULL));
}

static void run_copy(void *context, int round)
{
    const turns *t = context;
    const layer *l = &t->set[round % t->sets];
    CUDA(cudaMemcpyAsync(l->dest, l->source, (size_t)l->bytes, cudaMemcpyDeviceToDevice, NULL));
}

static timing faster(timing a, timing b)
{
    return a.median < b.median ? a : b;
}

static void print_case(const char *name, const layer *l, timing row, timing row_copy, timing alone, timing alone_copy,
                       double bar)
{
    const double bytes = (double)l->bytes, ratio = row_copy.median / row.median;
    const double ratio_alone = alone_copy.median / alone.median;
    if (is_json)
        printf("{\"case\": \"%s\", \"tensors\": %u, \"bytes\": %lld, \"launches\": %d, \"min_us\": %.2f, "
               "\"median_us\": %.2f, \"gb_per_s\": %.1f, \"ceiling_gb_per_s\": %.1f, \"ratio\": %.4f, "
               "\"alone_median_us\": %.2f, \"alone_ceiling_us\": %.2f, \"alone_ratio\": %.4f, \"bar\": %.2f}\n",
               name, l->items, (long long)l->bytes, lp_device_push_launches(l->push), row.least * 1e6, row.median * 1e6,
               bytes / row.median / 1e9, bytes / row_copy.median / 1e9, ratio, alone.median * 1e6,
               alone_copy.median * 1e6, ratio_alone, bar);
    else
        printf("%-22s %7u %8.1f %3d %8.1f %8.1f %8.1f %8.1f %6.3f | %8.1f %8.1f %6.3f | %5.2f %s\n", name, l->items,
               bytes / (1 << 20), lp_device_push_launches(l->push), row.least * 1e6, row.median * 1e6,
               bytes / row.median / 1e9, bytes / row_copy.median / 1e9, ratio, alone.median * 1e6,
               alone_copy.median * 1e6, ratio_alone, bar, ratio >= bar ? "ok" : "LOW");
}

static void bench(const char *name, int64_t experts, int64_t hidden, int64_t intermediate, int parts, double bar)
{
    layer set[SETS];
    for (int i = 0; i < SETS; i++)
        set[i] = make_layer(experts, hidden, intermediate, parts);
    turns t = {set, SETS};
    const timing copy = measure_row(run_copy, &t), push = measure_row(run_push, &t);
    const timing copy_again = measure_row(run_copy, &t);
    const timing alone_copy = measure_alone(run_copy, &t), alone = measure_alone(run_push, &t);
    print_case(name, set, push, faster(copy, copy_again), alone, alone_copy, bar);
    for (int i = 0; i < SETS; i++)
        free_layer(&set[i]);
}

/* 37,000 tensors of 64 KiB, their sources in reverse order: what the host does for a push, and what the GPU does. */
static void bench_many(void)
{
    enum { COUNT = 37000, BYTES = 65536 };
    lp_error err;
    layer l = {.items = COUNT, .bytes = (int64_t)COUNT * BYTES};
    CUDA(cudaMalloc((void **)&l.source, (size_t)l.bytes));
    CUDA(cudaMalloc((void **)&l.dest, (size_t)l.bytes));
    fill_random(l.source, l.bytes);
    l.base = malloc(COUNT * sizeof *l.base);
    l.item = malloc(COUNT * sizeof *l.item);
    CHECK(l.base != NULL && l.item != NULL, "out of memory");
    must(lp_device_program_new(&l.program, COUNT, lp_alloc_default(), &err), &err);
    const lp_box box = {.run = BYTES};
    lp_step step = {.kind = LP_KIND_COPY, .stage = LP_NONE};
    must(lp_map_from_boxes(&step.map, 1, 1, 1, &box, NULL, &err), &err);
    for (uint32_t i = 0; i < COUNT; i++) {
        must(lp_device_program_add(l.program, i, &step, (uint64_t)(uintptr_t)(l.dest + (int64_t)i * BYTES), &err),
             &err);
        l.item[i] = i;
        l.base[i] = l.source + (int64_t)(COUNT - 1 - i) * BYTES;
    }
    lp_map_free(step.map, NULL);
    must(lp_device_program_end(l.program, &err), &err);
    CUDA(lp_device_exec_open(&l.exec, l.program));
    CUDA(lp_device_push_open(&l.push, l.exec, l.items));
    turns t = {&l, 1};
    float host[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        CUDA(cudaDeviceSynchronize());
        const double start = now_seconds();
        run_push(&t, 0);
        host[i] = (float)(1e3 * (now_seconds() - start));
    }
    const timing host_time = summary(host);
    const timing copy = measure_row(run_copy, &t), push = measure_row(run_push, &t);
    const timing alone_copy = measure_alone(run_copy, &t), alone = measure_alone(run_push, &t);
    print_case("37,000 tensors", &l, push, copy, alone, alone_copy, 1 / 1.15);
    if (is_json)
        printf("{\"case\": \"37,000 tensors, host\", \"median_ms\": %.4f, \"bar_ms\": 5}\n", host_time.median * 1e3);
    else
        printf("%-22s %7u host time of a push: min %.3f ms, median %.3f ms (bar 5); GPU x %.3f (bar 1.15)\n", "", COUNT,
               host_time.least * 1e3, host_time.median * 1e3, push.median / copy.median);
    free_layer(&l);
}

int main(int argc, char **argv)
{
    is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    need_gpu();
    struct cudaDeviceProp device;
    CUDA(cudaGetDeviceProperties(&device, 0));
    if (!is_json) {
        printf("# %s, %d multiprocessors; %d runs each; ceiling: cudaMemcpy device to device of the same bytes\n",
               device.name, device.multiProcessorCount, REPEATS);
        printf("%-22s %7s %8s %3s %8s %8s %8s %8s %6s | %8s %8s %6s | %5s\n", "case", "tensors", "MiB", "l.", "min us",
               "med us", "GB/s", "ceiling", "ratio", "alone us", "memcpy", "ratio", "bar");
    }
    bench("Flash layer, all", 32, 4096, 2048, WEIGHTS | SCALES | SCALARS, 0.85);
    bench("Flash layer, weights", 32, 4096, 2048, WEIGHTS, 0.92);
    bench("Flash layer, scales", 32, 4096, 2048, SCALES, 0.70);
    bench("Pro layer, all", 48, 7168, 3072, WEIGHTS | SCALES | SCALARS, 0.85);
    bench("Pro layer, weights", 48, 7168, 3072, WEIGHTS, 0.92);
    bench("Pro layer, scales", 48, 7168, 3072, SCALES, 0.70);
    bench_many();
    return 0;
}
