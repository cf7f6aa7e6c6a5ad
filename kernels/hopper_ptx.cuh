/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions of Hopper that C++ has no words for and that both families of kernels use, one thin wrapper each: loads
 * from shared memory, barriers, bulk copies, fences, flags between blocks, groups of matrix products. What one family
 * needs alone is in w4_ptx.cuh and prefill_ptx.cuh.
 */
#ifndef LOADPLAN_HOPPER_PTX_CUH
#define LOADPLAN_HOPPER_PTX_CUH

#include <stdint.h>

namespace hopper
{

/* ---- shared memory ---- */

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint4 load16(uint32_t at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

__device__ __forceinline__ uint32_t load1(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

/* ---- mbarriers: shared addresses; the phase is the parity of the round that is waited for ---- */

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and lets the round wait for so many bytes of copies too. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t phase)
{
    asm volatile("{\n.reg .pred done;\nagain_%=:\n"
                 "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra again_%=;\n}" ::"r"(barrier),
                 "r"(phase)
                 : "memory");
}

/* ---- bulk copies: 16-byte aligned addresses and sizes; the bytes are counted on the barrier ---- */

__device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Ordinary writes before it, copy engine and tensor cores after it. */
__device__ __forceinline__ void proxy_fence()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* ---- flags in global memory ---- */

__device__ __forceinline__ int load_acquire(const int *p)
{
    int v;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

__device__ __forceinline__ void add_release(int *p, int v)
{
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* ---- groups of matrix products ---- */

__device__ __forceinline__ void mma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void mma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most `Left` groups are in flight. */
template <int Left> __device__ __forceinline__ void mma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

} /* namespace hopper */

#endif
