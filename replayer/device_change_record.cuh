/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a stretch, from its bit map: which form it has, and its bytes. For device_change.cu. */
#ifndef LOADPLAN_DEVICE_CHANGE_RECORD_CUH
#define LOADPLAN_DEVICE_CHANGE_RECORD_CUH

#include "replayer/device_change_bits.cuh"

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

#endif
