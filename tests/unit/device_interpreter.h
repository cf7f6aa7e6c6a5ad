/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device program run on the host, tile by tile, as the kernels read it: the places of rows, units, shapes and limits
 * are theirs, the moving itself is memcpy. Where this gives the right bytes the compiler of programs is right; what is
 * left for a GPU to show is the kernels' own code. Included by test programs only.
 */
#ifndef DEVICE_INTERPRETER_H
#define DEVICE_INTERPRETER_H

#include "replayer/device_program.h"

/* Tile n of a list, as the device writes it. */
static inline lp_device_tile tile_at(const lp_tile_run *run, int64_t runs, uint32_t n)
{
    int64_t lo = 0, hi = runs - 1;
    while (lo < hi) {
        const int64_t middle = (lo + hi + 1) / 2;
        if (run[middle].first <= n)
            lo = middle;
        else
            hi = middle - 1;
    }
    return (lp_device_tile){
        .desc = run[lo].desc, .part = n - run[lo].first, .item = run[lo].item, .shape = run[lo].shape};
}

static inline uint32_t run_divide(uint32_t n, lp_divisor d)
{
    return d.value == 1 ? n : (uint32_t)((uint64_t)n * d.multiplier >> 32 >> d.shift);
}

/* Both offsets of run `index` of a desc. */
static inline void run_place(const lp_device_desc *d, uint64_t index, int64_t *src, int64_t *dst)
{
    *src = *dst = 0;
    for (int k = 0; k < d->rank; k++) {
        const lp_device_mode *m = &d->mode[k];
        const uint64_t rest = index < 0x80000000u ? run_divide((uint32_t)index, m->extent) : index / m->extent.value;
        *src += (int64_t)(index - rest * m->extent.value) * m->src;
        *dst += (int64_t)(index - rest * m->extent.value) * m->dst;
        index = rest;
    }
}

static inline uint8_t *interpreted_dst(const lp_device_desc *d, int64_t off)
{
    return (uint8_t *)(uintptr_t)d->dst + off;
}

/* The kernel for rows: units of a tile, bulk copies of 16 bytes and their multiples. False: an access that the copy
 * engine cannot do. */
static inline bool run_row_tile(const lp_device_desc *d, uint32_t part, const uint8_t *base)
{
    for (uint32_t unit = 0; unit < LP_TILE_UNITS; unit++) {
        uint64_t first;
        int64_t inside = 0, runs = 1;
        if (d->run_tiles > 0) {
            first = part / d->run_tiles;
            inside = (int64_t)(part % d->run_tiles) * LP_TILE_BYTES + unit * LP_UNIT_BYTES;
        } else if (d->run_units > 0) {
            first = (uint64_t)part * d->tile_runs + unit / d->run_units;
            inside = unit % d->run_units * LP_UNIT_BYTES;
            runs = unit / d->run_units < d->tile_runs ? 1 : 0;
        } else {
            first = (uint64_t)part * d->tile_runs + unit * d->unit_runs;
            runs = d->unit_runs;
        }
        for (int64_t i = 0; i < runs && (int64_t)first + i < d->runs && inside < d->run; i++) {
            int64_t src, dst;
            run_place(d, first + (uint64_t)i, &src, &dst);
            const int64_t bytes = d->run - inside < LP_UNIT_BYTES ? d->run - inside : LP_UNIT_BYTES;
            const uint8_t *from = base + d->src_off + src + inside;
            uint8_t *to = interpreted_dst(d, dst + inside);
            if (((uintptr_t)from | (uintptr_t)to | (uintptr_t)bytes) % 16 != 0)
                return false;
            memcpy(to, from, (size_t)bytes);
        }
    }
    return true;
}

static inline void tile_corner(const lp_device_desc *d, uint32_t part, uint32_t limit[LP_DEVICE_MODES], int64_t *src,
                               int64_t *dst)
{
    *src = *dst = 0;
    for (int k = 0; k < d->rank; k++) {
        const lp_device_mode *m = &d->mode[k];
        const uint32_t digit = part % m->tiles.value * m->tile.value;
        part /= m->tiles.value;
        limit[k] = m->extent.value - digit < m->tile.value ? m->extent.value - digit : m->tile.value;
        *src += digit * m->src;
        *dst += digit * m->dst;
    }
}

/* The kernel for words: rows of the source into a buffer, vectors of four words out of it. */
static inline bool run_word_tile(const lp_device_desc *d, const lp_tile_shape *shape, uint32_t part,
                                 const uint8_t *base)
{
    static uint8_t buffer[LP_WORD_BUFFER];
    uint32_t limit[LP_DEVICE_MODES];
    int64_t src, dst;
    tile_corner(d, part, limit, &src, &dst);
    memset(buffer, 0xee, sizeof buffer);
    for (uint32_t r = 0; r < shape->rows; r++) {
        const uint8_t *from = base + d->src_off + src + shape->row[r].off;
        if (((uintptr_t)from | shape->row[r].place | shape->row_bytes) % 16 != 0 ||
            shape->row[r].place + shape->row_bytes > LP_WORD_BUFFER)
            return false;
        memcpy(buffer + shape->row[r].place, from, shape->row_bytes);
    }
    for (uint32_t v = 0; v < shape->vectors; v++) {
        uint8_t *to = interpreted_dst(d, dst + shape->vector[v].off);
        if ((uintptr_t)to % 16 != 0)
            return false;
        for (uint32_t j = 0; j < 4; j++)
            memcpy(to + (size_t)4 * j, buffer + shape->vector[v].place + j * shape->step, 4);
    }
    return true;
}

static inline bool run_elements(const lp_device_desc *d, uint8_t *to, const uint8_t *from, int64_t count)
{
    if (d->move == LP_MOVE_CAST)
        return lp_cast_elements(d->src_dtype, from, d->dst_dtype, to, count) == LP_OK;
    if (d->move == LP_MOVE_FILL)
        for (int64_t i = 0; i < count * d->dst_elem; i++)
            to[i] = (uint8_t)(d->fill_bits >> (8 * (i % d->dst_elem)));
    else
        memcpy(to, from, (size_t)count);
    return true;
}

/* What one warp copies of those. */
static inline bool run_small_tile(const lp_device_desc *d, const uint8_t *base)
{
    if (d->move != LP_MOVE_RUNS || d->runs != 1 || d->run > LP_SMALL_BYTES)
        return false;
    memcpy((uint8_t *)(uintptr_t)d->dst, base + d->src_off, (size_t)d->run);
    return true;
}

/* The kernel for all others, which also takes tiles of the other two lists where base pointers are not aligned. */
static inline bool run_other_tile(const lp_device_desc *d, uint32_t part, const uint8_t *base)
{
    const bool copies = d->move == LP_MOVE_RUNS;
    const uint8_t *from = d->move == LP_MOVE_FILL ? NULL : base + d->src_off;
    int64_t src, dst;
    if (d->move == LP_MOVE_WORDS) {
        uint32_t limit[LP_DEVICE_MODES];
        tile_corner(d, part, limit, &src, &dst);
        for (uint32_t i = 0; i < d->tile_count; i++) {
            int64_t s = src, t = dst;
            uint32_t index = i;
            bool is_inside = true;
            for (int k = 0; k < d->rank; k++) {
                const uint32_t rest = run_divide(index, d->mode[k].tile), digit = index - rest * d->mode[k].tile.value;
                is_inside = is_inside && digit < limit[k];
                s += digit * d->mode[k].src;
                t += digit * d->mode[k].dst;
                index = rest;
            }
            if (is_inside)
                memcpy(interpreted_dst(d, t), from + s, (size_t)d->run);
        }
        return true;
    }
    if (d->run_tiles > 0) {
        const int64_t piece = copies ? LP_TILE_BYTES : LP_TILE_BYTES / d->dst_elem, first = part % d->run_tiles * piece;
        const int64_t count = d->run - first < piece ? d->run - first : piece;
        run_place(d, part / d->run_tiles, &src, &dst);
        return run_elements(d, interpreted_dst(d, dst + first * d->dst_elem),
                            from == NULL ? NULL : from + src + first * d->src_elem, count);
    }
    for (int64_t i = (int64_t)part * d->tile_runs; i < d->runs && i < ((int64_t)part + 1) * d->tile_runs; i++) {
        run_place(d, (uint64_t)i, &src, &dst);
        if (!run_elements(d, interpreted_dst(d, dst), from == NULL ? NULL : from + src, d->run))
            return false;
    }
    return true;
}

#endif
