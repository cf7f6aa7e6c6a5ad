/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts into device memory against the link:  bench_cold TRACE CHECKPOINT [RANK [READERS]]
 *
 * The first start begins with an existing context and holds everything: destinations, pinned memory, program, reading.
 * Later ones keep the destinations. The ceiling is one pinned buffer of 1 GiB copied again and again in this run
 * afterwards. Files are read as they are found: read them once before, or keep them in tmpfs. Needs a GPU of its own.
 */
#include "gpu_testing.h"
#include "replayer/device_cold.h"

enum { STARTS = 5, CEILING_BYTES = 1 << 30, CEILING_ROUNDS = 12 };

#define GOOD(expression)                                                                                               \
    do {                                                                                                               \
        if ((expression) != LP_OK) {                                                                                   \
            fprintf(stderr, "%s: %s (%s)\n", #expression, err.text, err.hint);                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double link_rate(void)
{
    void *host, *device;
    CUDA(cudaMallocHost(&host, CEILING_BYTES));
    memset(host, 1, CEILING_BYTES);
    CUDA(cudaMalloc(&device, CEILING_BYTES));
    double best = 0;
    for (int i = 0; i < CEILING_ROUNDS; i++) {
        const double begin = now_seconds();
        CUDA(cudaMemcpy(device, host, CEILING_BYTES, cudaMemcpyHostToDevice));
        const double rate = CEILING_BYTES / (now_seconds() - begin) / 1e9;
        best = rate > best ? rate : best;
    }
    CUDA(cudaFree(device));
    CUDA(cudaFreeHost(host));
    return best;
}

static void print(const char *what, double seconds, const lp_cold_report *r, double ceiling)
{
    const double rate = (double)r->bytes_read / seconds / 1e9;
    const double moving = (double)r->bytes_read / (double)(r->nanoseconds - r->setup_nanoseconds);
    printf("%-7s %8.3f s %7.2f GB/s %.3f of the link | set-up %.3f s, without it %7.2f GB/s %.3f\n", what, seconds,
           rate, rate / ceiling, (double)r->setup_nanoseconds / 1e9, moving, moving / ceiling);
}

int main(int argc, char **argv)
{
    lp_error err;
    lp_trace *trace;
    lp_checkpoint *checkpoint;
    lp_cold_device d;
    lp_cold_memory memory;
    lp_plan *plan;
    lp_cold_report report[STARTS];
    double seconds[STARTS];
    if (argc < 3) {
        fputs("usage: bench_cold TRACE CHECKPOINT [RANK [READERS]]\n", stderr);
        return 2;
    }
    need_gpu();
    GOOD(lp_trace_open(&trace, argv[1], &err));
    GOOD(lp_checkpoint_open(&checkpoint, argv[2], &err));
    const int32_t rank = argc > 3 ? atoi(argv[3]) : 0;
    const lp_cold_options options = {.readers = argc > 4 ? atoi(argv[4]) : 0};
    const int32_t index = lp_trace_scope_find(trace, rank);
    CHECK(index >= 0, "the trace has no rank %d", rank);
    const lp_scope *scope = lp_trace_scope_at(trace, index);
    GOOD(lp_cuda_device_open(&d, "cuda:0", &err));
    double begin = now_seconds();
    GOOD(lp_cold_memory_take(&memory, &d, trace, scope, NULL, &err));
    GOOD(lp_bind(&plan, trace, scope, memory.list, memory.count, NULL, &err));
    const double bound = now_seconds() - begin;
    for (int i = 0; i < STARTS; i++) {
        begin = i == 0 ? begin : now_seconds();
        GOOD(lp_cold_load(&d, plan, checkpoint, &options, &report[i], &err));
        seconds[i] = now_seconds() - begin;
    }
    const double ceiling = link_rate();
    const lp_cold_report *r = &report[0];
    printf("rank %d: %.2f GB read in %lld reads, %.2f GB written, %lld names in %lld batches, %.2f GB straight\n", rank,
           (double)r->bytes_read / 1e9, (long long)r->reads, (double)r->bytes_written / 1e9, (long long)r->names,
           (long long)r->batches, (double)r->bytes_straight / 1e9);
    printf("%d readers, %lld MiB pinned, %lld MiB of device memory; link %.2f GB/s; taking and binding %.3f s\n",
           r->readers, (long long)(r->pinned_bytes >> 20), (long long)(r->device_bytes >> 20), ceiling, bound);
    for (int i = 0; i < STARTS; i++)
        print(i == 0 ? "first" : "again", seconds[i], &report[i], ceiling);
    lp_plan_close(plan);
    lp_cold_memory_give_back(&memory);
    lp_cuda_device_close(&d);
    lp_checkpoint_close(checkpoint);
    lp_trace_close(trace);
    return 0;
}
