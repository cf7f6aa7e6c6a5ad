/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of Hopper that only the prefill kernels use: clusters, multicast and tensor copies, stores in bulk,
 * matrix products whose operands are both in shared memory. */
#ifndef LOADPLAN_PREFILL_PTX_CUH
#define LOADPLAN_PREFILL_PTX_CUH

#include "kernels/hopper_ptx.cuh"

namespace prefill
{

/* ---- clusters ---- */

__device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}

/* Arrives at the barrier of the same shared address in a block of the cluster, where `arrives`. Release at the scope of
 * the block is enough for what the copy engine overwrites next; at the scope of the cluster it costs a fence of all
 * memory. */
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank, bool arrives)
{
    asm volatile("{.reg .b32 a;\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmapa.shared::cluster.u32 a, %0, %1;\n"
                 "@p mbarrier.arrive.shared::cluster.b64 _, [a];}" ::"r"(barrier),
                 "r"(rank), "r"(static_cast<int>(arrives))
                 : "memory");
}

/* Into the same shared address of a block of the cluster. */
__device__ __forceinline__ void store_shared_at(uint32_t address, uint32_t rank, uint64_t v)
{
    asm volatile("{.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
                 "st.relaxed.cluster.shared::cluster.u64 [a], %2;}" ::"r"(address),
                 "r"(rank), "l"(v)
                 : "memory");
}
__device__ __forceinline__ uint64_t load_shared_now(uint32_t address)
{
    uint64_t v;
    asm volatile("ld.relaxed.cluster.shared::cta.u64 %0, [%1];" : "=l"(v) : "r"(address) : "memory");
    return v;
}

/* The same within a block: what was written to shared memory before the one is there after the other. */
__device__ __forceinline__ void store_shared_release(uint32_t address, int v)
{
    asm volatile("st.release.cta.shared.s32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ __forceinline__ int load_shared_acquire(uint32_t address)
{
    int v;
    asm volatile("ld.acquire.cta.shared.s32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* ---- bulk copies: 16-byte aligned addresses and sizes ---- */

/* hopper::bulk_load into the same places of every block of the cluster that `mask` names. */
__device__ __forceinline__ void bulk_load_multicast(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier,
                                                    uint16_t mask)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"(mask)
                 : "memory");
}

__device__ __forceinline__ void tensor_load(uint32_t to, const void *map, int column, int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void tensor_load_multicast(uint32_t to, const void *map, int column, int row,
                                                      uint32_t barrier, uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(mask)
                 : "memory");
}

/* Into the L2 cache only. */
__device__ __forceinline__ void bulk_prefetch(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void tensor_prefetch(const void *map, int column, int row)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(column), "r"(row)
                 : "memory");
}

__device__ __forceinline__ void bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void bulk_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until the stores of this thread are in memory. */
__device__ __forceinline__ void bulk_store_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/* Until the stores of this thread have left shared memory. */
__device__ __forceinline__ void bulk_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* hopper::proxy_fence for shared memory alone, which costs no fence of all memory. */
__device__ __forceinline__ void proxy_fence_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- copies by threads: to shared memory, in groups as a thread commits them ---- */

__device__ __forceinline__ void copy16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until all of this thread's groups but the last `Left` are there. */
template <int Left> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

/* ---- small things ---- */

/* Until a counter in global memory has reached `enough`; what its writers released is there then. It is looked at
 * without acquiring, which would throw the first-level cache away each time. */
__device__ __forceinline__ void wait_for_count(const int *counter, int enough)
{
    while (hopper::load_acquire(counter) < enough) {
        int seen;
        do {
            __nanosleep(64);
            asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        } while (seen < enough);
    }
}

template <int Registers> __device__ __forceinline__ void registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers> __device__ __forceinline__ void registers_less()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/* Loads that stay where they are written: ahead of what uses them. */
__device__ __forceinline__ uint32_t load4(uint32_t address)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}
__device__ __forceinline__ uint2 load8(uint32_t address)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
    return v;
}

__device__ __forceinline__ void store_shared_u8(uint32_t address, uint32_t v)
{
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ void store_shared_u16(uint32_t address, uint16_t v)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(v) : "memory");
}

__device__ __forceinline__ void store_shared_u32(uint32_t address, uint32_t v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

/* Four 8 x 8 matrices of 16-bit values, as products leave them in registers; lane l has the address of row l % 8 of
 * matrix l / 8. */
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}

/* The same with each matrix turned around. */
__device__ __forceinline__ void store_matrices_turned(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

/* Two values to E4M3, to nearest, ties to even, saturating: `low` into the low byte. */
__device__ __forceinline__ uint16_t e4m3_pair(float low, float high)
{
    uint16_t v;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
    return v;
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

/* ---- wgmma ---- */

/* Operand descriptors. Core order: 8 rows x 16 bytes lie together (128 bytes), the eight of a 128-byte K block follow
 * each other, then the next eight rows. Swizzled order: rows of 128 bytes as a tensor copy with the 128-byte swizzle
 * leaves them. A step of 32 bytes along K is 256 bytes in the first and 32 in the second. */
__device__ __forceinline__ uint64_t core_descriptor(uint32_t address)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32;
}
__device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t address)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define PREFILL_D4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PREFILL_D16(d, i) PREFILL_D4(d, i), PREFILL_D4(d, i + 4), PREFILL_D4(d, i + 8), PREFILL_D4(d, i + 12)
#define PREFILL_R32                                                                                                    \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"  \
    "%30,%31}"

/* d (64 x 64, F32) = a (64 x 32 bytes) * b (64 x 32 bytes), plus d where `add`. */
#define PREFILL_MMA_N64(NAME, SHAPE_AND_TYPES, TAIL)                                                                   \
    __device__ __forceinline__ void NAME(float(&d)[32], uint64_t a, uint64_t b, int add)                               \
    {                                                                                                                  \
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned." SHAPE_AND_TYPES           \
                     " " PREFILL_R32 ", %32, %33, p, 1, 1" TAIL ";}"                                                   \
                     : PREFILL_D16(d, 0), PREFILL_D16(d, 16)                                                           \
                     : "l"(a), "l"(b), "r"(add));                                                                      \
    }

PREFILL_MMA_N64(mma_e4m3_n64, "m64n64k32.f32.e4m3.e4m3", "")
PREFILL_MMA_N64(mma_e4m3_e5m2_n64, "m64n64k32.f32.e4m3.e5m2", "")
PREFILL_MMA_N64(mma_bf16_n64, "m64n64k16.f32.bf16.bf16", ", 0, 0")

#define PREFILL_R64                                                                                                    \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"  \
    "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
    "%58,%59,%60,%61,%62,%63}"

/* d (64 x 128, F32) = a (64 x 32 bytes) * b (128 x 32 bytes), plus d where `add`. */
#define PREFILL_MMA_N128(NAME, SHAPE_AND_TYPES, TAIL)                                                                  \
    __device__ __forceinline__ void NAME(float(&d)[64], uint64_t a, uint64_t b, int add)                               \
    {                                                                                                                  \
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned." SHAPE_AND_TYPES           \
                     " " PREFILL_R64 ", %64, %65, p, 1, 1" TAIL ";}"                                                   \
                     : PREFILL_D16(d, 0), PREFILL_D16(d, 16), PREFILL_D16(d, 32), PREFILL_D16(d, 48)                   \
                     : "l"(a), "l"(b), "r"(add));                                                                      \
    }

PREFILL_MMA_N128(mma_bf16_n128, "m64n128k16.f32.bf16.bf16", ", 0, 0")

#define PREFILL_R128                                                                                                   \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%" \
    "30,%31,"                                                                                                          \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
    "%60,%61,%62,%63,"                                                                                                 \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91," \
    "%92,%93,%94,%95,"                                                                                                 \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%" \
    "119,%120,%121,%122,%123,%124,%125,%126,%127}"

/* The same, 64 x 256. */
#define PREFILL_MMA_N256(NAME, SHAPE_AND_TYPES, TAIL)                                                                  \
    __device__ __forceinline__ void NAME(float(&d)[128], uint64_t a, uint64_t b, int add)                              \
    {                                                                                                                  \
        asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned." SHAPE_AND_TYPES          \
                     " " PREFILL_R128 ", %128, %129, p, 1, 1" TAIL ";}"                                                \
                     : PREFILL_D16(d, 0), PREFILL_D16(d, 16), PREFILL_D16(d, 32), PREFILL_D16(d, 48),                  \
                       PREFILL_D16(d, 64), PREFILL_D16(d, 80), PREFILL_D16(d, 96), PREFILL_D16(d, 112)                 \
                     : "l"(a), "l"(b), "r"(add));                                                                      \
    }

PREFILL_MMA_N256(mma_bf16_n256, "m64n256k16.f32.bf16.bf16", ", 0, 0")

} /* namespace prefill */

#endif
