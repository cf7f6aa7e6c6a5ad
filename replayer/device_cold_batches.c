/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans a cold start. A slot mirrors the files: tensors that follow one another there do so in the slot, so that a
 * chunk is one read and one copy, small gaps carried along. A tensor of some size whose first byte would lie badly for
 * the kernels is moved up. Larger gaps (columns of another rank) are left out, and rows of equal length become one
 * two-dimensional copy.
 */
#include "replayer/device_cold_batches.h"
#include "replayer/device_program.h"
#include "replayer/source_ranges.h"

enum {
    TENSOR_ALIGN = 128, /* of tensors that do not follow the one before */
    BASE_ALIGN = 16,    /* of their first byte: what the kernels for rows and words ask for */
    SMALL_BYTES = 4096, /* of tensors that move as well from any address */
    GAP_MOST = 512,     /* that is carried along */
    COPY_ALIGN = 64,
    PART_CACHED = 2 << 20, /* of a file that is read through the page cache: all readers work on the next chunks */
    PART_DIRECT = 4 << 20, /* of one that is read directly: fewer, larger requests */
    FIRST_CHUNK = 4 << 20  /* chunks grow from it on */
};

typedef struct maker {
    lp_cold_batches *b;
    const lp_plan *plan;
    const lp_cold_files *files;
    lp_ranges ranges; /* of the name at hand */
    int64_t target;   /* bytes of a batch, unless one tensor has more */
    bool has_batch, has_chunk, has_part;
    int32_t file;  /* of the tensor before in the batch, or -1, and */
    int64_t shift; /* how far its place in the slot is from that in the file */
} maker;

static int64_t align_up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* ---- tables ---- */

#define GROW(b, list, count, capacity)                                                                                 \
    lp_grow((b)->alloc, (void **)&(b)->list, &(b)->capacity, (b)->count + 1, sizeof *(b)->list)

static lp_status open_batch(maker *m, lp_error *err)
{
    lp_cold_batches *b = m->b;
    if (m->has_batch && b->batch[b->batches - 1].items < LP_NEAR_PUSH_ITEMS)
        return LP_OK;
    if (!GROW(b, batch, batches, batch_capacity))
        return lp_fail_memory(err);
    b->batch[b->batches++] = (lp_cold_batch){.first_item = b->items, .first_chunk = b->chunks};
    m->has_batch = true;
    m->has_chunk = m->has_part = false;
    m->file = -1;
    return LP_OK;
}

static void close_batch(maker *m)
{
    m->has_batch = m->has_chunk = m->has_part = false;
}

static lp_status add_item(maker *m, lp_handle handle, int64_t base, lp_error *err)
{
    lp_cold_batches *b = m->b;
    if (!GROW(b, handle, items, handle_capacity) || !GROW(b, base, items, base_capacity))
        return lp_fail_memory(err);
    lp_cold_batch *batch = &b->batch[b->batches - 1];
    b->handle[b->items] = handle;
    b->base[b->items++] = base;
    if (++batch->items > b->most_items)
        b->most_items = batch->items;
    return LP_OK;
}

static lp_status open_chunk(maker *m, lp_cold_chunk **out, lp_error *err)
{
    lp_cold_batches *b = m->b;
    if (!m->has_chunk) {
        if (!GROW(b, chunk, chunks, chunk_capacity))
            return lp_fail_memory(err);
        b->chunk[b->chunks++] =
            (lp_cold_chunk){.first_part = b->parts, .first_copy = b->copies, .batch = b->batches - 1};
        b->batch[b->batches - 1].chunks++;
        m->has_chunk = true;
        m->has_part = false;
    }
    *out = &b->chunk[b->chunks - 1];
    return LP_OK;
}

static lp_status open_part(maker *m, lp_cold_part **out, lp_error *err)
{
    lp_cold_batches *b = m->b;
    if (!m->has_part) {
        if (!GROW(b, part, parts, part_capacity))
            return lp_fail_memory(err);
        b->part[b->parts++] = (lp_cold_part){.first_read = b->reads, .chunk = b->chunks - 1};
        b->chunk[b->chunks - 1].parts++;
        m->has_part = true;
    }
    *out = &b->part[b->parts - 1];
    return LP_OK;
}

/* Extends the last read of the part where the bytes follow it. */
static bool joins_read(lp_cold_read *last, const lp_cold_read *next)
{
    if (last->file != next->file || last->at - last->file_off != next->at - next->file_off ||
        last->file_off + (last->room > 0 ? last->room : last->bytes) < next->file_off)
        return false;
    last->bytes = next->file_off + next->bytes - last->file_off;
    last->room = last->room > 0 ? align_up(last->bytes, LP_COLD_BLOCK) : 0;
    return true;
}

static lp_status add_read(lp_cold_batches *b, lp_cold_part *p, const lp_cold_read *read, lp_error *err)
{
    lp_cold_batch *batch = &b->batch[b->batches - 1];
    b->bytes += read->bytes;
    batch->bytes += read->bytes;
    p->used += read->bytes;
    if (p->reads > 0 && joins_read(&b->read[b->reads - 1], read))
        return LP_OK;
    if (!GROW(b, read, reads, read_capacity))
        return lp_fail_memory(err);
    lp_cold_read *next = &b->read[b->reads++];
    *next = *read;
    if (read->room > 0) { /* from the beginning of the block */
        const int64_t before = read->file_off % LP_COLD_BLOCK;
        next->file_off -= before;
        next->at -= before;
        next->bytes += before;
        next->room = align_up(next->bytes, LP_COLD_BLOCK);
    }
    p->reads++;
    return LP_OK;
}

/* The newest copy of the chunk takes another row. */
static bool joins_rows(lp_cold_copy *last, const lp_cold_copy *next)
{
    if (last->straight != next->straight || last->bytes != next->bytes)
        return false;
    const int64_t to_pitch = (next->to - last->to) / last->rows, at_pitch = (next->at - last->at) / last->rows;
    if (to_pitch < last->bytes || last->to + to_pitch * last->rows != next->to ||
        last->at + at_pitch * last->rows != next->at)
        return false;
    if (last->rows > 1 && (to_pitch != last->to_pitch || at_pitch != last->at_pitch))
        return false;
    last->to_pitch = to_pitch;
    last->at_pitch = at_pitch;
    last->rows++;
    return true;
}

static lp_status add_copy(lp_cold_batches *b, lp_cold_chunk *c, const lp_cold_copy *copy, lp_error *err)
{
    lp_cold_copy *last = c->copies > 0 ? &b->copy[b->copies - 1] : NULL;
    if (last != NULL && last->rows == 1 && last->straight == copy->straight &&
        last->to - last->at == copy->to - copy->at) {
        const int64_t gap = copy->to - (last->to + last->bytes);
        if (gap >= 0 && gap <= GAP_MOST) {
            last->bytes += gap + copy->bytes;
            return LP_OK;
        }
    }
    if (last != NULL && joins_rows(last, copy))
        return LP_OK;
    if (!GROW(b, copy, copies, copy_capacity))
        return lp_fail_memory(err);
    b->copy[b->copies++] = *copy;
    c->copies++;
    return LP_OK;
}

/* Where in the chunk bytes of a file go that are read through the page cache: as they lie in the slot. */
static int64_t place_cached(const lp_cold_batches *b, const lp_cold_chunk *c, const uint8_t *straight, int64_t to)
{
    const lp_cold_copy *last = c->copies > 0 ? &b->copy[b->copies - 1] : NULL;
    if (last != NULL && last->rows == 1 && last->straight == straight) {
        const int64_t at = last->at + (to - last->to);
        if (at >= c->used && at <= c->used + GAP_MOST)
            return at;
    }
    return align_up(c->used, COPY_ALIGN) + (int64_t)(((uintptr_t)straight + (uintptr_t)to) % COPY_ALIGN);
}

/* The same, read directly: as they lie in their blocks. */
static int64_t place_direct(const lp_cold_batches *b, const lp_cold_chunk *c, int32_t file, int64_t file_off)
{
    const lp_cold_read *last = c->used > 0 ? &b->read[b->reads - 1] : NULL;
    const int64_t block = file_off / LP_COLD_BLOCK * LP_COLD_BLOCK;
    if (last != NULL && last->file == file && last->room > 0 && block >= last->file_off &&
        block <= last->file_off + last->room)
        return last->at + (file_off - last->file_off);
    return align_up(c->used, LP_COLD_BLOCK) + (file_off - block);
}

/* How many of the next bytes the part takes: 0 where it is full. Direct reads are cut between blocks, and what is left
 * of a block that a part began belongs to it. */
static int64_t room_of(const lp_cold_part *p, int64_t file_off, bool is_direct)
{
    const int64_t most = is_direct ? PART_DIRECT : PART_CACHED, into = file_off % LP_COLD_BLOCK;
    if (!is_direct)
        return p->used < most ? most - p->used : 0;
    const int64_t end = align_up(file_off + (p->used < most ? most - p->used : 0), LP_COLD_BLOCK);
    return p->used >= most && (into == 0 || p->reads == 0) ? 0 : end - file_off;
}

/* Of the chunk at hand. The first two are small, the next two twice as large, and so on: the link has work sooner. */
static int64_t chunk_room(const lp_cold_batches *b)
{
    int64_t room = FIRST_CHUNK;
    for (int64_t before = b->chunks - 1; before >= 2 && room < b->chunk_bytes; before -= 2)
        room *= 2;
    return b->follows || room > b->chunk_bytes ? b->chunk_bytes : room;
}

/* Bytes of a file to place `to` of the slot, or from `straight` on; part by part, chunk by chunk. */
static lp_status add_bytes(maker *m, int32_t file, int64_t file_off, uint8_t *straight, int64_t to, int64_t bytes,
                           lp_error *err)
{
    lp_cold_batches *b = m->b;
    const bool is_direct = m->files->file[file].direct_fd >= 0;
    while (bytes > 0) {
        lp_cold_chunk *c = NULL;
        lp_cold_part *p = NULL;
        LP_TRY(open_chunk(m, &c, err));
        const int64_t most = chunk_room(b);
        const int64_t at = is_direct ? place_direct(b, c, file, file_off) : place_cached(b, c, straight, to);
        if (at >= most) {
            m->has_chunk = false;
            continue;
        }
        LP_TRY(open_part(m, &p, err));
        const int64_t room = room_of(p, file_off, is_direct);
        if (room == 0) {
            m->has_part = false;
            continue;
        }
        int64_t part = bytes < most - at ? bytes : most - at;
        part = part < room ? part : room;
        const lp_cold_read read = {
            .file = file, .file_off = file_off, .bytes = part, .room = is_direct ? part : 0, .at = at};
        const lp_cold_copy copy = {.straight = straight, .to = to, .at = at, .bytes = part, .rows = 1};
        LP_TRY(add_read(b, p, &read, err));
        LP_TRY(add_copy(b, c, &copy, err));
        c->used = is_direct ? align_up(at + part, LP_COLD_BLOCK) : at + part;
        file_off += part;
        to += part;
        bytes -= part;
    }
    return LP_OK;
}

/* ---- names ---- */

static bool is_device_step(const lp_step *step)
{
    return step->stage == LP_NONE;
}

/* Bytes that steps on the device read: those of staged inputs are read when derives run. */
static lp_status device_ranges(maker *m, const lp_entry *e, bool *has_steps, lp_error *err)
{
    m->ranges.count = 0;
    *has_steps = false;
    for (uint32_t i = 0; i < e->step_count; i++) {
        const lp_step *step = &m->plan->step[e->first_step + i];
        if (!is_device_step(step))
            continue;
        *has_steps = true;
        if (step->kind != LP_KIND_FILL)
            LP_TRY(lp_ranges_add_map(&m->ranges, step->map, step->src_off, err));
    }
    lp_ranges_normalise(&m->ranges);
    return LP_OK;
}

/* A tensor that goes as it is into one place: NULL for others. */
static uint8_t *straight_place(const lp_plan *plan, const lp_entry *e)
{
    const lp_step *step = &plan->step[e->first_step];
    if (e->step_count != 1 || !is_device_step(step) || step->kind != LP_KIND_COPY || step->map->nbox != 1 ||
        step->map->box[0].rank != 0)
        return NULL;
    return plan->address[step->dest] + step->dst_off + step->map->box[0].dst_off;
}

static lp_status add_straight(maker *m, const lp_read_name *t, uint8_t *place, lp_error *err)
{
    const lp_range *r = &m->ranges.item[0];
    LP_TRY(open_batch(m, err));
    m->has_chunk = m->has_part = false; /* no gap between slot and place is carried along */
    LP_TRY(add_bytes(m, t->tensor->file, t->tensor->file_off + r->lo, place, 0, r->hi - r->lo, err));
    m->b->straight_bytes += r->hi - r->lo;
    close_batch(m);
    return LP_OK;
}

/* Where byte `lo` of a tensor goes in the slot of the open batch: behind the tensor before as in the file, or aligned.
 */
static int64_t slot_place(const maker *m, const lp_read_name *t, int64_t lo, int64_t hi)
{
    const int64_t used = m->b->batch[m->b->batches - 1].used;
    const int64_t base = t->tensor->file_off + m->shift, gap = base + lo - used;
    if (m->file == t->tensor->file && gap >= 0 && gap <= GAP_MOST && (base % BASE_ALIGN == 0 || hi - lo <= SMALL_BYTES))
        return base + lo;
    return align_up(used, TENSOR_ALIGN) + lo % BASE_ALIGN;
}

static lp_status add_name(maker *m, const lp_read_name *t, lp_error *err)
{
    lp_cold_batches *b = m->b;
    const lp_entry *e = &m->plan->entry[t->entry];
    bool has_steps;
    LP_TRY(device_ranges(m, e, &has_steps, err));
    if (!has_steps)
        return LP_OK;
    if (m->ranges.count == 0) {
        LP_TRY(open_batch(m, err));
        return add_item(m, e->name, LP_COLD_NO_BYTES, err);
    }
    const int64_t lo = m->ranges.item[0].lo, hi = m->ranges.item[m->ranges.count - 1].hi;
    uint8_t *place = hi - lo > m->target ? straight_place(m->plan, e) : NULL;
    if (place != NULL)
        return add_straight(m, t, place, err);
    LP_TRY(open_batch(m, err));
    int64_t at = slot_place(m, t, lo, hi);
    if (b->batch[b->batches - 1].used > 0 && at + (hi - lo) > m->target) {
        close_batch(m);
        LP_TRY(open_batch(m, err));
        at = slot_place(m, t, lo, hi);
    }
    b->batch[b->batches - 1].used = at + (hi - lo);
    m->file = t->tensor->file;
    m->shift = at - lo - t->tensor->file_off;
    LP_TRY(add_item(m, e->name, at - lo, err));
    for (int64_t i = 0; i < m->ranges.count; i++) {
        const lp_range *r = &m->ranges.item[i];
        LP_TRY(add_bytes(m, t->tensor->file, t->tensor->file_off + r->lo, NULL, at - lo + r->lo, r->hi - r->lo, err));
    }
    return LP_OK;
}

/* Makes slots as large as the largest tensor that must lie in one. */
static lp_status fit_slot(maker *m, lp_error *err)
{
    lp_cold_batches *b = m->b;
    for (int64_t i = 0; i < b->names; i++) {
        const lp_entry *e = &m->plan->entry[b->name[i].entry];
        bool has_steps;
        if (e->need_hi - e->need_lo + BASE_ALIGN <= b->slot)
            continue;
        LP_TRY(device_ranges(m, e, &has_steps, err));
        if (m->ranges.count == 0)
            continue;
        const int64_t lo = m->ranges.item[0].lo, bytes = m->ranges.item[m->ranges.count - 1].hi - lo;
        const int64_t room = align_up(lo % BASE_ALIGN + bytes, TENSOR_ALIGN);
        if (room > b->slot && (bytes <= m->target || straight_place(m->plan, e) == NULL))
            b->slot = room;
    }
    return LP_OK;
}

static lp_status cut_names(maker *m, int64_t most, lp_error *err)
{
    lp_cold_batches *b = m->b;
    while (b->cut < b->names && b->batches <= most)
        LP_TRY(add_name(m, &b->name[b->cut++], err));
    return LP_OK;
}

lp_status lp_cold_batches_make(lp_cold_batches *b, const lp_plan *plan, const lp_cold_files *files, int64_t slot,
                               int64_t chunk_bytes, int64_t most, lp_error *err)
{
    maker m = {.b = b, .plan = plan, .files = files, .target = slot, .file = -1};
    b->slot = b->target = slot;
    b->chunk_bytes = chunk_bytes;
    lp_ranges_init(&m.ranges, b->alloc);
    lp_status status = fit_slot(&m, err);
    if (status == LP_OK)
        status = cut_names(&m, most, err);
    lp_ranges_free(&m.ranges);
    return status;
}

lp_status lp_cold_batches_rest(lp_cold_batches *rest, const lp_cold_batches *first, const lp_plan *plan,
                               const lp_cold_files *files, lp_error *err)
{
    *rest = (lp_cold_batches){.alloc = first->alloc,
                              .slot = first->slot,
                              .target = first->target,
                              .chunk_bytes = first->chunk_bytes,
                              .name = first->name,
                              .names = first->names,
                              .cut = first->cut,
                              .file_needed = first->file_needed,
                              .follows = true};
    maker m = {.b = rest, .plan = plan, .files = files, .target = first->target, .file = -1};
    lp_ranges_init(&m.ranges, rest->alloc);
    const lp_status status = cut_names(&m, INT64_MAX, err);
    lp_ranges_free(&m.ranges);
    return status;
}

void lp_cold_batches_free(lp_cold_batches *b)
{
    lp_release(b->alloc, b->batch);
    lp_release(b->alloc, b->chunk);
    lp_release(b->alloc, b->part);
    lp_release(b->alloc, b->read);
    lp_release(b->alloc, b->copy);
    lp_release(b->alloc, b->handle);
    lp_release(b->alloc, b->base);
    if (!b->follows) {
        lp_release(b->alloc, b->name);
        lp_release(b->alloc, b->file_needed);
    }
    *b = (lp_cold_batches){.alloc = b->alloc};
}
