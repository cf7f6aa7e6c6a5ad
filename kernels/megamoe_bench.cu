/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/megamoe_bench.h"

#include "kernels/ceilings.cuh"

namespace
{

constexpr int BLOCKS = 132 * 8, THREADS = 512;

__device__ uint32_t mixed(uint64_t i)
{
    uint32_t x = static_cast<uint32_t>(i ^ i >> 32) * 2654435761u;
    x ^= x >> 15;
    x *= 0x85ebca6bu;
    return x ^ x >> 13;
}

__device__ uint32_t word_of(lp_moe_random kind, uint32_t x)
{
    switch (kind) {
    case LP_MOE_RANDOM_UE8M0:
        return 0x72727272u + (x & 0x03030303u);
    case LP_MOE_RANDOM_UE4M3:
        return 0x20202020u + (x & 0x1f1f1f1fu);
    case LP_MOE_RANDOM_E4M3:
        return x & 0xbfbfbfbfu;
    case LP_MOE_RANDOM_BF16:
        return (x & 0x80ff80ffu) | 0x3e803e80u;
    case LP_MOE_RANDOM_F32:
        return 0x3a800000u + (x & 0x7fffffu);
    default:
        return x;
    }
}

__global__ void fill(uint32_t *to, int64_t words, lp_moe_random kind)
{
    const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < words; i += stride)
        to[i] = word_of(kind, mixed(static_cast<uint64_t>(i) + 7919u * kind));
}

__global__ void read_all(const uint4 *from, int64_t count, uint32_t *sink)
{
    lp_read_all(from, count, sink);
}

__global__ void count_ticks(uint64_t *out)
{
    lp_count_ticks(out);
}

} // namespace

extern "C" int lp_moe_bench_fill(void *to, int64_t bytes, lp_moe_random kind, void *stream)
{
    fill<<<BLOCKS, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<uint32_t *>(to), bytes / 4, kind);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int lp_moe_bench_read(const void *from, int64_t bytes, void *sink, void *stream)
{
    read_all<<<BLOCKS, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4 *>(from), bytes / 16,
                                                                        static_cast<uint32_t *>(sink));
    return static_cast<int>(cudaGetLastError());
}

extern "C" int lp_moe_bench_clock(void *ticks, void *stream)
{
    count_ticks<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<uint64_t *>(ticks));
    return static_cast<int>(cudaGetLastError());
}
