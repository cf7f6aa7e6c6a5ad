/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of the value digest, docs/value-digest.md. */
#include "replayer/device_digest.h"

#include <cuda_runtime.h>

enum {
    DIGEST_BLOCK = 256,
    RESIDENT = 4, /* blocks on a processor: enough registers to have a whole chunk under way */
    LONG_CHUNK = 8,
    SHORT_CHUNK = 2,
    ALONE_BYTES = 120 << 10 /* of shared memory: no second block finds room on a processor */
};

#define LANE0_STEP 0x9e3779b97f4a7c15u
#define LANE1_STEP 0xc2b2ae3d27d4eb4fu
#define LANE1_KEY  0x165667b19e3779f9u
#define MIX_1      0xd6e8feb86659fd93u
#define MIX_2      0xa0761d6478bd642fu

struct sums {
    uint64_t lane[2];
};

/* The second half of mix: x was multiplied once. */
__device__ __forceinline__ uint64_t mix_rest(uint64_t x)
{
    x ^= x >> 29;
    x *= MIX_2;
    return x ^ x >> 32;
}

__device__ __forceinline__ uint64_t mix(uint64_t x)
{
    return mix_rest((x ^ x >> 32) * MIX_1);
}

/* `steps` is (position + 1) * LANE0_STEP, `place` is mix(position). */
__device__ __forceinline__ void add_word(sums &s, uint64_t word, uint64_t steps, uint64_t place)
{
    s.lane[0] += mix(word + steps);
    s.lane[1] += mix((word ^ LANE1_KEY) * LANE1_STEP + place);
}

__device__ __forceinline__ uint64_t load_part(const char *at, uint32_t bytes)
{
    switch (bytes) {
    case 1:
        return *reinterpret_cast<const uint8_t *>(at);
    case 2:
        return *reinterpret_cast<const uint16_t *>(at);
    case 4:
        return *reinterpret_cast<const uint32_t *>(at);
    default:
        return *reinterpret_cast<const uint64_t *>(at);
    }
}

__device__ __forceinline__ uint64_t load_word(const lp_digest_job &job, const char *at)
{
    uint64_t word = 0;
    for (uint32_t p = 0; p < job.parts; p++)
        word |= load_part(at + p * job.part_off, job.part_bytes) << (8 * p * job.part_bytes);
    return word;
}

/* Where packet `index` begins. SMALL: numbers of packets are below 2^31. */
template <bool SMALL>
__device__ __forceinline__ void locate(const lp_digest_job &job, uint64_t index, int64_t &off, uint64_t &pos)
{
    off = 0;
    pos = job.first;
#pragma unroll 1
    for (uint32_t k = 0; k < job.rank; k++) {
        const lp_digest_mode &m = job.mode[k];
        uint64_t rest;
        if (k + 1 == job.rank)
            rest = 0;
        else if (SMALL)
            rest = m.extent.value == 1 ? index
                                       : __umulhi(static_cast<uint32_t>(index), m.extent.multiplier) >> m.extent.shift;
        else
            rest = index / m.extent.value;
        const uint64_t digit = index - rest * m.extent.value;
        off += static_cast<int64_t>(digit) * m.off;
        pos += digit * m.pos;
        index = rest;
    }
}

__device__ __forceinline__ uint64_t join(uint32_t low, uint32_t high)
{
    return static_cast<uint64_t>(high) << 32 | low;
}

/* Where packet `index` begins, in 16 bytes, and its position. */
__device__ __forceinline__ void locate_near(const lp_digest_job &job, uint32_t index, uint32_t &off16, uint32_t &pos)
{
    off16 = 0;
    pos = static_cast<uint32_t>(job.first);
#pragma unroll 1
    for (uint32_t k = 0; k + 1 < job.rank; k++) {
        const lp_divisor &extent = job.mode[k].extent;
        const uint32_t rest = extent.value == 1 ? index : __umulhi(index, extent.multiplier) >> extent.shift;
        const uint32_t digit = index - rest * extent.value;
        off16 += digit * job.near_mode[k].off16;
        pos += digit * job.near_mode[k].pos;
        index = rest;
    }
    if (job.rank > 0) {
        off16 += index * job.near_mode[job.rank - 1].off16;
        pos += index * job.near_mode[job.rank - 1].pos;
    }
}

/* What an addition makes of one word's products for the next one. A kernel parameter, since the compiler would multiply
 * again if it knew where they come from, and multiplications are what is scarce. */
struct word_step {
    uint64_t steps, product;
};

/* Adds the four words of a packet. Positions are below 2^32, where the first step of mix(position) does nothing, so
 * that its product goes on from word to word by an addition. */
__device__ __forceinline__ void add_packet(sums &s, const uint64_t word[4], uint32_t pos, const word_step &next)
{
    uint64_t steps = (pos + static_cast<uint64_t>(1)) * LANE0_STEP, product = pos * MIX_1;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        add_word(s, word[w], steps, mix_rest(product));
        steps += next.steps;
        product += next.product;
    }
}

/* Packets [from, to), CHUNK of them a thread, a warp apart, each of two loads: 32 bytes in a row, or with HALVES the
 * low and the high parts of four words. With IN_ROW they all lie in one row of the fastest mode, and are located once.
 */
template <int CHUNK, bool HALVES, bool IN_ROW>
__device__ __forceinline__ void sum_vectors(const lp_digest_job &job, const word_step &next, const char *data,
                                            uint32_t from, uint32_t to, sums &s)
{
    const uint32_t stride = gridDim.x * DIGEST_BLOCK * CHUNK;
    const uint32_t warp = (blockIdx.x * DIGEST_BLOCK + threadIdx.x) / 32;
    const int64_t second = HALVES ? job.part_off : 16;
    const uint32_t row_off16 = 32 * job.near_mode[0].off16, row_pos = 32 * job.near_mode[0].pos;
#pragma unroll 1
    for (uint32_t first = from + warp * 32 * CHUNK + threadIdx.x % 32; first < to; first += stride) {
        uint4 low[CHUNK], high[CHUNK];
        uint32_t pos[CHUNK], off16;
        locate_near(job, first, off16, pos[0]);
#pragma unroll
        for (int j = 0; j < CHUNK; j++) {
            const bool is_inside = IN_ROW || first + j * 32 < to;
            if (IN_ROW && j > 0) {
                pos[j] = pos[j - 1] + row_pos;
                off16 += row_off16;
            } else if (j > 0 && is_inside) {
                locate_near(job, first + j * 32, off16, pos[j]);
            }
            if (is_inside) {
                const char *at = data + static_cast<uint64_t>(off16) * 16;
                low[j] = __ldcs(reinterpret_cast<const uint4 *>(at));
                high[j] = __ldcs(reinterpret_cast<const uint4 *>(at + second));
            }
        }
#pragma unroll
        for (int j = 0; j < CHUNK; j++) {
            const uint4 a = low[j], b = high[j];
            if (!IN_ROW && first + j * 32 >= to)
                break;
            const uint64_t whole[4] = {join(a.x, a.y), join(a.z, a.w), join(b.x, b.y), join(b.z, b.w)};
            const uint64_t halves[4] = {join(a.x, b.x), join(a.y, b.y), join(a.z, b.z), join(a.w, b.w)};
            add_packet(s, HALVES ? halves : whole, pos[j], next);
        }
    }
}

template <bool HALVES>
__device__ __forceinline__ void sum_packets(const lp_digest_job &job, const word_step &next, const char *data, sums &s)
{
    const uint32_t row = job.mode[0].extent.value, packets = static_cast<uint32_t>(job.packets);
    if (row % (32 * LONG_CHUNK) == 0) {
        /* What is left when all blocks have had equally many long chunks is spread over all of them by short ones. */
        const uint32_t turn = gridDim.x * DIGEST_BLOCK * LONG_CHUNK, even = packets / turn * turn;
        sum_vectors<LONG_CHUNK, HALVES, true>(job, next, data, 0, even, s);
        sum_vectors<SHORT_CHUNK, HALVES, true>(job, next, data, even, packets, s);
    } else if (row % (32 * SHORT_CHUNK) == 0) {
        sum_vectors<SHORT_CHUNK, HALVES, true>(job, next, data, 0, packets, s);
    } else {
        sum_vectors<SHORT_CHUNK, HALVES, false>(job, next, data, 0, packets, s);
    }
}

template <bool SMALL> __device__ __forceinline__ void sum_words(const lp_digest_job &job, const char *data, sums &s)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * DIGEST_BLOCK;
    for (uint64_t i = blockIdx.x * DIGEST_BLOCK + threadIdx.x; i < job.packets; i += stride) {
        int64_t off;
        uint64_t pos;
        locate<SMALL>(job, i, off, pos);
        for (uint32_t w = 0; w < job.words; w++)
            add_word(s, load_word(job, data + off + w * job.word_off), (pos + w * job.word_pos + 1) * LANE0_STEP,
                     mix(pos + w * job.word_pos));
    }
}

/* Byte by byte: tensors whose rows are no multiple of a word, and tails. */
__device__ __noinline__ void sum_odd(const lp_digest_job &job, const char *data, sums &s)
{
    const uint64_t stride = static_cast<uint64_t>(gridDim.x) * DIGEST_BLOCK;
    for (uint64_t i = blockIdx.x * DIGEST_BLOCK + threadIdx.x; i < job.packets; i += stride) {
        uint64_t word = 0;
        for (int64_t b = 0; b < 8 && static_cast<int64_t>(i) * 8 + b < job.bytes; b++) {
            const int64_t at = static_cast<int64_t>(i) * 8 + b;
            int64_t off;
            uint64_t pos;
            locate<false>(job, static_cast<uint64_t>(at / job.unit), off, pos);
            word |= static_cast<uint64_t>(static_cast<uint8_t>(data[off + at % job.unit])) << (8 * b);
        }
        add_word(s, word, (job.first + i + 1) * LANE0_STEP, mix(job.first + i));
    }
}

template <bool SMALL>
__global__ void __launch_bounds__(DIGEST_BLOCK, RESIDENT)
    value_sum(const __grid_constant__ lp_digest_job job, const __grid_constant__ word_step next, const char *data,
              uint64_t *sum)
{
    __shared__ sums warp_sums[DIGEST_BLOCK / 32];
    sums s = {};
    if (job.is_odd)
        sum_odd(job, data, s);
    else if (job.has_vectors && job.parts == 1)
        sum_packets<false>(job, next, data, s);
    else if (job.has_vectors)
        sum_packets<true>(job, next, data, s);
    else
        sum_words<SMALL>(job, data, s);
    for (int lane = 0; lane < 2; lane++)
        for (int step = 16; step > 0; step /= 2)
            s.lane[lane] += __shfl_xor_sync(0xffffffffu, s.lane[lane], step);
    if (threadIdx.x % 32 == 0)
        warp_sums[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 2) {
        uint64_t total = 0;
        for (int w = 0; w < DIGEST_BLOCK / 32; w++)
            total += warp_sums[w].lane[threadIdx.x];
        static_assert(sizeof(unsigned long long) == sizeof(uint64_t), "atomicAdd takes an unsigned long long");
        atomicAdd(reinterpret_cast<unsigned long long *>(sum + threadIdx.x), total);
    }
}

extern "C" int lp_device_value_sum(const lp_digest_job *job, const void *data, uint64_t *sum, void *stream)
{
    int device = 0, processors = 0, resident = 0;
    const bool is_small = job->packets < 0x80000000u && job->bytes / 8 < 0x100000000;
    const auto kernel = is_small ? value_sum<true> : value_sum<false>;
    const word_step next = {job->word_pos * LANE0_STEP, job->word_pos * MIX_1};
    if (job->packets == 0)
        return 0;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const int left = static_cast<int>(job->left), shared = left > 0 ? ALONE_BYTES : 0;
    if (code == cudaSuccess && shared > 0)
        code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (code == cudaSuccess)
        code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, DIGEST_BLOCK, shared);
    if (code == cudaSuccess) {
        const uint64_t wanted = (job->packets + DIGEST_BLOCK - 1) / DIGEST_BLOCK;
        const uint64_t most = static_cast<uint64_t>(processors > left ? processors - left : 1) * resident;
        kernel<<<static_cast<unsigned>(wanted < most ? wanted : most), DIGEST_BLOCK, shared,
                 static_cast<cudaStream_t>(stream)>>>(*job, next, static_cast<const char *>(data), sum);
        code = cudaGetLastError();
    }
    if (code != cudaSuccess)
        cudaGetLastError();
    return static_cast<int>(code);
}
