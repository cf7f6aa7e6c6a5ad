/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes each weight of a call once, by three warps of each block beside the products, into the places of
 * prefill_ring.cuh.
 *
 * A warp takes eight rows of a tile at a time, all of their columns, 128 after 128. Codes come through a small ring of
 * its own in shared memory, some units of 128 columns ahead. Eight lanes have a row, four rows after four: in the order
 * of prefill_place the codes of neighbours in the operand lie sixteen bytes apart, so a lane reads four words of E2M1
 * codes that way and makes whole chunks of sixteen bytes of them, and eight lanes make lines of 128 bytes.
 */
#ifndef LOADPLAN_PREFILL_AHEAD_CUH
#define LOADPLAN_PREFILL_AHEAD_CUH

#include "kernels/number_formats.h"
#include "kernels/prefill_ring.cuh"
#include "kernels/prefill_store.cuh"
#include "kernels/w4_codes.cuh"
#include "layouts/layout_index.h"

/* What a lane takes of a unit. */
template <int KIND> struct prefill_lane_codes {
    using U = prefill_unit_of_codes<KIND>;
    uint32_t codes[prefill_is_fp4(KIND) ? 4 : 8], scales[U::SCALES];
    /* Lane 8 r + c has row r or r + 4. */
    __device__ __forceinline__ prefill_lane_codes(const U &from, int row, int c)
    {
        if constexpr (prefill_is_fp4(KIND)) { /* a word of each sixteen bytes */
#pragma unroll
            for (int q = 0; q < 4; q++)
                codes[q] = prefill::load4(hopper::shared_address(from.codes[row]) + c / 2 * 4 + 16 * q);
        } else { /* sixteen bytes of each half, which two lanes share */
            const uint4 low = hopper::load16(hopper::shared_address(from.codes[row]) + c / 2 * 16);
            const uint4 high = hopper::load16(hopper::shared_address(from.codes[row]) + c / 2 * 16 + 64);
            codes[0] = low.x, codes[1] = low.y, codes[2] = low.z, codes[3] = low.w;
            codes[4] = high.x, codes[5] = high.y, codes[6] = high.z, codes[7] = high.w;
        }
#pragma unroll
        for (int i = 0; i < U::SCALES; i++)
            scales[i] = prefill::load4(hopper::shared_address(&from.scales[row][i]));
    }
};

/*
 * Where eight rows lie in the layouts. Packed by tiles, 128 columns of 256 rows are one piece, and so are their scales;
 * in the contract rows are whole, and words of four scales lie by columns, those of all rows together. A lane copies
 * sixteen bytes of row lane / 4, and a word of scales of row lane % 8.
 */
template <int KIND> struct prefill_source {
    using U = prefill_unit_of_codes<KIND>;
    static constexpr int ROW = U::ROW, SCALES = U::SCALES;
    const char *codes, *scales;
    int codes_step, scales_step; /* bytes to the next 128 columns */
    int left;                    /* of those */

    __device__ void start(const prefill_arguments &p, const prefill_numbered &at, int group)
    {
        const int lane = static_cast<int>(threadIdx.x) % 32, row = 8 * group + lane / 4,
                  scale_row = 8 * group + lane % 8;
        const int steps = (at.which == 0 ? p.hidden : p.intermediate) / 128, word = lane / 8 % SCALES;
        const int rows = prefill_walk::columns_of(p, at.which) * PREFILL_COLUMNS;
        const int64_t tile = at.weight_tile(p);
        left = steps;
        codes = p.codes[at.which] + tile * steps * (PREFILL_COLUMNS * ROW) +
                static_cast<int64_t>(row) * (p.packed ? ROW : ROW * steps) + lane % 4 * 16;
        codes_step = p.packed ? PREFILL_COLUMNS * ROW : ROW;
        if (p.packed) {
            scales = p.code_scale[at.which] + ((tile * steps * PREFILL_COLUMNS + scale_row) * SCALES + word) * 4;
            scales_step = PREFILL_COLUMNS * 4 * SCALES;
        } else {
            const int64_t slot = at.n * PREFILL_COLUMNS + lp_scale_slot(scale_row);
            scales =
                p.code_scale[at.which] + ((static_cast<int64_t>(at.expert) * steps * SCALES + word) * rows + slot) * 4;
            scales_step = 4 * rows * SCALES;
        }
    }
    /* Starts copying the next 128 columns. */
    __device__ __forceinline__ void copy(U &to)
    {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const uint32_t row = hopper::shared_address(to.codes[lane / 4]);
        prefill::copy16(row + lane % 4 * 16, codes);
        if (!prefill_is_fp4(KIND))
            prefill::copy16(row + lane % 4 * 16 + 64, codes + 64);
        if (lane < 8 * SCALES)
            prefill::copy4(hopper::shared_address(&to.scales[lane % 8][lane / 8 % SCALES]), scales);
        codes += codes_step, scales += scales_step;
        left--;
    }
};

__device__ __forceinline__ uint32_t prefill_byte(uint32_t word, int i)
{
    return word >> 8 * i & 0xff;
}

/* What a lane makes of it: chunks of sixteen bytes of its row, one of FP8 or two of BF16. */
struct prefill_chunk {
    uint32_t word[4];
};

/* E2M1 to E5M2, about the row's reference. Chunk lane % 8: the lower or the upper four codes of the lane's words. */
__device__ __forceinline__ prefill_chunk prefill_make_mx(const prefill_lane_codes<LP_PREFILL_MX | PREFILL_AHEAD> &from,
                                                         uint32_t reference)
{
    prefill_chunk to;
    const uint32_t upper = threadIdx.x % 2 * 16;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t scale = prefill_byte(from.scales[0], q);
        to.word[q] = w4_decode_mx_half(from.codes[q] >> upper, w4_magnitudes_low(scale, reference),
                                       w4_magnitudes_high(scale, reference));
    }
    return to;
}

/* The scale of sixteen columns as a pair of BF16 for w4_decode_nv. Scales are meant to be positive; a sign or a NaN is
 * taken as E4M3 has it. */
__device__ __forceinline__ uint32_t prefill_odd_scale_nv(uint32_t code)
{
    const uint32_t size = code & 0x7f, sign = (code & 0x80) * 0x01000100u;
    return size == 0x7f ? 0x7fff7fffu : w4_scale_nv(size) ^ sign;
}

/* E2M1 to BF16: chunks 2 i + lane % 2 of the lane's four. */
__device__ __forceinline__ void prefill_make_nv(const prefill_lane_codes<LP_PREFILL_NV | PREFILL_AHEAD> &from,
                                                prefill_chunk (&to)[2])
{
    const int c = static_cast<int>(threadIdx.x) % 8;
    /* The byte of each sixteen columns that the lane has eight of. */
    const uint32_t codes = w4_permute(from.scales[0], from.scales[1], c < 4 ? 0x6420 : 0x7531);
    uint32_t scale[4];
#pragma unroll
    for (int q = 0; q < 4; q++)
        scale[q] = w4_scale_nv(prefill_byte(codes, q));
    if (((codes | (codes + 0x01010101u)) & 0x80808080u) != 0)
        for (int q = 0; q < 4; q++)
            scale[q] = prefill_odd_scale_nv(prefill_byte(codes, q));
#pragma unroll
    for (int q = 0; q < 4; q++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            to[i].word[q] = w4_decode_pair(from.codes[q] >> c % 2 * 4 >> 8 * i, scale[q]);
}

/* E4M3 to BF16: chunk lane % 8 of either 64 columns. */
__device__ __forceinline__ void prefill_make_codes(const prefill_lane_codes<LP_PREFILL_CODES | PREFILL_AHEAD> &from,
                                                   prefill_chunk (&to)[2])
{
    const int upper = static_cast<int>(threadIdx.x) % 8 / 4; /* 32 columns of a half */
    const bool is_odd = threadIdx.x % 2 != 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t code = from.scales[0] >> (16 * i + 8 * upper) & 0xff, scale = e4m3_scale(code);
        uint32_t most = 0;
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            e4m3_decode_pairs(from.codes[4 * i + j], from.codes[4 * i + j + 1], is_odd ? 0 : 8, scale, to[i].word[j],
                              to[i].word[j + 1], most);
        if (e4m3_is_odd(most, code))
            for (int j = 0; j < 4; j++)
                to[i].word[j] = is_odd ? e4m3_any_odd(from.codes[4 * i + j], lp_ue8m0_value(code))
                                       : e4m3_any_even(from.codes[4 * i + j], lp_ue8m0_value(code));
    }
}

__device__ __forceinline__ void prefill_store_chunk(char *to, const prefill_chunk &chunk)
{
    *reinterpret_cast<uint4 *>(to) = make_uint4(chunk.word[0], chunk.word[1], chunk.word[2], chunk.word[3]);
}

/* Reference and rare scales of a lane's row of LP_PREFILL_MX. */
struct prefill_reference {
    uint32_t value;
    bool rare;
    /* From the scales of the first 256 columns, as the path of few tokens takes it. */
    __device__ __forceinline__ void start(uint32_t first, uint32_t second)
    {
        uint32_t highest = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            highest = max(highest, max(prefill_byte(first, i), prefill_byte(second, i)));
        value = w4_reference(highest);
        rare = false;
    }
    __device__ __forceinline__ void check(uint32_t scales)
    {
        const int own = static_cast<int>(threadIdx.x) % 4; /* the others are checked by the row's other lanes */
        rare |= (scales >> 8 * own & 0xff) + 13u - value > W4_SPAN;
    }
    /* Writes it, of four rows. */
    __device__ __forceinline__ void hand_over(uint8_t *to) const
    {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const uint32_t lanes = __ballot_sync(~0u, rare) >> (lane / 8 * 8) & 0xff;
        if (lane % 8 == 0)
            to[lane / 8] = static_cast<uint8_t>(lanes != 0 ? 0 : value);
    }
};

/* Decodes 128 columns of eight rows to `to`, where a lane's row begins. */
template <int KIND>
__device__ __forceinline__ void prefill_make_unit(const prefill_unit_of_codes<KIND> &unit, char *to,
                                                  prefill_reference (&reference)[2])
{
    const int lane = static_cast<int>(threadIdx.x) % 32, r = lane / 8, c = lane % 8;
    const prefill_lane_codes<KIND> both[2] = {{unit, r, c}, {unit, r + 4, c}};
#pragma unroll
    for (int i = 0; i < 2; i++) { /* rows r and r + 4; bit 2 of a row is a bit of its chunks' places */
        const prefill_lane_codes<KIND> &from = both[i];
        char *const row = to + i * 512;
        if constexpr (prefill_is_mx(KIND)) {
            reference[i].check(from.scales[0]);
            prefill_store_chunk(row + (c ^ r ^ 4 * i) * 16, prefill_make_mx(from, reference[i].value));
        } else {
            prefill_chunk chunk[2];
            if constexpr (prefill_is_nv(KIND))
                prefill_make_nv(from, chunk);
            else
                prefill_make_codes(from, chunk);
            for (int j = 0; j < 2; j++) {
                const int piece = prefill_is_nv(KIND) ? c / 4 : j;
                const int place = prefill_is_nv(KIND) ? c % 4 / 2 * 4 + 2 * j + c % 2 : c;
                prefill_store_chunk(row + piece * PREFILL_WEIGHT_BYTES + (place ^ r ^ 4 * i) * 16, chunk[j]);
            }
        }
    }
}

/* The groups of eight rows that a warp decodes, one after the other, and their codes some units ahead. */
template <int KIND> struct prefill_code_stream {
    prefill_source<KIND> source;
    int next; /* group that is copied next */
    __device__ __forceinline__ void copy(const prefill_arguments &p, const prefill_tables &tables, int workers,
                                         prefill_unit_of_codes<KIND> &to)
    {
        if (source.left == 0) {
            const prefill_numbered tile(p, tables, next / PREFILL_TILE_GROUPS);
            if (tile.which >= 0) {
                source.start(p, tile, next % PREFILL_TILE_GROUPS);
                next += workers;
            }
        }
        if (source.left > 0)
            source.copy(to);
        prefill::copies_commit();
    }
};

/* By each decoding warp; `maker` numbers those of a block. */
template <int KIND>
__device__ void prefill_decode_ahead(const prefill_arguments &p, prefill_shared<KIND> &sm, int maker)
{
    constexpr int DEPTH = prefill_making<KIND, true>::DEPTH, PIECES = prefill_element(KIND); /* of 128 columns */
    const int lane = static_cast<int>(threadIdx.x) % 32, r = lane / 8, blocks = static_cast<int>(gridDim.x);
    const int worker = static_cast<int>(blockIdx.x) + maker * blocks, workers = PREFILL_MAKERS * blocks;
    prefill_unit_of_codes<KIND>(&unit)[DEPTH] = sm.making.unit[maker];
    prefill_code_stream<KIND> stream;
    stream.source.left = 0, stream.next = worker;
    for (int d = 0; d < DEPTH - 1; d++)
        stream.copy(p, sm.tables, workers, unit[d]);
    int turn = 0;
    for (int i = worker;; i += workers) {
        const int number = i / PREFILL_TILE_GROUPS, group = i % PREFILL_TILE_GROUPS, last = number - p.places;
        const prefill_numbered tile(p, sm.tables, number);
        if (tile.which < 0)
            break;
        const int steps = (tile.which == 0 ? p.hidden : p.intermediate) / 128;
        char *to = prefill_place_of(p, number) + group * 1024 + r * 128;
        prefill_reference reference[2];
        if (last >= 0) /* the place is free then */
            prefill_wait_used(p, sm.tables, last);
#pragma unroll 1
        for (int step = 0; step < steps; step++, to += PIECES * PREFILL_WEIGHT_BYTES) {
            const int now = turn, free = turn == 0 ? DEPTH - 1 : turn - 1;
            turn = turn + 1 == DEPTH ? 0 : turn + 1;
            stream.copy(p, sm.tables, workers, unit[free]);
            if (prefill_is_mx(KIND) && step == 0) {
                prefill::copies_wait<DEPTH - 2>();
                __syncwarp();
                for (int j = 0; j < 2; j++)
                    reference[j].start(unit[now].scales[r + 4 * j][0], steps > 1 ? unit[turn].scales[r + 4 * j][0] : 0);
            } else {
                prefill::copies_wait<DEPTH - 1>();
                __syncwarp();
            }
            prefill_make_unit(unit[now], to, reference);
            __syncwarp();
        }
        if constexpr (prefill_is_mx(KIND))
            for (int j = 0; j < 2; j++)
                reference[j].hand_over(p.reference + static_cast<int64_t>(number) * PREFILL_COLUMNS + 8 * group +
                                       4 * j);
        __syncwarp();
        if (lane == 0)
            hopper::add_release(p.made_groups + number, 1);
    }
}

#endif
