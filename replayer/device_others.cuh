/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that is neither rows nor words of the other two kernels: any run from a byte on, any address, any dtype. A
 * thread block takes a tile at a time, but a warp one that is a few bytes; device_move.cuh has the ways in which they
 * are moved.
 */
#ifndef LOADPLAN_DEVICE_OTHERS_CUH
#define LOADPLAN_DEVICE_OTHERS_CUH

#include "replayer/device_move.cuh"
#include "replayer/device_ptx.cuh"
#include "replayer/device_work.cuh"

/* Where tile `part` begins: digits of its first run (or element), and their offsets. One thread. */
__device__ void begin_tile(tile_state &t, uint32_t part)
{
    const lp_device_desc &d = t.desc;
    const bool words = d.move == LP_MOVE_WORDS, long_runs = d.run_tiles > 0;
    int64_t src = d.src_off, dst = 0;
    uint64_t index = words ? part : long_runs ? part / d.run_tiles : static_cast<uint64_t>(part) * d.tile_runs;
    for (int k = 0; k < d.rank; k++) {
        const lp_device_mode &m = d.mode[k];
        const uint32_t steps = words ? m.tiles.value : m.extent.value;
        uint32_t digit = static_cast<uint32_t>(index % steps);
        index /= steps;
        if (words) {
            digit *= m.tile.value;
            const uint32_t left = m.extent.value - digit;
            t.limit[k] = left < m.tile.value ? left : m.tile.value;
        }
        t.digit[k] = digit;
        if (words || long_runs) {
            src += digit * m.src;
            dst += digit * m.dst;
        }
    }
    t.src = src;
    t.dst = dst;
}

__device__ __noinline__ void move_other(const tile_state &t, uint32_t part, char *dst, const char *src)
{
    const lp_device_desc &d = t.desc;
    const bool copies = d.move == LP_MOVE_RUNS, fills = d.move == LP_MOVE_FILL;
    if (d.run_tiles > 0) {
        const int64_t piece = copies ? LP_TILE_BYTES : LP_TILE_BYTES / d.dst_elem;
        const int64_t first = part % d.run_tiles * piece;
        const uint32_t count = static_cast<uint32_t>(d.run - first < piece ? d.run - first : piece);
        if (copies)
            copy_long(dst + first, src + first, count);
        else if (fills)
            fill_piece(dst + first * d.dst_elem, d.fill_bits, d.dst_elem, count);
        else
            move_elements(t, dst + first * d.dst_elem, src + first * d.src_elem, count, count);
        return;
    }
    const int64_t left = d.runs - static_cast<int64_t>(part) * d.tile_runs;
    const uint32_t runs = static_cast<uint32_t>(left < d.tile_runs ? left : d.tile_runs);
    if (copies)
        move_runs(t, dst, src, runs);
    else if (fills && d.runs == 1)
        fill_piece(dst, d.fill_bits, d.dst_elem, static_cast<uint32_t>(d.run));
    else
        move_elements(t, dst, fills ? nullptr : src, static_cast<uint32_t>(d.run), runs * static_cast<uint32_t>(d.run));
}

__device__ __noinline__ void move_some_words(const tile_state &t, char *dst, const char *src, uint32_t *buffer)
{
    const lp_device_desc &d = t.desc;
    const uint64_t all = reinterpret_cast<uintptr_t>(src) | reinterpret_cast<uintptr_t>(dst);
    bool aligned = all % d.run == 0;
    for (int k = 0; k < d.rank; k++)
        aligned = aligned && (d.mode[k].src | d.mode[k].dst) % d.run == 0;
    if (!aligned)
        move_words_unaligned(t, dst, src);
    else if (d.run == 4)
        move_word_tile<uint32_t>(t, buffer, dst, src);
    else
        move_word_tile<uint16_t>(t, reinterpret_cast<uint16_t *>(buffer), dst, src);
}

struct other_shared {
    tile_state t;
    uint32_t buffer[LP_TILE_BUFFER];
    work_item work[LP_WARPS];
    bool is_left[LP_WARPS]; /* for the whole block */
    uint32_t held;          /* number of the desc in t */
};

/* A tile by the whole block. */
__device__ __forceinline__ void move_tile(other_shared &s, const lp_device_desc *desc, const work_item &w)
{
    static_assert(sizeof(lp_device_desc) % 8 == 0, "descriptors are read in words of 8 bytes");
    tile_state &t = s.t;
    if (w.desc != s.held) {
        const uint64_t *from = reinterpret_cast<const uint64_t *>(&desc[w.desc]);
        uint64_t *to = reinterpret_cast<uint64_t *>(&t.desc);
        for (uint32_t j = threadIdx.x; j < sizeof(lp_device_desc) / 8; j += LP_BLOCK)
            to[j] = from[j];
        __syncthreads();
        if (threadIdx.x == 0)
            s.held = w.desc;
    }
    if (threadIdx.x == 0)
        begin_tile(t, w.part);
    __syncthreads();
    char *to = reinterpret_cast<char *>(t.desc.dst) + t.dst;
    const char *from = reinterpret_cast<const char *>(w.base) + t.src;
    if (t.desc.move == LP_MOVE_WORDS)
        move_some_words(t, to, from, s.buffer);
    else
        move_other(t, w.part, to, from);
    __syncthreads(); /* the block is done with t and buffer */
}

/* Each warp looks at a tile of its own, and moves it where it is small; the block moves what is left. */
__global__ void __launch_bounds__(LP_BLOCK, 3)
    move_others(const lp_device_desc *desc, const work_list work, const __grid_constant__ base_list bases)
{
    __shared__ other_shared s;
    const uint32_t warp = threadIdx.x / 32;
    let_next_kernel_start();
    if (threadIdx.x == 0)
        s.held = UINT32_MAX;
    for (uint64_t at = blockIdx.x; at < work.tiles; at += static_cast<uint64_t>(LP_WARPS) * gridDim.x) {
        const uint64_t mine = at + static_cast<uint64_t>(warp) * gridDim.x;
        bool is_left = false;
        if (mine < work.tiles) {
            const work_item w = fetch(work, bases, static_cast<uint32_t>(mine));
            is_left = w.shape != LP_SHAPE_SMALL;
            if (!is_left)
                copy_small(reinterpret_cast<char *>(desc[w.desc].dst),
                           reinterpret_cast<const char *>(w.base) + desc[w.desc].src_off,
                           static_cast<uint32_t>(desc[w.desc].run));
            else if (threadIdx.x % 32 == 0)
                s.work[warp] = w;
        }
        if (threadIdx.x % 32 == 0)
            s.is_left[warp] = is_left;
        __syncthreads();
        for (int k = 0; k < LP_WARPS; k++)
            if (s.is_left[k])
                move_tile(s, desc, s.work[k]);
        __syncthreads(); /* before the next tiles are listed */
    }
    end_after_kernels_before();
}

#endif
