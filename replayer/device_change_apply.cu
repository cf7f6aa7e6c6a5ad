/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes into live tensors on the device. A warp takes the record of one stretch, and believes nothing of it: it is
 * held against the stretch that both sides know, and its index is gone through before the first element is written.
 * Functions here are warp-wide.
 */
#include "replayer/device_change.cuh"

#include "replayer/device_ptx.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, AHEAD = 4 /* loads of a lane under way */ };

__device__ __forceinline__ uint32_t lane_of()
{
    return threadIdx.x % 32;
}

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

template <int E>
__device__ __forceinline__ void write_bits(const incoming &x, uint32_t i, typename element<E>::type bits)
{
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

template <int E> __device__ __forceinline__ typename element<E>::type value_at(const incoming &x, uint32_t value)
{
    return load<E>(x.values + static_cast<uint64_t>(value) * E, x.values_aligned);
}

template <int E> __device__ __forceinline__ void write_element(const incoming &x, uint32_t i, uint32_t value)
{
    write_bits<E>(x, i, value_at<E>(x, value));
}

/* Eight bytes at any address, of which those of the words that they lie in may be read. */
__device__ __forceinline__ uint64_t load_anywhere(const uint8_t *p)
{
    const uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p) % 4) * 8;
    const uint32_t *word = reinterpret_cast<const uint32_t *>(p - shift / 8);
    const uint32_t a = word[0], b = word[1], c = shift != 0 ? word[2] : 0;
    return static_cast<uint64_t>(__funnelshift_r(b, c, shift)) << 32 | __funnelshift_r(a, b, shift);
}

/* Bytes in a row. */
__device__ void copy_bytes(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    const uint32_t head = min(bytes, static_cast<uint32_t>(-reinterpret_cast<intptr_t>(to) & 7));
    const uint32_t words = (bytes - head) / 8, tail = head + words * 8, lane = lane_of();
    if (lane < head)
        to[lane] = from[lane];
    for (uint32_t first = lane; first < words; first += 32 * AHEAD) {
        uint64_t word[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * 32 < words)
                word[k] = load_anywhere(from + head + static_cast<uint64_t>(first + k * 32) * 8);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * 32 < words)
                reinterpret_cast<uint64_t *>(to + head)[first + k * 32] = word[k];
    }
    if (lane < bytes - tail)
        to[tail + lane] = from[tail + lane];
}

template <int E> __device__ void apply_all(const incoming &x)
{
    if (x.is_line) {
        copy_bytes(x.line, x.values, x.s.elements * E);
        return;
    }
    for (uint32_t i = lane_of(); i < x.s.elements; i += 32)
        write_element<E>(x, i, i);
}

__device__ bool is_wrong(bool mine)
{
    return __any_sync(~0u, mine) != 0;
}

template <int E> __device__ bool apply_places(const incoming &x)
{
    const uint16_t *place = reinterpret_cast<const uint16_t *>(x.index);
    const uint32_t lane = lane_of();
    bool wrong = false;
#pragma unroll 4
    for (uint32_t i = lane; i < x.count; i += 32)
        wrong = wrong || place[i] >= x.s.elements || (i > 0 && place[i] <= place[i - 1]);
    if (is_wrong(wrong))
        return false;
    for (uint32_t first = lane; first < x.count; first += 32 * AHEAD) {
        uint32_t at[AHEAD];
        typename element<E>::type bits[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * 32 < x.count) {
                at[k] = place[first + k * 32];
                bits[k] = value_at<E>(x, first + k * 32);
            }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * 32 < x.count)
                write_bits<E>(x, at[k], bits[k]);
    }
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

/* Bits of vector i of the stretch. */
template <int E> __device__ __forceinline__ uint32_t bits_of(const incoming &x, uint32_t i)
{
    enum { V = 16 / E };
    const uint32_t word = reinterpret_cast<const uint32_t *>(x.index)[i * V / 32];
    return word >> (i * V % 32) & ((1u << V) - 1);
}

/* Shared memory for vectors of this lane, which are 32 apart. */
__device__ __forceinline__ uint4 *stage_of_lane()
{
    __shared__ uint4 stage[WARPS][AHEAD][32];
    return &stage[threadIdx.x / 32][0][lane_of()];
}

/* A stretch in a row: what is there is read and written in vectors, which is less than many small writes cost. Each
 * lane changes its own ones in shared memory. */
template <int E> __device__ void merge_bits(const incoming &x)
{
    enum { V = 16 / E };
    uint4 *const stage = stage_of_lane();
    const uint32_t lane = lane_of(), end = x.s.elements / V;
    const typename element<E>::type *values = reinterpret_cast<const typename element<E>::type *>(x.values);
    uint4 *to = reinterpret_cast<uint4 *>(x.line);
    for (uint32_t first = lane; first - lane < end; first += 32 * AHEAD) {
        uint32_t bits[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t i = first + k * 32;
            bits[k] = i < end ? bits_of<E>(x, i) : 0;
            if (bits[k] != 0)
                async_vector(shared_address(&stage[k * 32]), &to[i]);
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t mine = __popc(bits[k]), upto = scan_warp(mine);
            const typename element<E>::type *value = values + (upto - mine);
            uint4 *vector = &stage[k * 32];
            for (uint32_t left = bits[k]; left != 0; left &= left - 1)
                reinterpret_cast<typename element<E>::type *>(vector)[__ffs(left) - 1] = *value++;
            if (bits[k] != 0)
                to[first + k * 32] = *vector;
            values += __shfl_sync(~0u, upto, 31);
        }
    }
}

template <int E> __device__ bool apply_bits(const incoming &x)
{
    const uint32_t words = (x.s.elements + 31) / 32, lane = lane_of();
    uint32_t total = 0, before = 0;
    bool wrong = false;
#pragma unroll 4
    for (uint32_t w = lane; w < words; w += 32) {
        const uint32_t bits = index_word(x, w), left = x.s.elements - w * 32;
        total += __popc(bits);
        wrong = wrong || (left < 32 && bits >> left != 0);
    }
    total = __reduce_add_sync(~0u, total);
    if (is_wrong(wrong || total != x.count))
        return false;
    if (x.is_line && x.values_aligned && reinterpret_cast<uintptr_t>(x.line) % 16 == 0 && x.s.elements % 32 == 0) {
        merge_bits<E>(x);
        return true;
    }
    for (uint32_t w = lane; w - lane < words; w += 32) {
        const uint32_t bits = w < words ? index_word(x, w) : 0, upto = scan_warp(static_cast<uint32_t>(__popc(bits)));
        uint32_t value = before + upto - __popc(bits);
        for (uint32_t left = bits; left != 0; left &= left - 1)
            write_element<E>(x, w * 32 + __ffs(left) - 1, value++);
        before += __shfl_sync(~0u, upto, 31);
    }
    return true;
}

/* Runs of one round, one of each lane. */
struct round_of_runs {
    uint32_t first, length; /* element, elements */
    uint32_t before;        /* values before, in all rounds */
};

/* False when one ends behind the stretch. *at and *value: end of the rounds before, in elements and in values. */
__device__ bool place_runs(const incoming &x, uint32_t round, uint64_t *at, uint64_t *value, round_of_runs *out)
{
    const uint32_t r = round + lane_of();
    uint32_t gap = 0, length = 0;
    if (r < x.count) {
        const uint32_t pair = reinterpret_cast<const uint32_t *>(x.index)[r];
        gap = pair & 0xffffu;
        length = pair >> 16 == 0 ? LP_CHANGE_ELEMENTS : pair >> 16;
    }
    /* 32 runs of 65,536 elements and their gaps fit 32 bits */
    const uint64_t upto = scan_warp(static_cast<uint64_t>(length) | static_cast<uint64_t>(gap + length) << 32);
    const uint64_t total = __shfl_sync(~0u, upto, 31);
    *out = {static_cast<uint32_t>(*at + (upto >> 32) - length), length,
            static_cast<uint32_t>(*value + static_cast<uint32_t>(upto) - length)};
    *at += total >> 32;
    *value += static_cast<uint32_t>(total);
    return *at <= x.s.elements;
}

enum { LONG = 24 }; /* elements of a run that the whole warp writes */

template <int E> __device__ void write_runs(const incoming &x, const round_of_runs &mine)
{
    for (uint32_t k = 0; k < mine.length && mine.length < LONG; k++)
        write_element<E>(x, mine.first + k, mine.before + k);
    for (uint32_t left = __ballot_sync(~0u, mine.length >= LONG); left != 0; left &= left - 1) {
        const uint32_t from = __ffs(left) - 1, first = __shfl_sync(~0u, mine.first, from);
        const uint32_t length = __shfl_sync(~0u, mine.length, from), before = __shfl_sync(~0u, mine.before, from);
        if (x.is_line)
            copy_bytes(x.line + static_cast<uint64_t>(first) * E, x.values + static_cast<uint64_t>(before) * E,
                       length * E);
        for (uint32_t i = lane_of(); i < length && !x.is_line; i += 32)
            write_element<E>(x, first + i, before + i);
    }
}

template <int E> __device__ bool apply_runs(const incoming &x)
{
    uint64_t at = 0, value = 0;
    round_of_runs mine;
    for (uint32_t round = 0; round < x.count; round += 32)
        if (!place_runs(x, round, &at, &value, &mine))
            return false;
    at = value = 0;
    for (uint32_t round = 0; round < x.count; round += 32) {
        (void)place_runs(x, round, &at, &value, &mine);
        write_runs<E>(x, mine);
    }
    return true;
}

template <int E> __device__ bool apply_record(incoming &x)
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
        return apply_runs<E>(x);
    default:
        return apply_bits<E>(x);
    }
}

/* The record of the warp's stretch; false: it is not one. */
__device__ bool read_head(const lp_change_apply &a, incoming *x, uint32_t begin, uint32_t bytes)
{
    const uint32_t room = static_cast<uint32_t>(a.bytes - 8 - 8 * static_cast<int64_t>(a.count));
    if (begin % 8 != 0 || bytes % 8 != 0 || begin > room || bytes > room - begin || bytes < LP_CHANGE_HEAD)
        return false;
    const uint32_t *word = reinterpret_cast<const uint32_t *>(a.frame + begin);
    x->index = a.frame + begin + LP_CHANGE_HEAD;
    x->form = word[1] & 0xffffu;
    x->count = word[5];
    return word[0] == x->s.name && word[1] >> 16 == x->s.elem && word[2] == static_cast<uint32_t>(x->s.off) &&
           word[3] == static_cast<uint32_t>(static_cast<uint64_t>(x->s.off) >> 32) && word[4] == x->s.elements &&
           x->form >= LP_CHANGE_ALL && x->form <= LP_CHANGE_BITS && x->count <= x->s.elements;
}

/* Bytes of the record without what fills it up, from its own counts: runs say theirs by their lengths. */
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
    for (uint32_t r = lane_of(); r < x.count; r += 32) {
        const uint32_t length = reinterpret_cast<const uint32_t *>(x.index)[r] >> 16;
        total += length == 0 ? LP_CHANGE_ELEMENTS : length;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        total += __shfl_xor_sync(~0u, total, d);
    return LP_CHANGE_HEAD + 4ull * x.count + total * x.s.elem;
}

__device__ bool apply_stretch(const lp_change_apply &a, incoming &x, uint32_t begin, uint32_t room)
{
    if (!read_head(a, &x, begin, room))
        return false;
    x.target = a.target + x.s.first_target;
    const uint64_t bytes = stated_bytes(x, room);
    if (bytes > room || room - bytes >= 8)
        return false;
    switch (x.s.elem) {
    case 1:
        return apply_record<1>(x);
    case 2:
        return apply_record<2>(x);
    case 4:
        return apply_record<4>(x);
    default:
        return apply_record<8>(x);
    }
}

__global__ void __launch_bounds__(THREADS, 8) apply_records(const __grid_constant__ lp_change_apply a)
{
    const uint32_t number = blockIdx.x * WARPS + threadIdx.x / 32;
    const uint32_t *table =
        reinterpret_cast<const uint32_t *>(a.frame + a.bytes) - 2 - 2 * static_cast<uint64_t>(a.count);
    incoming x;
    if (number >= a.count)
        return;
    const uint32_t begin = table[2 * number], bytes = table[2 * number + 1];
    if (bytes == 0)
        return;
    x.s = a.stretch[a.first + number];
    if (a.flags[x.s.name] != LP_CHANGE_READ)
        return;
    if (!apply_stretch(a, x, begin, bytes) && lane_of() == 0)
        *a.damage = 1;
}

extern "C" int lp_device_change_apply(const lp_change_apply *work, void *stream)
{
    if (work->count == 0)
        return 0;
    apply_records<<<(work->count + WARPS - 1) / WARPS, THREADS, 0, lp_cuda_stream(stream)>>>(*work);
    return lp_cuda_cleared(cudaGetLastError());
}
