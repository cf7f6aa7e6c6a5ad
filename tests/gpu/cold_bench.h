/* SPDX-License-Identifier: Apache-2.0 */
/* What benches of cold starts share: a rank, opened; bare reads of its ranges; sums of its tensors. */
#ifndef COLD_BENCH_H
#define COLD_BENCH_H

#include "gpu_testing.h"
#include "replayer/device_cold_batches.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { STARTS_MOST = 16 };

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
} cold_run;

/* The device is open. Seconds that it took. */
static inline double cold_run_open(cold_run *r, const char *trace, const char *checkpoint, int32_t rank)
{
    lp_error err;
    const double begin = now_seconds();
    GOOD(lp_trace_open(&r->trace, trace, &err));
    GOOD(lp_checkpoint_open(&r->checkpoint, checkpoint, &err));
    const int32_t index = lp_trace_scope_find(r->trace, rank);
    CHECK(index >= 0, "the trace has no rank %d", rank);
    r->scope = lp_trace_scope_at(r->trace, index);
    GOOD(lp_cold_memory_take(&r->memory, &r->device, r->trace, r->scope, NULL, &err));
    const lp_bind_options bind = {.threads = 1};
    GOOD(lp_bind(&r->plan, r->trace, r->scope, r->memory.list, r->memory.count, &bind, &err));
    GOOD(lp_cold_ring_new(&r->ring, &r->device, NULL, &err));
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

typedef struct raw_reads {
    const lp_cold_batches *b;
    const int *fd; /* by file */
    atomic_llong next;
} raw_reads;

static inline void *raw_reader(void *argument)
{
    raw_reads *r = argument;
    uint8_t *buffer = aligned_alloc(LP_COLD_BLOCK, LP_COLD_CHUNK);
    CHECK(buffer != NULL, "out of memory");
    for (long long n; (n = atomic_fetch_add(&r->next, 1)) < r->b->chunks;) {
        const lp_cold_part *c = &r->b->part[n];
        for (int64_t i = c->first_read; i < c->first_read + c->reads; i++) {
            const lp_cold_read *read = &r->b->read[i];
            const ssize_t got = pread(r->fd[read->file], buffer + read->at, (size_t)read->room, (off_t)read->file_off);
            CHECK(got >= read->bytes, "a direct read of %lld bytes gave %lld", (long long)read->room, (long long)got);
        }
    }
    free(buffer);
    return NULL;
}

/* Seconds of reading the direct ranges of the plan, and nothing else. */
static inline double cold_run_raw(const cold_run *r, int32_t readers)
{
    lp_error err;
    const lp_platform platform = lp_platform_resolve(NULL);
    const int32_t files = lp_checkpoint_file_count(r->checkpoint);
    lp_cold_batches b = {.alloc = platform.alloc};
    lp_cold_files f;
    pthread_t thread[LP_COLD_READERS_MOST];
    int *fd = calloc((size_t)files + 1, sizeof *fd);
    GOOD(lp_cold_names_list(&b, r->plan, r->checkpoint, &err));
    GOOD(lp_cold_files_open(&f, &platform, r->checkpoint, b.file_needed, LP_COLD_READ_DIRECT, &err));
    GOOD(lp_cold_batches_make(&b, r->plan, &f, LP_COLD_STAGING / 16, LP_COLD_CHUNK, INT64_MAX, &err));
    for (int32_t i = 0; i < files; i++)
        fd[i] = f.file[i].direct_fd;
    raw_reads raw = {.b = &b, .fd = fd};
    const double begin = now_seconds();
    for (int32_t i = 0; i < readers; i++)
        CHECK(pthread_create(&thread[i], NULL, raw_reader, &raw) == 0, "cannot start a thread");
    for (int32_t i = 0; i < readers; i++)
        pthread_join(thread[i], NULL);
    const double seconds = now_seconds() - begin;
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
