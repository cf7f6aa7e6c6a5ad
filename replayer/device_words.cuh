/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transposed 4-byte words, such as block scales. Some warps read: asynchronous copies of the tile's rows, as they lie
 * in the source, into a buffer in shared memory. The others write: a thread picks four words out of four rows and
 * stores them as one vector. Several buffers are on their way, and the offsets inside a tile, which are the same for
 * every tile of a shape, stay in registers. (Bulk copies would do for rows of a kilobyte; for 200 bytes they are issued
 * too slowly.)
 */
#ifndef LOADPLAN_DEVICE_WORDS_CUH
#define LOADPLAN_DEVICE_WORDS_CUH

#include "replayer/device_ptx.cuh"
#include "replayer/device_work.cuh"

enum {
    LP_WORD_BLOCKS = 2, /* on a multiprocessor */
    LP_WORD_STAGES = 3,
    LP_WORD_READERS = 4, /* warps */
    LP_WORD_WRITERS = 8,
    LP_WORD_THREADS = 32 * (LP_WORD_READERS + LP_WORD_WRITERS),
    LP_WORD_LOADS = LP_TILE_WORDS / 4 / (32 * LP_WORD_READERS), /* vectors that a thread moves */
    LP_WORD_STORES = LP_TILE_WORDS / 4 / (32 * LP_WORD_WRITERS),
    LP_WORD_SHARED = LP_WORD_STAGES * LP_WORD_BUFFER
};

struct word_shared {
    uint64_t full[LP_WORD_STAGES], empty[LP_WORD_STAGES];
    char *to[LP_WORD_STAGES];
    uint32_t shape[LP_WORD_STAGES];
};

/* Offset of tile `part` of a desc on one side. */
template <bool SOURCE> __device__ __forceinline__ int64_t word_tile_offset(const lp_device_desc &d, uint32_t part)
{
    int64_t off = 0;
    for (int k = 0; k < d.rank; k++) {
        const lp_device_mode &m = d.mode[k];
        const uint32_t rest = m.tiles.value == 1 ? part : __umulhi(part, m.tiles.multiplier) >> m.tiles.shift;
        off += static_cast<int64_t>((part - rest * m.tiles.value) * m.tile.value) * (SOURCE ? m.src : m.dst);
        part = rest;
    }
    return off;
}

/* Tiles of this block: neighbouring ones go to different blocks, as in move_rows. */
__device__ __forceinline__ uint32_t word_tiles_of_block(const work_list &work)
{
    return (work.tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
}

/* The 16-byte pieces of a tile's rows that this reader's thread loads. */
__device__ __forceinline__ void take_loads(lp_tile_slot slot[LP_WORD_LOADS], const lp_tile_shape &shape)
{
    const uint32_t row_vectors = shape.row_bytes / 16;
#pragma unroll
    for (int j = 0; j < LP_WORD_LOADS; j++) {
        const uint32_t v = threadIdx.x + j * 32 * LP_WORD_READERS, row = v / row_vectors;
        slot[j].off = UINT32_MAX;
        if (row < shape.rows) {
            const uint32_t inside = (v - row * row_vectors) * 16;
            slot[j] = shape.row[row];
            slot[j].off += inside;
            slot[j].place += inside;
        }
    }
}

__device__ __forceinline__ void read_words(word_shared &s, unsigned char *buffers, const lp_device_desc *desc,
                                           const lp_tile_shape *shapes, const work_list &work, const base_list &bases)
{
    const uint32_t lane = threadIdx.x % 32, count = word_tiles_of_block(work);
    const char *from = nullptr; /* of the lane's tile among the next 32 */
    char *to = nullptr;
    uint32_t shape = 0, held = 0, stage = 0, phase = 0;
    lp_tile_slot slot[LP_WORD_LOADS];
    for (uint32_t n = 0; n < count; n++) {
        if (n % 32 == 0 && n + lane < count) {
            const work_item w = fetch(work, bases, blockIdx.x + (n + lane) * gridDim.x);
            const lp_device_desc &d = desc[w.desc];
            shape = w.shape;
            from = reinterpret_cast<const char *>(w.base) + d.src_off + word_tile_offset<true>(d, w.part);
            to = reinterpret_cast<char *>(d.dst) + word_tile_offset<false>(d, w.part);
        }
        const uint32_t tile_shape = __shfl_sync(0xffffffffu, shape, n % 32);
        const char *tile_from =
            reinterpret_cast<const char *>(__shfl_sync(0xffffffffu, reinterpret_cast<uint64_t>(from), n % 32));
        char *tile_to = reinterpret_cast<char *>(__shfl_sync(0xffffffffu, reinterpret_cast<uint64_t>(to), n % 32));
        if (tile_shape != held) {
            held = tile_shape;
            take_loads(slot, shapes[held - 1]);
        }
        barrier_wait(&s.empty[stage], phase ^ 1);
        if (threadIdx.x == 0) {
            s.to[stage] = tile_to;
            s.shape[stage] = tile_shape;
            barrier_arrive(&s.full[stage]);
        }
        const uint32_t buffer = shared_address(buffers) + stage * LP_WORD_BUFFER;
#pragma unroll
        for (int j = 0; j < LP_WORD_LOADS; j++)
            if (slot[j].off != UINT32_MAX)
                async_vector(buffer + slot[j].place, tile_from + slot[j].off);
        async_arrive(&s.full[stage]);
        stage = stage + 1 == LP_WORD_STAGES ? 0 : stage + 1;
        phase ^= stage == 0;
    }
}

__device__ __forceinline__ void write_words(word_shared &s, const unsigned char *buffers, const lp_tile_shape *shapes,
                                            const work_list &work)
{
    const uint32_t lane = threadIdx.x % 32, thread = threadIdx.x - 32 * LP_WORD_READERS,
                   count = word_tiles_of_block(work);
    uint32_t held = 0, step = 0, stage = 0, phase = 0;
    lp_tile_slot slot[LP_WORD_STORES];
    for (uint32_t n = 0; n < count; n++) {
        barrier_wait(&s.full[stage], phase);
        char *to = s.to[stage];
        if (s.shape[stage] != held) {
            held = s.shape[stage];
            const lp_tile_shape &shape = shapes[held - 1];
            step = shape.step;
#pragma unroll
            for (int j = 0; j < LP_WORD_STORES; j++) {
                const uint32_t v = thread + j * 32 * LP_WORD_WRITERS;
                slot[j] = shape.vector[v];
                if (v >= shape.vectors)
                    slot[j].off = UINT32_MAX;
            }
        }
        uint4 value[LP_WORD_STORES];
#pragma unroll
        for (int j = 0; j < LP_WORD_STORES; j++)
            if (slot[j].off != UINT32_MAX) {
                const unsigned char *at = buffers + stage * LP_WORD_BUFFER + slot[j].place;
                value[j].x = *reinterpret_cast<const uint32_t *>(at);
                value[j].y = *reinterpret_cast<const uint32_t *>(at + step);
                value[j].z = *reinterpret_cast<const uint32_t *>(at + 2 * step);
                value[j].w = *reinterpret_cast<const uint32_t *>(at + 3 * step);
            }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(&s.empty[stage]);
#pragma unroll
        for (int j = 0; j < LP_WORD_STORES; j++)
            if (slot[j].off != UINT32_MAX)
                *reinterpret_cast<uint4 *>(to + slot[j].off) = value[j];
        stage = stage + 1 == LP_WORD_STAGES ? 0 : stage + 1;
        phase ^= stage == 0;
    }
}

__global__ void __launch_bounds__(LP_WORD_THREADS, LP_WORD_BLOCKS)
    move_words(const lp_device_desc *desc, const lp_tile_shape *shapes, const work_list work,
               const __grid_constant__ base_list bases)
{
    extern __shared__ __align__(128) unsigned char word_buffers[];
    __shared__ word_shared s;
    let_next_kernel_start();
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < LP_WORD_STAGES; stage++) {
            barrier_init(&s.full[stage], 32 * LP_WORD_READERS + 1);
            barrier_init(&s.empty[stage], LP_WORD_WRITERS);
        }
    }
    __syncthreads();
    if (threadIdx.x < 32 * LP_WORD_READERS)
        read_words(s, word_buffers, desc, shapes, work, bases);
    else
        write_words(s, word_buffers, shapes, work);
    end_after_kernels_before();
}

#endif
