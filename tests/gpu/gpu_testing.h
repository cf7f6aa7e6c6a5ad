/* SPDX-License-Identifier: Apache-2.0 */
/* What GPU tests and benchmarks share: random numbers, a reference for maps, the clock. */
#ifndef GPU_TESTING_H
#define GPU_TESTING_H

#include "gpu_check.h"
#include "random_plans.h"
#include "replayer/device_exec.h"

#include <time.h>

typedef struct copy_walk {
    uint8_t *dst;
    const uint8_t *src;
} copy_walk;

static inline int copy_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const copy_walk *w = context;
    for (int64_t i = 0; i < count; i++)
        w->dst[dst_off + i] = w->src[src_off + i];
    return 0;
}

/* What a map of bytes means, byte by byte. */
static inline void reference_copy(const lp_map *map, uint8_t *dst, const uint8_t *src)
{
    copy_walk w = {dst, src};
    (void)lp_map_walk(map, copy_run, &w);
}

static inline double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
