/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When each copy of a cold start was asked for and when it ended: how long the link had nothing to do and where, how
 * fast it was when it had, what waited for a push, and how long reads took. Wraps the tables of the device and of
 * files. One start at a time.
 */
#ifndef COLD_TIMELINE_H
#define COLD_TIMELINE_H

#include "cold_bench.h"
#include "replayer/session.h"

#include <sys/resource.h>

enum { TIMELINE_COPIES = 1 << 13, TIMELINE_READS = 1 << 16, TENTHS = 10 };

typedef struct timeline_copy {
    cudaEvent_t end;
    int64_t asked_ns, bytes;
    bool waits_for_push;
} timeline_copy;

static struct timeline {
    lp_cold_device real;
    lp_io io, real_io;
    pthread_t owner;
    cudaStream_t idle;
    cudaEvent_t base;
    int64_t base_ns, begin_ns, program_ns, fill_ns;
    timeline_copy copy[TIMELINE_COPIES]; /* of chunks; under the pipe's lock of the lane */
    int copies;
    int64_t pending; /* bytes behind the last mark */
    int64_t read_ns[TIMELINE_READS];
    atomic_int reads;
    struct rusage usage;
} timeline;

static inline int timeline_lane_copy(void *context, void *lane, void *device, int64_t device_pitch, const void *host,
                                     int64_t host_pitch, int64_t bytes, int64_t rows)
{
    struct timeline *t = &timeline;
    if (t->copies < TIMELINE_COPIES && t->pending == 0)
        t->copy[t->copies].asked_ns = lp_session_clock();
    t->pending += bytes * rows;
    return t->real.copy(context, lane, device, device_pitch, host, host_pitch, bytes, rows);
}

/* Readers set marks behind the copies of a chunk, the owner others. */
static inline int timeline_mark_set(void *context, void *mark, void *lane)
{
    struct timeline *t = &timeline;
    if (!pthread_equal(pthread_self(), t->owner) && t->copies < TIMELINE_COPIES) {
        t->copy[t->copies].bytes = t->pending;
        CUDA(cudaEventRecord(t->copy[t->copies++].end, (cudaStream_t)lane));
        t->pending = 0;
    }
    return t->real.mark_set(context, mark, lane);
}

static inline int timeline_lane_follow(void *context, void *lane, void *mark)
{
    struct timeline *t = &timeline;
    bool is_past = true;
    if (!pthread_equal(pthread_self(), t->owner) && t->copies < TIMELINE_COPIES) {
        (void)t->real.mark_query(context, mark, &is_past);
        t->copy[t->copies].waits_for_push = !is_past;
    }
    return t->real.lane_follow(context, lane, mark);
}

static inline lp_status timeline_program_open(void *context, void **program, const lp_plan *plan, lp_error *err)
{
    const lp_status status = timeline.real.program_open(context, program, plan, err);
    timeline.program_ns = lp_session_clock();
    return status;
}

static inline lp_status timeline_program_fill(void *context, void *program, void *lane, lp_error *err)
{
    timeline.fill_ns = lp_session_clock();
    return timeline.real.program_fill(context, program, lane, err);
}

static inline int64_t timeline_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    struct timeline *t = &timeline;
    const int64_t begin = lp_session_clock();
    const int64_t got = t->real_io.pread(context, fd, buffer, bytes, off);
    const int n = atomic_fetch_add(&t->reads, 1);
    if (n < TIMELINE_READS)
        t->read_ns[n] = lp_session_clock() - begin;
    return got;
}

/* Before the plan is bound, by the thread that loads. *io is to be the plan's. */
static inline void timeline_open(lp_cold_device *device, const lp_io **io)
{
    struct timeline *t = &timeline;
    t->real = *device;
    device->copy = timeline_lane_copy;
    device->mark_set = timeline_mark_set;
    device->lane_follow = timeline_lane_follow;
    device->program_open = timeline_program_open;
    device->program_fill = timeline_program_fill;
    t->real_io = *lp_io_default();
    t->io = t->real_io;
    t->io.pread = timeline_pread;
    *io = &t->io;
    t->owner = pthread_self();
    CUDA(cudaStreamCreateWithFlags(&t->idle, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&t->base));
    for (int i = 0; i < TIMELINE_COPIES; i++)
        CUDA(cudaEventCreate(&t->copy[i].end));
}

static inline void timeline_begin(void)
{
    struct timeline *t = &timeline;
    t->base_ns = lp_session_clock();
    CUDA(cudaEventRecord(t->base, t->idle));
    CUDA(cudaEventSynchronize(t->base));
    t->copies = 0;
    t->pending = 0;
    for (int i = 0; i < TIMELINE_COPIES; i++)
        t->copy[i].waits_for_push = false;
    atomic_store(&t->reads, 0);
    (void)getrusage(RUSAGE_SELF, &t->usage);
    t->begin_ns = lp_session_clock();
}

static inline int timeline_by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline double timeline_cpu(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e3 +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-3;
}

static inline void timeline_print_reads(void)
{
    struct timeline *t = &timeline;
    struct rusage now;
    (void)getrusage(RUSAGE_SELF, &now);
    const int reads = atomic_load(&t->reads) < TIMELINE_READS ? atomic_load(&t->reads) : TIMELINE_READS;
    int64_t all = 0;
    int slow = 0;
    if (reads == 0)
        return;
    qsort(t->read_ns, (size_t)reads, sizeof t->read_ns[0], timeline_by_value);
    for (int i = 0; i < reads; i++) {
        all += t->read_ns[i];
        slow += t->read_ns[i] > 2000000;
    }
    printf("  %d reads, %.0f ms in all, median %.2f, p99 %.2f, longest %.2f ms, %d above 2 ms; processors %.0f ms, "
           "%ld waits, %ld times taken away\n",
           reads, (double)all / 1e6, (double)t->read_ns[reads / 2] / 1e6, (double)t->read_ns[reads * 99 / 100] / 1e6,
           (double)t->read_ns[reads - 1] / 1e6, slow, timeline_cpu(&now) - timeline_cpu(&t->usage),
           now.ru_nvcsw - t->usage.ru_nvcsw, now.ru_nivcsw - t->usage.ru_nivcsw);
}

/* Behind a start. */
static inline void timeline_print(void)
{
    const struct timeline *t = &timeline;
    const int64_t end_ns = lp_session_clock();
    double before = (double)t->begin_ns, idle = 0, longest = 0, longest_at = 0, first_idle = 0, busy = 0, ended = 0;
    double tenth_busy[TENTHS] = {0}, tenth_idle[TENTHS] = {0}, tenth_bytes[TENTHS] = {0};
    int gaps = 0, waits = 0;
    int64_t bytes = 0;
    for (int i = 0; i < t->copies; i++) {
        const timeline_copy *c = &t->copy[i];
        float ms = 0;
        CUDA(cudaEventElapsedTime(&ms, t->base, c->end));
        const double end = (double)t->base_ns + (double)ms * 1e6, asked = (double)c->asked_ns;
        const double gap = asked > before && i > 0 ? asked - before : 0;
        const double from = i == 0 || asked > before ? asked : before;
        int tenth = (int)((end - (double)t->begin_ns) / (double)(end_ns - t->begin_ns) * TENTHS);
        tenth = tenth < 0 ? 0 : tenth < TENTHS ? tenth : TENTHS - 1;
        gaps += gap > 20e3;
        waits += c->waits_for_push;
        idle += gap;
        busy += end - from;
        bytes += c->bytes;
        tenth_busy[tenth] += end - from;
        tenth_idle[tenth] += gap;
        tenth_bytes[tenth] += (double)c->bytes;
        if (bytes < 256 << 20)
            first_idle += gap;
        if (gap > longest) {
            longest = gap;
            longest_at = asked - (double)t->begin_ns;
        }
        before = ended = end;
    }
    printf(
        "  first copy at %.2f ms; %d chunks; link idle %.2f ms (%.2f in the first 256 MiB) in %d gaps, longest %.2f at "
        "%.1f; busy at %.2f GB/s; %d behind a push; %.2f ms behind the last; program at %.1f, asked for at %.1f\n",
        t->copies > 0 ? (double)(t->copy[0].asked_ns - t->begin_ns) / 1e6 : 0, t->copies, idle / 1e6, first_idle / 1e6,
        gaps, longest / 1e6, longest_at / 1e6, (double)bytes / busy, waits, ((double)end_ns - ended) / 1e6,
        (double)(t->program_ns - t->begin_ns) / 1e6, (double)(t->fill_ns - t->begin_ns) / 1e6);
    printf("  tenths, GB/s while busy (idle ms):");
    for (int i = 0; i < TENTHS; i++)
        printf(" %.1f (%.1f)", tenth_busy[i] > 0 ? tenth_bytes[i] / tenth_busy[i] : 0, tenth_idle[i] / 1e6);
    printf("\n");
    timeline_print_reads();
}

#endif
