/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a thread block moves one tile without the copy engine. Each function below is called by all LP_BLOCK threads with
 * the same arguments.
 */
#ifndef LOADPLAN_DEVICE_MOVE_CUH
#define LOADPLAN_DEVICE_MOVE_CUH

#include "replayer/device_cast.cuh"
#include "replayer/device_program.h"

enum { LP_BLOCK = 256, LP_WARPS = LP_BLOCK / 32 };

/* What a tile's threads share: its descriptor, and where the tile begins. */
struct tile_state {
    lp_device_desc desc;
    uint32_t digit[LP_DEVICE_MODES]; /* step of each mode at the tile's first run or element */
    uint32_t limit[LP_DEVICE_MODES]; /* LP_MOVE_WORDS: steps of each mode inside the tile */
    int64_t src, dst;                /* offsets of the first element, from the item's base and the desc's address */
};

__device__ __forceinline__ uint32_t divide(uint32_t n, const lp_divisor &d)
{
    return d.value == 1 ? n : __umulhi(n, d.multiplier) >> d.shift;
}

/* Offsets of run number `index` after the tile's first run. */
__device__ __forceinline__ void run_offsets(const tile_state &t, uint32_t index, int64_t &src, int64_t &dst)
{
    src = 0;
    dst = 0;
    for (int k = 0; k < t.desc.rank; k++) {
        const lp_device_mode &m = t.desc.mode[k];
        const uint32_t step = t.digit[k] + index;
        index = divide(step, m.extent);
        const int64_t digit = step - index * m.extent.value;
        src += digit * m.src;
        dst += digit * m.dst;
    }
}

/* The widest access that divides everything or'ed into `bits`. */
__device__ __forceinline__ int access_width(uint64_t bits)
{
    return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1;
}

/* ---- a piece of a long run ---- */

template <class T> __device__ void copy_piece(char *dst, const char *src, uint32_t bytes)
{
    const uint32_t count = bytes / sizeof(T);
    const T *from = reinterpret_cast<const T *>(src);
    T *to = reinterpret_cast<T *>(dst);
    for (uint32_t i = threadIdx.x; i < count; i += 8 * LP_BLOCK) {
        T value[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (i + j * LP_BLOCK < count)
                value[j] = __ldcs(from + i + j * LP_BLOCK);
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (i + j * LP_BLOCK < count)
                __stcs(to + i + j * LP_BLOCK, value[j]);
    }
}

/* Source and destination that differ modulo 16: aligned stores of words that are put together from two aligned loads.
 * Loads touch only words that hold bytes of the run. */
__device__ __noinline__ void copy_shifted(char *dst, const char *src, uint32_t bytes)
{
    const uint32_t head = (4 - static_cast<uint32_t>(reinterpret_cast<uintptr_t>(dst)) % 4) % 4;
    if (bytes < 16) {
        if (threadIdx.x < bytes)
            dst[threadIdx.x] = src[threadIdx.x];
        return;
    }
    const uint32_t words = (bytes - head) / 4, tail = head + 4 * words;
    if (threadIdx.x < head)
        dst[threadIdx.x] = src[threadIdx.x];
    if (threadIdx.x < bytes - tail)
        dst[tail + threadIdx.x] = src[tail + threadIdx.x];
    const uintptr_t from = reinterpret_cast<uintptr_t>(src + head);
    const uint32_t shift = 8 * static_cast<uint32_t>(from % 4);
    const uint32_t *aligned = reinterpret_cast<const uint32_t *>(from - from % 4);
    uint32_t *to = reinterpret_cast<uint32_t *>(dst + head);
    for (uint32_t i = threadIdx.x; i < words; i += 4 * LP_BLOCK) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t at = i + j * LP_BLOCK;
            if (at < words) {
                low[j] = aligned[at];
                high[j] = shift > 0 ? aligned[at + 1] : 0;
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j * LP_BLOCK < words)
                to[i + j * LP_BLOCK] = __funnelshift_r(low[j], high[j], shift);
    }
}

__device__ __noinline__ void copy_long(char *dst, const char *src, uint32_t bytes)
{
    const uint64_t together = reinterpret_cast<uintptr_t>(dst) ^ reinterpret_cast<uintptr_t>(src);
    if (together % 16 != 0) {
        const uint64_t all = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src) | bytes;
        if (all % 8 == 0)
            copy_piece<uint2>(dst, src, bytes);
        else if (all % 4 == 0)
            copy_piece<uint32_t>(dst, src, bytes);
        else
            copy_shifted(dst, src, bytes);
        return;
    }
    uint32_t head = (16 - static_cast<uint32_t>(reinterpret_cast<uintptr_t>(dst)) % 16) % 16;
    if (head > bytes)
        head = bytes;
    const uint32_t middle = (bytes - head) / 16 * 16, tail = bytes - head - middle;
    if (threadIdx.x < head)
        dst[threadIdx.x] = src[threadIdx.x];
    if (threadIdx.x < tail)
        dst[head + middle + threadIdx.x] = src[head + middle + threadIdx.x];
    copy_piece<uint4>(dst + head, src + head, middle);
}

/* ---- a few bytes in one place, by one warp ---- */

__device__ __forceinline__ void copy_small(char *dst, const char *src, uint32_t bytes)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t all = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src) | bytes;
    if (all % 4 == 0)
        for (uint32_t at = 4 * lane; at < bytes; at += 128)
            *reinterpret_cast<uint32_t *>(dst + at) = *reinterpret_cast<const uint32_t *>(src + at);
    else
        for (uint32_t at = lane; at < bytes; at += 32)
            dst[at] = src[at];
}

/* ---- some short runs ---- */

template <class T> __device__ void copy_runs(const tile_state &t, char *dst, const char *src, uint32_t runs)
{
    const uint32_t run = static_cast<uint32_t>(t.desc.run);
    const uint32_t count = runs * run / sizeof(T);
    for (uint32_t i = threadIdx.x; i < count; i += 4 * LP_BLOCK) {
        T value[4];
        int64_t place[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t at = (i + j * LP_BLOCK) * sizeof(T);
            if (i + j * LP_BLOCK < count) {
                const uint32_t index = divide(at, t.desc.run_bytes);
                int64_t from;
                run_offsets(t, index, from, place[j]);
                const uint32_t inside = at - index * run;
                place[j] += inside;
                value[j] = *reinterpret_cast<const T *>(src + from + inside);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j * LP_BLOCK < count)
                *reinterpret_cast<T *>(dst + place[j]) = value[j];
    }
}

__device__ __noinline__ void move_runs(const tile_state &t, char *dst, const char *src, uint32_t runs)
{
    const int width = access_width(t.desc.src_align | t.desc.dst_align | reinterpret_cast<uintptr_t>(src) |
                                   static_cast<uint64_t>(t.desc.run));
    if (width == 16)
        copy_runs<uint4>(t, dst, src, runs);
    else if (width == 8)
        copy_runs<uint2>(t, dst, src, runs);
    else if (width == 4)
        copy_runs<uint32_t>(t, dst, src, runs);
    else if (width == 2)
        copy_runs<uint16_t>(t, dst, src, runs);
    else
        copy_runs<uint8_t>(t, dst, src, runs);
}

/* ---- transposed words ---- */

/* Steps through a tile in the order of one side. Modes are taken from the fastest on that side. Gives the element's
 * offset on that side and its place in the buffer; false beyond the tile's limits. */
template <bool SOURCE>
__device__ __forceinline__ bool tile_place(const tile_state &t, uint32_t index, int64_t &off, uint32_t &place)
{
    off = 0;
    place = 0;
    bool inside = true;
    for (int i = 0; i < t.desc.rank; i++) {
        const int k = SOURCE ? t.desc.src_order[i] : i;
        const lp_device_mode &m = t.desc.mode[k];
        const uint32_t rest = divide(index, m.tile);
        const uint32_t digit = index - rest * m.tile.value;
        index = rest;
        inside = inside && digit < t.limit[k];
        off += digit * (SOURCE ? m.src : m.dst);
        place += digit * m.pitch;
    }
    return inside;
}

/* A tile that the kernel for words cannot take: cut off, of 2-byte elements, or on odd addresses. */
template <class T>
__device__ __noinline__ void move_word_tile(const tile_state &t, T *buffer, char *dst, const char *src)
{
    for (uint32_t i = threadIdx.x; i < t.desc.tile_count; i += LP_BLOCK) {
        int64_t off;
        uint32_t place;
        if (tile_place<true>(t, i, off, place))
            buffer[place] = *reinterpret_cast<const T *>(src + off);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < t.desc.tile_count; i += LP_BLOCK) {
        int64_t off;
        uint32_t place;
        if (tile_place<false>(t, i, off, place))
            *reinterpret_cast<T *>(dst + off) = buffer[place];
    }
}

/* Words that lie on addresses which no word access may touch: byte by byte. */
__device__ __noinline__ void move_words_unaligned(const tile_state &t, char *dst, const char *src)
{
    const uint32_t bytes = static_cast<uint32_t>(t.desc.run);
    for (uint32_t i = threadIdx.x; i < t.desc.tile_count; i += LP_BLOCK) {
        int64_t to, from = 0;
        uint32_t place, index = i;
        if (!tile_place<false>(t, i, to, place))
            continue;
        for (int k = 0; k < t.desc.rank; k++) {
            const lp_device_mode &m = t.desc.mode[k];
            const uint32_t rest = divide(index, m.tile);
            from += (index - rest * m.tile.value) * m.src;
            index = rest;
        }
        for (uint32_t b = 0; b < bytes; b++)
            dst[to + b] = src[from + b];
    }
}

/* ---- casts and fills: element by element ---- */

__device__ __forceinline__ uint64_t load_bytes(const char *from, int bytes)
{
    uint64_t bits = 0;
    if ((reinterpret_cast<uintptr_t>(from) & (bytes - 1)) == 0) /* of 1, 2, 4 or 8 */
        switch (bytes) {
        case 1:
            return *reinterpret_cast<const uint8_t *>(from);
        case 2:
            return *reinterpret_cast<const uint16_t *>(from);
        case 4:
            return *reinterpret_cast<const uint32_t *>(from);
        default:
            return *reinterpret_cast<const uint64_t *>(from);
        }
    for (int b = 0; b < bytes; b++)
        bits |= static_cast<uint64_t>(static_cast<uint8_t>(from[b])) << (8 * b);
    return bits;
}

__device__ __forceinline__ void store_bytes(char *to, uint64_t bits, int bytes)
{
    if ((reinterpret_cast<uintptr_t>(to) & (bytes - 1)) == 0)
        switch (bytes) {
        case 1:
            *reinterpret_cast<uint8_t *>(to) = static_cast<uint8_t>(bits);
            return;
        case 2:
            *reinterpret_cast<uint16_t *>(to) = static_cast<uint16_t>(bits);
            return;
        case 4:
            *reinterpret_cast<uint32_t *>(to) = static_cast<uint32_t>(bits);
            return;
        default:
            *reinterpret_cast<uint64_t *>(to) = bits;
            return;
        }
    for (int b = 0; b < bytes; b++)
        to[b] = static_cast<char>(bits >> (8 * b));
}

/* `count` elements in a row that are all `bits`. */
__device__ __noinline__ void fill_piece(char *dst, uint64_t bits, uint32_t elem, uint32_t count)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(dst);
    const uint32_t bytes = count * elem;
    if ((at & (elem - 1)) != 0) {
        for (uint32_t i = threadIdx.x; i < count; i += LP_BLOCK)
            store_bytes(dst + i * elem, bits, elem);
        return;
    }
    uint64_t pattern = elem < 8 ? bits & ((1ull << 8 * elem) - 1) : bits;
    for (uint32_t width = elem; width < 8; width *= 2)
        pattern |= pattern << 8 * width; /* eight bytes as they lie at any multiple of eight */
    const uint32_t to_vector = static_cast<uint32_t>(-at & 15), head = to_vector < bytes ? to_vector : bytes;
    const uint32_t vectors = (bytes - head) / 16, tail = head + 16 * vectors;
    if (threadIdx.x < head)
        dst[threadIdx.x] = static_cast<char>(pattern >> 8 * ((at + threadIdx.x) & 7));
    if (threadIdx.x < bytes - tail)
        dst[tail + threadIdx.x] = static_cast<char>(pattern >> 8 * ((at + tail + threadIdx.x) & 7));
    ulonglong2 *middle = reinterpret_cast<ulonglong2 *>(dst + head);
    for (uint32_t i = threadIdx.x; i < vectors; i += LP_BLOCK)
        middle[i] = make_ulonglong2(pattern, pattern);
}

/* `count` elements of the tile's runs, each run of `run` elements; `src` NULL: a fill. */
__device__ __noinline__ void move_elements(const tile_state &t, char *dst, const char *src, uint32_t run,
                                           uint32_t count)
{
    const lp_device_desc &d = t.desc;
    for (uint32_t i = threadIdx.x; i < count; i += LP_BLOCK) {
        const uint32_t index = d.run_tiles > 0 ? 0 : i / run, inside = i - index * run;
        int64_t from = 0, to = 0;
        if (d.run_tiles == 0)
            run_offsets(t, index, from, to);
        to += static_cast<int64_t>(inside) * d.dst_elem;
        uint64_t bits = d.fill_bits;
        if (src != nullptr)
            bits = cast_bits(load_bytes(src + from + static_cast<int64_t>(inside) * d.src_elem, d.src_elem),
                             d.src_dtype, d.dst_dtype);
        store_bytes(dst + to, bits, d.dst_elem);
    }
}

#endif
