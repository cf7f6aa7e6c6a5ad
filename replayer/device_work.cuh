/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of a push read: its tiles, and where each item begins. */
#ifndef LOADPLAN_DEVICE_WORK_CUH
#define LOADPLAN_DEVICE_WORK_CUH

#include "replayer/device_program.h"

/* The same of a push of all items, which has less to say about each. */
enum { LP_NEAR_ITEMS = 480 };

/* A tile of a push: what to move, and the base pointer of its item. */
struct work_item {
    uint32_t desc, part;
    uint64_t base;
    uint32_t shape, unused;
};

/* The base pointers of a push of all items. */
struct base_list {
    const uint64_t *far; /* on the device; NULL: near */
    uint64_t near[LP_NEAR_ITEMS];
};

/* The tiles of a push: its own list, or for a push of all items the program's with a base pointer for each item. */
struct work_list {
    const work_item *own;
    const lp_device_tile *tile;
    uint32_t tiles;
};

__device__ __forceinline__ work_item fetch(const work_list &w, const base_list &bases, uint32_t i)
{
    if (w.own != nullptr)
        return w.own[i];
    const lp_device_tile t = w.tile[i];
    const uint64_t base = bases.far != nullptr ? bases.far[t.item] : bases.near[t.item];
    return {t.desc, t.part, base, t.shape, 0};
}

/* A tile list of the program. */
struct device_list {
    lp_device_tile *tile, *whole; /* whole: in the order of a push of all items */
    uint32_t *item_tile;
};

/* One item of a push of some items. */
struct push_item {
    uint64_t base;
    uint32_t item, rows, words, others; /* where its tiles go in the work lists */
    uint32_t aligned, unused;           /* aligned: its rows and words go by their own kernels */
};

struct push_list {
    const push_item *far;
    push_item near[LP_NEAR_PUSH_ITEMS];
};

__device__ __forceinline__ void list_some(work_item *work, const lp_device_tile *tile, uint32_t first, uint32_t count,
                                          uint64_t base)
{
    for (uint32_t i = threadIdx.x % 32; i < count; i += 32)
        work[i] = {tile[first + i].desc, tile[first + i].part, base, tile[first + i].shape, 0};
}

/* Writes the work lists of a push of some items: a warp writes the tiles of one item. */
__global__ void list_tiles(work_item *rows, work_item *words, work_item *others, device_list row_list,
                           device_list word_list, device_list other_list, const __grid_constant__ push_list list,
                           uint32_t count)
{
    const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (warp >= count)
        return;
    const push_item p = list.far != nullptr ? list.far[warp] : list.near[warp];
    const uint32_t row = row_list.item_tile[p.item], row_count = row_list.item_tile[p.item + 1] - row;
    const uint32_t word = word_list.item_tile[p.item], word_count = word_list.item_tile[p.item + 1] - word;
    const uint32_t other = other_list.item_tile[p.item], other_count = other_list.item_tile[p.item + 1] - other;
    work_item *rest = others + p.others;
    list_some(rest, other_list.tile, other, other_count, p.base);
    list_some(p.aligned ? rows + p.rows : rest + other_count, row_list.tile, row, row_count, p.base);
    list_some(p.aligned ? words + p.words : rest + other_count + row_count, word_list.tile, word, word_count, p.base);
}

#endif
