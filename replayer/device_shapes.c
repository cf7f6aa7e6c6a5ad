/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of the kernel for words. It reads rows, 16 bytes at least, into a buffer with padding between them, and a
 * thread picks four words out of four rows to write a vector. What is decided here is the order of rows in the buffer,
 * and of vectors over threads, so that the 32 threads of a warp read from different banks: eight rows by four
 * neighbouring words, where the tile has them, and rows an odd number of 16 bytes apart.
 */
#include "replayer/device_program.h"

enum { DIGITS_MAX = 2 * LP_DEVICE_MODES + 2 };

/* Some steps along a mode of the tile: `extent` times `step` of the mode's own steps. */
typedef struct digit {
    uint8_t mode;
    uint32_t extent, step;
} digit;

typedef struct digits {
    int count;
    digit at[DIGITS_MAX];
} digits;

static void add_digit(digits *d, int mode, uint32_t extent, uint32_t step)
{
    if (extent > 1)
        d->at[d->count++] = (digit){(uint8_t)mode, extent, step};
}

/* Offset on one side of item `index`, counted along `order`; negative or large where it does not fit a slot. */
static int64_t offset_of(const lp_device_desc *d, const digits *order, bool source, uint32_t index)
{
    int64_t off = 0;
    for (int i = 0; i < order->count; i++) {
        const digit *g = &order->at[i];
        const lp_device_mode *m = &d->mode[g->mode];
        off += (int64_t)(index % g->extent * g->step) * (source ? m->src : m->dst);
        index /= g->extent;
    }
    return off;
}

/* Rows in the order of the buffer: vectors along the innermost mode first, the four words of one vector last. */
static uint32_t order_rows(const lp_device_desc *d, digits *rows)
{
    const int fast = d->src_order[0];
    uint32_t count = 4;
    add_digit(rows, 0, d->mode[0].tile.value / 4, 4);
    for (int k = 1; k < d->rank; k++)
        if (k != fast)
            add_digit(rows, k, d->mode[k].tile.value, 1);
    for (int i = 0; i < rows->count; i++)
        count *= rows->at[i].extent;
    add_digit(rows, 0, 4, 1);
    return count;
}

/* Vectors in the order of threads: eight along the destination, four along the source, then the rest. */
static void order_vectors(const lp_device_desc *d, digits *vectors)
{
    const int fast = d->src_order[0];
    digits left = {0};
    uint32_t lanes = 1;
    add_digit(&left, 0, d->mode[0].tile.value / 4, 4);
    for (int k = 1; k < d->rank; k++)
        add_digit(&left, k, d->mode[k].tile.value, 1);
    for (int i = 0; i < left.count && lanes < 8 && left.at[i].mode != fast; i++) {
        digit *g = &left.at[i];
        uint32_t take = 8 / lanes;
        while (g->extent % take != 0)
            take /= 2;
        add_digit(vectors, g->mode, take, g->step);
        lanes *= take;
        g->extent /= take;
        g->step *= take;
        if (g->extent > 1)
            break;
    }
    for (int i = 0; i < left.count; i++) {
        digit *g = &left.at[i];
        if (g->mode == fast && lanes > 1 && g->extent % 4 == 0) {
            add_digit(vectors, g->mode, 4, 1);
            g->extent /= 4;
            g->step = 4;
        }
    }
    for (int i = 0; i < left.count; i++)
        add_digit(vectors, left.at[i].mode, left.at[i].extent, left.at[i].step);
}

/* Place of a row in the buffer, in rows, by its digits: those of a vector's first word. */
static uint32_t row_of(const digits *rows, const uint32_t step[LP_DEVICE_MODES])
{
    uint32_t row = 0, weight = 1;
    for (int i = 0; i < rows->count; i++) {
        const digit *g = &rows->at[i];
        row += step[g->mode] / g->step % g->extent * weight;
        weight *= g->extent;
    }
    return row;
}

static bool fill_shape(const lp_device_desc *d, lp_tile_shape *shape)
{
    const int fast = d->src_order[0];
    digits rows = {0}, vectors = {0};
    const uint32_t row_count = order_rows(d, &rows);
    const uint32_t row_bytes = d->mode[fast].tile.value * 4;
    const uint32_t pitch = row_bytes / 16 % 2 == 0 ? row_bytes + 16 : row_bytes;
    if (row_count > LP_TILE_ROWS || (int64_t)row_count * pitch > LP_WORD_BUFFER)
        return false;
    order_vectors(d, &vectors);
    *shape = (lp_tile_shape){
        .rows = row_count, .row_bytes = row_bytes, .vectors = d->tile_count / 4, .step = row_count / 4 * pitch};
    for (uint32_t r = 0; r < row_count; r++) {
        const int64_t off = offset_of(d, &rows, true, r);
        if (off < 0 || off > INT32_MAX)
            return false;
        shape->row[r] = (lp_tile_slot){.off = (uint32_t)off, .place = r * pitch};
    }
    for (uint32_t v = 0; v < shape->vectors; v++) {
        const int64_t off = offset_of(d, &vectors, false, v);
        if (off < 0 || off > INT32_MAX)
            return false;
        uint32_t step[LP_DEVICE_MODES] = {0}, index = v;
        for (int i = 0; i < vectors.count; i++) {
            const digit *g = &vectors.at[i];
            step[g->mode] += index % g->extent * g->step;
            index /= g->extent;
        }
        shape->vector[v] = (lp_tile_slot){.off = (uint32_t)off, .place = row_of(&rows, step) * pitch + 4 * step[fast]};
    }
    return true;
}

/* Words of 4 bytes, no tile cut off, vectors on both sides, all addresses multiples of 16. Neighbours in a program are
 * mostly experts of one kind, so the shapes of the last few descs are looked at, no more. */
lp_status lp_device_find_shape(lp_device_program *p, bool *found, lp_error *err)
{
    enum { LOOK_BACK = 16 };
    lp_device_desc *d = &p->desc[p->desc_count - 1];
    *found = false;
    if (d->run != 4 || d->dst_vector != 4 || d->src_vector != 4 || (d->dst_align | d->src_align) % 16 != 0)
        return LP_OK;
    for (int k = 0; k < d->rank; k++)
        if (d->mode[k].extent.value % d->mode[k].tile.value != 0)
            return LP_OK;
    for (int64_t i = p->desc_count - 2; i >= 0 && i >= p->desc_count - 1 - LOOK_BACK; i--) {
        const lp_device_desc *o = &p->desc[i];
        if (o->move == LP_MOVE_WORDS && o->shape > 0 && o->rank == d->rank && o->tile_count == d->tile_count &&
            memcmp(o->mode, d->mode, sizeof d->mode) == 0) {
            d->shape = o->shape;
            *found = true;
            return LP_OK;
        }
    }
    if (!lp_grow(p->alloc, (void **)&p->shape, &p->shape_capacity, p->shape_count + 1, sizeof *p->shape))
        return lp_fail_memory(err);
    if (!fill_shape(d, &p->shape[p->shape_count]))
        return LP_OK;
    d->shape = (uint32_t)++p->shape_count;
    *found = true;
    return LP_OK;
}
