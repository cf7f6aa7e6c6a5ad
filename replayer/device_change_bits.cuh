/* SPDX-License-Identifier: Apache-2.0 */
/* What a block that looks for changes has in shared memory, what differs of a stretch as a bit map, and how many
 * elements and runs that is. For device_change.cu. */
#ifndef LOADPLAN_DEVICE_CHANGE_BITS_CUH
#define LOADPLAN_DEVICE_CHANGE_BITS_CUH

#include "replayer/device_change.cuh"

enum { WARPS = 8, THREADS = WARPS * 32, ALL_THREADS = THREADS + 32, RESIDENT = 4, SLOTS = 2 };
enum { BYTES = LP_CHANGE_STRETCH, WORDS = BYTES / 32 };
enum { RUNS = BYTES / 32 }; /* more are never the shortest form */
enum { COUNT_BITS = 20 };   /* three counts in one word */
enum { FEW = 16 };          /* changed elements of a word that a lane writes by itself */

#define COUNT_MASK ((1u << COUNT_BITS) - 1)

struct record {
    uint32_t form, index, changed, runs; /* index: its bytes */
    uint32_t bytes;                      /* without what fills it up */
};

struct __align__(128) slot
{
    uint8_t is[BYTES];
    uint32_t bit[WORDS];
    lp_change_stretch s;
    uint64_t before[WARPS]; /* counts of the warps before */
    record r;
    uint32_t number, flags; /* of the stretch, of its name */
    uint32_t at;            /* of the record in the frame */
};

struct compare_shared {
    slot x[SLOTS];
    __align__(128) uint8_t was[BYTES];
    uint16_t run_first[RUNS], run_last[RUNS];
    uint64_t warp_count[WARPS];
    uint64_t full[SLOTS], sized[SLOTS], placed[SLOTS], written[SLOTS], read;
};

static_assert(RESIDENT * (sizeof(compare_shared) + 1024) <= 228 * 1024, "so many blocks are on a processor");

/* Of the warps that compare. */
__device__ __forceinline__ void meet()
{
    asm volatile("bar.sync 1, %0;" ::"r"(static_cast<int>(THREADS)) : "memory");
}

/* ---- what differs ---- */

__device__ __forceinline__ uint32_t differ_bytes(uint32_t x)
{
    const uint32_t high = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) & 0x80808080u; /* of each byte that is not 0 */
    return (high >> 7) * 0x01020408u >> 24 & 15;
}

template <int E> __device__ __forceinline__ uint32_t differ(const uint4 &a, const uint4 &b)
{
    const uint32_t x[4] = {a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w};
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (E == 1)
            bits |= differ_bytes(x[i]) << (4 * i);
        else if (E == 2)
            bits |= ((x[i] & 0xffffu) != 0 ? 1u : 0u) << (2 * i) | (x[i] >> 16 != 0 ? 2u : 0u) << (2 * i);
        else if (E == 4)
            bits |= (x[i] != 0 ? 1u : 0u) << i;
    }
    return E == 8 ? ((x[0] | x[1]) != 0 ? 1u : 0u) | ((x[2] | x[3]) != 0 ? 2u : 0u) : bits;
}

/* Bits of vector i, which are less than a byte for wide elements: then lanes join theirs. Warp-wide. */
template <int E> __device__ __forceinline__ void put_bits(uint32_t *map, uint32_t i, uint32_t bits)
{
    if (E == 1)
        reinterpret_cast<uint16_t *>(map)[i] = static_cast<uint16_t>(bits);
    if (E == 2)
        reinterpret_cast<uint8_t *>(map)[i] = static_cast<uint8_t>(bits);
    if (E == 4) {
        bits |= __shfl_down_sync(~0u, bits, 1) << 4;
        if (i % 2 == 0)
            reinterpret_cast<uint8_t *>(map)[i / 2] = static_cast<uint8_t>(bits);
    }
    if (E == 8) {
        bits |= __shfl_down_sync(~0u, bits, 1) << 2;
        bits |= __shfl_down_sync(~0u, bits, 2) << 4;
        if (i % 4 == 0)
            reinterpret_cast<uint8_t *>(map)[i / 4] = static_cast<uint8_t>(bits);
    }
}

/* Bytes that bulk copies cannot bring: weights at odd addresses, and what is left over; up to a whole vector zeros. */
__device__ void complete(const lp_change_stretch &s, uint32_t bytes, uint32_t there, slot *x, uint8_t *was)
{
    const uint8_t *from = static_cast<const uint8_t *>(s.from);
    for (uint32_t i = there + threadIdx.x; i < (bytes + 15) / 16 * 16; i += THREADS) {
        x->is[i] = i < bytes ? from[i] : 0;
        if (i >= bytes)
            was[i] = 0;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the next ones come by another way */
    meet();
}

/* Bytes of the weights that a bulk copy brings. */
__device__ __forceinline__ uint32_t bulk_bytes(const lp_change_stretch &s)
{
    return reinterpret_cast<uintptr_t>(s.from) % 16 == 0 ? s.elements * s.elem & ~15u : 0;
}

/* Fills the bit map, and brings the shadow up to date: in whole sectors of memory, where it is at a multiple of 32. */
template <int E> __device__ void mark(slot *x, const uint8_t *was_bytes)
{
    enum { V = 16 / E };
    const lp_change_stretch &s = x->s;
    const uint32_t vectors = (s.elements * E + 15) / 16, words = (s.elements + 31) / 32;
    const uint4 *is = reinterpret_cast<const uint4 *>(x->is), *was = reinterpret_cast<const uint4 *>(was_bytes);
    uint4 *shadow = static_cast<uint4 *>(s.shadow);
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i - threadIdx.x % 32 < words * (32 / V); i += THREADS) {
        const bool is_in = i < vectors;
        const uint4 a = is_in ? is[i] : make_uint4(0, 0, 0, 0), b = is_in ? was[i] : make_uint4(0, 0, 0, 0);
        const uint32_t bits = differ<E>(a, b);
        if ((bits | __shfl_xor_sync(~0u, bits, 1)) != 0 && is_in)
            shadow[i] = a;
        put_bits<E>(x->bit, i, bits);
    }
}

/* ---- counts ---- */

/* Each warp has a region of the bit map; a step is one word of each lane. */
template <int E> struct map_of {
    enum { STEPS = E == 1 ? WORDS / THREADS : 1 };
    static __device__ __forceinline__ uint32_t word(uint32_t step)
    {
        return (threadIdx.x / 32 * STEPS + step) * 32 + threadIdx.x % 32;
    }
};

/* Changed elements, first and last ones of runs, of a word of the map. */
struct word_bits {
    uint32_t changed, first, last;
};

__device__ __forceinline__ word_bits look_at(const uint32_t *map, uint32_t words, uint32_t w)
{
    word_bits b = {0, 0, 0};
    if (w >= words)
        return b;
    b.changed = map[w];
    const uint32_t before = w > 0 ? map[w - 1] >> 31 : 0, after = w + 1 < words ? map[w + 1] << 31 : 0;
    b.first = b.changed & ~(b.changed << 1 | before);
    b.last = b.changed & ~(b.changed >> 1 | after);
    return b;
}

__device__ __forceinline__ uint64_t count_of(const word_bits &b)
{
    return static_cast<uint64_t>(__popc(b.changed)) | static_cast<uint64_t>(__popc(b.first)) << COUNT_BITS |
           static_cast<uint64_t>(__popc(b.last)) << (2 * COUNT_BITS);
}

/* Sums over the warps that compare; x->before gets those of the warps before each. */
template <int E> __device__ uint64_t count(slot *x, uint64_t *warp_count)
{
    const uint32_t words = (x->s.elements + 31) / 32, warp = threadIdx.x / 32;
    uint64_t mine = 0, before = 0, total = 0;
    for (uint32_t step = 0; step < map_of<E>::STEPS; step++)
        mine += count_of(look_at(x->bit, words, map_of<E>::word(step)));
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        mine += __shfl_xor_sync(~0u, mine, d);
    if (threadIdx.x % 32 == 0)
        warp_count[warp] = mine;
    meet();
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++) {
        before += w < warp ? warp_count[w] : 0;
        total += warp_count[w];
    }
    if (threadIdx.x % 32 == 0)
        x->before[warp] = before;
    __syncwarp(); /* all lanes read it when the record is written */
    return total;
}

#endif
