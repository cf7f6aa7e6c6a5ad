/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans a cold start. A slot mirrors the files: tensors that follow one another there do so in the slot. A tensor of
 * some size whose first byte would lie badly for the kernels is moved up.
 */
#include "replayer/device_cold_cut.h"

enum {
    TENSOR_ALIGN = 128, /* of tensors that do not follow the one before */
    BASE_ALIGN = 16,    /* of their first byte: what the kernels for rows and words ask for */
    SMALL_BYTES = 4096  /* of tensors that move as well from any address */
};

static bool is_device_step(const lp_step *step)
{
    return step->stage == LP_NONE;
}

/* Bytes that steps on the device read: those of staged inputs are read when derives run. */
static lp_status device_ranges(lp_cold_cut *m, const lp_entry *e, bool *has_steps, lp_error *err)
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

static lp_status add_straight(lp_cold_cut *m, const lp_read_name *t, uint8_t *place, lp_error *err)
{
    const lp_range *r = &m->ranges.item[0];
    LP_TRY(lp_cold_cut_batch(m, err));
    m->has_chunk = m->has_part = false; /* no gap between slot and place is carried along */
    LP_TRY(lp_cold_cut_bytes(m, t->tensor->file, t->tensor->file_off + r->lo, place, 0, r->hi - r->lo, err));
    m->b->straight_bytes += r->hi - r->lo;
    lp_cold_cut_close(m);
    return LP_OK;
}

/* Where byte `lo` of a tensor goes in the slot of the open batch: behind the tensor before as in the file, or aligned.
 */
static int64_t slot_place(const lp_cold_cut *m, const lp_read_name *t, int64_t lo, int64_t hi)
{
    const int64_t used = m->b->batch[m->b->batches - 1].used;
    const int64_t base = t->tensor->file_off + m->shift, gap = base + lo - used;
    if (m->file == t->tensor->file && gap >= 0 && gap <= LP_COLD_GAP_MOST &&
        (base % BASE_ALIGN == 0 || hi - lo <= SMALL_BYTES))
        return base + lo;
    return lp_cold_align(used, TENSOR_ALIGN) + lo % BASE_ALIGN;
}

static lp_status add_name(lp_cold_cut *m, const lp_read_name *t, lp_error *err)
{
    lp_cold_batches *b = m->b;
    const lp_entry *e = &m->plan->entry[t->entry];
    bool has_steps;
    LP_TRY(device_ranges(m, e, &has_steps, err));
    if (!has_steps)
        return LP_OK;
    if (m->ranges.count == 0) {
        LP_TRY(lp_cold_cut_batch(m, err));
        return lp_cold_cut_item(m, e->name, LP_COLD_NO_BYTES, err);
    }
    const int64_t lo = m->ranges.item[0].lo, hi = m->ranges.item[m->ranges.count - 1].hi;
    uint8_t *place = hi - lo > m->target ? straight_place(m->plan, e) : NULL;
    if (place != NULL)
        return add_straight(m, t, place, err);
    LP_TRY(lp_cold_cut_batch(m, err));
    int64_t at = slot_place(m, t, lo, hi);
    if (b->batch[b->batches - 1].used > 0 && at + (hi - lo) > m->target) {
        lp_cold_cut_close(m);
        LP_TRY(lp_cold_cut_batch(m, err));
        at = slot_place(m, t, lo, hi);
    }
    b->batch[b->batches - 1].used = at + (hi - lo);
    m->file = t->tensor->file;
    m->shift = at - lo - t->tensor->file_off;
    LP_TRY(lp_cold_cut_item(m, e->name, at - lo, err));
    for (int64_t i = 0; i < m->ranges.count; i++) {
        const lp_range *r = &m->ranges.item[i];
        LP_TRY(lp_cold_cut_bytes(m, t->tensor->file, t->tensor->file_off + r->lo, NULL, at - lo + r->lo, r->hi - r->lo,
                                 err));
    }
    return LP_OK;
}

/* Makes slots as large as the largest tensor that must lie in one. */
static lp_status fit_slot(lp_cold_cut *m, lp_error *err)
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
        const int64_t room = lp_cold_align(lo % BASE_ALIGN + bytes, TENSOR_ALIGN);
        if (room > b->slot && (bytes <= m->target || straight_place(m->plan, e) == NULL))
            b->slot = room;
    }
    return LP_OK;
}

static lp_status cut_names(lp_cold_cut *m, int64_t most, lp_error *err)
{
    lp_cold_batches *b = m->b;
    while (b->cut < b->names && b->batches <= most)
        LP_TRY(add_name(m, &b->name[b->cut++], err));
    return LP_OK;
}

lp_status lp_cold_batches_make(lp_cold_batches *b, const lp_plan *plan, const lp_cold_files *files, int64_t slot,
                               int64_t chunk_bytes, int64_t most, lp_error *err)
{
    lp_cold_cut m = {.b = b, .plan = plan, .files = files, .target = slot, .file = -1};
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
    lp_cold_cut m = {.b = rest, .plan = plan, .files = files, .target = first->target, .file = -1};
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
