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
#include "replayer/device_change.cuh"

#include "replayer/device_ptx.cuh"

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
    return total;
}

/* As lp_change_put chooses. */
__device__ record choose(const lp_change_stretch &s, uint64_t count, bool is_asked_whole, bool is_read)
{
    const bool whole = is_asked_whole || s.elements == 0;
    record r = {LP_CHANGE_ALL, 0, static_cast<uint32_t>(count & COUNT_MASK),
                static_cast<uint32_t>(count >> COUNT_BITS & COUNT_MASK), 0};
    const uint32_t values = r.changed * s.elem;
    const uint32_t index[5] = {0, 0, 2 * r.changed, 4 * r.runs, (s.elements + 7) / 8};
    uint32_t best = s.elements * s.elem;
#pragma unroll
    for (uint32_t f = LP_CHANGE_PLACES; f <= LP_CHANGE_BITS; f++)
        if (!whole && index[f] + values < best) {
            best = index[f] + values;
            r.form = f;
            r.index = index[f];
        }
    r.bytes = is_read && (whole || r.changed > 0) ? LP_CHANGE_HEAD + best : 0;
    return r;
}

__device__ __forceinline__ uint32_t padded(const record &r)
{
    return (r.bytes + 7) / 8 * 8;
}

/* ---- the record ---- */

__device__ void put_head(const slot *x, uint8_t *out)
{
    const lp_change_stretch &s = x->s;
    const record &r = x->r;
    const uint32_t word[6] = {s.name,
                              r.form | s.elem << 16,
                              static_cast<uint32_t>(s.off),
                              static_cast<uint32_t>(static_cast<uint64_t>(s.off) >> 32),
                              s.elements,
                              r.form == LP_CHANGE_RUNS ? r.runs : r.changed};
#pragma unroll
    for (int i = 0; i < 6; i++)
        if (threadIdx.x == i)
            reinterpret_cast<uint32_t *>(out)[i] = word[i];
    if (threadIdx.x < padded(r) - r.bytes)
        out[r.bytes + threadIdx.x] = 0;
}

/* From shared memory to a multiple of 8. */
__device__ void put_bytes(const uint8_t *from, uint32_t bytes, uint8_t *out)
{
    for (uint32_t i = threadIdx.x; i < bytes / 8; i += THREADS)
        reinterpret_cast<uint64_t *>(out)[i] = reinterpret_cast<const uint64_t *>(from)[i];
    for (uint32_t i = bytes / 8 * 8 + threadIdx.x; i < bytes; i += THREADS)
        out[i] = from[i];
}

/* Values of elements, and their places where these are the index. */
template <int E> struct writer {
    const typename element<E>::type *is;
    uint8_t *values;
    uint16_t *places;
    bool is_aligned, has_places;

    __device__ __forceinline__ void put(uint32_t i, uint32_t to) const
    {
        store<E>(values + static_cast<uint64_t>(to) * E, is[i], is_aligned);
        if (has_places)
            places[to] = static_cast<uint16_t>(i);
    }

    /* All of 32 words. */
    __device__ __forceinline__ void put_all_of(uint32_t word, uint64_t *out) const
    {
        const uint64_t *from = reinterpret_cast<const uint64_t *>(is + word * 32);
        for (uint32_t i = threadIdx.x % 32; i < 1024 * E / 8; i += 32)
            out[i] = from[i];
    }

    /* Those of a word of each lane, the first of which is number `word`; `to`: of the lane's first one. Warp-wide. */
    __device__ __forceinline__ void put_words(uint32_t word, uint32_t bits, uint32_t to) const
    {
        const uint32_t lane = threadIdx.x % 32;
        uint8_t *out = values + static_cast<uint64_t>(__shfl_sync(~0u, to, 0)) * E;
        if (!has_places && is_at_element<8>(out) && __all_sync(~0u, bits == ~0u)) {
            put_all_of(word, reinterpret_cast<uint64_t *>(out));
            return;
        }
        if (__reduce_max_sync(~0u, __popc(bits)) <= FEW) {
            for (uint32_t left = bits; left != 0; left &= left - 1)
                put((word + lane) * 32 + __ffs(left) - 1, to++);
            return;
        }
        for (uint32_t left = __ballot_sync(~0u, bits != 0); left != 0; left &= left - 1) {
            const uint32_t from = __ffs(left) - 1;
            const uint32_t all = __shfl_sync(~0u, bits, from), first = __shfl_sync(~0u, to, from);
            if (all >> lane & 1)
                put((word + from) * 32 + lane, first + __popc(all & ((1u << lane) - 1)));
        }
    }
};

/* Values in their order, places, and the first and last elements of runs. */
template <int E> __device__ void put_changed(const slot *x, compare_shared *m, uint8_t *out)
{
    const uint32_t words = (x->s.elements + 31) / 32;
    const record &r = x->r;
    const writer<E> w = {reinterpret_cast<const typename element<E>::type *>(x->is), out + r.index,
                         reinterpret_cast<uint16_t *>(out), is_at_element<E>(out + r.index),
                         r.form == LP_CHANGE_PLACES};
    uint64_t before = x->before[threadIdx.x / 32];
    for (uint32_t step = 0; step < map_of<E>::STEPS; step++) {
        const uint32_t word = map_of<E>::word(step);
        const word_bits b = look_at(x->bit, words, word);
        const uint64_t mine = count_of(b), upto = scan_warp(mine), start = before + upto - mine;
        w.put_words(word - threadIdx.x % 32, b.changed, static_cast<uint32_t>(start & COUNT_MASK));
        before += __shfl_sync(~0u, upto, 31);
        if (r.form != LP_CHANGE_RUNS)
            continue;
        uint32_t k = static_cast<uint32_t>(start >> COUNT_BITS & COUNT_MASK);
        for (uint32_t left = b.first; left != 0; left &= left - 1)
            m->run_first[k++] = static_cast<uint16_t>(word * 32 + __ffs(left) - 1);
        k = static_cast<uint32_t>(start >> (2 * COUNT_BITS));
        for (uint32_t left = b.last; left != 0; left &= left - 1)
            m->run_last[k++] = static_cast<uint16_t>(word * 32 + __ffs(left) - 1);
    }
}

/* Gaps and lengths. */
__device__ void put_runs(uint32_t runs, const compare_shared *m, uint8_t *out)
{
    meet();
    for (uint32_t i = threadIdx.x; i < runs; i += THREADS) {
        const uint32_t end = i > 0 ? m->run_last[i - 1] + 1u : 0, first = m->run_first[i];
        const uint32_t length = m->run_last[i] + 1u - first;
        reinterpret_cast<uint32_t *>(out)[i] = (first - end) | length << 16;
    }
    meet(); /* before the lists are used again */
}

__device__ void write_record(const lp_change_compare &c, const slot *x, compare_shared *m)
{
    const record &r = x->r;
    if (r.bytes == 0)
        return;
    uint8_t *out = c.out + x->at;
    put_head(x, out);
    out += LP_CHANGE_HEAD;
    if (r.form == LP_CHANGE_ALL) {
        put_bytes(x->is, x->s.elements * x->s.elem, out);
        return;
    }
    switch (x->s.elem) {
    case 1:
        put_changed<1>(x, m, out);
        break;
    case 2:
        put_changed<2>(x, m, out);
        break;
    case 4:
        put_changed<4>(x, m, out);
        break;
    default:
        put_changed<8>(x, m, out);
        break;
    }
    if (r.form == LP_CHANGE_BITS)
        put_bytes(reinterpret_cast<const uint8_t *>(x->bit), r.index, out);
    if (r.form == LP_CHANGE_RUNS)
        put_runs(r.runs, m, out);
}

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
