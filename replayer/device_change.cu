/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes found on the device. A block takes one stretch. Weights and shadow are read once from memory: a
 * bit map of what differs stays in shared memory, and when it is known which form is the shortest and where the record
 * goes, the values come from the cache. Where it goes is the sum of the sizes before it, which blocks find by looking
 * back at those of the stretches before (decoupled look-back: Merrill and Garland, 2016).
 */
#include "replayer/device_change.cuh"

enum { THREADS = 512, WARPS = crew<THREADS>::WARPS, STEPS = crew<THREADS>::STEPS, REGION = crew<THREADS>::REGION };

enum { RUNS = 2048 };                    /* more are never the shortest form */
enum { KEPT = 1024, KEPT_BYTES = 2048 }; /* changed elements that a warp keeps */
enum { SIZE_KNOWN = 1, END_KNOWN = LP_CHANGE_END_KNOWN };
enum { COUNT_BITS = 20 }; /* three counts in one word */

#define COUNT_MASK ((1u << COUNT_BITS) - 1)

struct compare_shared {
    uint8_t value[WARPS][KEPT_BYTES];
    uint32_t bit[WORDS];
    uint16_t place[WARPS][KEPT]; /* of the values */
    uint16_t run_first[RUNS], run_last[RUNS];
    uint64_t warp_count[WARPS];
    uint64_t before; /* end of the record before */
    uint32_t number; /* of the stretch */
};

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

/* Bits of vector i, which are less than a byte for wide elements: then lanes join theirs. */
template <int E> __device__ __forceinline__ void put_bits(uint32_t *map, uint32_t i, uint32_t bits, bool is_in)
{
    if (E == 1 && is_in)
        reinterpret_cast<uint16_t *>(map)[i] = static_cast<uint16_t>(bits);
    if (E == 2 && is_in)
        reinterpret_cast<uint8_t *>(map)[i] = static_cast<uint8_t>(bits);
    if (E == 4) {
        bits |= __shfl_down_sync(~0u, bits, 1) << 4;
        if (is_in && i % 2 == 0)
            reinterpret_cast<uint8_t *>(map)[i / 2] = static_cast<uint8_t>(bits);
    }
    if (E == 8) {
        bits |= __shfl_down_sync(~0u, bits, 1) << 2;
        bits |= __shfl_down_sync(~0u, bits, 2) << 4;
        if (is_in && i % 4 == 0)
            reinterpret_cast<uint8_t *>(map)[i / 4] = static_cast<uint8_t>(bits);
    }
}

/* Element k of a vector. */
template <int E> __device__ __forceinline__ typename element<E>::type pick(const uint4 &v, uint32_t k)
{
    if (E == 8) {
        const uint64_t lo = static_cast<uint64_t>(v.y) << 32 | v.x, hi = static_cast<uint64_t>(v.w) << 32 | v.z;
        return static_cast<typename element<E>::type>(k == 0 ? lo : hi);
    }
    const uint32_t w = k * E / 4, low = w & 1 ? v.y : v.x, high = w & 1 ? v.w : v.z;
    return static_cast<typename element<E>::type>((w & 2 ? high : low) >> (8 * E * (k % (4 / (E < 4 ? E : 4)))));
}

/* Changed elements of a warp's region: kept with their places, while there are few. */
template <int E> struct keeper {
    enum { MOST = KEPT < KEPT_BYTES / E ? KEPT : KEPT_BYTES / E };
    typename element<E>::type *value;
    uint16_t *place;
    uint32_t count; /* of all, kept or not */

    /* Bits of this lane's vector, of which the first element is number `first`. Warp-wide. */
    __device__ __forceinline__ void add(uint32_t bits, uint32_t first, const uint4 &v)
    {
        const uint32_t mine = __popc(bits);
        uint32_t upto = mine;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const uint32_t below = __shfl_up_sync(~0u, upto, d);
            upto += threadIdx.x % 32 >= d ? below : 0;
        }
        const uint32_t total = __shfl_sync(~0u, upto, 31);
        uint32_t at = count + upto - mine;
        count += total;
        if (count > MOST)
            return;
        for (uint32_t left = bits; left != 0; left &= left - 1) {
            const uint32_t k = __ffs(left) - 1;
            value[at] = pick<E>(v, k);
            place[at++] = static_cast<uint16_t>(first + k);
        }
    }
};

/* Elements [lo, hi) of weights at any address, one by one. Warp-wide; hi - lo is any number. */
template <int E>
__device__ void mark_elements(const lp_change_stretch &s, uint32_t lo, uint32_t hi, uint32_t *map, keeper<E> *kept)
{
    const uint8_t *from = static_cast<const uint8_t *>(s.from);
    const bool is_aligned = is_at_element<E>(from);
    for (uint32_t first = lo; first < hi; first += 32) {
        const uint32_t i = first + threadIdx.x % 32;
        typename element<E>::type is = 0, was = 0;
        if (i < hi) {
            is = load<E>(from + static_cast<uint64_t>(i) * E, is_aligned);
            was = static_cast<const typename element<E>::type *>(s.shadow)[i];
        }
        if (is != was) {
            static_cast<typename element<E>::type *>(s.shadow)[i] = is;
            atomicOr(&map[i / 32], 1u << (i % 32));
        }
        uint4 v = make_uint4(static_cast<uint32_t>(is), static_cast<uint32_t>(static_cast<uint64_t>(is) >> 32), 0, 0);
        kept->add(is != was ? 1 : 0, i, v);
    }
}

/* Fills the bit map, and brings the shadow up to date: each warp in its region. Returns how many elements of the region
 * changed. */
template <int E> __device__ uint32_t mark(const lp_change_stretch &s, compare_shared *m)
{
    enum { V = 16 / E };
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, lo = warp * REGION;
    const uint32_t hi = min(lo + REGION, s.elements);
    const bool is_even = reinterpret_cast<uintptr_t>(s.from) % 16 == 0;
    keeper<E> kept = {reinterpret_cast<typename element<E>::type *>(m->value[warp]), m->place[warp], 0};
    uint32_t *map = m->bit;
    for (uint32_t w = lane; w < REGION / 32; w += 32)
        map[lo / 32 + w] = 0;
    __syncwarp();
    if (lo >= hi)
        return 0;
    const uint32_t end = is_even ? hi / V : lo / V; /* vectors of the stretch */
    const uint4 *is = static_cast<const uint4 *>(s.from);
    uint4 *was = static_cast<uint4 *>(s.shadow);
    for (uint32_t first = lo / V; first < end; first += 32 * AHEAD) {
        uint4 a[AHEAD], b[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t i = first + k * 32 + lane;
            a[k] = b[k] = make_uint4(0, 0, 0, 0);
            if (i < end) {
                a[k] = __ldg(&is[i]);
                b[k] = __ldcs(&was[i]); /* not again: leave the cache to the weights */
            }
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t i = first + k * 32 + lane;
            const uint32_t bits = differ<E>(a[k], b[k]);
            if (!__any_sync(~0u, bits != 0))
                continue;
            if (bits != 0)
                __stcs(&was[i], a[k]);
            put_bits<E>(map, i, bits, i < end);
            kept.add(bits, i * V, a[k]);
        }
    }
    __syncwarp();
    mark_elements<E>(s, end * V > lo ? end * V : lo, hi, map, &kept);
    return kept.count;
}

/* ---- counts ---- */

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

/* ---- where the record goes ---- */

__device__ __forceinline__ uint64_t load_state(const uint64_t *at)
{
    return *reinterpret_cast<const volatile uint64_t *>(at);
}

__device__ __forceinline__ void store_state(uint64_t *at, uint64_t value, int state)
{
    *reinterpret_cast<volatile uint64_t *>(at) = value << 2 | state;
}

/* By one warp. Returns the end of the record before. */
__device__ uint64_t look_back(uint64_t *end, uint32_t number, uint64_t size)
{
    const uint32_t lane = threadIdx.x % 32;
    uint64_t before = 0;
    if (lane == 0)
        store_state(&end[number], size, number == 0 ? END_KNOWN : SIZE_KNOWN);
    for (int64_t top = static_cast<int64_t>(number) - 1; top >= 0; top -= 32) {
        const int64_t at = top - lane;
        uint64_t state;
        do
            state = at >= 0 ? load_state(&end[at]) : END_KNOWN;
        while (__any_sync(~0u, (state & 3) == 0));
        const uint32_t ends = __ballot_sync(~0u, (state & 3) == END_KNOWN);
        const uint32_t stop = ends == 0 ? 31 : __ffs(ends) - 1;
        uint64_t part = lane <= stop ? state >> 2 : 0;
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
            part += __shfl_xor_sync(~0u, part, d);
        before += part;
        if (ends != 0)
            break;
    }
    if (lane == 0 && number > 0)
        store_state(&end[number], before + size, END_KNOWN);
    return before;
}

/* ---- the record ---- */

struct record {
    uint32_t form, index, changed, runs; /* index: its bytes */
    uint64_t bytes;                      /* without what fills it up */
};

/* As lp_change_put chooses. */
__device__ record choose(const lp_change_stretch &s, uint64_t count, bool is_asked_whole, bool is_read)
{
    const bool whole = is_asked_whole || s.elements == 0;
    record r = {LP_CHANGE_ALL, 0, static_cast<uint32_t>(count & COUNT_MASK),
                static_cast<uint32_t>(count >> COUNT_BITS & COUNT_MASK), 0};
    const uint64_t values = static_cast<uint64_t>(r.changed) * s.elem;
    const uint64_t index[5] = {0, 0, 2ull * r.changed, 4ull * r.runs, (s.elements + 7ull) / 8};
    uint64_t best = static_cast<uint64_t>(s.elements) * s.elem;
    for (uint32_t f = LP_CHANGE_PLACES; f <= LP_CHANGE_BITS && !whole; f++)
        if (index[f] + values < best) {
            best = index[f] + values;
            r.form = f;
            r.index = static_cast<uint32_t>(index[f]);
        }
    r.bytes = is_read && (whole || r.changed > 0) ? LP_CHANGE_HEAD + best : 0;
    return r;
}

__device__ void put_head(const lp_change_stretch &s, const record &r, uint8_t *out)
{
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
    const uint64_t padded = (r.bytes + 7) / 8 * 8;
    if (threadIdx.x < padded - r.bytes)
        out[r.bytes + threadIdx.x] = 0;
}

template <int E> __device__ void put_all(const lp_change_stretch &s, uint8_t *out)
{
    const uint8_t *from = static_cast<const uint8_t *>(s.from);
    const uint64_t bytes = static_cast<uint64_t>(s.elements) * E;
    const bool is_even = is_at_element<8>(from);
    const uint64_t words = is_even ? bytes / 8 : 0; /* out is at a multiple of 8 */
    for (uint64_t i = threadIdx.x; i < words; i += THREADS)
        reinterpret_cast<uint64_t *>(out)[i] = reinterpret_cast<const uint64_t *>(from)[i];
    for (uint64_t i = words * 8 + threadIdx.x; i < bytes; i += THREADS)
        out[i] = from[i];
}

/* Values, and their places where these are the index, of a warp that kept them. */
template <int E>
__device__ void put_kept(const record &r, const compare_shared *m, uint32_t to, uint32_t count, uint8_t *out)
{
    const uint32_t warp = threadIdx.x / 32;
    const typename element<E>::type *value = reinterpret_cast<const typename element<E>::type *>(m->value[warp]);
    uint8_t *values = out + r.index;
    const bool is_aligned = is_at_element<E>(values);
    for (uint32_t i = threadIdx.x % 32; i < count; i += 32)
        store<E>(values + static_cast<uint64_t>(to + i) * E, value[i], is_aligned);
    if (r.form == LP_CHANGE_PLACES)
        for (uint32_t i = threadIdx.x % 32; i < count; i += 32)
            reinterpret_cast<uint16_t *>(out)[to + i] = m->place[warp][i];
}

/* The same of a warp with more: the places of 1,024 elements at a time, whose values are read again. */
template <int E>
__device__ void put_again(const lp_change_stretch &s, const record &r, compare_shared *m, uint32_t to, uint8_t *out)
{
    enum { AT_ONCE = 4 };
    const uint32_t lane = threadIdx.x % 32, words = (s.elements + 31) / 32;
    const uint8_t *from = static_cast<const uint8_t *>(s.from);
    uint8_t *values = out + r.index;
    const bool from_aligned = is_at_element<E>(from), is_aligned = is_at_element<E>(values);
    uint16_t *place = m->place[threadIdx.x / 32];
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t w = word_of<THREADS>(step), bits = w < words ? m->bit[w] : 0;
        const uint32_t upto = static_cast<uint32_t>(scan_warp(__popc(bits)));
        const uint32_t count = __shfl_sync(~0u, upto, 31);
        uint32_t at = upto - __popc(bits);
        for (uint32_t left = bits; left != 0; left &= left - 1)
            place[at++] = static_cast<uint16_t>(w * 32 + __ffs(left) - 1);
        __syncwarp();
        for (uint32_t first = lane; first < count; first += 32 * AT_ONCE) {
            typename element<E>::type value[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (first + k * 32 < count)
                    value[k] = load<E>(from + static_cast<uint64_t>(place[first + k * 32]) * E, from_aligned);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (first + k * 32 < count)
                    store<E>(values + static_cast<uint64_t>(to + first + k * 32) * E, value[k], is_aligned);
        }
        if (r.form == LP_CHANGE_PLACES)
            for (uint32_t i = lane; i < count; i += 32)
                reinterpret_cast<uint16_t *>(out)[to + i] = place[i];
        to += count;
        __syncwarp();
    }
}

/* First and last elements of the runs of a warp. */
__device__ void list_runs(const lp_change_stretch &s, compare_shared *m, uint64_t before)
{
    const uint32_t words = (s.elements + 31) / 32;
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t w = word_of<THREADS>(step);
        const word_bits b = look_at(m->bit, words, w);
        const uint64_t mine = count_of(b), upto = scan_warp(mine), start = before + upto - mine;
        uint32_t k = static_cast<uint32_t>(start >> COUNT_BITS & COUNT_MASK);
        for (uint32_t left = b.first; left != 0; left &= left - 1)
            m->run_first[k++] = static_cast<uint16_t>(w * 32 + __ffs(left) - 1);
        k = static_cast<uint32_t>(start >> (2 * COUNT_BITS));
        for (uint32_t left = b.last; left != 0; left &= left - 1)
            m->run_last[k++] = static_cast<uint16_t>(w * 32 + __ffs(left) - 1);
        before += __shfl_sync(~0u, upto, 31);
    }
}

/* What is left of the index: bits, or gaps and lengths. Block-wide. */
__device__ void put_index(const lp_change_stretch &s, const record &r, const compare_shared *m, uint8_t *out)
{
    __syncthreads();
    if (r.form == LP_CHANGE_BITS)
        for (uint32_t i = threadIdx.x; i < r.index; i += THREADS)
            out[i] = reinterpret_cast<const uint8_t *>(m->bit)[i];
    if (r.form == LP_CHANGE_RUNS)
        for (uint32_t i = threadIdx.x; i < r.runs; i += THREADS) {
            const uint32_t end = i > 0 ? m->run_last[i - 1] + 1u : 0, first = m->run_first[i];
            const uint32_t length = m->run_last[i] + 1u - first;
            reinterpret_cast<uint32_t *>(out)[i] = (first - end) | length << 16; /* 65,536 is 0 */
        }
}

template <int E> __device__ void compare_one(const lp_change_compare &c, compare_shared *m)
{
    const lp_change_stretch s = c.stretch[m->number];
    const uint32_t changed = mark<E>(s, m);
    if (c.flags == nullptr)
        return;
    __syncthreads();
    const uint32_t words = (s.elements + 31) / 32, flags = c.flags[s.name];
    uint64_t mine = 0, before;
    for (uint32_t step = 0; step < STEPS; step++)
        mine += count_of(look_at(m->bit, words, word_of<THREADS>(step)));
    const uint64_t count = sum_block<THREADS>(mine, m->warp_count, &before);
    const record r = choose(s, count, c.writes_whole || (flags & LP_CHANGE_WHOLE) != 0, (flags & LP_CHANGE_READ) != 0);
    if (threadIdx.x < 32) {
        const uint64_t at = look_back(c.end, m->number, (r.bytes + 7) / 8 * 8);
        if (threadIdx.x == 0)
            m->before = at;
    }
    __syncthreads();
    if (r.bytes == 0)
        return;
    uint8_t *out = c.out + m->before;
    put_head(s, r, out);
    if (r.form == LP_CHANGE_ALL) {
        put_all<E>(s, out + LP_CHANGE_HEAD);
        return;
    }
    const uint32_t to = static_cast<uint32_t>(before & COUNT_MASK);
    if (changed <= keeper<E>::MOST)
        put_kept<E>(r, m, to, changed, out + LP_CHANGE_HEAD);
    else
        put_again<E>(s, r, m, to, out + LP_CHANGE_HEAD);
    if (r.form == LP_CHANGE_RUNS)
        list_runs(s, m, before);
    put_index(s, r, m, out + LP_CHANGE_HEAD);
}

/* Numbers in the order in which blocks begin: a block that waits for another one knows that it runs. */
__global__ void __launch_bounds__(THREADS, 2) compare_stretches(const __grid_constant__ lp_change_compare c)
{
    extern __shared__ __align__(16) uint8_t shared[];
    compare_shared *m = reinterpret_cast<compare_shared *>(shared);
    if (threadIdx.x == 0)
        m->number = atomicAdd(c.ticket, 1u);
    __syncthreads();
    switch (c.stretch[m->number].elem) {
    case 1:
        compare_one<1>(c, m);
        break;
    case 2:
        compare_one<2>(c, m);
        break;
    case 4:
        compare_one<4>(c, m);
        break;
    default:
        compare_one<8>(c, m);
        break;
    }
}

extern "C" int lp_device_change_compare(const lp_change_compare *work, void *stream)
{
    if (work->count == 0)
        return 0;
    const int code = lp_cuda_cleared(
        cudaFuncSetAttribute(compare_stretches, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(compare_shared)));
    if (code != 0)
        return code;
    compare_stretches<<<work->count, THREADS, sizeof(compare_shared), lp_cuda_stream(stream)>>>(*work);
    return lp_cuda_cleared(cudaGetLastError());
}

/* ---- the table of a frame ---- */

__global__ void write_table(const __grid_constant__ lp_change_table t)
{
    uint32_t *out = static_cast<uint32_t *>(t.out);
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < t.count)
        out[i] = static_cast<uint32_t>((t.end[t.first + i] >> 2) - t.base);
    else if (i < t.count + 2)
        out[i] = i == t.count ? t.first : t.count;
}

extern "C" int lp_device_change_table(const lp_change_table *work, void *stream)
{
    write_table<<<(work->count + 2 + 255) / 256, 256, 0, lp_cuda_stream(stream)>>>(*work);
    return lp_cuda_cleared(cudaGetLastError());
}
