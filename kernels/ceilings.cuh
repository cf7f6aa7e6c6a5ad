/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU can do at best, for benches: reads memory as fast as a plain kernel can, and the clock. */
#ifndef LOADPLAN_CEILINGS_CUH
#define LOADPLAN_CEILINGS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* `count` pieces of 16 bytes; INDEX is the type of a count. *sink is written once in 2^32 times. */
template <typename INDEX> __device__ __forceinline__ void lp_read_all(const uint4 *from, INDEX count, uint32_t *sink)
{
    const INDEX stride = static_cast<INDEX>(gridDim.x) * blockDim.x;
    uint32_t all = 0;
    INDEX i = blockIdx.x * static_cast<INDEX>(blockDim.x) + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = from[i + j * stride];
#pragma unroll
        for (int j = 0; j < 4; j++)
            all ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < count; i += stride)
        all ^= from[i].x;
    if (all == 0x9e3779b9u) /* so that the loads are not dropped */
        *sink = all;
}

/* Ticks of the multiprocessor and nanoseconds of the same 20 us. */
__device__ __forceinline__ void lp_count_ticks(uint64_t *out)
{
    uint64_t start, now;
    const long long ticks = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - start < 20000);
    out[0] = static_cast<uint64_t>(clock64() - ticks);
    out[1] = now - start;
}

#endif
