/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles steps into device descriptors and tiles. Boxes with more modes than a descriptor holds, and modes longer
 * than 31 bits count, are cut into several descriptors here, so that the kernel has no such case.
 */
#include "replayer/device_program.h"

#include <sys/mman.h>

enum { EXTENT_MAX = 1 << 30, HUGE_PAGE = 2 << 20 };

/* Granlund and Montgomery, "Division by invariant integers using multiplication" (1994): with shift = ceil(log2 d) - 1
 * and multiplier = ceil(2^(32 + shift) / d) the quotient is exact for every n < 2^31. */
lp_divisor lp_divisor_of(uint32_t value)
{
    if (value <= 1)
        return (lp_divisor){.value = 1, .multiplier = 0, .shift = 0};
    const uint32_t shift = 31u - (uint32_t)__builtin_clz(value - 1);
    const uint64_t multiplier = (((uint64_t)1 << (32 + shift)) + value - 1) / value;
    return (lp_divisor){.value = value, .multiplier = (uint32_t)multiplier, .shift = shift};
}

lp_status lp_device_program_new(lp_device_program **out, uint32_t items, const lp_alloc *alloc, lp_error *err)
{
    lp_device_program *p = lp_allocate_zero(alloc, sizeof *p);
    if (p == NULL)
        return lp_fail_memory(err);
    p->alloc = alloc;
    p->items = items;
    const size_t index_bytes = ((size_t)items + 1) * sizeof(uint32_t);
    p->rows.item_tile = lp_allocate_zero(alloc, index_bytes);
    p->words.item_tile = lp_allocate_zero(alloc, index_bytes);
    p->others.item_tile = lp_allocate_zero(alloc, index_bytes);
    if (p->rows.item_tile == NULL || p->words.item_tile == NULL || p->others.item_tile == NULL) {
        lp_device_program_free(p);
        return lp_fail_memory(err);
    }
    *out = p;
    return LP_OK;
}

/* Asks for large pages: a list of many megabytes is filled once, and a fault for every 4 KiB costs more than that. */
static bool reserve(lp_device_program *p, void **list, int64_t *capacity, int64_t count, size_t size)
{
    if (!lp_grow(p->alloc, list, capacity, count, size))
        return false;
    const uintptr_t from = ((uintptr_t)*list + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const uintptr_t to = ((uintptr_t)*list + (uintptr_t)*capacity * size) / HUGE_PAGE * HUGE_PAGE;
    if (from < to)
        (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
    return true;
}

lp_status lp_device_program_reserve(lp_device_program *p, int64_t steps, lp_error *err)
{
    void *runs = p->rows.run, *descs = p->desc;
    const bool has_runs = reserve(p, &runs, &p->rows.capacity, steps, sizeof *p->rows.run);
    p->rows.run = runs;
    const bool has_descs = reserve(p, &descs, &p->desc_capacity, steps, sizeof *p->desc);
    p->desc = descs;
    return has_runs && has_descs ? LP_OK : lp_fail_memory(err);
}

void lp_device_program_free(lp_device_program *p)
{
    if (p == NULL)
        return;
    lp_release(p->alloc, p->desc);
    lp_release(p->alloc, p->rows.run);
    lp_release(p->alloc, p->rows.item_tile);
    lp_release(p->alloc, p->words.run);
    lp_release(p->alloc, p->words.item_tile);
    lp_release(p->alloc, p->words.whole);
    lp_release(p->alloc, p->shape);
    lp_release(p->alloc, p->others.run);
    lp_release(p->alloc, p->others.item_tile);
    lp_release(p->alloc, p);
}

/* A box while it is being compiled: modes innermost first. */
typedef struct shape {
    int64_t src_off, dst_off, run;
    int rank;
    lp_mode mode[LP_DEVICE_MODES];
} shape;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Modes by rising source stride: the order in which a tile is read. */
static void order_by_source(lp_device_desc *d)
{
    for (uint8_t k = 0; k < d->rank; k++) {
        int at = k;
        for (; at > 0 && d->mode[d->src_order[at - 1]].src > d->mode[k].src; at--)
            d->src_order[at] = d->src_order[at - 1];
        d->src_order[at] = k;
    }
}

/* The largest divisor of `extent` up to `most`, so that no tile is cut off; `most` itself where that would be small. */
static uint32_t tile_extent(uint32_t extent, int64_t most)
{
    if (extent <= most)
        return extent;
    for (uint32_t d = (uint32_t)most; d * 2 > most; d--)
        if (extent % d == 0)
            return d;
    return (uint32_t)most;
}

/* Gives each mode its extent inside a tile: modes in a row on the destination side until 64 elements lie there, the
 * same on the source side, and then what still fits. */
static uint32_t shape_tile(lp_device_desc *d)
{
    uint32_t extent[LP_DEVICE_MODES], total = 1;
    for (int k = 0; k < d->rank; k++)
        extent[k] = 1;
    for (int side = 0; side < 2; side++) {
        uint32_t along = 1;
        for (int i = 0; i < d->rank && along < 64; i++) {
            const int k = side == 0 ? i : d->src_order[i];
            if (extent[k] > 1)
                continue;
            const int64_t most = smaller(64 / along, LP_TILE_WORDS / total);
            extent[k] = most > 0 ? tile_extent(d->mode[k].extent.value, most) : 1;
            along *= extent[k];
            total *= extent[k];
        }
    }
    for (int i = 0; i < d->rank; i++) {
        const uint32_t room = LP_TILE_WORDS / total;
        if (extent[i] == 1 && room > 1) {
            extent[i] = tile_extent(d->mode[i].extent.value, room);
            total *= extent[i];
        }
    }
    /* In the buffer the elements lie in destination order, outer modes shifted by an element against bank conflicts. */
    uint32_t pitch = 1;
    for (int k = 0; k < d->rank; k++) {
        lp_device_mode *m = &d->mode[k];
        m->tile = lp_divisor_of(extent[k]);
        m->tiles = lp_divisor_of((m->extent.value + extent[k] - 1) / extent[k]);
        m->pitch = pitch;
        pitch *= extent[k];
        if (pitch >= 32 && pitch % 2 == 0)
            pitch += 1;
    }
    return total;
}

static uint8_t vector_of(const lp_device_mode *m, int64_t stride, int64_t run)
{
    if (stride != run || m->tile.value % 2 != 0 || m->extent.value % 2 != 0)
        return 1;
    return m->tile.value % 4 == 0 && m->extent.value % 4 == 0 ? 4 : 2;
}

/* Fills in what a transposed box needs; returns its number of tiles. */
static int64_t shape_transpose(lp_device_desc *d)
{
    const lp_device_mode *fast = &d->mode[d->src_order[0]];
    d->tile_count = shape_tile(d);
    d->src_vector = vector_of(fast, fast->src, d->run);
    d->dst_vector = vector_of(&d->mode[0], d->mode[0].dst, d->run);
    /* A vector starts at a multiple of itself along its mode; all other steps must keep the alignment. */
    d->src_align |= (uint64_t)(d->run * d->src_vector);
    d->dst_align |= (uint64_t)(d->run * d->dst_vector);
    int64_t tiles = 1;
    for (int k = 0; k < d->rank; k++) {
        if (k != d->src_order[0])
            d->src_align |= (uint64_t)d->mode[k].src;
        if (k != 0)
            d->dst_align |= (uint64_t)d->mode[k].dst;
        tiles *= d->mode[k].tiles.value;
    }
    return tiles;
}

static bool is_transpose(const lp_device_desc *d)
{
    if (d->rank < 2 || (d->run != 2 && d->run != 4))
        return false;
    /* Worth a detour through shared memory only where the source has its elements in a row too. */
    const lp_device_mode *fast = &d->mode[d->src_order[0]];
    return d->src_order[0] != 0 && fast->src == d->run && fast->extent.value >= 4;
}

/* Tiles 0 .. count - 1 of the newest desc. Both lists together must be numbered in 32 bits: a push whose base pointers
 * are not aligned moves the tiles of the first list by way of the second. */
static lp_status add_tiles(lp_device_program *p, lp_tile_list *list, uint32_t item, int64_t count, lp_error *err)
{
    if (count > (int64_t)UINT32_MAX - p->rows.count - p->words.count - p->others.count)
        return lp_fail(err, LP_E_LIMIT, "the plan needs more than %u tiles", UINT32_MAX);
    if (!lp_grow(p->alloc, (void **)&list->run, &list->capacity, list->runs + 1, sizeof *list->run))
        return lp_fail_memory(err);
    const uint32_t desc = (uint32_t)(p->desc_count - 1);
    list->run[list->runs++] = (lp_tile_run){.desc = desc,
                                            .item = item,
                                            .shape = p->desc[desc].shape,
                                            .first = (uint32_t)list->count,
                                            .tiles = (uint32_t)count};
    list->count += count;
    return LP_OK;
}

/* A tile of rows consists of whole units. */
static void shape_rows(lp_device_desc *d)
{
    const uint32_t run = (uint32_t)d->run;
    if (run < LP_UNIT_BYTES) {
        d->unit_runs = LP_UNIT_BYTES / run;
        d->tile_runs = d->unit_runs * LP_TILE_UNITS;
    } else {
        d->run_units = (run + LP_UNIT_BYTES - 1) / LP_UNIT_BYTES;
        d->tile_runs = LP_TILE_UNITS / d->run_units;
    }
}

static lp_status add_desc(lp_device_program *p, uint32_t item, const lp_step *step, uint64_t dst, const shape *s,
                          lp_error *err)
{
    const lp_map *map = step->map;
    if (!lp_grow(p->alloc, (void **)&p->desc, &p->desc_capacity, p->desc_count + 1, sizeof *p->desc))
        return lp_fail_memory(err);
    lp_device_desc *d = &p->desc[p->desc_count++];
    memset(d, 0, sizeof *d);
    d->rank = (uint8_t)s->rank;
    d->src_off = s->src_off + step->src_off;
    d->dst = dst + (uint64_t)(s->dst_off + step->dst_off);
    d->run = s->run;
    d->runs = 1;
    d->fill_bits = step->fill_bits;
    d->src_dtype = step->src_dtype;
    d->dst_dtype = step->dst_dtype;
    d->src_elem = (uint8_t)map->src_elem;
    d->dst_elem = (uint8_t)map->dst_elem;
    d->dst_align = d->dst;
    d->src_align = (uint64_t)d->src_off;
    for (int k = 0; k < s->rank; k++) {
        d->mode[k] = (lp_device_mode){.extent = lp_divisor_of((uint32_t)s->mode[k].extent),
                                      .src = s->mode[k].src_stride,
                                      .dst = s->mode[k].dst_stride};
        d->runs *= s->mode[k].extent;
    }
    order_by_source(d);

    const int64_t run_bytes = s->run * map->dst_elem;
    if (step->kind == LP_KIND_CAST)
        d->move = LP_MOVE_CAST;
    else if (step->kind == LP_KIND_FILL)
        d->move = LP_MOVE_FILL;
    else
        d->move = is_transpose(d) ? LP_MOVE_WORDS : LP_MOVE_RUNS;
    p->bytes += d->runs * run_bytes;
    if (d->move == LP_MOVE_WORDS) {
        const int64_t tiles = shape_transpose(d);
        bool found;
        LP_TRY(lp_device_find_shape(p, &found, err));
        return add_tiles(p, found ? &p->words : &p->others, item, tiles, err);
    }

    for (int k = 0; k < s->rank; k++) {
        d->src_align |= (uint64_t)d->mode[k].src;
        d->dst_align |= (uint64_t)d->mode[k].dst;
    }
    lp_tile_list *list = &p->others;
    if (d->move == LP_MOVE_RUNS && run_bytes >= LP_ROW_BYTES &&
        ((d->src_align | d->dst_align) | (uint64_t)run_bytes) % 16 == 0)
        list = &p->rows;
    else if (d->move == LP_MOVE_RUNS && d->runs == 1 && run_bytes <= LP_SMALL_BYTES)
        d->shape = LP_SHAPE_SMALL;
    if (run_bytes >= LP_TILE_BYTES) {
        d->run_tiles = (uint32_t)((run_bytes + LP_TILE_BYTES - 1) / LP_TILE_BYTES);
        return add_tiles(p, list, item, d->runs * d->run_tiles, err);
    }
    d->run_bytes = lp_divisor_of((uint32_t)run_bytes);
    d->tile_runs = (uint32_t)(LP_TILE_BYTES / run_bytes);
    if (list == &p->rows)
        shape_rows(d);
    return add_tiles(p, list, item, (d->runs + d->tile_runs - 1) / d->tile_runs, err);
}

/* Cuts a box until it fits a descriptor: modes[0 .. rank) are outermost first, as in a map. */
static lp_status cut(lp_device_program *p, uint32_t item, const lp_step *step, uint64_t dst, const lp_box *box,
                     int32_t first, int64_t src_off, int64_t dst_off, lp_error *err)
{
    if (box->rank - first > LP_DEVICE_MODES) {
        const lp_mode *outer = &box->mode[first];
        for (int64_t i = 0; i < outer->extent; i++)
            LP_TRY(cut(p, item, step, dst, box, first + 1, src_off + i * outer->src_stride,
                       dst_off + i * outer->dst_stride, err));
        return LP_OK;
    }
    shape s = {.src_off = src_off, .dst_off = dst_off, .run = box->run, .rank = box->rank - first};
    int longest = -1;
    for (int k = 0; k < s.rank; k++) {
        s.mode[k] = box->mode[box->rank - 1 - k];
        if (s.mode[k].extent > EXTENT_MAX)
            longest = k;
    }
    if (longest < 0)
        return add_desc(p, item, step, dst, &s, err);
    const lp_mode whole = s.mode[longest];
    for (int64_t at = 0; at < whole.extent; at += EXTENT_MAX) {
        s.mode[longest].extent = smaller(whole.extent - at, EXTENT_MAX);
        s.src_off = src_off + at * whole.src_stride;
        s.dst_off = dst_off + at * whole.dst_stride;
        for (int k = 0; k < s.rank; k++)
            if (k != longest && s.mode[k].extent > EXTENT_MAX)
                return lp_fail(err, LP_E_LIMIT, "a map has two modes of more than %d steps", EXTENT_MAX);
        LP_TRY(add_desc(p, item, step, dst, &s, err));
    }
    return LP_OK;
}

lp_status lp_device_program_add(lp_device_program *p, uint32_t item, const lp_step *step, uint64_t dst, lp_error *err)
{
    if (item >= p->items || item < p->last_item)
        return lp_fail(err, LP_E_INTERNAL, "steps of a device program are out of order");
    for (int32_t b = 0; b < step->map->nbox; b++) {
        const lp_box *box = &step->map->box[b];
        LP_TRY(cut(p, item, step, dst, box, 0, box->src_off, box->dst_off, err));
    }
    p->last_item = item;
    p->rows.item_tile[item + 1] = (uint32_t)p->rows.count;
    p->words.item_tile[item + 1] = (uint32_t)p->words.count;
    p->others.item_tile[item + 1] = (uint32_t)p->others.count;
    return LP_OK;
}

static void close_list(lp_tile_list *list, uint32_t items)
{
    for (uint32_t i = 1; i <= items; i++)
        if (list->item_tile[i] < list->item_tile[i - 1])
            list->item_tile[i] = list->item_tile[i - 1]; /* an item without steps */
}

/* Tiles of words by shape: a thread block keeps the offsets of the shape that it is at. */
static lp_status order_by_shape(lp_device_program *p, lp_error *err)
{
    const lp_tile_list *list = &p->words;
    if (p->shape_count < 2)
        return LP_OK;
    int64_t *place = lp_allocate_zero(p->alloc, ((size_t)p->shape_count + 1) * sizeof *place);
    p->words.whole = lp_allocate(p->alloc, (size_t)list->runs * sizeof *list->run);
    if (place == NULL || p->words.whole == NULL) {
        lp_release(p->alloc, place);
        return lp_fail_memory(err);
    }
    for (int64_t i = 0; i < list->runs; i++)
        place[list->run[i].shape]++; /* shapes count from 1: after the sums, place[s - 1] is where shape s begins */
    for (int64_t s = 1; s <= p->shape_count; s++)
        place[s] += place[s - 1];
    for (int64_t i = 0; i < list->runs; i++)
        p->words.whole[place[list->run[i].shape - 1]++] = list->run[i];
    lp_release(p->alloc, place);
    uint32_t first = 0;
    for (int64_t i = 0; i < list->runs; i++) {
        list->whole[i].first = first;
        first += list->whole[i].tiles;
    }
    return LP_OK;
}

lp_status lp_device_program_end(lp_device_program *p, lp_error *err)
{
    close_list(&p->rows, p->items);
    close_list(&p->words, p->items);
    close_list(&p->others, p->items);
    return order_by_shape(p, err);
}
