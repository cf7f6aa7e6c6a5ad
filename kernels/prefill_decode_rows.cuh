/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes of one step to operands, by the warps that decode: rows of weights in shared memory.
 *
 * A lane takes 16 bytes of codes of a row, 32 columns, as they lie in the layout, and stores them in the order
 * of prefill_place, as rows of 128 bytes with the 128-byte swizzle: eight words a row that no two lanes of a warp put
 * into the same bank.
 */
#ifndef LOADPLAN_PREFILL_DECODE_ROWS_CUH
#define LOADPLAN_PREFILL_DECODE_ROWS_CUH

#include "kernels/number_formats.h"
#include "kernels/prefill_store.cuh"
#include "kernels/prefill_tile.cuh"
#include "kernels/w4_codes.cuh"
#include "layouts/layout_index.h"

/*
 * A decoding warp has every seventh of the 32 groups of eight rows of a tile; a lane has row lane / 4 of each, and of
 * its 128 columns those from 32 * (lane % 4) on.
 */
constexpr int PREFILL_DECODERS = 7, PREFILL_GROUPS = (PREFILL_COLUMNS / 8 + PREFILL_DECODERS - 1) / PREFILL_DECODERS;
constexpr int PREFILL_AT_ONCE = 3; /* groups whose codes are loaded at once */

__device__ __forceinline__ int prefill_decoder()
{
    return threadIdx.x / 32 - PREFILL_WARPS;
}

/* Where a lane finds the scales of its rows in a step, two places a word. */
struct prefill_scale_places {
    uint32_t two[(PREFILL_GROUPS + 1) / 2];
    __device__ __forceinline__ uint32_t of(int i) const { return two[i / 2] >> i % 2 * 16 & 0xffff; }
};

/* The scale of columns 32 q .. of MXFP4; of columns 32 q .. 32 q + 15 of NVFP4, whose next byte is the other. */
template <int KIND> __device__ __forceinline__ prefill_scale_places prefill_places(bool packed)
{
    constexpr int EACH = KIND == LP_PREFILL_NV ? 8 : 4; /* bytes of a row */
    const int lane = threadIdx.x % 32, q = lane % 4;
    prefill_scale_places places = {};
#pragma unroll
    for (int i = 0; i < PREFILL_GROUPS; i++) {
        const int row = (prefill_decoder() + PREFILL_DECODERS * i) * 8 % PREFILL_COLUMNS + lane / 4;
        const int in_slots = KIND == LP_PREFILL_NV ? q / 2 * (PREFILL_COLUMNS * 4) + q % 2 * 2 : q;
        const int place = packed ? row * EACH + q * EACH / 4 : static_cast<int>(lp_scale_slot(row)) * 4 + in_slots;
        places.two[i / 2] |= static_cast<uint32_t>(place) << i % 2 * 16;
    }
    return places;
}

/* The eight places of a lane in its row of a piece, 16-byte chunks under the swizzle; rows 7 * 8 apart are 7 KiB apart.
 */
struct prefill_chunks {
    uint32_t at[8];
    __device__ __forceinline__ explicit prefill_chunks(uint32_t weights)
    {
        const int lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
        const uint32_t row = weights + prefill_decoder() * 1024 + r * 128 + r * 16 + 4 * q;
#pragma unroll
        for (int c = 0; c < 8; c++)
            at[c] = row ^ c * 16;
    }
    __device__ __forceinline__ void store(int i, int chunk, uint32_t v) const
    {
        prefill::store_shared_u32(at[chunk] + i * PREFILL_DECODERS * 1024, v);
    }
};

__device__ __forceinline__ bool prefill_has_group(int i)
{
    return prefill_decoder() + PREFILL_DECODERS * i < PREFILL_COLUMNS / 8;
}

/*
 * Visits the groups of eight rows of a decoding warp: `load(i, word, scale)` fetches the codes and the scale of group
 * i, `use(i, word, scale)` decodes them. The codes of PREFILL_AT_ONCE groups are on their way at once.
 */
template <typename WORD, typename LOAD, typename USE> __device__ __forceinline__ void prefill_groups(LOAD load, USE use)
{
#pragma unroll
    for (int first = 0; first < PREFILL_GROUPS; first += PREFILL_AT_ONCE) {
        WORD word[PREFILL_AT_ONCE];
        uint32_t scale[PREFILL_AT_ONCE];
#pragma unroll
        for (int a = 0; a < PREFILL_AT_ONCE; a++)
            if (first + a < PREFILL_GROUPS && prefill_has_group(first + a))
                load(first + a, word[a], scale[a]);
#pragma unroll
        for (int a = 0; a < PREFILL_AT_ONCE; a++)
            if (first + a < PREFILL_GROUPS && prefill_has_group(first + a))
                use(first + a, word[a], scale[a]);
    }
}

/* References and far rows of the rows that a lane has a quarter of. */
struct prefill_mx_rows {
    uint32_t reference[PREFILL_GROUPS];
    uint32_t rare; /* a bit a row: some scale does not fit */
};

/* References from the scales of the first 256 columns, as the path of few tokens takes them. `second` may be `scales`.
 */
__device__ __forceinline__ void prefill_refer(prefill_mx_rows &rows, uint32_t scales, uint32_t second,
                                              const prefill_scale_places &places)
{
    rows.rare = 0;
#pragma unroll
    for (int i = 0; i < PREFILL_GROUPS; i++) {
        uint32_t highest = max(hopper::load1(scales + places.of(i)), hopper::load1(second + places.of(i)));
        highest = max(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = max(highest, __shfl_xor_sync(~0u, highest, 2));
        rows.reference[i] = w4_reference(highest);
    }
}

/* A step of codes to E5M2. */
__device__ __forceinline__ void prefill_decode_mx(prefill_mx_rows &rows, uint32_t codes, uint32_t scales,
                                                  const prefill_scale_places &places, uint32_t weights)
{
    const prefill_chunks chunks(weights);
    const uint32_t from = codes + prefill_decoder() * 512 + threadIdx.x % 32 * 16;
    prefill_groups<uint4>(
        [&](int i, uint4 &word, uint32_t &scale) {
            word = hopper::load16(from + i * PREFILL_DECODERS * 512);
            scale = hopper::load1(scales + places.of(i));
        },
        [&](int i, const uint4 &word, uint32_t scale) {
            rows.rare |= (scale + 13u - rows.reference[i] > W4_SPAN ? 1u : 0u) << i;
            const uint32_t low = w4_magnitudes_low(scale, rows.reference[i]);
            const uint32_t high = w4_magnitudes_high(scale, rows.reference[i]);
            const uint32_t four[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t lower, upper;
                w4_decode_mx(four[j], low, high, lower, upper);
                chunks.store(i, 2 * j, lower);
                chunks.store(i, 2 * j + 1, upper);
            }
        });
}

/* Half `half` of a step of E2M1 codes, 32 of each 64 bytes, to BF16. An UE8M0 scale goes in as two factors, for 2^8
 * times it may be more than BF16 holds. */
template <int KIND>
__device__ __forceinline__ void prefill_decode_nv(int half, uint32_t codes, uint32_t scales,
                                                  const prefill_scale_places &places, uint32_t weights)
{
    const prefill_chunks chunks(weights);
    const uint32_t from = codes + prefill_decoder() * 512 + threadIdx.x % 32 * 16 + 8 * half;
    prefill_groups<uint2>(
        [&](int i, uint2 &word, uint32_t &code) {
            word = prefill::load8(from + i * PREFILL_DECODERS * 512);
            code = hopper::load1(scales + places.of(i) + (KIND == LP_PREFILL_NV ? half : 0));
        },
        [&](int i, const uint2 &word, uint32_t code) {
            uint32_t scale, more = 0x3f803f80u;
            if (KIND == LP_PREFILL_NV) { /* meant to be positive; a sign or a NaN is taken as E4M3 has it */
                const uint32_t size = code & 0x7f, sign = (code & 0x80) * 0x01000100u;
                scale = size == 0x7f ? 0x7fff7fffu : w4_scale_nv(size) ^ sign;
            } else {
                scale = min(code, 136u) * 0x00800080u + (118u << 7) * 0x00010001u; /* 2^(code - 9) */
                more = (max(code, 136u) - 136u + 127u) * 0x00800080u;
                scale = code == 255 ? 0x7fff7fffu : scale;
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint32_t pair[4];
                w4_decode_nv(j == 0 ? word.x : word.y, scale, pair);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    chunks.store(i, 4 * j + k, KIND == LP_PREFILL_NV ? pair[k] : w4_multiply_pair(pair[k], more));
            }
        });
}

__device__ __forceinline__ void prefill_store16(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* A step of E4M3, whose scales are kept apart, to BF16: 16 columns a lane and row. */
__device__ __forceinline__ void prefill_decode_codes(uint32_t codes, uint32_t weights)
{
    constexpr uint32_t ONE = 127;
    const int lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const uint32_t from = codes + prefill_decoder() * 512 + lane * 16;
    const uint32_t to = weights + prefill_decoder() * 1024 + r * 128 + (2 * q ^ r) * 16;
    prefill_groups<uint4>(
        [&](int i, uint4 &word, uint32_t &scale) {
            word = hopper::load16(from + i * PREFILL_DECODERS * 512);
            scale = e4m3_scale(ONE);
        },
        [&](int i, const uint4 &word, uint32_t scale) {
            const uint32_t four[4] = {word.x, word.y, word.z, word.w};
            uint32_t even[4], odd[4], most = 0;
#pragma unroll
            for (int c = 0; c < 4; c++)
                e4m3_decode(four[c], scale, even[c], odd[c], most);
            if (e4m3_has_nan(most))
                for (int c = 0; c < 4; c++)
                    even[c] = e4m3_any_even(four[c], 1.0f), odd[c] = e4m3_any_odd(four[c], 1.0f);
            const uint32_t at = to + i * PREFILL_DECODERS * 1024;
            prefill_store16(at, even[0], even[1], even[2], even[3]);
            prefill_store16(at ^ 16, odd[0], odd[1], odd[2], odd[3]);
        });
}

/* Tells the multiplying warps the references of a task's rows, before its last piece is handed over. */
__device__ __forceinline__ void prefill_hand_over_rows(prefill_raw<LP_PREFILL_MX> &raw, const prefill_mx_rows &rows,
                                                       int task)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PREFILL_GROUPS; i++) {
        const int group = prefill_decoder() + PREFILL_DECODERS * i;
        const uint32_t ballot = __ballot_sync(~0u, rows.rare >> i & 1);
        if (prefill_has_group(i) && lane % 4 == 0)
            raw.reference[task % 4][8 * group + lane / 4] =
                static_cast<uint8_t>((ballot >> lane & 15) != 0 ? 0 : rows.reference[i]);
    }
}

#endif
