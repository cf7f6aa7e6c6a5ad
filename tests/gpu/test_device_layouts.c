/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every layout on the device: all tensors of a few experts, byte for byte what the CPU writes. Once with sources on
 * multiples of 16, once 8 bytes beside them, and once in two pushes. Bytes that no tensor owns keep their poison.
 */
#include "gpu_testing.h"
#include "layouts/layout.h"

enum { EXPERTS = 3, ITEMS = EXPERTS * 8, POISON = 0x5a };

typedef struct job {
    lp_step step[ITEMS];
    int64_t base[ITEMS]; /* in the source */
    uint32_t items;
    int64_t source_bytes, dest_bytes;
} job;

static void must(lp_status status, const lp_error *err)
{
    CHECK(status == LP_OK, "%s", err->text);
}

static void collect(job *j, const lp_layout *layout, const lp_layout_sizes *sizes)
{
    lp_error err;
    lp_layout_shape shape;
    must(lp_layout_describe(layout, sizes, &shape, &err), &err);
    *j = (job){.dest_bytes = shape.bytes};
    for (int64_t e = 0; e < sizes->experts; e++)
        for (int shard = LP_SHARD_GATE; shard <= LP_SHARD_DOWN; shard++) {
            if (!lp_layout_takes(layout, (lp_shard)shard))
                continue;
            lp_view region, source;
            must(lp_layout_region(layout, sizes, (lp_shard)shard, e, &region, &source, &err), &err);
            const int64_t bytes = lp_view_count(&source) * lp_dtype_bits(source.dtype) / 8;
            lp_step *step = &j->step[j->items];
            *step = (lp_step){.kind = LP_KIND_COPY, .stage = LP_NONE};
            must(lp_map_copy(&step->map, &region, shape.bytes, &source, bytes, NULL, &err), &err);
            j->base[j->items++] = j->source_bytes;
            j->source_bytes += (bytes + 15) / 16 * 16;
        }
}

static void push(lp_device_push *p, const job *j, const char *source, uint32_t first, uint32_t step)
{
    uint32_t item[ITEMS], count = 0;
    const void *base[ITEMS];
    for (uint32_t i = first; i < j->items; i += step) {
        item[count] = i;
        base[count++] = source + j->base[i];
    }
    CUDA(lp_device_push_set(p, item, base, count, NULL));
    CUDA(lp_device_push_run(p, NULL));
}

static void compare(const lp_layout *layout, const char *how, const uint8_t *wanted, const char *dest, int64_t bytes)
{
    uint8_t *seen = malloc((size_t)bytes);
    CHECK(seen != NULL, "out of memory");
    CUDA(cudaMemcpy(seen, dest, (size_t)bytes, cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < bytes; i++)
        CHECK(seen[i] == wanted[i], "%s, %s: byte %lld is %02x, should be %02x", layout->id, how, (long long)i, seen[i],
              wanted[i]);
    free(seen);
    fill_device((void *)(uintptr_t)dest, POISON, (size_t)bytes);
}

static void test_layout(const lp_layout *layout, const lp_layout_sizes *sizes)
{
    lp_error err;
    job j;
    collect(&j, layout, sizes);
    char *source, *dest;
    uint64_t seed = 11;
    uint8_t *host = malloc((size_t)j.source_bytes + 8), *wanted = malloc((size_t)j.dest_bytes);
    CHECK(host != NULL && wanted != NULL, "out of memory");
    for (int64_t i = 0; i < j.source_bytes; i += 8) {
        const uint64_t word = random_next(&seed);
        memcpy(host + i, &word, 8);
    }
    CUDA(cudaMalloc((void **)&source, (size_t)j.source_bytes + 8));
    CUDA(cudaMalloc((void **)&dest, (size_t)j.dest_bytes));
    fill_device(dest, POISON, (size_t)j.dest_bytes);
    memset(wanted, POISON, (size_t)j.dest_bytes);
    for (uint32_t i = 0; i < j.items; i++)
        reference_copy(j.step[i].map, wanted, host + j.base[i]);

    lp_device_program *program;
    lp_device_exec *exec;
    lp_device_push *p;
    must(lp_device_program_new(&program, j.items, lp_alloc_default(), &err), &err);
    for (uint32_t i = 0; i < j.items; i++)
        must(lp_device_program_add(program, i, &j.step[i], (uint64_t)(uintptr_t)dest, &err), &err);
    must(lp_device_program_end(program, &err), &err);
    CUDA(lp_device_exec_open(&exec, program));
    CUDA(lp_device_push_open(&p, exec, j.items));

    put_device(source, host, (size_t)j.source_bytes);
    push(p, &j, source, 0, 1);
    compare(layout, "all at once", wanted, dest, j.dest_bytes);
    push(p, &j, source, 1, 2);
    push(p, &j, source, 0, 2);
    compare(layout, "in two pushes", wanted, dest, j.dest_bytes);
    put_device(source + 8, host, (size_t)j.source_bytes);
    push(p, &j, source + 8, 0, 1);
    compare(layout, "sources beside 16", wanted, dest, j.dest_bytes);
    printf("%-24s %3u tensors, %8lld bytes, tiles: %lld rows, %lld words, %lld others\n", layout->id, j.items,
           (long long)program->bytes, (long long)program->rows.count, (long long)program->words.count,
           (long long)program->others.count);

    for (uint32_t i = 0; i < j.items; i++)
        lp_map_free(j.step[i].map, NULL);
    lp_device_push_close(p);
    lp_device_exec_close(exec);
    lp_device_program_free(program);
    CUDA(cudaFree(source));
    CUDA(cudaFree(dest));
    free(host);
    free(wanted);
}

int main(void)
{
    static const lp_layout_sizes sizes[] = {
        {EXPERTS, 512, 256}, {EXPERTS, 1024, 384}, {EXPERTS, 7168, 512}, {1, 512, 256}, {1, 1024, 512}};
    need_gpu();
    for (int32_t i = 0; i < lp_layout_count(); i++) {
        const lp_layout *layout = lp_layout_at(i);
        int tested = 0;
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) /* those of one expert: shared experts */
            if (lp_layout_check(layout, &sizes[s], NULL) == LP_OK) {
                test_layout(layout, &sizes[s]);
                tested++;
            }
        CHECK(tested > 0, "no size fits %s", layout->id);
    }
    return 0;
}
