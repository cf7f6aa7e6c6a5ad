/* SPDX-License-Identifier: Apache-2.0 */
/* How benches time: the median of many runs, one after another with the queue never empty, or each from an idle GPU. */
#ifndef GPU_TIMING_H
#define GPU_TIMING_H

#include "gpu_testing.h"

enum { REPEATS = 21 };

typedef struct timing {
    double least, median; /* seconds */
} timing;

static inline int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static inline timing summary(float ms[REPEATS])
{
    qsort(ms, REPEATS, sizeof ms[0], by_value);
    return (timing){ms[0] * 1e-3, ms[REPEATS / 2] * 1e-3};
}

typedef void (*work_fn)(void *context, int round);

/* One after another, the queue never empty: what a reload of many layers sees. */
static inline timing measure_row(work_fn run, void *context)
{
    float t[REPEATS];
    cudaEvent_t mark[REPEATS + 1];
    for (int i = 0; i <= REPEATS; i++)
        CUDA(cudaEventCreate(&mark[i]));
    for (int i = 0; i < 4; i++)
        run(context, i);
    for (int i = 0; i < REPEATS; i++) {
        CUDA(cudaEventRecord(mark[i], NULL));
        run(context, i);
    }
    CUDA(cudaEventRecord(mark[REPEATS], NULL));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < REPEATS; i++)
        CUDA(cudaEventElapsedTime(&t[i], mark[i], mark[i + 1]));
    for (int i = 0; i <= REPEATS; i++)
        CUDA(cudaEventDestroy(mark[i]));
    return summary(t);
}

/* Each from an idle GPU: the host's calls are in it too. */
static inline timing measure_alone(work_fn run, void *context)
{
    float t[REPEATS];
    cudaEvent_t from, to;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    for (int i = 0; i < REPEATS; i++) {
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaEventRecord(from, NULL));
        run(context, i);
        CUDA(cudaEventRecord(to, NULL));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&t[i], from, to));
    }
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    return summary(t);
}

/* Random bytes: constant data can run faster. A block of them is repeated. */
static inline void fill_random(char *data, int64_t bytes)
{
    enum { BLOCK = 4 << 20 };
    static uint64_t block[BLOCK / 8];
    uint64_t state = 7;
    for (int i = 0; i < BLOCK / 8; i++)
        block[i] = random_next(&state);
    for (int64_t at = 0; at < bytes; at += BLOCK)
        put_device(data + at, block, (size_t)(bytes - at < BLOCK ? bytes - at : BLOCK));
}

#endif
