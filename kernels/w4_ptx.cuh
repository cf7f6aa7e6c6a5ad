/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of Hopper that only the kernels for few tokens use: copies that leave the L2 cache first, matrix
 * products whose first operand stays in registers. */
#ifndef LOADPLAN_W4_PTX_CUH
#define LOADPLAN_W4_PTX_CUH

#include "kernels/hopper_ptx.cuh"

__device__ __forceinline__ float2 w4_load_floats(uint32_t at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
    return v;
}

__device__ __forceinline__ uint32_t w4_load_two_bytes(uint32_t at)
{
    uint32_t v;
    asm volatile("{\n.reg .u16 h;\nld.shared.u16 h, [%1];\ncvt.u32.u16 %0, h;\n}" : "=r"(v) : "r"(at));
    return v;
}

template <int BARRIER, int THREADS> __device__ __forceinline__ void w4_sync()
{
    asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(THREADS) : "memory");
}

/* Read once: the first to leave the L2 cache. An explicit evict_normal costs a tenth of the read rate; never use it. */
__device__ __forceinline__ uint64_t w4_stream_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void w4_copy_streamed(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier,
                                                 uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
}

/* ---- matrix products ---- */

/* Operand B: rows of 128 bytes, 128-byte swizzle, eight rows 1,024 bytes apart. `step`: 16-byte units into the row. */
__device__ __forceinline__ uint64_t w4_operand(uint32_t at, uint32_t step)
{
    const uint32_t low = ((at >> 4 & 0x3fff) | 1 << 16) + step;
    return static_cast<uint64_t>(low) | static_cast<uint64_t>(64) << 32 | static_cast<uint64_t>(1) << 62;
}

/* d[64, N] (+)= a[64, 32 bytes of K] * b: E5M2 by E4M3 (BF16 false), or BF16 by BF16. `add` 0 drops what d held. */
#define W4_MMA(shape, types, tail, regs, a0, a1, a2, a3, b, add)                                                       \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32." types " {" regs        \
    "}, {" a0 "," a1 "," a2 "," a3 "}, " b ", p, 1, 1" tail ";\n}"
#define W4_D4      "%0,%1,%2,%3"
#define W4_D8      W4_D4 ",%4,%5,%6,%7"
#define W4_D12     W4_D8 ",%8,%9,%10,%11"
#define W4_D16     W4_D12 ",%12,%13,%14,%15"
#define W4_D20     W4_D16 ",%16,%17,%18,%19"
#define W4_D24     W4_D20 ",%20,%21,%22,%23"
#define W4_D28     W4_D24 ",%24,%25,%26,%27"
#define W4_D32     W4_D28 ",%28,%29,%30,%31"
#define W4_D36     W4_D32 ",%32,%33,%34,%35"
#define W4_D40     W4_D36 ",%36,%37,%38,%39"
#define W4_D44     W4_D40 ",%40,%41,%42,%43"
#define W4_D48     W4_D44 ",%44,%45,%46,%47"
#define W4_D52     W4_D48 ",%48,%49,%50,%51"
#define W4_D56     W4_D52 ",%52,%53,%54,%55"
#define W4_D60     W4_D56 ",%56,%57,%58,%59"
#define W4_D64     W4_D60 ",%60,%61,%62,%63"
#define W4_IO4(o)  "+f"(d[o]), "+f"(d[(o) + 1]), "+f"(d[(o) + 2]), "+f"(d[(o) + 3])
#define W4_IO8(o)  W4_IO4(o), W4_IO4((o) + 4)
#define W4_IO16(o) W4_IO8(o), W4_IO8((o) + 8)
#define W4_IN      "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)

/* For `columns` of d: the names of its registers, those of the inputs behind them, and the registers. */
#define W4_MMA_OF(columns, regs, a0, a1, a2, a3, b, add, ...)                                                          \
    if constexpr (N == columns && BF16)                                                                                \
        asm volatile(W4_MMA("m64n" #columns "k16", "bf16.bf16", ", 0", regs, a0, a1, a2, a3, b, add)                   \
                     : __VA_ARGS__                                                                                     \
                     : W4_IN);                                                                                         \
    if constexpr (N == columns && !BF16)                                                                               \
        asm volatile(W4_MMA("m64n" #columns "k32", "e5m2.e4m3", "", regs, a0, a1, a2, a3, b, add)                      \
                     : __VA_ARGS__                                                                                     \
                     : W4_IN);

template <bool BF16, int N, int D>
__device__ __forceinline__ void w4_mma(float (&d)[D], const uint32_t (&a)[4], uint64_t b, int add)
{
    static_assert(N % 8 == 0 && N > 0 && N <= 128 && N / 2 <= D, "columns of a product");
    /* clang-format off */
    W4_MMA_OF(8, W4_D4, "%4", "%5", "%6", "%7", "%8", "%9", W4_IO4(0))
    W4_MMA_OF(16, W4_D8, "%8", "%9", "%10", "%11", "%12", "%13", W4_IO8(0))
    W4_MMA_OF(24, W4_D12, "%12", "%13", "%14", "%15", "%16", "%17", W4_IO8(0), W4_IO4(8))
    W4_MMA_OF(32, W4_D16, "%16", "%17", "%18", "%19", "%20", "%21", W4_IO16(0))
    W4_MMA_OF(40, W4_D20, "%20", "%21", "%22", "%23", "%24", "%25", W4_IO16(0), W4_IO4(16))
    W4_MMA_OF(48, W4_D24, "%24", "%25", "%26", "%27", "%28", "%29", W4_IO16(0), W4_IO8(16))
    W4_MMA_OF(56, W4_D28, "%28", "%29", "%30", "%31", "%32", "%33", W4_IO16(0), W4_IO8(16), W4_IO4(24))
    W4_MMA_OF(64, W4_D32, "%32", "%33", "%34", "%35", "%36", "%37", W4_IO16(0), W4_IO16(16))
    W4_MMA_OF(72, W4_D36, "%36", "%37", "%38", "%39", "%40", "%41", W4_IO16(0), W4_IO16(16), W4_IO4(32))
    W4_MMA_OF(80, W4_D40, "%40", "%41", "%42", "%43", "%44", "%45", W4_IO16(0), W4_IO16(16), W4_IO8(32))
    W4_MMA_OF(88, W4_D44, "%44", "%45", "%46", "%47", "%48", "%49", W4_IO16(0), W4_IO16(16), W4_IO8(32), W4_IO4(40))
    W4_MMA_OF(96, W4_D48, "%48", "%49", "%50", "%51", "%52", "%53", W4_IO16(0), W4_IO16(16), W4_IO16(32))
    W4_MMA_OF(104, W4_D52, "%52", "%53", "%54", "%55", "%56", "%57", W4_IO16(0), W4_IO16(16), W4_IO16(32), W4_IO4(48))
    W4_MMA_OF(112, W4_D56, "%56", "%57", "%58", "%59", "%60", "%61", W4_IO16(0), W4_IO16(16), W4_IO16(32), W4_IO8(48))
    W4_MMA_OF(120, W4_D60, "%60", "%61", "%62", "%63", "%64", "%65", W4_IO16(0), W4_IO16(16), W4_IO16(32), W4_IO8(48), W4_IO4(56))
    W4_MMA_OF(128, W4_D64, "%64", "%65", "%66", "%67", "%68", "%69", W4_IO16(0), W4_IO16(16), W4_IO16(32), W4_IO16(48))
    /* clang-format on */
}

#endif
