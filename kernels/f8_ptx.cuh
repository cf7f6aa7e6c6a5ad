/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of Hopper that only the kernels of whole-byte weights for few tokens use. */
#ifndef LOADPLAN_F8_PTX_CUH
#define LOADPLAN_F8_PTX_CUH

#include "kernels/w4_ptx.cuh"

/* A box of a tensor of [pieces][rows][128 bytes], with the 128-byte swizzle, that leaves the L2 cache first. */
__device__ __forceinline__ void f8_copy_box(uint32_t to, const void *map, int row, int piece, uint32_t barrier,
                                            uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
                 "l"(map), "r"(0), "r"(row), "r"(piece), "r"(barrier), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void f8_ask_for_map(const void *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* d[64, N] (+)= a[64, 32 bytes of K] * b[N, 32 bytes of K], both from shared memory (w4_operand describes either);
 * E4M3, or BF16. `add` 0 drops what d held. */
#define F8_MMA(shape, types, tail, regs, a, b, add)                                                                    \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32." types " {" regs        \
    "}, " a ", " b ", p, 1, 1" tail ";\n}"
#define F8_COLUMNS(n, regs, a, b, add, ...)                                                                            \
    if constexpr (N == n && BF16)                                                                                      \
        asm volatile(F8_MMA("m64n" #n "k16", "bf16.bf16", ", 0, 0", regs, a, b, add)                                   \
                     : __VA_ARGS__                                                                                     \
                     : "l"(weights), "l"(tokens), "r"(add_to));                                                        \
    if constexpr (N == n && !BF16)                                                                                     \
    asm volatile(F8_MMA("m64n" #n "k32", "e4m3.e4m3", "", regs, a, b, add)                                             \
                 : __VA_ARGS__                                                                                         \
                 : "l"(weights), "l"(tokens), "r"(add_to))

template <bool BF16, int N>
__device__ __forceinline__ void f8_mma(float (&d)[N / 2], uint64_t weights, uint64_t tokens, int add_to)
{
    static_assert(N % 8 == 0 && N > 0 && N <= 80, "columns of a product");
    F8_COLUMNS(8, W4_D4, "%4", "%5", "%6", W4_IO4(0));
    F8_COLUMNS(16, W4_D8, "%8", "%9", "%10", W4_IO8(0));
    F8_COLUMNS(24, W4_D12, "%12", "%13", "%14", W4_IO8(0), W4_IO4(8));
    F8_COLUMNS(32, W4_D16, "%16", "%17", "%18", W4_IO16(0));
    F8_COLUMNS(40, W4_D20, "%20", "%21", "%22", W4_IO16(0), W4_IO4(16));
    F8_COLUMNS(48, W4_D24, "%24", "%25", "%26", W4_IO16(0), W4_IO8(16));
    F8_COLUMNS(56, W4_D28, "%28", "%29", "%30", W4_IO16(0), W4_IO8(16), W4_IO4(24));
    F8_COLUMNS(64, W4_D32, "%32", "%33", "%34", W4_IO16(0), W4_IO16(16));
    F8_COLUMNS(72, W4_D36, "%36", "%37", "%38", W4_IO16(0), W4_IO16(16), W4_IO4(32));
    F8_COLUMNS(80, W4_D40, "%40", "%41", "%42", W4_IO16(0), W4_IO16(16), W4_IO8(32));
}

#endif
