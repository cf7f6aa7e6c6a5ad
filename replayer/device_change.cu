/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes found on the device. Weights and shadow of a stretch come into shared memory by bulk copies, once; what
 * differs becomes a bit map, and the record is put together from there. Where it goes is asked for when its size is
 * known. A block takes several stretches, and writes the record of one after it has compared the next: by then the
 * answer is there, and what comes next is on its way.
 *
 * Warps 0 to 7 compare and write; warp 8 fetches. Barriers order what they share:
 *
 *   full     weights and shadow of a slot are there
 *   read     the shadow has been looked at: the next one may come
 *   sized    the size of the record of a slot is told
 *   placed   so is where it goes
 *   written  the record of a slot is written: the next weights may come
 */
#include "replayer/device_change_record.cuh"

#include "replayer/device_ptx.cuh"

/* ---- turns ---- */

__device__ __forceinline__ uint32_t parity(uint32_t use)
{
    return use & 1;
}

/* Turn t of a block uses slot t % SLOTS, for the (t / SLOTS)-th time. */
template <int E> __device__ void compare_one(const lp_change_compare &c, slot *x, compare_shared *m)
{
    mark<E>(x, m->was);
    meet();
    if (threadIdx.x == 0)
        barrier_arrive(&m->read);
    if (c.flags == nullptr)
        return;
    const uint64_t counts = count<E>(x, m->warp_count);
    if (threadIdx.x != 0)
        return;
    x->r = choose(x->s, counts, c.writes_whole || (x->flags & LP_CHANGE_WHOLE) != 0, (x->flags & LP_CHANGE_READ) != 0);
    barrier_arrive(&m->sized[x - m->x]);
}

__device__ void write_turn(const lp_change_compare &c, uint32_t t, compare_shared *m)
{
    const uint32_t k = t % SLOTS;
    barrier_wait(&m->placed[k], parity(t / SLOTS));
    write_record(c, &m->x[k], m);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(&m->written[k]);
}

__device__ void compare_and_write(const lp_change_compare &c, uint32_t turns, compare_shared *m)
{
    for (uint32_t t = 0; t < turns; t++) {
        const uint32_t k = t % SLOTS;
        slot *x = &m->x[k];
        barrier_wait(&m->full[k], parity(t / SLOTS));
        const uint32_t bytes = x->s.elements * x->s.elem, there = bulk_bytes(x->s);
        if (there < bytes)
            complete(x->s, bytes, there, x, m->was);
        switch (x->s.elem) {
        case 1:
            compare_one<1>(c, x, m);
            break;
        case 2:
            compare_one<2>(c, x, m);
            break;
        case 4:
            compare_one<4>(c, x, m);
            break;
        default:
            compare_one<8>(c, x, m);
            break;
        }
        if (c.flags != nullptr && t > 0)
            write_turn(c, t - 1, m);
    }
    if (c.flags != nullptr && turns > 0)
        write_turn(c, turns - 1, m);
}

/* By one thread. */
__device__ void place_record(const lp_change_compare &c, slot *x)
{
    const uint32_t bytes = padded(x->r);
    uint32_t at = 0;
    if (bytes > 0)
        at = static_cast<uint32_t>(
            atomicAdd(reinterpret_cast<unsigned long long *>(c.used), static_cast<unsigned long long>(bytes)) - c.base);
    c.place[x->number] = {at, bytes};
    x->at = at;
}

/* By one thread. A turn waits for what was in its slot before. */
__device__ void fetch_and_place(const lp_change_compare &c, uint32_t turns, compare_shared *m)
{
    for (uint32_t t = 0; t < turns + SLOTS; t++) {
        const uint32_t k = t % SLOTS;
        slot *x = &m->x[k];
        uint32_t number = 0, flags = 0;
        lp_change_stretch s = {};
        if (t < turns) {
            number = c.first + blockIdx.x + t * gridDim.x;
            s = c.stretch[number];
            flags = c.flags == nullptr ? 0 : c.flags[s.name];
        }
        if (t >= SLOTS && c.flags != nullptr) {
            barrier_wait(&m->sized[k], parity(t / SLOTS - 1));
            place_record(c, x);
            barrier_arrive(&m->placed[k]);
        }
        if (t >= turns)
            continue;
        const uint32_t whole = bulk_bytes(s), shadow = (s.elements * s.elem + 15) & ~15u;
        if (t > 0)
            barrier_wait(&m->read, parity(t - 1));
        if (t >= SLOTS && c.flags != nullptr)
            barrier_wait(&m->written[k], parity(t / SLOTS - 1));
        x->s = s;
        x->number = number;
        x->flags = flags;
        barrier_expect(&m->full[k], whole + shadow);
        if (shadow > 0)
            bulk_load(m->was, s.shadow, shadow, &m->full[k]);
        if (whole > 0)
            bulk_load(x->is, s.from, whole, &m->full[k]);
    }
}

__global__ void __launch_bounds__(ALL_THREADS, RESIDENT) compare_stretches(const __grid_constant__ lp_change_compare c)
{
    extern __shared__ __align__(128) uint8_t shared[];
    compare_shared *m = reinterpret_cast<compare_shared *>(shared);
    const uint32_t turns = c.count / gridDim.x + (blockIdx.x < c.count % gridDim.x ? 1 : 0);
    if (threadIdx.x == 0) {
        for (int k = 0; k < SLOTS; k++) {
            barrier_init(&m->full[k], 1);
            barrier_init(&m->sized[k], 1);
            barrier_init(&m->placed[k], 1);
            barrier_init(&m->written[k], WARPS);
        }
        barrier_init(&m->read, 1);
        barrier_init_end();
    }
    __syncthreads();
    if (threadIdx.x < THREADS)
        compare_and_write(c, turns, m);
    else if (threadIdx.x == THREADS)
        fetch_and_place(c, turns, m);
}

extern "C" int lp_device_change_compare(const lp_change_compare *work, void *stream)
{
    int device = 0, processors = 0;
    if (work->count == 0)
        return 0;
    cudaError_t code =
        cudaFuncSetAttribute(compare_stretches, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(compare_shared));
    if (code == cudaSuccess)
        code = cudaGetDevice(&device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (code != cudaSuccess)
        return lp_cuda_cleared(code);
    const uint32_t most = static_cast<uint32_t>(processors) * RESIDENT, blocks = min(work->count, most);
    compare_stretches<<<blocks, ALL_THREADS, sizeof(compare_shared), lp_cuda_stream(stream)>>>(*work);
    return lp_cuda_cleared(cudaGetLastError());
}

/* ---- the table of a frame ---- */

__global__ void write_table(const __grid_constant__ lp_change_table t)
{
    uint32_t *out = static_cast<uint32_t *>(t.out);
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < t.count) {
        out[2 * i] = t.place[t.first + i].begin;
        out[2 * i + 1] = t.place[t.first + i].bytes;
    }
    if (i == t.count) {
        out[2 * i] = t.first;
        out[2 * i + 1] = t.count;
    }
}

extern "C" int lp_device_change_table(const lp_change_table *work, void *stream)
{
    write_table<<<(work->count + 1 + 255) / 256, 256, 0, lp_cuda_stream(stream)>>>(*work);
    return lp_cuda_cleared(cudaGetLastError());
}
