/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the processors of this machine bring a cached file to pinned memory, or the link to the pages themselves:
 * what bounds cold starts of several GPUs from the page cache.
 *
 *   bench_page_cache FILE [--link] [--at SECOND] HOW:THREADS:KIB:MIB ...
 *
 * KIB: what a thread takes at a time; MIB: the pinned ring that parts are brought to, one after the other. HOW:
 *
 *   pread       by the system call
 *   copy        of a mapping of the part, made and given up for each; stream: the same around the processor's cache
 *   kept        as copy, but of one mapping of the file, whose pages were met before the clock; keptstream, keptread
 *               (nothing is written): the same
 *   register    the mapping of the part is registered with the driver, read by the link, and given up
 *
 * --link: pinned memory goes to the device meanwhile, as fast as it can. --at: cases begin at that second of the day's
 * clock and the four-second marks behind it, so that several processes begin together.
 */
#include "gpu_check.h"

#include "replayer/exec_fast.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    THREADS_MOST = 64,
    HUGE_PAGE = 2 << 20,
    LINK_COPY = 16 << 20,
    ROUNDS = 3,
    CASE_SECONDS = 4 /* from one case to the next, with --at */
};

typedef struct bench {
    int fd;
    int64_t bytes; /* of the file */
    uint8_t *kept, *ring, *device;
    int64_t ring_bytes, part;
    int threads;
    const struct method *how;
    atomic_llong next;                                  /* part */
    atomic_llong map_ns, register_ns, link_ns, give_ns; /* of all threads */
    atomic_bool is_ending;
} bench;

typedef struct method {
    const char *name;
    void (*bring)(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream);
    bool is_kept, has_stream;
} method;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double processor_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* ---- ways ---- */

static void bring_pread(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream)
{
    (void)stream;
    for (int64_t done = 0; done < bytes;) {
        const ssize_t got = pread(b->fd, to + done, (size_t)(bytes - done), off + done);
        CHECK(got > 0, "pread");
        done += got;
    }
}

static uint8_t *map_part(const bench *b, int64_t off, int64_t bytes, bool meets)
{
    uint8_t *from = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED | (meets ? MAP_POPULATE : 0), b->fd, off);
    CHECK(from != MAP_FAILED, "mmap");
    return from;
}

static void bring_copy(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream)
{
    uint8_t *from = map_part(b, off, bytes, true);
    (void)stream;
    memcpy(to, from, (size_t)bytes);
    munmap(from, (size_t)bytes);
}

static void bring_stream(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream)
{
    uint8_t *from = map_part(b, off, bytes, true);
    (void)stream;
    lp_stream_copy(to, from, (size_t)bytes, from);
    lp_stream_end();
    munmap(from, (size_t)bytes);
}

static void bring_kept(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream)
{
    (void)stream;
    memcpy(to, b->kept + off, (size_t)bytes);
}

static void bring_kept_stream(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream)
{
    (void)stream;
    lp_stream_copy(to, b->kept + off, (size_t)bytes, b->kept + off);
    lp_stream_end();
}

static void bring_kept_read(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream)
{
    const uint64_t *from = (const void *)(b->kept + off);
    uint64_t sum[8] = {0}, all = 0;
    (void)stream;
    for (int64_t i = 0; i < bytes / 8; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] ^= from[i + k];
    for (int k = 0; k < 8; k++)
        all ^= sum[k];
    memcpy(to, &all, sizeof all); /* so that the reading is not left out */
}

static void bring_registered(bench *b, int64_t off, int64_t bytes, uint8_t *to, cudaStream_t stream)
{
    const int64_t begin = now_ns();
    uint8_t *from = map_part(b, off, bytes, false);
    const int64_t mapped = now_ns();
    CUDA(cudaHostRegister(from, (size_t)bytes, cudaHostRegisterReadOnly));
    const int64_t registered = now_ns();
    CUDA(cudaMemcpyAsync(b->device + (to - b->ring), from, (size_t)bytes, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    const int64_t arrived = now_ns();
    CUDA(cudaHostUnregister(from));
    munmap(from, (size_t)bytes);
    atomic_fetch_add(&b->map_ns, mapped - begin);
    atomic_fetch_add(&b->register_ns, registered - mapped);
    atomic_fetch_add(&b->link_ns, arrived - registered);
    atomic_fetch_add(&b->give_ns, now_ns() - arrived);
}

static const method METHODS[] = {
    {"pread", bring_pread, false, false},           {"copy", bring_copy, false, false},
    {"stream", bring_stream, false, false},         {"kept", bring_kept, true, false},
    {"keptstream", bring_kept_stream, true, false}, {"keptread", bring_kept_read, true, false},
    {"register", bring_registered, false, true},
};

/* ---- threads ---- */

static void *bring_parts(void *context)
{
    bench *b = context;
    const int64_t parts = b->bytes / b->part;
    cudaStream_t stream = NULL;
    if (b->how->has_stream)
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int64_t i = atomic_fetch_add(&b->next, 1); i < parts; i = atomic_fetch_add(&b->next, 1))
        b->how->bring(b, i * b->part, b->part, b->ring + i * b->part % b->ring_bytes, stream);
    if (stream != NULL)
        CUDA(cudaStreamDestroy(stream));
    return NULL;
}

/* Bytes that went over the link. */
static void *keep_link_busy(void *context)
{
    bench *b = context;
    static int64_t bytes;
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (bytes = 0; !atomic_load(&b->is_ending); bytes += 4 * (int64_t)LINK_COPY) {
        for (int i = 0; i < 4; i++) {
            const int64_t at = (bytes + i * (int64_t)LINK_COPY) % b->ring_bytes;
            CUDA(cudaMemcpyAsync(b->device + at, b->ring + at, LINK_COPY, cudaMemcpyHostToDevice, stream));
        }
        CUDA(cudaStreamSynchronize(stream));
    }
    CUDA(cudaStreamDestroy(stream));
    return &bytes;
}

/* ---- cases ---- */

static void open_ring(bench *b, int64_t mib)
{
    b->ring_bytes = mib << 20;
    b->ring = aligned_alloc(HUGE_PAGE, (size_t)b->ring_bytes);
    CHECK(b->ring != NULL, "memory");
    (void)madvise(b->ring, (size_t)b->ring_bytes, MADV_HUGEPAGE); /* a wish */
    memset(b->ring, 0, (size_t)b->ring_bytes);
    CUDA(cudaHostRegister(b->ring, (size_t)b->ring_bytes, cudaHostRegisterDefault));
    CUDA(cudaMalloc((void **)&b->device, (size_t)b->ring_bytes));
}

static void close_ring(bench *b)
{
    CUDA(cudaHostUnregister(b->ring));
    CUDA(cudaFree(b->device));
    free(b->ring);
}

static void run_round(bench *b, bool has_link)
{
    pthread_t thread[THREADS_MOST], linker;
    void *linked = NULL;
    atomic_store(&b->next, 0);
    atomic_store(&b->is_ending, false);
    if (has_link)
        CHECK(pthread_create(&linker, NULL, keep_link_busy, b) == 0, "thread");
    const double processor = processor_seconds();
    const int64_t begin = now_ns();
    for (int i = 0; i < b->threads; i++)
        CHECK(pthread_create(&thread[i], NULL, bring_parts, b) == 0, "thread");
    for (int i = 0; i < b->threads; i++)
        pthread_join(thread[i], NULL);
    const double seconds = (double)(now_ns() - begin) * 1e-9, used = processor_seconds() - processor;
    atomic_store(&b->is_ending, true);
    if (has_link)
        pthread_join(linker, &linked);
    printf(" | %6.2f GB/s, %4.1f processors", (double)b->bytes * 1e-9 / seconds, used / seconds);
    if (linked != NULL)
        printf(", link %5.1f", (double)*(int64_t *)linked * 1e-9 / ((double)(now_ns() - begin) * 1e-9));
}

static void run_case(bench *b, const char *text, bool has_link)
{
    char name[16];
    long kib, mib;
    CHECK(sscanf(text, "%15[a-z]:%d:%ld:%ld", name, &b->threads, &kib, &mib) == 4, "%s: HOW:THREADS:KIB:MIB", text);
    b->how = NULL;
    for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++)
        if (strcmp(name, METHODS[i].name) == 0)
            b->how = &METHODS[i];
    b->part = kib << 10;
    CHECK(b->how != NULL && b->threads <= THREADS_MOST && (mib << 20) % b->part == 0, "%s: not understood", text);
    if (b->how->is_kept && b->kept == NULL)
        b->kept = map_part(b, 0, b->bytes, true);
    open_ring(b, mib);
    printf("%-22s", text);
    for (int i = 0; i < ROUNDS; i++)
        run_round(b, has_link);
    const double all = (double)b->bytes * ROUNDS * 1e-9; /* ns over bytes * 1e9: seconds of one thread for a GB */
    if (b->how->has_stream)
        printf(" | ms for a GB: map %.1f, register %.1f, link %.1f, give up %.1f", (double)b->map_ns * 1e-6 / all,
               (double)b->register_ns * 1e-6 / all, (double)b->link_ns * 1e-6 / all, (double)b->give_ns * 1e-6 / all);
    b->map_ns = b->register_ns = b->link_ns = b->give_ns = 0;
    printf("\n");
    fflush(stdout);
    close_ring(b);
}

static void wait_until(time_t second)
{
    const struct timespec at = {.tv_sec = second};
    (void)clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
}

int main(int argc, char **argv)
{
    bench b = {.fd = -1};
    bool has_link = false;
    time_t at = 0;
    struct stat known;
    CHECK(argc > 1, "usage: bench_page_cache FILE [--link] [--at SECOND] HOW:THREADS:KIB:MIB ...");
    need_gpu();
    b.fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    CHECK(b.fd >= 0 && fstat(b.fd, &known) == 0, "%s: cannot be opened", argv[1]);
    b.bytes = known.st_size;
    CUDA(cudaFree(NULL));
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--link") == 0) {
            has_link = true;
        } else if (strcmp(argv[i], "--at") == 0 && i + 1 < argc) {
            at = (time_t)strtoll(argv[++i], NULL, 10);
        } else {
            if (at != 0)
                wait_until(at);
            at += at != 0 ? CASE_SECONDS : 0;
            run_case(&b, argv[i], has_link);
        }
    }
    if (b.kept != NULL)
        munmap(b.kept, (size_t)b.bytes);
    close(b.fd);
    return 0;
}
