/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts into device memory against the link, or against the disk.
 *
 *   bench_cold TRACE CHECKPOINT [--rank N] [--readers N] [--pinned BYTES] [--starts N] [--disk] [--sums]
 *
 * The first start begins with an existing context and holds everything: opening trace and checkpoint, destinations,
 * binding, pinned memory, program, reading. Later ones keep destinations, plan and ring, as a process does that loads
 * several ranks. The ceiling is a pinned buffer copied as often as gives the bytes of the load, in this run. Files are
 * read as they are found: read them once before, or keep them in tmpfs.
 *
 * --disk empties the page cache before each start, and takes turns with bare direct reads of the same ranges in the
 * same chunks by as many threads. Needs root. --sums prints what tests/bench/cold_peers.py compares with.
 */
#include "cold_bench.h"

#include <getopt.h>

static void drop_caches(void)
{
    sync();
    FILE *f = fopen("/proc/sys/vm/drop_caches", "w");
    if (f == NULL || fputs("3\n", f) < 0 || fclose(f) != 0) {
        fputs("cannot empty the page cache\n", stderr);
        exit(1);
    }
}

/* As many bytes as the load moves, from a pinned buffer of 256 MiB, the queue never empty. */
static double link_rate(int64_t bytes)
{
    const int64_t buffer = 256 << 20, rounds = bytes / buffer > 0 ? bytes / buffer : 1;
    void *host = aligned_alloc(4096, (size_t)buffer), *device;
    CHECK(host != NULL, "out of memory");
    memset(host, 1, (size_t)buffer);
    CUDA(cudaHostRegister(host, (size_t)buffer, cudaHostRegisterDefault));
    CUDA(cudaMalloc(&device, (size_t)buffer));
    CUDA(cudaMemcpy(device, host, (size_t)buffer, cudaMemcpyHostToDevice));
    const double begin = now_seconds();
    for (int64_t i = 0; i < rounds; i++)
        CUDA(cudaMemcpyAsync(device, host, (size_t)buffer, cudaMemcpyHostToDevice, NULL));
    CUDA(cudaDeviceSynchronize());
    const double rate = (double)(rounds * buffer) / (now_seconds() - begin) / 1e9;
    CUDA(cudaFree(device));
    CUDA(cudaHostUnregister(host));
    free(host);
    return rate;
}

static void print(const char *what, double seconds, const lp_cold_report *r, double ceiling)
{
    const double rate = (double)r->bytes_needed / seconds / 1e9;
    const double moving =
        (double)r->bytes_needed / (double)(r->nanoseconds - r->setup_nanoseconds - r->derive_nanoseconds);
    printf("%-6s %7.3f s %6.2f GB/s %.3f | set-up %5.1f ms (plan %4.1f), derives %5.1f ms, between %6.2f GB/s %.3f | "
           "read %.4f of needed, %lld of %lld files directly\n",
           what, seconds, rate, rate / ceiling, (double)r->setup_nanoseconds / 1e6, (double)r->plan_nanoseconds / 1e6,
           (double)r->derive_nanoseconds / 1e6, moving, moving / ceiling,
           (double)r->bytes_read / (double)r->bytes_needed, (long long)r->files_direct, (long long)r->files);
}

typedef struct settings {
    int32_t rank, readers, starts;
    int64_t pinned;
    bool is_disk, sums;
} settings;

static settings parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"rank", 1, NULL, 'r'}, {"readers", 1, NULL, 'j'}, {"pinned", 1, NULL, 'p'}, {"starts", 1, NULL, 'n'},
        {"disk", 0, NULL, 'd'}, {"sums", 0, NULL, 's'},    {NULL, 0, NULL, 0}};
    settings s = {.starts = 5};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'r':
            s.rank = atoi(optarg);
            break;
        case 'j':
            s.readers = atoi(optarg);
            break;
        case 'p':
            s.pinned = atoll(optarg);
            break;
        case 'n':
            s.starts = atoi(optarg);
            break;
        case 'd':
            s.is_disk = true;
            break;
        case 's':
            s.sums = true;
            break;
        default:
            exit(2);
        }
    if (argc - optind != 2 || s.starts < 1 || s.starts > STARTS_MOST) {
        fputs("usage: bench_cold TRACE CHECKPOINT [--rank N] [--readers N] [--pinned BYTES] [--starts N] [--disk] "
              "[--sums]\n",
              stderr);
        exit(2);
    }
    return s;
}

int main(int argc, char **argv)
{
    const settings s = parse(argc, argv);
    cold_run run;
    lp_cold_report report[STARTS_MOST];
    double seconds[STARTS_MOST], raw[STARTS_MOST], first = 0;
    need_gpu();
    lp_error err;
    GOOD(lp_cuda_device_open(&run.device, "cuda:0", &err));
    for (int i = 0; i < s.starts; i++) {
        if (s.is_disk)
            drop_caches();
        const double begin = now_seconds();
        if (i == 0)
            first = cold_run_open(&run, argv[optind], argv[optind + 1], s.rank);
        const lp_cold_options o = {.ring = run.ring, .readers = s.readers, .pinned = s.pinned};
        GOOD(lp_cold_load(&run.device, run.plan, run.checkpoint, &o, &report[i], &err));
        seconds[i] = now_seconds() - begin;
        if (s.is_disk) {
            drop_caches();
            raw[i] = cold_run_raw(&run, report[i].readers);
        }
    }
    const lp_cold_report *r = &report[0];
    const double link = link_rate(r->bytes_needed);
    printf("rank %d: %.3f GB needed in %lld reads of %lld files, %.3f GB written, %lld names in %lld batches\n", s.rank,
           (double)r->bytes_needed / 1e9, (long long)r->reads, (long long)r->files, (double)r->bytes_written / 1e9,
           (long long)r->names, (long long)r->batches);
    printf("%d readers, %lld MiB pinned, %lld MiB of device memory; link %.2f GB/s; opening, taking, binding %.1f ms; "
           "ring's own link %.2f GB/s\n",
           r->readers, (long long)(r->pinned_bytes >> 20), (long long)(r->device_bytes >> 20), link, first * 1e3,
           lp_cold_ring_link_rate(run.ring) / 1e9);
    for (int i = 0; i < s.starts; i++) {
        print(i == 0 ? "first" : "again", seconds[i], &report[i], link);
        if (s.is_disk)
            printf("       bare reads of the same ranges %.3f s: load at %.3f of them\n", raw[i], raw[i] / seconds[i]);
    }
    if (s.sums)
        cold_run_sums(&run);
    cold_run_close(&run);
    lp_cuda_device_close(&run.device);
    return 0;
}
