/* SPDX-License-Identifier: Apache-2.0 */
/* What GPU tests and benchmarks share: random numbers, a reference for maps, the clock. */
#ifndef GPU_TESTING_H
#define GPU_TESTING_H

#include "gpu_check.h"
#include "replayer/device_exec.h"

#include <time.h>

static inline uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline int64_t random_below(uint64_t *state, int64_t limit)
{
    return (int64_t)(next_random(state) % (uint64_t)limit);
}

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
