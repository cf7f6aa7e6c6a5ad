/* SPDX-License-Identifier: Apache-2.0 */
/* Reads memory as fast as a plain kernel can, the ceiling of whatever only reads; and the clock of the GPU. */
#include <cuda_runtime.h>
#include <stdint.h>

static __global__ void read_all(const uint4 *data, size_t count, uint32_t *out)
{
    const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
    uint32_t all = 0;
    size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = data[i + j * stride];
#pragma unroll
        for (int j = 0; j < 4; j++)
            all ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    for (; i < count; i += stride)
        all ^= data[i].x;
    if (all == 0x9e3779b9u) /* so that the loads are not dropped */
        *out = all;
}

/* Ticks of the multiprocessor and nanoseconds of the same 20 us. */
static __global__ void count_ticks(uint64_t *out)
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

extern "C" int sm_clock(uint64_t *out, void *stream)
{
    count_ticks<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(out);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int read_ceiling(const void *data, size_t bytes, void *out, void *stream)
{
    read_all<<<132 * 8, 512, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4 *>(data), bytes / 16,
                                                                     static_cast<uint32_t *>(out));
    return static_cast<int>(cudaGetLastError());
}
