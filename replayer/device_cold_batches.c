/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans a cold start. A chunk mirrors a piece of a slot: small gaps between tensors are carried along as they lie, so
 * that a chunk is one copy, while larger ones (columns of another rank) are left out and rows of equal length become
 * one two-dimensional copy.
 */
#include "replayer/device_cold_batches.h"
#include "replayer/source_ranges.h"

#include <stdlib.h>

enum {
    TENSOR_ALIGN = 128, /* of tensors in a slot */
    BASE_ALIGN = 16,    /* of their first byte: what the kernels for rows and words ask for */
    GAP_MOST = 512,     /* that is carried along */
    COPY_ALIGN = 64
};

typedef struct todo {
    uint32_t entry;
    const lp_checkpoint_tensor *tensor;
} todo;

typedef struct maker {
    lp_cold_batches *b;
    const lp_plan *plan;
    lp_ranges ranges; /* of the name at hand */
    int64_t target;   /* bytes of a batch, unless one tensor has more */
    bool has_batch, has_chunk;
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
    if (m->has_batch)
        return LP_OK;
    if (!GROW(b, batch, batches, batch_capacity))
        return lp_fail_memory(err);
    b->batch[b->batches++] = (lp_cold_batch){.first_item = b->items, .first_chunk = b->chunks};
    m->has_batch = true;
    m->has_chunk = false;
    return LP_OK;
}

static void close_batch(maker *m)
{
    m->has_batch = m->has_chunk = false;
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
            (lp_cold_chunk){.first_read = b->reads, .first_copy = b->copies, .batch = b->batches - 1};
        b->batch[b->batches - 1].chunks++;
        m->has_chunk = true;
    }
    *out = &b->chunk[b->chunks - 1];
    return LP_OK;
}

static lp_status add_read(lp_cold_batches *b, lp_cold_chunk *c, const lp_cold_read *read, lp_error *err)
{
    lp_cold_read *last = c->reads > 0 ? &b->read[b->reads - 1] : NULL;
    b->bytes += read->bytes;
    b->batch[c->batch].bytes += read->bytes;
    b->file_uses[read->file]++;
    if (last != NULL && last->file == read->file && last->file_off + last->bytes == read->file_off &&
        last->at + last->bytes == read->at) {
        last->bytes += read->bytes;
        return LP_OK;
    }
    if (!GROW(b, read, reads, read_capacity))
        return lp_fail_memory(err);
    b->read[b->reads++] = *read;
    c->reads++;
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
    if (c->copies > 0 && joins_rows(&b->copy[b->copies - 1], copy))
        return LP_OK;
    if (!GROW(b, copy, copies, copy_capacity))
        return lp_fail_memory(err);
    b->copy[b->copies++] = *copy;
    c->copies++;
    return LP_OK;
}

/* Bytes of a file to place `to` of the slot, or from `straight` on; chunk by chunk. */
static lp_status add_bytes(maker *m, int32_t file, int64_t file_off, uint8_t *straight, int64_t to, int64_t bytes,
                           lp_error *err)
{
    lp_cold_batches *b = m->b;
    while (bytes > 0) {
        lp_cold_chunk *c = NULL;
        LP_TRY(open_chunk(m, &c, err));
        lp_cold_copy *last = c->copies > 0 ? &b->copy[b->copies - 1] : NULL;
        int64_t gap = -1;
        if (last != NULL && last->rows == 1 && last->straight == straight)
            gap = to - (last->to + last->bytes);
        const bool goes_on = gap >= 0 && gap <= GAP_MOST;
        const int64_t at = goes_on ? c->used + gap : align_up(c->used, COPY_ALIGN);
        if (at >= LP_COLD_CHUNK) {
            m->has_chunk = false;
            continue;
        }
        const int64_t part = bytes < LP_COLD_CHUNK - at ? bytes : LP_COLD_CHUNK - at;
        const lp_cold_read read = {.file = file, .file_off = file_off, .bytes = part, .at = at};
        const lp_cold_copy copy = {.straight = straight, .to = to, .at = at, .bytes = part, .rows = 1};
        LP_TRY(add_read(b, c, &read, err));
        if (goes_on)
            last->bytes += gap + part;
        else
            LP_TRY(add_copy(b, c, &copy, err));
        c->used = at + part;
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

static lp_status add_straight(maker *m, const todo *t, uint8_t *place, lp_error *err)
{
    const lp_range *r = &m->ranges.item[0];
    LP_TRY(open_batch(m, err));
    m->has_chunk = false; /* no gap between slot and place is carried along */
    LP_TRY(add_bytes(m, t->tensor->file, t->tensor->file_off + r->lo, place, 0, r->hi - r->lo, err));
    m->b->straight_bytes += r->hi - r->lo;
    close_batch(m);
    return LP_OK;
}

static lp_status add_name(maker *m, const todo *t, lp_error *err)
{
    lp_cold_batches *b = m->b;
    const lp_entry *e = &m->plan->entry[t->entry];
    bool has_steps;
    LP_TRY(device_ranges(m, e, &has_steps, err));
    b->names++;
    if (!has_steps)
        return LP_OK;
    if (m->ranges.count == 0) {
        LP_TRY(open_batch(m, err));
        return add_item(m, e->name, LP_COLD_NO_BYTES, err);
    }
    const int64_t lo = m->ranges.item[0].lo / BASE_ALIGN * BASE_ALIGN, hi = m->ranges.item[m->ranges.count - 1].hi;
    uint8_t *place = hi - lo > m->target ? straight_place(m->plan, e) : NULL;
    if (place != NULL)
        return add_straight(m, t, place, err);
    LP_TRY(open_batch(m, err));
    int64_t at = align_up(b->batch[b->batches - 1].used, TENSOR_ALIGN);
    if (at > 0 && at + (hi - lo) > m->target) {
        close_batch(m);
        LP_TRY(open_batch(m, err));
        at = 0;
    }
    if (hi - lo > b->slot)
        b->slot = align_up(hi - lo, TENSOR_ALIGN);
    b->batch[b->batches - 1].used = at + (hi - lo);
    LP_TRY(add_item(m, e->name, at - lo, err));
    for (int64_t i = 0; i < m->ranges.count; i++) {
        const lp_range *r = &m->ranges.item[i];
        LP_TRY(add_bytes(m, t->tensor->file, t->tensor->file_off + r->lo, NULL, at - lo + r->lo, r->hi - r->lo, err));
    }
    return LP_OK;
}

static int by_place(const void *a, const void *b)
{
    const todo *x = a, *y = b;
    if (x->tensor->file != y->tensor->file)
        return x->tensor->file < y->tensor->file ? -1 : 1;
    if (x->tensor->file_off != y->tensor->file_off)
        return x->tensor->file_off < y->tensor->file_off ? -1 : 1;
    return x->entry < y->entry ? -1 : 1;
}

static lp_status find_tensor(const lp_plan *plan, const lp_checkpoint *checkpoint, uint32_t entry, todo *out,
                             lp_error *err)
{
    const lp_checkpoint_tensor *want = lp_checkpoint_at(plan->catalogue, plan->entry[entry].name);
    const int64_t index = lp_checkpoint_find(checkpoint, want->name);
    const lp_checkpoint_tensor *have = index < 0 ? NULL : lp_checkpoint_at(checkpoint, index);
    LP_TRY(lp_same_tensor(want, have, err));
    if (plan->entry[entry].reads && (have->file < 0 || have->file_off < 0))
        return lp_fail_at(err, LP_E_ARGUMENT, want->name, -1, "'%s' has no file: the checkpoint is a catalogue only",
                          want->name);
    *out = (todo){.entry = entry, .tensor = have};
    return LP_OK;
}

/* Files of staged inputs are opened too. */
static void note_stages(lp_cold_batches *b, const lp_plan *plan, const todo *t)
{
    const lp_entry *e = &plan->entry[t->entry];
    for (uint32_t i = 0; i < e->step_count; i++)
        if (!is_device_step(&plan->step[e->first_step + i]) && t->tensor->file >= 0)
            b->file_uses[t->tensor->file]++;
}

static lp_status make(maker *m, const lp_checkpoint *checkpoint, todo *list, lp_error *err)
{
    int64_t count = 0;
    for (uint32_t e = 0; e < m->plan->entry_count; e++) {
        if (m->plan->entry[e].use != LP_USE_LOADED)
            continue;
        LP_TRY(find_tensor(m->plan, checkpoint, e, &list[count], err));
        note_stages(m->b, m->plan, &list[count++]);
    }
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, by_place);
    for (int64_t i = 0; i < count; i++)
        LP_TRY(add_name(m, &list[i], err));
    return LP_OK;
}

lp_status lp_cold_batches_make(lp_cold_batches *b, const lp_plan *plan, const lp_checkpoint *checkpoint, int64_t slot,
                               lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    *b = (lp_cold_batches){.alloc = alloc, .slot = slot};
    maker m = {.b = b, .plan = plan, .target = slot};
    lp_ranges_init(&m.ranges, alloc);
    b->file_uses = lp_allocate_zero(alloc, ((size_t)lp_checkpoint_file_count(checkpoint) + 1) * sizeof *b->file_uses);
    todo *list = lp_allocate(alloc, ((size_t)plan->entry_count + 1) * sizeof *list);
    const lp_status status =
        b->file_uses == NULL || list == NULL ? lp_fail_memory(err) : make(&m, checkpoint, list, err);
    lp_release(alloc, list);
    lp_ranges_free(&m.ranges);
    return status;
}

void lp_cold_batches_free(lp_cold_batches *b)
{
    lp_release(b->alloc, b->batch);
    lp_release(b->alloc, b->chunk);
    lp_release(b->alloc, b->read);
    lp_release(b->alloc, b->copy);
    lp_release(b->alloc, b->handle);
    lp_release(b->alloc, b->base);
    lp_release(b->alloc, b->file_uses);
    *b = (lp_cold_batches){.alloc = b->alloc};
}
