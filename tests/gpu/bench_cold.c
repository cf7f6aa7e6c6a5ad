/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts into device memory against the link, or against the disk.
 *
 *   bench_cold TRACE CHECKPOINT... [--rank N] [--readers N] [--pinned BYTES] [--staging BYTES] [--starts N]
 *              [--no-queue] [--calls] [--timeline] [--sums]
 *              [--disk [--depth N]]
 *
 * The first start begins with an existing context and holds everything: opening trace and checkpoint, destinations,
 * binding, pinned memory, program, reading. Later ones keep destinations, plan and ring, as a process does that loads
 * several ranks. The ceiling is a pinned buffer copied as often as gives the bytes of the load, in this run. Files are
 * read as they are found: read them once before, or keep them in tmpfs.
 *
 * --disk empties the page cache before every read of the files, and takes turns with bare direct reads of the same
 * ranges, by as many threads with --depth reads under way for each (0: one pread after another; default: as many as a
 * load has). Who comes first changes from start to start. With several checkpoints, copies of one another, start i
 * loads number 2 i and reads number 2 i + 1, from the beginning again where there are fewer: what the host of a virtual
 * disk keeps of one is of no use to the other. Needs root.
 * --no-queue: direct reads one after another for each thread. --calls: what calls of the device took in each start.
 * --timeline: when the link had nothing to do, and what else kept each start from its speed (cold_timeline.h).
 * --sums prints what tests/bench/cold_peers.py compares with.
 */
#include "cold_calls.h"
#include "cold_timeline.h"

#include <errno.h>
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
    put_device(device, host, (size_t)buffer);
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
    int32_t rank, readers, starts, depth;
    int64_t pinned, staging;
    bool is_disk, sums, no_queue, calls, timeline;
    char **checkpoint;
    int32_t checkpoints;
} settings;

static settings parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"rank", 1, NULL, 'r'},  {"readers", 1, NULL, 'j'}, {"pinned", 1, NULL, 'p'},   {"starts", 1, NULL, 'n'},
        {"disk", 0, NULL, 'd'},  {"sums", 0, NULL, 's'},    {"no-queue", 0, NULL, 'q'}, {"calls", 0, NULL, 'c'},
        {"depth", 1, NULL, 'e'}, {"staging", 1, NULL, 'g'}, {"timeline", 0, NULL, 't'}, {NULL, 0, NULL, 0}};
    settings s = {.starts = 5, .depth = LP_COLD_UNDER_WAY / 16};
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
        case 'q':
            s.no_queue = true;
            break;
        case 'c':
            s.calls = true;
            break;
        case 't':
            s.timeline = true;
            break;
        case 'g':
            s.staging = atoll(optarg);
            break;
        case 'e':
            s.depth = atoi(optarg);
            break;
        default:
            exit(2);
        }
    s.checkpoint = argv + optind + 1;
    s.checkpoints = argc - optind - 1;
    if (s.checkpoints < 1 || s.checkpoints > STARTS_MOST || s.starts < 1 || s.starts > STARTS_MOST || s.depth < 0 ||
        s.depth > BARE_MOST) {
        fputs("usage: bench_cold TRACE CHECKPOINT... [--rank N] [--readers N] [--pinned BYTES] [--staging BYTES] "
              "[--starts N] "
              "[--no-queue] [--calls] [--timeline] [--sums] [--disk [--depth N]]\n",
              stderr);
        exit(2);
    }
    return s;
}

/* ---- starts ---- */

static int no_queue(void *context, int32_t depth, void **queue)
{
    (void)context;
    (void)depth;
    *queue = NULL;
    return -ENOSYS;
}

static double start(cold_run *run, const settings *s, const lp_checkpoint *checkpoint, lp_cold_report *report)
{
    static const lp_read_queue none = {.open = no_queue};
    const lp_cold_options o = {.ring = run->ring,
                               .readers = s->readers,
                               .pinned = s->pinned,
                               .staging = s->staging,
                               .queue = s->no_queue ? &none : NULL};
    lp_error err;
    if (s->timeline)
        timeline_begin();
    const double begin = now_seconds();
    GOOD(lp_cold_load(&run->device, run->plan, checkpoint, &o, report, &err));
    return now_seconds() - begin;
}

int main(int argc, char **argv)
{
    const settings s = parse(argc, argv);
    cold_run run;
    lp_platform platform = {.io = NULL};
    lp_cold_report report[STARTS_MOST];
    lp_checkpoint *checkpoint[STARTS_MOST];
    double seconds[STARTS_MOST], bare[STARTS_MOST], first;
    need_gpu();
    lp_error err;
    GOOD(lp_cuda_device_open(&run.device, "cuda:0", &err));
    if (s.calls)
        time_calls(&run.device);
    if (s.timeline)
        timeline_open(&run.device, &platform.io);
    if (s.is_disk)
        drop_caches();
    first = cold_run_open(&run, argv[optind], s.checkpoint[0], s.rank, s.pinned, &platform);
    checkpoint[0] = run.checkpoint;
    for (int32_t i = 1; i < s.checkpoints; i++)
        GOOD(lp_checkpoint_open(&checkpoint[i], s.checkpoint[i], &err));
    for (int i = 0; i < s.starts; i++) {
        const lp_checkpoint *loaded = checkpoint[(s.checkpoints > 1 ? 2 * i : 0) % s.checkpoints];
        const lp_checkpoint *read = checkpoint[(s.checkpoints > 1 ? 2 * i + 1 : 0) % s.checkpoints];
        if (s.is_disk && i % 2 == 1) {
            drop_caches();
            bare[i] = cold_run_bare(&run, read, report[0].readers, s.depth);
        }
        if (s.is_disk)
            drop_caches();
        seconds[i] = start(&run, &s, loaded, &report[i]) + (i == 0 ? first : 0);
        if (s.is_disk && i % 2 == 0) {
            drop_caches();
            bare[i] = cold_run_bare(&run, read, report[0].readers, s.depth);
        }
        if (s.calls)
            print_calls(&run, i == 0);
        if (s.timeline)
            timeline_print();
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
            printf(
                "       bare reads of the same ranges, %s: %.3f s; load without set-up at %.3f of them, %.3f with it\n",
                i % 2 == 1 ? "before" : "behind", bare[i],
                bare[i] / (seconds[i] - (i == 0 ? first : 0) - (double)report[i].setup_nanoseconds / 1e9),
                bare[i] / seconds[i]);
    }
    if (s.is_disk)
        printf("bare: %d threads, %d reads under way for each%s; load: %d of %d readers by a queue\n", r->readers,
               s.depth > 0 ? s.depth : 1, s.depth > 0 ? "" : " (pread)", r->queues, r->readers);
    if (s.sums)
        cold_run_sums(&run);
    for (int32_t i = 1; i < s.checkpoints; i++)
        lp_checkpoint_close(checkpoint[i]);
    cold_run_close(&run);
    lp_cuda_device_close(&run.device);
    return 0;
}
