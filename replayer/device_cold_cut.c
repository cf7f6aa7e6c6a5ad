/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of files, cut into reads, parts and chunks. A chunk is one read and one copy where tensors follow one another,
 * small gaps carried along. Larger gaps (columns of another rank) are left out, and rows of equal length become one
 * two-dimensional copy.
 */
#include "replayer/device_cold_cut.h"

#include "replayer/device_program.h"

enum {
    COPY_ALIGN = 64,
    PART_CACHED = 2 << 20, /* of a file that is read through the page cache: all readers work on the next chunks */
    PART_DIRECT = 4 << 20, /* of one that is read directly: fewer, larger requests */
    FIRST_CHUNK = 4 << 20  /* chunks grow from it on */
};

/* ---- tables ---- */

#define GROW(b, list, count, capacity)                                                                                 \
    lp_grow((b)->alloc, (void **)&(b)->list, &(b)->capacity, (b)->count + 1, sizeof *(b)->list)

lp_status lp_cold_cut_batch(lp_cold_cut *m, lp_error *err)
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

void lp_cold_cut_close(lp_cold_cut *m)
{
    m->has_batch = m->has_chunk = m->has_part = false;
}

lp_status lp_cold_cut_item(lp_cold_cut *m, lp_handle handle, int64_t base, lp_error *err)
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

static lp_status open_chunk(lp_cold_cut *m, lp_cold_chunk **out, lp_error *err)
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

static lp_status open_part(lp_cold_cut *m, lp_cold_part **out, lp_error *err)
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
    last->room = last->room > 0 ? lp_cold_align(last->bytes, LP_COLD_BLOCK) : 0;
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
        next->room = lp_cold_align(next->bytes, LP_COLD_BLOCK);
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
        if (gap >= 0 && gap <= LP_COLD_GAP_MOST) {
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
        if (at >= c->used && at <= c->used + LP_COLD_GAP_MOST)
            return at;
    }
    return lp_cold_align(c->used, COPY_ALIGN) + (int64_t)(((uintptr_t)straight + (uintptr_t)to) % COPY_ALIGN);
}

/* The same, read directly: as they lie in their blocks. */
static int64_t place_direct(const lp_cold_batches *b, const lp_cold_chunk *c, int32_t file, int64_t file_off)
{
    const lp_cold_read *last = c->used > 0 ? &b->read[b->reads - 1] : NULL;
    const int64_t block = file_off / LP_COLD_BLOCK * LP_COLD_BLOCK;
    if (last != NULL && last->file == file && last->room > 0 && block >= last->file_off &&
        block <= last->file_off + last->room)
        return last->at + (file_off - last->file_off);
    return lp_cold_align(c->used, LP_COLD_BLOCK) + (file_off - block);
}

/* How many of the next bytes the part takes: 0 where it is full. Direct reads are cut between blocks, and what is left
 * of a block that a part began belongs to it. */
static int64_t room_of(const lp_cold_part *p, int64_t file_off, bool is_direct)
{
    const int64_t most = is_direct ? PART_DIRECT : PART_CACHED, into = file_off % LP_COLD_BLOCK;
    if (!is_direct)
        return p->used < most ? most - p->used : 0;
    const int64_t end = lp_cold_align(file_off + (p->used < most ? most - p->used : 0), LP_COLD_BLOCK);
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

lp_status lp_cold_cut_bytes(lp_cold_cut *m, int32_t file, int64_t file_off, uint8_t *straight, int64_t to,
                            int64_t bytes, lp_error *err)
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
        c->used = is_direct ? lp_cold_align(at + part, LP_COLD_BLOCK) : at + part;
        file_off += part;
        to += part;
        bytes -= part;
    }
    return LP_OK;
}
