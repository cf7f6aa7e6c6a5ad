/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of device_change.h share: elements at any address, and sums over lanes. */
#ifndef LOADPLAN_DEVICE_CHANGE_CUH
#define LOADPLAN_DEVICE_CHANGE_CUH

extern "C" { /* headers of C rooms */
#include "replayer/device_change.h"
}
#include "replayer/device_cuda.cuh"

#include <cuda_runtime.h>

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

/* Of the lanes up to this one. */
template <typename T> __device__ __forceinline__ T scan_warp(T x)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const T below = __shfl_up_sync(~0u, x, d);
        x += threadIdx.x % 32 >= d ? below : 0;
    }
    return x;
}

#endif
