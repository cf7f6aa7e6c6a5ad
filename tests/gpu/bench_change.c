/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a sender finds changes in device memory, and a receiver applies them, beside one read of weights and shadow,
 * and beside what must move: what is read, records, and the sectors of 32 bytes in which something changed, which a
 * sender writes to the shadow and a receiver reads and writes.
 *
 *   bench_change [GIB [WINDOW_MIB [STREAMS]]]
 *
 * Weights of GIB GiB (8), of which 1 % and 10 % of the elements change, here and there or in runs of 4,096.
 */
#include "gpu_timing.h"
#include "replayer/device_change.h"

#include <string.h>

int read_ceiling(const void *data, size_t bytes, void *out, void *stream);

enum { BLOCK = 64 << 20, RUN = 4096, SECTOR = 32 };

typedef struct bench {
    int64_t bytes, window, records;
    uint32_t elem, stretches;
    uint8_t *weights[2], *shadow, *out, *flags;
    lp_change_stretch *list[2];
    lp_change_target *target;
    lp_change_place *place;
    uint64_t *used;
    uint32_t *damage;
    int streams;
    cudaStream_t stream[8];
} bench;

static uint8_t block[2][BLOCK];

static void make_blocks(uint32_t elem, int percent, bool is_clustered)
{
    uint64_t random = 99;
    for (int64_t i = 0; i < BLOCK; i += 8) {
        const uint64_t x = random_next(&random);
        memcpy(&block[0][i], &x, 8);
    }
    memcpy(block[1], block[0], BLOCK);
    const int64_t elements = BLOCK / elem, run = is_clustered ? RUN : 1;
    for (int64_t i = 0; i < elements; i += run)
        if (random_next(&random) % 100 < (uint64_t)percent)
            for (int64_t k = i; k < i + run && k < elements; k++)
                block[1][k * elem] ^= (uint8_t)(1 + random_next(&random) % 255);
}

/* Bytes of sectors that differ. */
static double changed_sectors(const bench *b)
{
    int64_t sectors = 0;
    for (int64_t at = 0; at < BLOCK; at += SECTOR)
        sectors += memcmp(&block[0][at], &block[1][at], SECTOR) != 0;
    return (double)(sectors * SECTOR) / BLOCK * (double)b->bytes;
}

static void fill(uint8_t *to, const uint8_t *from, int64_t bytes)
{
    put_device(to, from, BLOCK);
    for (int64_t at = BLOCK; at < bytes; at += BLOCK)
        CUDA(cudaMemcpy(to + at, to, (size_t)(bytes - at < BLOCK ? bytes - at : BLOCK), cudaMemcpyDeviceToDevice));
}

static void set_up(bench *b)
{
    const int64_t most = LP_CHANGE_STRETCH;
    b->stretches = (uint32_t)(b->bytes / most);
    lp_change_stretch *list = calloc(b->stretches, sizeof *list);
    CHECK(list != NULL, "no memory");
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < b->stretches; i++)
            list[i] = (lp_change_stretch){.from = b->weights[k] + i * most,
                                          .shadow = b->shadow + i * most,
                                          .off = i * most,
                                          .elements = LP_CHANGE_STRETCH / b->elem,
                                          .elem = b->elem,
                                          .targets = 1};
        put_device(b->list[k], list, b->stretches * sizeof *list);
    }
    free(list);
    for (int k = 0; k < 2; k++)
        fill(b->weights[k], block[k], b->bytes);
    fill(b->shadow, block[0], b->bytes);
}

/* Round after round from one weights to the other. All records make one frame. */
static void compare_all(const bench *b, int round, const uint8_t *flags)
{
    const int64_t most = LP_CHANGE_STRETCH;
    const uint32_t step = (uint32_t)(b->window / most);
    CUDA(cudaMemsetAsync(b->used, 0, sizeof *b->used, NULL));
    for (uint32_t first = 0; first < b->stretches; first += step) {
        const uint32_t left = b->stretches - first;
        const lp_change_compare c = {.stretch = b->list[1 - round % 2],
                                     .flags = flags,
                                     .place = b->place,
                                     .first = first,
                                     .used = b->used,
                                     .count = left < step ? left : step,
                                     .out = b->out};
        CUDA(lp_device_change_compare(&c, b->stream[first / step % (uint32_t)b->streams]));
    }
}

static void run_compare(void *context, int round)
{
    const bench *b = context;
    compare_all(b, round, b->flags);
}

/* Nothing is written but the shadow. */
static void run_update(void *context, int round)
{
    compare_all(context, round, NULL);
}

static int64_t bytes_of_records(const bench *b)
{
    uint64_t used;
    CUDA(cudaMemcpy(&used, b->used, sizeof used, cudaMemcpyDeviceToHost));
    return (int64_t)used;
}

static void run_apply(void *context, int round)
{
    const bench *b = context;
    (void)round;
    const lp_change_apply a = {.frame = b->out,
                               .bytes = b->records + 8 * (int64_t)b->stretches + 8,
                               .count = b->stretches,
                               .stretch = b->list[0],
                               .target = b->target,
                               .flags = b->flags,
                               .damage = b->damage};
    CUDA(lp_device_change_apply(&a, NULL));
}

static void run_read(void *context, int round)
{
    const bench *b = context;
    (void)round;
    CUDA(read_ceiling(b->weights[0], (size_t)b->bytes, b->damage, NULL));
    CUDA(read_ceiling(b->shadow, (size_t)b->bytes, b->damage, NULL));
}

static void run_case(bench *b, uint32_t elem, int percent, bool is_clustered)
{
    b->elem = elem;
    make_blocks(elem, percent, is_clustered);
    set_up(b);
    const timing read = measure_row(run_read, b);
    const timing update = measure_row(run_update, b);
    const timing compare = measure_row(run_compare, b);
    const int64_t bytes = b->records = bytes_of_records(b);
    const lp_change_table t = {.place = b->place, .count = b->stretches, .out = b->out + bytes};
    CUDA(lp_device_change_table(&t, NULL));
    const timing apply = measure_row(run_apply, b);
    const double rate = 2 * (double)b->bytes / read.median, sectors = changed_sectors(b);
    const double most_compare = (2 * (double)b->bytes + sectors + (double)bytes) / rate;
    const double most_apply = (2 * sectors + (double)bytes) / rate;
    printf(
        "%s, %2d %%, %-9s: records %7.1f MiB; read %.3f ms; shadow alone %.3f; compare %.3f, %.2f of a read, %.2f of "
        "what must move; apply %.3f, %.2f\n",
        elem == 1 ? "FP8 " : "BF16", percent, is_clustered ? "clustered" : "scattered", (double)bytes / (1 << 20),
        read.median * 1e3, update.median * 1e3, compare.median * 1e3, compare.median / read.median,
        compare.median / most_compare, apply.median * 1e3, apply.median / most_apply);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bench b = {.bytes = (argc > 1 ? strtoll(argv[1], NULL, 10) : 8) << 30,
               .window = (argc > 2 ? strtoll(argv[2], NULL, 10) : 32) << 20,
               .streams = argc > 3 ? atoi(argv[3]) : 4};
    need_gpu();
    const size_t most = (size_t)(b.bytes / LP_CHANGE_STRETCH);
    const uint8_t flags = LP_CHANGE_READ;
    for (int k = 0; k < 2; k++) {
        CUDA(cudaMalloc((void **)&b.weights[k], (size_t)b.bytes));
        CUDA(cudaMalloc((void **)&b.list[k], most * sizeof *b.list[k]));
    }
    CUDA(cudaMalloc((void **)&b.shadow, (size_t)b.bytes));
    CUDA(cudaMalloc((void **)&b.out, (size_t)b.bytes + most * 32));
    CUDA(cudaMalloc((void **)&b.flags, 1));
    put_device(b.flags, &flags, 1);
    CUDA(cudaMalloc((void **)&b.place, most * sizeof *b.place));
    CUDA(cudaMalloc((void **)&b.used, sizeof *b.used));
    CUDA(cudaMalloc((void **)&b.damage, 256));
    CUDA(cudaMalloc((void **)&b.target, sizeof *b.target));
    const lp_change_target target = {.to = b.weights[0], .run = b.bytes};
    put_device(b.target, &target, sizeof target);
    for (int i = 0; i < b.streams; i++)
        CUDA(cudaStreamCreate(&b.stream[i])); /* which the default stream waits for */
    printf("%lld GiB of weights, windows of %lld MiB on %d streams\n", (long long)(b.bytes >> 30),
           (long long)(b.window >> 20), b.streams);
    for (uint32_t elem = 1; elem <= 2; elem++)
        for (int percent = 1; percent <= 10; percent += 9)
            for (int is_clustered = 0; is_clustered < 2; is_clustered++)
                run_case(&b, elem, percent, is_clustered == 1);
    return 0;
}
