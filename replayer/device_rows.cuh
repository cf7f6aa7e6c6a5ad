/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows by the copy engine of the multiprocessor: bulk copies from global to shared memory and on to global memory,
 * without a detour through registers. A tile is moved in units of 4 KiB, and neighbouring units go to different
 * multiprocessors: together they walk through memory in one narrow front, which the memory likes best (0.96 of
 * cudaMemcpy; each multiprocessor on a tile of its own 0.91). For the same reason there are no more buffers than that.
 *
 * One warp plans, one reads, one writes; a ring of buffers lies between reader and writer, and two lists of 32 units
 * between them and the planner.
 */
#ifndef LOADPLAN_DEVICE_ROWS_CUH
#define LOADPLAN_DEVICE_ROWS_CUH

#include "replayer/device_ptx.cuh"
#include "replayer/device_work.cuh"

enum {
    LP_ROW_STAGES = 14,
    LP_ROW_LAG = 2, /* stores that may still read their buffers while the writer goes on */
    LP_ROW_THREADS = 96,
    LP_ROW_SHARED = LP_ROW_STAGES * LP_UNIT_BYTES
};

/* `runs` rows of `bytes` bytes, the next ones `from_pitch` and `to_pitch` bytes on. Where `desc` is not NONE rows lie
 * otherwise: from and to are those of the desc's first row, `first` is the number of the unit's. */
struct __align__(16) row_unit
{
    const char *from;
    char *to;
    int64_t from_pitch, to_pitch;
    uint32_t bytes, runs, desc, first;
};

/* Offset of a row on one side. */
template <bool SOURCE> __device__ __forceinline__ int64_t row_offset(const lp_device_desc &d, uint64_t run)
{
    int64_t off = 0;
    for (int k = 0; k < d.rank; k++) {
        const lp_device_mode &m = d.mode[k];
        uint64_t rest;
        if (run < 0x80000000u)
            rest =
                m.extent.value == 1 ? run : __umulhi(static_cast<uint32_t>(run), m.extent.multiplier) >> m.extent.shift;
        else
            rest = run / m.extent.value;
        off += static_cast<int64_t>(run - rest * m.extent.value) * (SOURCE ? m.src : m.dst);
        run = rest;
    }
    return off;
}

/* Unit `unit` of a tile; runs is 0 when the tile has fewer units. */
__device__ __forceinline__ row_unit plan_unit(const lp_device_desc *desc, const work_item &w, uint32_t unit)
{
    const lp_device_desc &d = desc[w.desc];
    /* All that most descs need is loaded at once: the first tiles of a push wait for nothing else. */
    const lp_device_mode inner = d.mode[0];
    const int64_t run = d.run, run_count = d.runs;
    const uint32_t run_tiles = d.run_tiles, tile_runs = d.tile_runs, run_units = d.run_units, unit_runs = d.unit_runs;
    row_unit u;
    u.from = reinterpret_cast<const char *>(w.base) + d.src_off;
    u.to = reinterpret_cast<char *>(d.dst);
    u.desc = UINT32_MAX;
    u.from_pitch = inner.src;
    u.to_pitch = inner.dst;
    const bool is_small = d.rank <= 1 && run_count < 0x80000000;
    uint64_t first;
    int64_t inside = 0, runs = 1;
    if (run_tiles > 0) { /* a piece of a run */
        first = w.part / run_tiles;
        inside = static_cast<int64_t>(w.part % run_tiles) * LP_TILE_BYTES + unit * LP_UNIT_BYTES;
    } else if (run_units > 0) { /* a piece of one of the tile's runs */
        first = static_cast<uint64_t>(w.part) * tile_runs + unit / run_units;
        inside = unit % run_units * LP_UNIT_BYTES;
        runs = unit / run_units < tile_runs ? 1 : 0;
    } else {
        first = static_cast<uint64_t>(w.part) * tile_runs + unit * unit_runs;
        const int64_t left = run_count - static_cast<int64_t>(first);
        runs = left < unit_runs ? left : unit_runs;
    }
    const int64_t bytes = run - inside;
    if (static_cast<int64_t>(first) >= run_count || bytes <= 0)
        runs = 0;
    u.runs = static_cast<uint32_t>(runs > 0 ? runs : 0);
    u.bytes = static_cast<uint32_t>(bytes < LP_UNIT_BYTES ? bytes : LP_UNIT_BYTES);
    u.first = static_cast<uint32_t>(first);
    u.from += inside;
    u.to += inside;
    if (is_small) {
        u.from += static_cast<int64_t>(first) * inner.src;
        u.to += static_cast<int64_t>(first) * inner.dst;
    } else if (u.runs == 1 || first % inner.extent.value + u.runs <= inner.extent.value) {
        u.from += row_offset<true>(d, first);
        u.to += row_offset<false>(d, first);
    } else {
        u.desc = w.desc;
    }
    return u;
}

struct row_shared {
    row_unit unit[2][32];
    uint32_t count[2];
    uint64_t planned[2], taken[2];
    uint64_t full[LP_ROW_STAGES], empty[LP_ROW_STAGES];
};

__device__ __forceinline__ void plan_rows(row_shared &s, const lp_device_desc *desc, const work_list &work,
                                          const base_list &bases)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t units = static_cast<uint64_t>(work.tiles) * LP_TILE_UNITS;
    uint32_t half = 0, phase = 0;
    for (uint64_t at = blockIdx.x; at < units; at += 32 * gridDim.x) {
        const uint64_t i = at + static_cast<uint64_t>(lane) * gridDim.x;
        row_unit u;
        u.runs = 0;
        if (i < units) {
            const uint32_t tile = static_cast<uint32_t>(i / LP_TILE_UNITS);
            /* Turned by the tile's number, so that tiles with few units do not all burden the same blocks. */
            u = plan_unit(desc, fetch(work, bases, tile), static_cast<uint32_t>(i + tile) % LP_TILE_UNITS);
        }
        const uint32_t real = __ballot_sync(0xffffffffu, u.runs > 0);
        barrier_wait(&s.taken[half], phase ^ 1);
        if (u.runs > 0)
            s.unit[half][__popc(real & ((1u << lane) - 1))] = u;
        if (lane == 0)
            s.count[half] = __popc(real);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(&s.planned[half]);
        half ^= 1;
        phase ^= half == 0;
    }
}

__device__ __forceinline__ void read_unit(row_shared &s, unsigned char *buffer, uint32_t stage, uint32_t phase,
                                          const lp_device_desc *desc, const row_unit &u)
{
    const uint32_t lane = threadIdx.x % 32;
    barrier_wait(&s.empty[stage], phase ^ 1);
    if (lane == 0)
        barrier_expect(&s.full[stage], u.runs * u.bytes);
    __syncwarp();
    if (u.runs == 1) {
        if (lane == 0)
            bulk_load(buffer, u.from, u.bytes, &s.full[stage]);
        return;
    }
    for (uint32_t r = lane; r < u.runs; r += 32) {
        const int64_t off = u.desc == UINT32_MAX ? r * u.from_pitch : row_offset<true>(desc[u.desc], u.first + r);
        bulk_load(buffer + r * u.bytes, u.from + off, u.bytes, &s.full[stage]);
    }
}

__device__ __forceinline__ void write_unit(row_shared &s, const unsigned char *buffer, uint32_t stage, uint32_t phase,
                                           const lp_device_desc *desc, const row_unit &u)
{
    const uint32_t lane = threadIdx.x % 32;
    barrier_wait(&s.full[stage], phase);
    if (u.runs > 1)
        for (uint32_t r = lane; r < u.runs; r += 32) {
            const int64_t off = u.desc == UINT32_MAX ? r * u.to_pitch : row_offset<false>(desc[u.desc], u.first + r);
            bulk_store(u.to + off, buffer + r * u.bytes, u.bytes);
        }
    else if (lane == 0)
        bulk_store(u.to, buffer, u.bytes);
    bulk_commit();
    bulk_wait_read<LP_ROW_LAG>();
    __syncwarp();
}

__global__ void __launch_bounds__(LP_ROW_THREADS, 1)
    move_rows(const lp_device_desc *desc, const work_list work, const __grid_constant__ base_list bases)
{
    extern __shared__ __align__(128) unsigned char row_buffers[];
    __shared__ row_shared s;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int half = 0; half < 2; half++) {
            barrier_init(&s.planned[half], 1);
            barrier_init(&s.taken[half], 2);
        }
        for (int stage = 0; stage < LP_ROW_STAGES; stage++) {
            barrier_init(&s.full[stage], 1);
            barrier_init(&s.empty[stage], 1);
        }
        barrier_init_end();
    }
    __syncthreads();
    if (warp == 0) {
        plan_rows(s, desc, work, bases);
    } else {
        const uint64_t units = static_cast<uint64_t>(work.tiles) * LP_TILE_UNITS;
        uint32_t half = 0, half_phase = 0, stage = 0, phase = 0;
        uint32_t n = 0;
        for (uint64_t at = blockIdx.x; at < units; at += 32 * gridDim.x) {
            barrier_wait(&s.planned[half], half_phase);
            const uint32_t count = s.count[half];
            for (uint32_t j = 0; j < count; j++, n++) {
                const row_unit u = s.unit[half][j];
                unsigned char *buffer = row_buffers + stage * LP_UNIT_BYTES;
                if (warp == 1) {
                    read_unit(s, buffer, stage, phase, desc, u);
                } else {
                    write_unit(s, buffer, stage, phase, desc, u);
                    if (lane == 0 && n >= LP_ROW_LAG)
                        barrier_arrive(&s.empty[(stage + LP_ROW_STAGES - LP_ROW_LAG) % LP_ROW_STAGES]);
                }
                stage = stage + 1 == LP_ROW_STAGES ? 0 : stage + 1;
                phase ^= stage == 0;
            }
            __syncwarp();
            if (lane == 0)
                barrier_arrive(&s.taken[half]);
            half ^= 1;
            half_phase ^= half == 0;
        }
        let_next_kernel_start();
        if (warp == 2)
            bulk_wait_all();
    }
    end_after_kernels_before();
}

#endif
