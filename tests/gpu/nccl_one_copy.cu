/* SPDX-License-Identifier: Apache-2.0 */
/* Messages through rings: a block of the sender fills chunks of its part of the ring, its counterpart empties them. */
#include "nccl_one_copy.h"

#include <cuda_runtime.h>

enum { THREADS = 512, LOOK = 64 /* waits between two looks at host memory */ };

__device__ __forceinline__ uint64_t now_ns()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

__device__ __forceinline__ uint32_t load_acquire(const uint32_t *p)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

__device__ __forceinline__ void store_release(uint32_t *p, uint32_t x)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

/* Until *count has come to `least`. False: told to stop. */
__device__ bool wait_for(const uint32_t *count, uint32_t least, const uint32_t *stop)
{
    for (uint32_t i = 1; static_cast<int32_t>(load_acquire(count) - least) < 0; i++) {
        if (i % LOOK == 0 && *reinterpret_cast<const volatile uint32_t *>(stop) != 0)
            return false;
        __nanosleep(20);
    }
    return true;
}

__device__ void copy(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    enum { AHEAD = 4 };
    const bool is_even = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
    const uint64_t vectors = is_even ? bytes / 16 : 0;
    const uint4 *in = reinterpret_cast<const uint4 *>(from);
    uint4 *out = reinterpret_cast<uint4 *>(to);
    for (uint64_t first = threadIdx.x; first < vectors; first += AHEAD * THREADS) {
        uint4 v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * THREADS < vectors)
                v[k] = __ldcg(&in[first + k * THREADS]);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * THREADS < vectors)
                __stcg(&out[first + k * THREADS], v[k]);
    }
    for (uint64_t i = vectors * 16 + threadIdx.x; i < bytes; i += THREADS)
        to[i] = *reinterpret_cast<const volatile uint8_t *>(from + i);
}

__global__ void __launch_bounds__(THREADS) move_group(const __grid_constant__ one_group g)
{
    const one_op &op = g.op[blockIdx.x / ONE_BLOCKS];
    const uint32_t block = blockIdx.x % ONE_BLOCKS;
    const uint64_t began = now_ns();
    __shared__ bool goes_on;
    if (g.time != NULL && blockIdx.x == 0 && threadIdx.x == 0)
        g.time[0] = began;
    for (uint32_t r = 0; r < op.rounds; r++) {
        const uint32_t number = op.first + r;
        const uint64_t at = (static_cast<uint64_t>(r) * ONE_BLOCKS + block) * ONE_CHUNK;
        const uint64_t left = at < op.bytes ? op.bytes - at : 0, bytes = left < ONE_CHUNK ? left : ONE_CHUNK;
        uint8_t *slot = op.ring->slot[block][number % ONE_SLOTS];
        if (threadIdx.x == 0)
            goes_on = op.is_send ? wait_for(op.ring->emptied[block], number + 1 - ONE_SLOTS, g.stop)
                                 : wait_for(op.ring->filled[block], number + 1, g.stop);
        __syncthreads();
        if (!goes_on)
            return;
        if (op.is_send)
            copy(slot, op.data + at, bytes);
        else
            copy(op.data + at, slot, bytes);
        __syncthreads();
        if (threadIdx.x != 0)
            continue;
        __threadfence_system();
        store_release(op.is_send ? op.ring->filled[block] : op.ring->emptied[block], number + 1);
        const uint64_t upto = static_cast<uint64_t>(r + 1) * ONE_BLOCKS * ONE_CHUNK;
        const double due = static_cast<double>(upto < op.bytes ? upto : op.bytes) * g.ns_per_byte;
        while (op.is_send && static_cast<double>(now_ns() - began) < due)
            __nanosleep(100);
    }
    if (g.time != NULL && threadIdx.x == 0)
        atomicMax(reinterpret_cast<unsigned long long *>(&g.time[1]), static_cast<unsigned long long>(now_ns()));
}

extern "C" int one_move(const one_group *group, void *stream)
{
    if (group->count == 0)
        return 0;
    move_group<<<group->count * ONE_BLOCKS, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(*group);
    return cudaGetLastError();
}
