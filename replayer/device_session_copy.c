/* SPDX-License-Identifier: Apache-2.0 */
/* Copies into the slots of names that wait: ranges, strided tensors, runs. */
#include "replayer/device_session_push.h"

static uint8_t *slot_memory(const lp_device_session *d, const lp_device_name *n)
{
    return (n->place == LP_SLOT_SPILL ? d->side->spill : d->side->staging) + n->slot_off;
}

const void *lp_push_slot_base(const lp_session *s, uint32_t entry)
{
    const lp_device_session *d = s->on;
    return (const void *)((uintptr_t)slot_memory(d, &d->name[entry]) - (uintptr_t)lp_slot_lo(&s->plan->entry[entry]));
}

/* Bytes [off, off + bytes) of the tensor, of which the needed ones go to the slot. */
static lp_status copy_range(lp_session *s, uint32_t entry, int64_t off, const void *data, int64_t bytes, bool on_device,
                            lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_calls *c = &d->side->calls;
    const lp_entry *e = &s->plan->entry[entry];
    const lp_device_name *n = &d->name[entry];
    const int64_t lo = off > e->need_lo ? off : e->need_lo;
    const int64_t hi = off + bytes < e->need_hi ? off + bytes : e->need_hi;
    if (lo >= hi)
        return LP_OK;
    const uint8_t *from = (const uint8_t *)data + (lo - off);
    uint8_t *to = slot_memory(d, n) + (lo - lp_slot_lo(e));
    if (n->place == LP_SLOT_SPILL && !on_device) { /* by this thread: behind all that may still read the slot */
        if (d->is_spill_read)
            LP_TRY(lp_device_check(c, c->wait(c->context, d->stream), "wait for the device", err));
        d->is_spill_read = false;
        memcpy(to, from, (size_t)(hi - lo));
        return LP_OK;
    }
    d->is_moving = true;
    d->is_spill_read = d->is_spill_read || n->place == LP_SLOT_SPILL;
    return lp_device_check(c, c->copy(c->context, to, from, hi - lo, d->stream), "copy to staging", err);
}

typedef struct walk {
    lp_session *s;
    uint32_t entry;
    int64_t off;
} walk;

static lp_status copy_piece(void *context, const void *data, int64_t bytes, lp_error *err)
{
    walk *w = context;
    const int64_t off = w->off;
    w->off += bytes;
    return copy_range(w->s, w->entry, off, data, bytes, false, err);
}

static lp_status gather(lp_session *s, const lp_device_push *p, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_calls *c = &d->side->calls;
    const lp_entry *e = &s->plan->entry[p->entry];
    const lp_device_name *n = &d->name[p->entry];
    uint8_t *dense = n->place == LP_SLOT_SPILL ? d->side->staging + d->bounce_off : slot_memory(d, n);
    d->is_moving = true;
    LP_TRY(lp_device_check(c, c->gather(c->context, dense, p->data, p->form, lp_slot_lo(e), e->need_hi, d->stream),
                           "gather a strided tensor", err));
    if (n->place != LP_SLOT_SPILL)
        return LP_OK;
    d->is_spill_read = true;
    return lp_device_check(c, c->copy(c->context, slot_memory(d, n), dense, lp_slot_bytes(e), d->stream),
                           "copy to the spill", err);
}

/* Runs that lie one after the other into their places in the slot: by one call where all of each is needed. */
static lp_status spread(lp_session *s, const lp_device_push *p, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_calls *c = &d->side->calls;
    const lp_entry *e = &s->plan->entry[p->entry];
    const lp_device_name *n = &d->name[p->entry];
    const lp_piece *r = p->runs;
    if (p->off < e->need_lo || p->off + p->bytes > e->need_hi || r->stride > INT32_MAX) {
        for (int64_t k = 0; k < r->count; k++)
            LP_TRY(copy_range(s, p->entry, r->lo + k * r->stride, (const uint8_t *)p->data + k * r->run, r->run, true,
                              err));
        return LP_OK;
    }
    d->is_moving = true;
    d->is_spill_read = d->is_spill_read || n->place == LP_SLOT_SPILL;
    return lp_device_check(c,
                           c->copy_rows(c->context, slot_memory(d, n) + (r->lo - lp_slot_lo(e)), r->stride, p->data,
                                        r->run, r->run, r->count, d->stream),
                           "copy to staging", err);
}

lp_status lp_push_copy_in(lp_session *s, const lp_device_push *p, lp_error *err)
{
    if (p->runs != NULL)
        return spread(s, p, err);
    if (p->form == NULL)
        return copy_range(s, p->entry, p->off, p->data, p->bytes, p->on_device, err);
    if (p->on_device)
        return gather(s, p, err);
    walk w = {.s = s, .entry = p->entry};
    return lp_form_walk(p->form, p->data, s->alloc, copy_piece, &w, err);
}
