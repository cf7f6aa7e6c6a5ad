/* SPDX-License-Identifier: Apache-2.0 */
/* What benches of cold starts share: a rank, opened; bare reads of its ranges; sums of its tensors. */
#ifndef COLD_BENCH_H
#define COLD_BENCH_H

#include "gpu_testing.h"
#include "replayer/device_cold_batches.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STARTS_MOST = 64, HUGE_PAGE = 2 << 20 };

#define GOOD(expression)                                                                                               \
    do {                                                                                                               \
        if ((expression) != LP_OK) {                                                                                   \
            fprintf(stderr, "%s: %s (%s)\n", #expression, err.text, err.hint);                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct cold_run {
    lp_cold_device device;
    lp_trace *trace;
    lp_checkpoint *checkpoint;
    const lp_scope *scope;
    lp_cold_memory memory;
    lp_plan *plan;
    lp_cold_ring *ring;
    double trace_ms, checkpoint_ms, memory_ms, bind_ms;
} cold_run;

/* The device is open; `platform` is the plan's. Seconds that it took. */
static inline double cold_run_open(cold_run *r, const char *trace, const char *checkpoint, int32_t rank, int64_t pinned,
                                   const lp_platform *platform)
{
    lp_error err;
    const double begin = now_seconds();
    GOOD(lp_cold_ring_new(&r->ring, &r->device, NULL, &err));
    lp_cold_ring_start(r->ring, &(lp_cold_options){.pinned = pinned});
    GOOD(lp_trace_open(&r->trace, trace, &err));
    const double opened = now_seconds();
    GOOD(lp_checkpoint_open(&r->checkpoint, checkpoint, &err));
    const double known = now_seconds();
    const int32_t index = lp_trace_scope_find(r->trace, rank);
    CHECK(index >= 0, "the trace has no rank %d", rank);
    r->scope = lp_trace_scope_at(r->trace, index);
    GOOD(lp_cold_memory_take(&r->memory, &r->device, r->trace, r->scope, NULL, &err));
    const double taken = now_seconds();
    const lp_bind_options bind = {.threads = 1, .platform = platform};
    GOOD(lp_bind(&r->plan, r->trace, r->scope, r->memory.list, r->memory.count, &bind, &err));
    const double bound = now_seconds();
    r->trace_ms = (opened - begin) * 1e3;
    r->checkpoint_ms = (known - opened) * 1e3;
    r->memory_ms = (taken - known) * 1e3;
    r->bind_ms = (bound - taken) * 1e3;
    return now_seconds() - begin;
}

static inline void cold_run_close(cold_run *r)
{
    lp_cold_ring_free(r->ring);
    lp_plan_close(r->plan);
    lp_cold_memory_give_back(&r->memory);
    lp_checkpoint_close(r->checkpoint);
    lp_trace_close(r->trace);
}

/* ---- bare reads ---- */

enum { BARE_MOST = 32 }; /* reads under way for one thread */

typedef struct bare_reads {
    const lp_cold_batches *b;
    const int *fd;              /* by file */
    const lp_read_queue *queue; /* NULL: one pread after another */
    int32_t depth;
    uint8_t *buffers; /* of all threads, depth each */
    atomic_llong next;
    atomic_int thread;
} bare_reads;

static inline void bare_check(const lp_cold_read *read, int64_t got)
{
    CHECK(got >= read->bytes, "a direct read of %lld bytes gave %lld", (long long)read->room, (long long)got);
}

/* Keeps `depth` reads under way by a queue. */
static inline void bare_by_queue(bare_reads *r, uint8_t *buffers)
{
    const lp_read_queue *q = r->queue;
    const lp_cold_read *tag[BARE_MOST] = {NULL};
    void *queue, *done;
    int32_t under_way = 0;
    int64_t got;
    bool is_over = false;
    CHECK(q->open(q->context, r->depth, &queue) == 0, "no queue of reads here");
    for (;;) {
        const long long n = is_over || under_way == r->depth ? r->b->reads : atomic_fetch_add(&r->next, 1);
        if (n < r->b->reads) {
            const lp_cold_read *read = &r->b->read[n];
            int32_t i = 0;
            while (tag[i] != NULL)
                i++;
            tag[i] = read;
            CHECK(q->start(q->context, queue, r->fd[read->file], buffers + i * (int64_t)LP_COLD_CHUNK_SMALL, read->room,
                           read->file_off, (void *)&tag[i]) == 0,
                  "a read was not started");
            under_way++;
            continue;
        }
        is_over = is_over || under_way < r->depth;
        if (under_way == 0)
            break;
        q->wait(q->context, queue, &done, &got);
        const lp_cold_read **ended = done;
        bare_check(*ended, got);
        *ended = NULL;
        under_way--;
    }
    q->close(q->context, queue);
}

static inline void *bare_reader(void *argument)
{
    bare_reads *r = argument;
    uint8_t *buffers = r->buffers + (int64_t)atomic_fetch_add(&r->thread, 1) * r->depth * LP_COLD_CHUNK_SMALL;
    if (r->queue != NULL) {
        bare_by_queue(r, buffers);
        return NULL;
    }
    for (long long n; (n = atomic_fetch_add(&r->next, 1)) < r->b->reads;) {
        const lp_cold_read *read = &r->b->read[n];
        bare_check(read, pread(r->fd[read->file], buffers, (size_t)read->room, (off_t)read->file_off));
    }
    return NULL;
}

/* Seconds of reading the direct ranges of the plan, and nothing else: by as many threads, with as many reads under way
 * for each, or with depth 0 by one pread after another. Memory is touched before, files are opened before. */
static inline double cold_run_bare(const cold_run *r, const lp_checkpoint *checkpoint, int32_t readers, int32_t depth)
{
    lp_error err;
    const lp_platform platform = lp_platform_resolve(NULL);
    const int32_t files = lp_checkpoint_file_count(checkpoint);
    lp_cold_batches b = {.alloc = platform.alloc};
    lp_cold_files f;
    pthread_t thread[LP_COLD_READERS_MOST];
    int *fd = calloc((size_t)files + 1, sizeof *fd);
    const int32_t each = depth > 0 ? depth : 1;
    const size_t room = (size_t)readers * (size_t)each * LP_COLD_CHUNK_SMALL;
    GOOD(lp_cold_names_list(&b, r->plan, checkpoint, &err));
    GOOD(lp_cold_files_open(&f, &platform, checkpoint, b.file_needed, LP_COLD_READ_DIRECT, &err));
    GOOD(lp_cold_batches_make(&b, r->plan, &f, LP_COLD_STAGING / 16, LP_COLD_CHUNK_SMALL, INT64_MAX, &err));
    for (int32_t i = 0; i < files; i++)
        fd[i] = f.file[i].direct_fd;
    bare_reads bare = {.b = &b, .fd = fd, .depth = each, .queue = depth > 0 ? lp_read_queue_system() : NULL};
    bare.buffers = aligned_alloc(HUGE_PAGE, room);
    CHECK(bare.buffers != NULL, "out of memory");
    (void)madvise(bare.buffers, room, MADV_HUGEPAGE); /* as the ring's: a read of few pieces is quicker */
    memset(bare.buffers, 1, room);
    const double begin = now_seconds();
    for (int32_t i = 0; i < readers; i++)
        CHECK(pthread_create(&thread[i], NULL, bare_reader, &bare) == 0, "cannot start a thread");
    for (int32_t i = 0; i < readers; i++)
        pthread_join(thread[i], NULL);
    const double seconds = now_seconds() - begin;
    free(bare.buffers);
    lp_cold_files_close(&f);
    lp_cold_batches_free(&b);
    free(fd);
    return seconds;
}

/* ---- sums ---- */

/* Of word i times 2i + 1, the last word padded with zeros: one for each destination, over its bytes in row-major order.
 */
typedef struct word_sum {
    uint64_t sum, words;
} word_sum;

static inline lp_status add_words(void *context, const void *data, int64_t bytes, lp_error *err)
{
    word_sum *s = context;
    (void)err;
    for (int64_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, (const uint8_t *)data + at, bytes - at < 8 ? (size_t)(bytes - at) : 8);
        s->sum += word * (2 * s->words++ + 1);
    }
    return LP_OK;
}

static inline void cold_run_sums(const cold_run *r)
{
    lp_error err;
    lp_destinations *memory;
    lp_plan *copy;
    int64_t count;
    GOOD(lp_destinations_allocate(&memory, r->trace, r->scope, false, NULL, &err));
    const lp_destination_memory *list = lp_destinations_list(memory, &count);
    const lp_bind_options bind = {.threads = 1};
    GOOD(lp_bind(&copy, r->trace, r->scope, list, count, &bind, &err));
    GOOD(lp_cold_fetch(&r->device, r->plan, copy, &err));
    for (uint32_t i = 0; i < copy->rows->ndest; i++) {
        lp_form form;
        word_sum s = {0};
        lp_destination_form(&copy->rows->dest[i], &form);
        GOOD(lp_form_walk(&form, copy->address[i], copy->platform.alloc, add_words, &s, &err));
        printf("sum %s %016llx\n", copy->rows->dest[i].name, (unsigned long long)s.sum);
    }
    lp_plan_close(copy);
    lp_destinations_free(memory);
}

#endif
