/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of device_change.h share: how a block takes a stretch, elements at any address, sums. */
#ifndef LOADPLAN_DEVICE_CHANGE_CUH
#define LOADPLAN_DEVICE_CHANGE_CUH

extern "C" { /* headers of C rooms */
#include "replayer/device_change.h"
}
#include "replayer/device_cuda.cuh"

#include <cuda_runtime.h>

enum { AHEAD = 4, WORDS = LP_CHANGE_ELEMENTS / 32 };

/* A block of so many threads. */
template <int THREADS> struct crew {
    enum { WARPS = THREADS / 32 };
    enum { STEPS = WORDS / 32 / WARPS, REGION = LP_CHANGE_ELEMENTS / WARPS }; /* of a warp: rounds of words; elements */
};

template <int E> struct element;
template <> struct element<1> {
    typedef uint8_t type;
};
template <> struct element<2> {
    typedef uint16_t type;
};
template <> struct element<4> {
    typedef uint32_t type;
};
template <> struct element<8> {
    typedef uint64_t type;
};

template <int E> __device__ __forceinline__ bool is_at_element(const void *p)
{
    return reinterpret_cast<uintptr_t>(p) % E == 0;
}

template <int E> __device__ __forceinline__ typename element<E>::type load(const uint8_t *p, bool is_aligned)
{
    if (is_aligned)
        return *reinterpret_cast<const typename element<E>::type *>(p);
    uint64_t value = 0;
    for (int b = 0; b < E; b++)
        value |= static_cast<uint64_t>(p[b]) << (8 * b);
    return static_cast<typename element<E>::type>(value);
}

template <int E> __device__ __forceinline__ void store(uint8_t *p, typename element<E>::type value, bool is_aligned)
{
    if (is_aligned) {
        *reinterpret_cast<typename element<E>::type *>(p) = value;
        return;
    }
    for (int b = 0; b < E; b++)
        p[b] = static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * b));
}

/* The word of the bit map that this thread looks at: each warp goes through those of its region. */
template <int THREADS> __device__ __forceinline__ uint32_t word_of(uint32_t step)
{
    return (threadIdx.x / 32 * crew<THREADS>::STEPS + step) * 32 + threadIdx.x % 32;
}

/* Sums over the block; *before gets that of the warps before this one. Block-wide. */
template <int THREADS> __device__ uint64_t sum_block(uint64_t mine, uint64_t *warp_count, uint64_t *before)
{
    uint64_t total = 0;
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        mine += __shfl_xor_sync(~0u, mine, d);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warp_count[threadIdx.x / 32] = mine;
    __syncthreads();
    *before = 0;
    for (uint32_t w = 0; w < crew<THREADS>::WARPS; w++) {
        *before += w < threadIdx.x / 32 ? warp_count[w] : 0;
        total += warp_count[w];
    }
    return total;
}

/* Of the lanes up to this one. */
__device__ __forceinline__ uint64_t scan_warp(uint64_t x)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const uint64_t below = __shfl_up_sync(~0u, x, d);
        x += threadIdx.x % 32 >= d ? below : 0;
    }
    return x;
}

#endif
