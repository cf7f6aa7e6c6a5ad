/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct reload through the public interface, from a trace: sessions by resolved handles, by names, name by name, and
 * as a captured graph; sources are tensors of random bytes in device memory. The ceiling is one cudaMemcpy of as many
 * bytes, device to device, in the same run.
 *
 *   bench_session [--json] TRACE...
 *
 * Columns: push = host time of the pushes, load = begin to finish as a caller sees it, both medians of RUNS sessions;
 * GPU = time between events around the pushes.
 */
#include "gpu_check.h"
#include "replayer/replayer.h"

#include <string.h>
#include <time.h>

enum { RUNS = 9, ALIGN = 256 };

typedef enum way { BY_HANDLE, BY_NAME, ONE_BY_ONE, GRAPH } way;

static bool is_json;

typedef struct bench {
    lp_plan *plan;
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *source;
    int64_t bytes;
    lp_handle *handle;
    const char **name;
    const void **data;
    int64_t *size, count;
    cudaGraphExec_t graph;
} bench;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x)
{
    qsort(x, RUNS, sizeof *x, by_value);
    return x[RUNS / 2];
}

static void must(lp_status status, const lp_error *err)
{
    CHECK(status == LP_OK, "%s (%s)", err->text, err->hint);
}

static void push(bench *b, lp_session *s, way how, lp_error *err)
{
    if (how == BY_NAME)
        for (int64_t i = 0; i < b->count; i++)
            b->handle[i] = lp_plan_handle(b->plan, b->name[i]);
    if (how != ONE_BY_ONE) {
        must(lp_push_many(s, b->handle, b->data, b->count, err), err);
        return;
    }
    for (int64_t i = 0; i < b->count; i++)
        must(lp_push_range(s, b->name[i], 0, b->data[i], b->size[i], err), err);
}

static void capture(bench *b)
{
    lp_session *s;
    lp_error err;
    cudaGraph_t graph;
    const lp_session_options o = {.mode = LP_DIRECT, .stream = b->stream, .sources = LP_SOURCE_DEVICE};
    must(lp_begin(&s, b->plan, &o, &err), &err);
    CUDA(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    push(b, s, BY_HANDLE, &err);
    CUDA(cudaStreamEndCapture(b->stream, &graph));
    CUDA(cudaGraphInstantiate(&b->graph, graph, 0));
    CUDA(cudaGraphLaunch(b->graph, b->stream));
    must(lp_finish(s, NULL, &err), &err);
    lp_session_close(s);
    CUDA(cudaGraphDestroy(graph));
}

static void run(bench *b, way how, lp_source_memory sources, double *push_ms, double *load_ms, double *gpu_ms,
                int64_t *derives)
{
    lp_session *s = NULL;
    lp_error err;
    lp_report report = {0};
    float gpu;
    const lp_session_options o = {.mode = LP_DIRECT, .stream = b->stream, .sources = sources};
    CUDA(cudaDeviceSynchronize());
    const double start = now();
    if (how != GRAPH)
        must(lp_begin(&s, b->plan, &o, &err), &err);
    CUDA(cudaEventRecord(b->from, b->stream));
    const double pushed = now();
    if (how == GRAPH)
        CUDA(cudaGraphLaunch(b->graph, b->stream));
    else
        push(b, s, how, &err);
    *push_ms = now() - pushed;
    CUDA(cudaEventRecord(b->to, b->stream));
    if (how == GRAPH)
        must(lp_plan_checks(b->plan, b->stream, &err), &err);
    else
        must(lp_finish(s, &report, &err), &err);
    *load_ms = now() - start;
    CUDA(cudaEventElapsedTime(&gpu, b->from, b->to));
    *gpu_ms = gpu;
    *derives = report.derives_run;
    lp_session_close(s);
}

static double copy_ms(bench *b)
{
    char *to;
    double t[RUNS];
    float ms;
    CUDA(cudaMalloc((void **)&to, (size_t)b->bytes));
    for (int i = -2; i < RUNS; i++) {
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaEventRecord(b->from, b->stream));
        CUDA(cudaMemcpyAsync(to, b->source, (size_t)b->bytes, cudaMemcpyDeviceToDevice, b->stream));
        CUDA(cudaEventRecord(b->to, b->stream));
        CUDA(cudaEventSynchronize(b->to));
        CUDA(cudaEventElapsedTime(&ms, b->from, b->to));
        if (i >= 0)
            t[i] = ms;
    }
    CUDA(cudaFree(to));
    return median(t);
}

static void measure(bench *b, const char *trace, const char *label, way how, lp_source_memory sources, double ceiling,
                    double bar)
{
    double push_ms[RUNS], load_ms[RUNS], gpu_ms[RUNS];
    int64_t derives = 0;
    for (int i = -2; i < RUNS; i++) {
        const int at = i < 0 ? 0 : i;
        run(b, how, sources, &push_ms[at], &load_ms[at], &gpu_ms[at], &derives);
    }
    const double p = median(push_ms), l = median(load_ms), g = median(gpu_ms);
    if (is_json)
        printf(
            "{\"trace\": \"%s\", \"way\": \"%s\", \"tensors\": %lld, \"bytes\": %lld, \"derives\": %lld, \"push_ms\": "
            "%.3f, "
            "\"load_ms\": %.3f, \"gpu_ms\": %.3f, \"copy_ms\": %.3f, \"gpu_over_copy\": %.3f, \"bar_push_ms\": %.1f}\n",
            trace, label, (long long)b->count, (long long)b->bytes, (long long)derives, p, l, g, ceiling, g / ceiling,
            bar);
    else
        printf("%-12s %-22s %7lld %8.1f %8.3f %8.3f %8.3f %8.3f %6.3f %s\n", trace, label, (long long)b->count,
               (double)b->bytes / (1 << 20), p, l, g, ceiling, g / ceiling,
               bar == 0   ? ""
               : p <= bar ? "ok"
                          : "SLOW");
    fflush(stdout);
}

/* Random bytes; what is small, scales that checks compare, is all alike. */
static void fill(bench *b)
{
    enum { BLOCK = 1 << 22, SMALL = 4096 };
    uint64_t *block = malloc(BLOCK), x = 1;
    for (size_t i = 0; i < BLOCK / sizeof *block; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        block[i] = x ^ x >> 29;
    }
    fill_device(b->source, 0x35, (size_t)b->bytes);
    for (int64_t i = 0; i < b->count; i++)
        for (int64_t at = 0; b->size[i] >= SMALL && at < b->size[i]; at += BLOCK) {
            const int64_t left = b->size[i] - at;
            CUDA(cudaMemcpyAsync(b->source + ((const char *)b->data[i] - b->source) + at, block,
                                 (size_t)(left < BLOCK ? left : BLOCK), cudaMemcpyHostToDevice, b->stream));
        }
    CUDA(cudaDeviceSynchronize());
    free(block);
}

static void list_sources(bench *b, const lp_checkpoint *catalogue)
{
    int64_t most = 0, at = 0;
    for (lp_handle h = 0; lp_plan_name(b->plan, h) != NULL; h++)
        most++;
    b->handle = calloc((size_t)most, sizeof *b->handle);
    b->name = calloc((size_t)most, sizeof *b->name);
    b->data = calloc((size_t)most, sizeof *b->data);
    b->size = calloc((size_t)most, sizeof *b->size);
    int64_t *off = calloc((size_t)most, sizeof *off);
    for (lp_handle h = 0; h < most; h++) {
        if (lp_plan_use(b->plan, h) != LP_USE_LOADED)
            continue;
        b->handle[b->count] = h;
        b->name[b->count] = lp_plan_name(b->plan, h);
        off[b->count++] = at;
        b->size[b->count - 1] = lp_checkpoint_at(catalogue, h)->bytes;
        at += b->size[b->count - 1];
        b->bytes = at;
        at = (at + ALIGN - 1) / ALIGN * ALIGN;
    }
    CUDA(cudaMalloc((void **)&b->source, (size_t)at));
    for (int64_t i = 0; i < b->count; i++)
        b->data[i] = b->source + off[i];
    free(off);
    fill(b);
}

static void bench_trace(const char *path)
{
    lp_error err;
    lp_trace *trace;
    lp_destinations *memory;
    int64_t count;
    bench b = {0};
    const char *slash = strrchr(path, '/'), *label = slash == NULL ? path : slash + 1;
    must(lp_trace_open(&trace, path, &err), &err);
    const lp_scope *scope = lp_trace_scope_at(trace, 0);
    must(lp_destinations_allocate_on(&memory, trace, scope, "cuda:0", NULL, &err), &err);
    const lp_destination_memory *list = lp_destinations_list(memory, &count);
    const lp_bind_options o = {.device = "cuda:0", .threads = 1, .captures = true};
    double start = now();
    must(lp_bind(&b.plan, trace, scope, list, count, &o, &err), &err);
    fprintf(stderr, "# %s: bound in %.0f ms, %.1f MiB of device memory taken\n", label, now() - start,
            (double)lp_plan_device_bytes(b.plan) / (1 << 20));
    CUDA(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&b.from));
    CUDA(cudaEventCreate(&b.to));
    list_sources(&b, lp_trace_checkpoint(trace));
    const double ceiling = copy_ms(&b);
    measure(&b, label, "handles", BY_HANDLE, LP_SOURCE_DEVICE, ceiling, 5);
    measure(&b, label, "handles, pointers asked", BY_HANDLE, LP_SOURCE_ASK, ceiling, 0);
    measure(&b, label, "names", BY_NAME, LP_SOURCE_DEVICE, ceiling, 25);
    if (b.count < 5000) /* a launch or more for each: seconds where there are tens of thousands */
        measure(&b, label, "one push a tensor", ONE_BY_ONE, LP_SOURCE_DEVICE, ceiling, 0);
    capture(&b);
    measure(&b, label, "graph", GRAPH, LP_SOURCE_DEVICE, ceiling, 0);
    CUDA(cudaGraphExecDestroy(b.graph));
    CUDA(cudaEventDestroy(b.from));
    CUDA(cudaEventDestroy(b.to));
    CUDA(cudaStreamDestroy(b.stream));
    CUDA(cudaFree(b.source));
    free(b.handle);
    free(b.name);
    free(b.data);
    free(b.size);
    lp_plan_close(b.plan);
    lp_destinations_free(memory);
    lp_trace_close(trace);
}

int main(int argc, char **argv)
{
    need_gpu();
    is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (!is_json)
        printf("%-12s %-22s %7s %8s %8s %8s %8s %8s %6s\n", "trace", "pushes", "tensors", "MiB", "push ms", "load ms",
               "GPU ms", "copy ms", "ratio");
    for (int i = is_json ? 2 : 1; i < argc; i++)
        bench_trace(argv[i]);
    return 0;
}
