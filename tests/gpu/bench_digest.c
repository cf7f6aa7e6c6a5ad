/* SPDX-License-Identifier: Apache-2.0 */
/* The value digest on the device, beside a kernel that only reads the same bytes. docs/device.md has the bar. */
#include "gpu_timing.h"
#include "replayer/device_digest.h"

int read_ceiling(const void *data, size_t bytes, void *out, void *stream);

typedef struct reading {
    lp_digest_job job;
    const char *data;
    uint64_t *sum;
    size_t bytes;
} reading;

static void run_digest(void *context, int round)
{
    const reading *r = context;
    (void)round;
    CUDA(lp_device_value_sum(&r->job, r->data, r->sum, NULL));
}

static void run_read(void *context, int round)
{
    const reading *r = context;
    (void)round;
    CUDA(read_ceiling(r->data, r->bytes, r->sum, NULL));
}

static void bench(const char *name, const lp_form *form, bool is_json)
{
    lp_error err;
    reading r = {.bytes = (size_t)form->bytes};
    char *data;
    CUDA(cudaMalloc((void **)&data, (size_t)form->span));
    CUDA(cudaMalloc((void **)&r.sum, 16));
    fill_random(data, form->span);
    r.data = data;
    CHECK(lp_digest_job_of(&r.job, form, (uint64_t)(uintptr_t)data, &err) == LP_OK, "%s", err.text);
    const timing read = measure_row(run_read, &r), digest = measure_row(run_digest, &r);
    const double rate = (double)r.bytes / digest.median, ceiling = (double)r.bytes / read.median;
    if (is_json)
        printf("{\"case\": \"digest, %s\", \"bytes\": %zu, \"launches\": 1, \"min_us\": %.2f, \"median_us\": %.2f, "
               "\"gb_per_s\": %.1f, \"ceiling_gb_per_s\": %.1f, \"ratio\": %.4f, \"bar\": 0.70}\n",
               name, r.bytes, digest.least * 1e6, digest.median * 1e6, rate / 1e9, ceiling / 1e9, rate / ceiling);
    else
        printf("digest, %-30s %8.1f MiB %8.1f us %8.1f GB/s, read ceiling %8.1f: %.3f (bar 0.70) %s\n", name,
               (double)r.bytes / (1 << 20), digest.median * 1e6, rate / 1e9, ceiling / 1e9, rate / ceiling,
               rate / ceiling >= 0.7 ? "ok" : "LOW");
    CUDA(cudaFree(data));
    CUDA(cudaFree(r.sum));
}

int main(int argc, char **argv)
{
    const bool is_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    need_gpu();
    const lp_form dense = {.unit = 2,
                           .bytes = 2ll << 30,
                           .span = 2ll << 30,
                           .ndim = 2,
                           .shape = {1 << 15, 1 << 15},
                           .stride = {1 << 16, 2}};
    /* The rows of an expert's halves with gaps between them, as narrow() leaves them. */
    const lp_form rows = {.unit = 1,
                          .bytes = 1ll << 30,
                          .span = 2ll << 30,
                          .ndim = 3,
                          .shape = {32, 4096, 8192},
                          .stride = {4096 * 16384, 16384, 1}};
    /* Block scales: words of four scales, the rows of a matrix running fastest. */
    const lp_form scales = {.unit = 4,
                            .bytes = 256ll << 20,
                            .span = 256ll << 20,
                            .ndim = 3,
                            .shape = {64, 16384, 64},
                            .stride = {16384 * 64 * 4, 4, 16384 * 4}};
    bench("dense, 2-byte elements", &dense, is_json);
    bench("rows with gaps", &rows, is_json);
    bench("transposed words", &scales, is_json);
    return 0;
}
