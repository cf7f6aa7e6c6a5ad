/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/layout_index.h: index functions of the kernel layouts, for kernels, host code, tests and docs alike.
 *
 * The same functions as the table of layout.h says in axes, written out: a kernel needs them as expressions, and the
 * tests hold the two against each other. `half` is 0 for gate and 1 for up; rows and slots count from 0; arguments are
 * not checked.
 */
#ifndef LOADPLAN_LAYOUT_INDEX_H
#define LOADPLAN_LAYOUT_INDEX_H

#include "traces/trace.h"

/* ---- rows of the first projection ---- */

/* Eight gate rows, then their eight up rows. */
LP_HOST_DEVICE static inline int64_t lp_row_gran8(int half, int64_t row)
{
    return row / 8 * 16 + 8 * half + row % 8;
}
LP_HOST_DEVICE static inline int lp_row_gran8_half(int64_t place)
{
    return (int)(place / 8 % 2);
}
LP_HOST_DEVICE static inline int64_t lp_row_gran8_source(int64_t place)
{
    return place / 16 * 8 + place % 8;
}

/* Per 16 rows: even gate rows, even up rows, odd gate rows, odd up rows. */
LP_HOST_DEVICE static inline int64_t lp_row_packed(int half, int64_t row)
{
    return row / 16 * 32 + row % 2 * 16 + 8 * half + row % 16 / 2;
}
LP_HOST_DEVICE static inline int lp_row_packed_half(int64_t place)
{
    return (int)(place / 8 % 2);
}
LP_HOST_DEVICE static inline int64_t lp_row_packed_source(int64_t place)
{
    return place / 32 * 16 + place % 8 * 2 + place / 16 % 2;
}

/* The TRT order is the packed one with up before gate. */
LP_HOST_DEVICE static inline int64_t lp_row_trt(int half, int64_t row)
{
    return lp_row_packed(1 - half, row);
}
LP_HOST_DEVICE static inline int lp_row_trt_half(int64_t place)
{
    return 1 - lp_row_packed_half(place);
}
LP_HOST_DEVICE static inline int64_t lp_row_trt_source(int64_t place)
{
    return lp_row_packed_source(place);
}

/* BF16 in TRT order permutes the five low bits of the gran-8 row. */
LP_HOST_DEVICE static inline int64_t lp_row_trt_bf16(int half, int64_t row)
{
    const int64_t r = lp_row_gran8(half, row);
    return r / 32 * 32 + r % 2 * 16 + (1 - r / 8 % 2) * 8 + r / 16 % 2 * 4 + r / 2 % 4;
}

/* Rows of the second projection in TRT order: each 32 as a transposed 8 x 4. */
LP_HOST_DEVICE static inline int64_t lp_down_row_trt(int64_t row)
{
    return row / 32 * 32 + row % 4 * 8 + row % 32 / 4;
}
LP_HOST_DEVICE static inline int64_t lp_down_row_trt_source(int64_t place)
{
    return place / 32 * 32 + place % 8 * 4 + place % 32 / 8;
}

/* ---- slots of scale words ---- */

/* Inside each block of 128 rows the four rows 32 apart lie side by side. */
LP_HOST_DEVICE static inline int64_t lp_scale_slot(int64_t row)
{
    return row / 128 * 128 + row % 32 * 4 + row / 32 % 4;
}
LP_HOST_DEVICE static inline int64_t lp_scale_slot_source(int64_t slot)
{
    return slot / 128 * 128 + slot % 4 * 32 + slot / 4 % 32;
}

/* Slot of a row of gate or up, without the detour over the interleaved row. */
LP_HOST_DEVICE static inline int64_t lp_scale_slot_gran8(int half, int64_t row)
{
    return row / 64 * 128 + row / 8 % 2 * 64 + 32 * half + row % 8 * 4 + row / 16 % 4;
}
LP_HOST_DEVICE static inline int64_t lp_scale_slot_packed(int half, int64_t row)
{
    return row / 64 * 128 + row % 2 * 64 + 32 * half + row / 2 % 8 * 4 + row / 16 % 4;
}

/* Slot of a row of down in TRT order: the 32 groups of four lie as a transposed 8 x 4. */
LP_HOST_DEVICE static inline int64_t lp_down_scale_slot_trt(int64_t row)
{
    return row / 128 * 128 + row % 4 * 32 + row % 32 / 4 * 4 + row / 32 % 4;
}

/* Word of expert e, slot and word column in an MN-major scale tensor [E, rows, words]. */
LP_HOST_DEVICE static inline int64_t lp_scale_word(int64_t expert, int64_t slot, int64_t column, int64_t rows,
                                                   int64_t words)
{
    return (expert * words + column) * rows + slot;
}

/* The same in the block-major TRT order, where each block of 128 rows keeps its words together. */
LP_HOST_DEVICE static inline int64_t lp_scale_word_trt(int64_t expert, int64_t slot, int64_t column, int64_t rows,
                                                       int64_t words)
{
    return expert * rows * words + slot / 128 * words * 128 + column * 128 + slot % 128;
}

/* Row of a token's activation scales, when the launch runs tiles of `block_m` tokens, each padded to whole blocks of
 * 128. */
LP_HOST_DEVICE static inline int64_t lp_activation_scale_row(int64_t token, int64_t block_m)
{
    return token / block_m * ((block_m + 127) / 128 * 128) + lp_scale_slot(token % block_m);
}

/* Byte of a weight whose rows are split into two halves of the tensor, one in the memory of each die. */
LP_HOST_DEVICE static inline int64_t lp_localised_byte(int64_t expert, int64_t row, int64_t byte, int64_t experts,
                                                       int64_t rows, int64_t row_bytes)
{
    const int64_t part = rows / 2;
    return ((row / part * experts + expert) * part + row % part) * row_bytes + byte;
}

/* Byte of a tensor packed by tiles of 256 rows and 128 columns of K, for kernels of this project on Hopper. `row`
 * counts as the tile does: lp_row_gran8 of gate and up, the row itself of down. row_bytes is what 128 columns take in a
 * row: 64 of FP4 weights, 4 or 8 of scales; row_steps is the number of 128 columns in a row. */
LP_HOST_DEVICE static inline int64_t lp_tile_byte(int64_t expert, int64_t row, int64_t byte, int64_t rows,
                                                  int64_t row_steps, int64_t row_bytes)
{
    const int64_t tile = expert * (rows / 256) + row / 256;
    return ((tile * row_steps + byte / row_bytes) * 256 + row % 256) * row_bytes + byte % row_bytes;
}

#endif
