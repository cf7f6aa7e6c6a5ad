/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes into live tensors on the device. A block takes the record of one stretch, and believes nothing of it: it is
 * held against the stretch that both sides know, and its index is gone through before the first element is written.
 */
#include "replayer/device_change.cuh"

enum { THREADS = 128, WARPS = crew<THREADS>::WARPS, STEPS = crew<THREADS>::STEPS, REGION = crew<THREADS>::REGION };

struct apply_shared {
    uint64_t warp_count[WARPS];
    uint32_t first[THREADS], before[THREADS + 1]; /* of runs: first element, changed elements before */
    uint32_t is_damaged;
};

/* A record that was read: what to write where. */
struct incoming {
    lp_change_stretch s;
    const lp_change_target *target; /* of the name */
    const uint8_t *index, *values;
    uint32_t form, count, index_bytes;
    bool values_aligned;
    bool is_line; /* one target, which takes the stretch as it is */
    uint8_t *line;
    bool line_aligned;
};

/* Byte `off` of the tensor in a target; NULL: it takes others. */
__device__ uint8_t *place_of(const lp_change_target &t, int64_t off)
{
    int64_t left = off - t.lo;
    uint8_t *to = t.to;
    if (left < 0)
        return nullptr;
    for (uint32_t k = 0; k < t.modes; k++) {
        const int64_t digit = left / t.src_stride[k];
        if (digit >= t.extent[k])
            return nullptr;
        left -= digit * t.src_stride[k];
        to += digit * t.dst_stride[k];
    }
    return left < t.run ? to + left : nullptr;
}

template <int E> __device__ __forceinline__ void write_element(const incoming &x, uint32_t i, uint32_t value)
{
    const typename element<E>::type bits = load<E>(x.values + static_cast<uint64_t>(value) * E, x.values_aligned);
    if (x.is_line) {
        store<E>(x.line + static_cast<uint64_t>(i) * E, bits, x.line_aligned);
        return;
    }
    for (uint32_t k = 0; k < x.s.targets; k++) {
        uint8_t *to = place_of(x.target[k], x.s.off + static_cast<int64_t>(i) * E);
        if (to != nullptr)
            store<E>(to, bits, is_at_element<E>(to));
    }
}

/* Eight bytes at any address, of which those of the words that they lie in may be read. */
__device__ __forceinline__ uint64_t load_anywhere(const uint8_t *p)
{
    const uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p) % 4) * 8;
    const uint32_t *word = reinterpret_cast<const uint32_t *>(p - shift / 8);
    const uint32_t a = word[0], b = word[1], c = shift != 0 ? word[2] : 0;
    return static_cast<uint64_t>(__funnelshift_r(b, c, shift)) << 32 | __funnelshift_r(a, b, shift);
}

/* Bytes in a row, by `threads` threads, of which this is number `me`. */
__device__ void copy_bytes(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t me, uint32_t threads)
{
    const uint32_t head = min(bytes, static_cast<uint32_t>(-reinterpret_cast<intptr_t>(to) & 7));
    const uint32_t words = (bytes - head) / 8, tail = head + words * 8;
    if (me < head)
        to[me] = from[me];
    for (uint32_t i = me; i < words; i += threads)
        reinterpret_cast<uint64_t *>(to + head)[i] = load_anywhere(from + head + static_cast<uint64_t>(i) * 8);
    for (uint32_t i = tail + me; i < bytes; i += threads)
        to[i] = from[i];
}

template <int E> __device__ void apply_all(const incoming &x)
{
    if (x.is_line) {
        copy_bytes(x.line, x.values, x.s.elements * E, threadIdx.x, THREADS);
        return;
    }
    for (uint32_t i = threadIdx.x; i < x.s.elements; i += THREADS)
        write_element<E>(x, i, i);
}

/* Whether any thread found something wrong. Block-wide. */
__device__ bool is_wrong(bool mine)
{
    return __syncthreads_or(mine) != 0;
}

template <int E> __device__ bool apply_places(const incoming &x)
{
    const uint16_t *place = reinterpret_cast<const uint16_t *>(x.index);
    bool wrong = false;
    for (uint32_t i = threadIdx.x; i < x.count && !wrong; i += THREADS)
        wrong = place[i] >= x.s.elements || (i > 0 && place[i] <= place[i - 1]);
    if (is_wrong(wrong))
        return false;
    for (uint32_t i = threadIdx.x; i < x.count; i += THREADS)
        write_element<E>(x, place[i], i);
    return true;
}

__device__ __forceinline__ uint32_t index_word(const incoming &x, uint32_t w)
{
    uint32_t bits = 0;
    if (w * 4 + 4 <= x.index_bytes)
        return reinterpret_cast<const uint32_t *>(x.index)[w];
    for (uint32_t b = w * 4; b < x.index_bytes; b++)
        bits |= static_cast<uint32_t>(x.index[b]) << (8 * (b % 4));
    return bits;
}

template <int E> __device__ __forceinline__ void replace(uint4 *v, uint32_t k, typename element<E>::type value)
{
    if (E == 8) {
        const uint32_t low = static_cast<uint32_t>(value);
        const uint32_t high = static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32);
        *v = k == 0 ? make_uint4(low, high, v->z, v->w) : make_uint4(v->x, v->y, low, high);
        return;
    }
    const uint32_t w = k * E / 4, shift = 8 * E * (k % (4 / (E < 4 ? E : 4)));
    const uint32_t mask = (E == 4 ? ~0u : (1u << (8 * E % 32)) - 1) << shift;
    const uint32_t bits = static_cast<uint32_t>(value) << shift;
    v->x = w == 0 ? (v->x & ~mask) | bits : v->x;
    v->y = w == 1 ? (v->y & ~mask) | bits : v->y;
    v->z = w == 2 ? (v->z & ~mask) | bits : v->z;
    v->w = w == 3 ? (v->w & ~mask) | bits : v->w;
}

/* Bits of vector i of the stretch. */
template <int E> __device__ __forceinline__ uint32_t bits_of(const incoming &x, uint32_t i)
{
    enum { V = 16 / E };
    const uint32_t word = reinterpret_cast<const uint32_t *>(x.index)[i * V / 32];
    return word >> (i * V % 32) & ((1u << V) - 1);
}

/* A stretch in a row: what is there is read and written in vectors, which is less than many small writes cost. Each
 * warp has its region, with `before` values before it. */
template <int E> __device__ void merge_bits(const incoming &x, uint32_t before)
{
    enum { V = 16 / E };
    const uint32_t lane = threadIdx.x % 32, lo = threadIdx.x / 32 * REGION, hi = min(lo + REGION, x.s.elements);
    uint4 *to = reinterpret_cast<uint4 *>(x.line);
    for (uint32_t first = lo / V; first < hi / V; first += 32 * AHEAD) {
        uint4 v[AHEAD];
        uint32_t bits[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t i = first + k * 32 + lane;
            bits[k] = i < hi / V ? bits_of<E>(x, i) : 0;
            v[k] = bits[k] != 0 ? to[i] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t mine = __popc(bits[k]), upto = static_cast<uint32_t>(scan_warp(mine));
            uint32_t value = before + upto - mine;
            for (uint32_t left = bits[k]; left != 0; left &= left - 1, value++)
                replace<E>(&v[k], __ffs(left) - 1,
                           load<E>(x.values + static_cast<uint64_t>(value) * E, x.values_aligned));
            if (bits[k] != 0)
                to[first + k * 32 + lane] = v[k];
            before += __shfl_sync(~0u, upto, 31);
        }
    }
}

template <int E> __device__ bool apply_bits(const incoming &x, apply_shared *m)
{
    uint64_t mine = 0, before;
    bool wrong = false;
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t w = word_of<THREADS>(step), bits = index_word(x, w),
                       left = x.s.elements - min(x.s.elements, w * 32);
        mine += __popc(bits);
        wrong = wrong || (left < 32 && bits >> left != 0);
    }
    const uint64_t total = sum_block<THREADS>(mine, m->warp_count, &before);
    if (is_wrong(wrong || total != x.count))
        return false;
    if (x.is_line && reinterpret_cast<uintptr_t>(x.line) % 16 == 0 && x.s.elements % 32 == 0) {
        merge_bits<E>(x, static_cast<uint32_t>(before));
        return true;
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t w = word_of<THREADS>(step), bits = index_word(x, w);
        const uint64_t upto = scan_warp(__popc(bits));
        uint32_t value = static_cast<uint32_t>(before + upto - __popc(bits));
        for (uint32_t left = bits; left != 0; left &= left - 1)
            write_element<E>(x, w * 32 + __ffs(left) - 1, value++);
        before += __shfl_sync(~0u, upto, 31);
    }
    return true;
}

/* Runs of one round: where each begins, and how many elements come before. Returns false when one ends behind the
 * stretch. *at and *value: those of the rounds before. Block-wide. */
__device__ bool place_runs(const incoming &x, uint32_t first, apply_shared *m, uint64_t *at, uint64_t *value)
{
    const uint32_t r = first + threadIdx.x;
    uint32_t gap = 0, length = 0;
    uint64_t before;
    if (r < x.count) {
        const uint32_t pair = reinterpret_cast<const uint32_t *>(x.index)[r];
        gap = pair & 0xffffu;
        length = pair >> 16 == 0 ? LP_CHANGE_ELEMENTS : pair >> 16;
    }
    /* 128 runs of 65,536 elements fit 24 bits */
    const uint64_t mine = static_cast<uint64_t>(length) | static_cast<uint64_t>(gap + length) << 32;
    const uint64_t upto = scan_warp(mine);
    const uint64_t total = sum_block<THREADS>(mine, m->warp_count, &before);
    const uint64_t end = before + upto;
    m->before[threadIdx.x] = static_cast<uint32_t>(end) - length;
    m->first[threadIdx.x] = static_cast<uint32_t>(*at + (end >> 32) - length);
    if (threadIdx.x == 0)
        m->before[THREADS] = static_cast<uint32_t>(total);
    const bool wrong = *at + (total >> 32) > x.s.elements;
    *at += total >> 32;
    *value += static_cast<uint32_t>(total);
    __syncthreads();
    return !wrong;
}

enum { LONG = 24 }; /* elements of a run, on average */

template <int E> __device__ bool apply_runs(const incoming &x, apply_shared *m)
{
    uint64_t at = 0, value = 0;
    for (uint32_t first = 0; first < x.count; first += THREADS)
        if (!place_runs(x, first, m, &at, &value))
            return false;
    at = value = 0;
    for (uint32_t first = 0; first < x.count; first += THREADS) {
        const uint64_t from = value;
        const uint32_t runs = min(x.count - first, static_cast<uint32_t>(THREADS));
        (void)place_runs(x, first, m, &at, &value);
        if (x.is_line && value - from >= LONG * runs) { /* a warp for each */
            for (uint32_t r = threadIdx.x / 32; r < runs; r += WARPS)
                copy_bytes(x.line + static_cast<uint64_t>(m->first[r]) * E, x.values + (from + m->before[r]) * E,
                           (m->before[r + 1] - m->before[r]) * E, threadIdx.x % 32, 32);
            __syncthreads();
            continue;
        }
        for (uint32_t i = threadIdx.x; i < m->before[THREADS]; i += THREADS) {
            uint32_t lo = 0, hi = THREADS; /* the last run that begins at or before i */
            while (hi - lo > 1) {
                const uint32_t middle = (lo + hi) / 2;
                if (m->before[middle] <= i)
                    lo = middle;
                else
                    hi = middle;
            }
            write_element<E>(x, m->first[lo] + (i - m->before[lo]), static_cast<uint32_t>(from) + i);
        }
        __syncthreads();
    }
    return true;
}

template <int E> __device__ bool apply_record(incoming &x, apply_shared *m)
{
    const uint64_t index[5] = {0, 0, 2ull * x.count, 4ull * x.count, (x.s.elements + 7ull) / 8};
    x.index_bytes = static_cast<uint32_t>(index[x.form]);
    x.values = x.index + x.index_bytes;
    x.values_aligned = is_at_element<E>(x.values);
    const int64_t bytes = static_cast<int64_t>(x.s.elements) * E;
    const lp_change_target &t = x.target[0];
    x.is_line = x.s.targets == 1 && t.modes == 0 && x.s.off >= t.lo && x.s.off + bytes <= t.lo + t.run;
    x.line = x.is_line ? t.to + (x.s.off - t.lo) : nullptr;
    x.line_aligned = is_at_element<E>(x.line);
    switch (x.form) {
    case LP_CHANGE_ALL:
        apply_all<E>(x);
        return true;
    case LP_CHANGE_PLACES:
        return apply_places<E>(x);
    case LP_CHANGE_RUNS:
        return apply_runs<E>(x, m);
    default:
        return apply_bits<E>(x, m);
    }
}

/* The record of the block's stretch; false: it is not one. */
__device__ bool read_head(const lp_change_apply &a, incoming *x, uint32_t begin, uint32_t end)
{
    const uint32_t room = static_cast<uint32_t>(a.bytes - 8 - 4 * static_cast<int64_t>(a.count));
    if (begin % 8 != 0 || end % 8 != 0 || end > room || end < begin + LP_CHANGE_HEAD)
        return false;
    const uint32_t *word = reinterpret_cast<const uint32_t *>(a.frame + begin);
    x->index = a.frame + begin + LP_CHANGE_HEAD;
    x->form = word[1] & 0xffffu;
    x->count = word[5];
    return word[0] == x->s.name && word[1] >> 16 == x->s.elem && word[2] == static_cast<uint32_t>(x->s.off) &&
           word[3] == static_cast<uint32_t>(static_cast<uint64_t>(x->s.off) >> 32) && word[4] == x->s.elements &&
           x->form >= LP_CHANGE_ALL && x->form <= LP_CHANGE_BITS && x->count <= x->s.elements;
}

/* Bytes of the record without what fills it up, from its own counts: runs say theirs by their lengths. Block-wide. */
__device__ uint64_t stated_bytes(const incoming &x, uint32_t room)
{
    if (x.form == LP_CHANGE_ALL)
        return LP_CHANGE_HEAD + static_cast<uint64_t>(x.s.elements) * x.s.elem;
    if (x.form == LP_CHANGE_PLACES)
        return LP_CHANGE_HEAD + static_cast<uint64_t>(x.count) * (2 + x.s.elem);
    if (x.form == LP_CHANGE_BITS)
        return LP_CHANGE_HEAD + (x.s.elements + 7ull) / 8 + static_cast<uint64_t>(x.count) * x.s.elem;
    uint64_t total = 0;
    if (LP_CHANGE_HEAD + 4ull * x.count > room)
        return UINT64_MAX;
    for (uint32_t r = threadIdx.x % 32; r < x.count; r += 32) { /* every warp for itself */
        const uint32_t length = reinterpret_cast<const uint32_t *>(x.index)[r] >> 16;
        total += length == 0 ? LP_CHANGE_ELEMENTS : length;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        total += __shfl_xor_sync(~0u, total, d);
    return LP_CHANGE_HEAD + 4ull * x.count + total * x.s.elem;
}

__device__ bool apply_stretch(const lp_change_apply &a, incoming &x, uint32_t begin, uint32_t end, apply_shared *m)
{
    if (!read_head(a, &x, begin, end))
        return false;
    x.target = a.target + x.s.first_target;
    const uint64_t bytes = stated_bytes(x, end - begin);
    if (bytes > end - begin || end - begin - bytes >= 8)
        return false;
    switch (x.s.elem) {
    case 1:
        return apply_record<1>(x, m);
    case 2:
        return apply_record<2>(x, m);
    case 4:
        return apply_record<4>(x, m);
    default:
        return apply_record<8>(x, m);
    }
}

__global__ void __launch_bounds__(THREADS) apply_records(const __grid_constant__ lp_change_apply a)
{
    __shared__ apply_shared m;
    incoming x;
    const uint32_t *table = reinterpret_cast<const uint32_t *>(a.frame + a.bytes) - 2 - a.count;
    const uint32_t begin = blockIdx.x == 0 ? 0 : table[blockIdx.x - 1], end = table[blockIdx.x];
    if (begin == end)
        return;
    x.s = a.stretch[a.first + blockIdx.x];
    if (a.flags[x.s.name] != LP_CHANGE_READ)
        return;
    if (!apply_stretch(a, x, begin, end, &m) && threadIdx.x == 0)
        *a.damage = 1;
}

extern "C" int lp_device_change_apply(const lp_change_apply *work, void *stream)
{
    if (work->count == 0)
        return 0;
    apply_records<<<work->count, THREADS, 0, lp_cuda_stream(stream)>>>(*work);
    return lp_cuda_cleared(cudaGetLastError());
}
