/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for names that wait: slots of device staging, in layerwise mode of the host spill too, as long as every unit
 * that has begun can still be completed (device_session_play.h). Free room that lies in pieces is moved together. A
 * refusal tells which name to push first.
 */
#include "replayer/device_session_play.h"

#include <stdlib.h>

/* ---- refusals ---- */

/* The smallest name that a unit lacks, but for the one that is to come last; that one when it is alone. */
static uint32_t next_of_unit(lp_session *s, uint32_t unit, uint32_t except)
{
    const lp_device_unit *u = &s->on->side->unit[unit];
    const uint32_t last = lp_play_is_possible(s) ? lp_play_last(s, unit, LP_NONE) : LP_NONE;
    for (uint32_t k = u->entry_count; k-- > 0;) {
        const uint32_t entry = s->on->side->unit_entry[u->first_entry + k];
        if (entry != except && entry != last && lp_play_is_coming(s, entry))
            return entry;
    }
    return last == except ? LP_NONE : last;
}

/* A name that makes room: one that has arrived in part, the smallest that a unit lacks which can be completed now, or
 * one that goes before this one in its own unit. */
static const char *push_first(lp_session *s, uint32_t entry)
{
    const lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    const int64_t free_bytes = d->staging.bytes - d->staging.used + d->spill.bytes - d->spill.used;
    uint32_t best = LP_NONE;
    lp_play_begin(s);
    for (uint32_t e = 0; e < s->plan->entry_count && best == LP_NONE; e++)
        if (e != entry && d->name[e].place != LP_SLOT_NONE && !s->track[e].is_complete)
            best = e;
    for (uint32_t i = 0; i < d->open_count && best == LP_NONE; i++)
        if (d->unit_state[d->open[i]] == 0 &&
            (!lp_play_is_possible(s) || lp_play_need(s, d->open[i], LP_NONE) <= free_bytes))
            best = next_of_unit(s, d->open[i], entry);
    for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1] && best == LP_NONE; k++)
        if (s->mode == LP_LAYERWISE)
            best = next_of_unit(s, side->entry_unit[k], entry);
    return best == LP_NONE ? NULL : lp_checkpoint_at(s->plan->catalogue, s->plan->entry[best].name)->name;
}

lp_status lp_device_no_room(lp_session *s, uint32_t entry, lp_error *err)
{
    const lp_device_session *d = s->on;
    const lp_entry *e = &s->plan->entry[entry];
    const char *name = lp_checkpoint_at(s->plan->catalogue, e->name)->name;
    const char *first = err == NULL ? NULL : push_first(s, entry);
    if (d->side->spill_bytes > 0)
        lp_fail_at(
            err, LP_E_LIMIT, name, -1,
            "'%s' needs %lld bytes of staging, %lld of %lld are in use on the device and %lld of %lld of the spill",
            name, (long long)lp_slot_bytes(e), (long long)d->staging.used, (long long)d->staging.bytes,
            (long long)d->spill.used, (long long)d->spill.bytes);
    else
        lp_fail_at(err, LP_E_LIMIT, name, -1, "'%s' needs %lld bytes of device staging, %lld of %lld are in use", name,
                   (long long)lp_slot_bytes(e), (long long)d->staging.used, (long long)d->staging.bytes);
    if (first != NULL)
        lp_hint(err, "push '%s' first", first);
    else
        lp_hint(err, "raise the staging budget of bind, or push the tensor whole and from device memory");
    return LP_E_LIMIT;
}

/* ---- slots ---- */

static void note_peaks(lp_device_session *d)
{
    d->staging_peak = d->staging.used > d->staging_peak ? d->staging.used : d->staging_peak;
    d->spill_peak = d->spill.used > d->spill_peak ? d->spill.used : d->spill_peak;
}

static void note_taken(lp_session *s, uint32_t entry)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    note_peaks(d);
    if (s->mode != LP_LAYERWISE)
        return;
    lp_device_note_coming(s, entry, -1);
    lp_device_note_held(s, entry, 1);
    for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1]; k++) {
        const uint32_t unit = side->entry_unit[k];
        if (!d->is_unit_open[unit] && d->unit_state[unit] == 0)
            d->open[d->open_count++] = unit;
        d->is_unit_open[unit] = true;
    }
}

typedef struct placed {
    int64_t off;
    uint32_t entry;
} placed;

static int by_place(const void *a, const void *b)
{
    const int64_t x = ((const placed *)a)->off, y = ((const placed *)b)->off;
    return x < y ? -1 : x > y;
}

/* To a lower place; through the room that is kept aside where the two overlap. */
static lp_status move_slot(lp_session *s, uint32_t entry, int64_t to, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_calls *c = &d->side->calls;
    lp_device_name *n = &d->name[entry];
    uint8_t *staging = d->side->staging;
    const int64_t bytes = lp_slot_bytes(&s->plan->entry[entry]), from = n->slot_off;
    int code = 0;
    d->is_moving = true;
    if (to + bytes <= from) {
        code = c->copy(c->context, staging + to, staging + from, bytes, d->stream);
    } else {
        code = c->copy(c->context, staging + d->bounce_off, staging + from, bytes, d->stream);
        if (code == 0)
            code = c->copy(c->context, staging + to, staging + d->bounce_off, bytes, d->stream);
    }
    LP_TRY(lp_device_check(c, code, "move staging together", err));
    n->slot_off = to;
    if (n->base != NULL)
        n->base = (const void *)((uintptr_t)(staging + to) - (uintptr_t)lp_slot_lo(&s->plan->entry[entry]));
    return LP_OK;
}

/* Whether moving the slots of staging together makes room. */
static bool can_compact(const lp_session *s, int64_t bytes)
{
    const lp_device_session *d = s->on;
    return s->mode == LP_LAYERWISE && !d->is_bounce_used && d->staging.bytes - d->staging.used >= bytes;
}

static lp_status compact(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    lp_status status = LP_OK;
    uint32_t count = 0;
    placed *list = lp_allocate(s->alloc, ((size_t)s->plan->entry_count + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    for (uint32_t e = 0; e < s->plan->entry_count; e++)
        if (d->name[e].place == LP_SLOT_STAGING)
            list[count++] = (placed){d->name[e].slot_off, e};
    if (count > 1)
        qsort(list, count, sizeof *list, by_place);
    int64_t at = d->bounce_off + d->side->largest; /* it was the first to be taken */
    for (uint32_t i = 0; i < count && status == LP_OK; i++) {
        if (list[i].off != at)
            status = move_slot(s, list[i].entry, at, err);
        at += lp_slot_bytes(&s->plan->entry[list[i].entry]);
    }
    lp_release(s->alloc, list);
    if (status != LP_OK)
        return lp_session_poison(s, status, err);
    lp_arena_map_join(&d->staging, at);
    return LP_OK;
}

lp_status lp_device_take_slot(lp_session *s, uint32_t entry, lp_error *err)
{
    lp_device_session *d = s->on;
    lp_device_name *n = &d->name[entry];
    const int64_t bytes = lp_slot_bytes(&s->plan->entry[entry]);
    int64_t off = -1;
    if (n->place != LP_SLOT_NONE)
        return LP_OK;
    if (!lp_play_is_safe(s, entry))
        return lp_device_no_room(s, entry, err);
    LP_TRY(lp_arena_map_take(&d->staging, bytes, &off, err));
    lp_slot_place place = LP_SLOT_STAGING;
    if (off < 0 && s->mode == LP_LAYERWISE) {
        place = LP_SLOT_SPILL;
        LP_TRY(lp_arena_map_take(&d->spill, bytes, &off, err));
    }
    if (off < 0 && can_compact(s, bytes)) {
        place = LP_SLOT_STAGING;
        LP_TRY(compact(s, err));
        LP_TRY(lp_arena_map_take(&d->staging, bytes, &off, err));
    }
    if (off < 0 && s->mode == LP_LAYERWISE && !d->is_bounce_used && lp_device_is_last(s, entry)) {
        place = LP_SLOT_BOUNCE;
        off = d->bounce_off;
        d->is_bounce_used = true;
    }
    if (off < 0)
        return lp_device_no_room(s, entry, err);
    n->place = place;
    n->slot_off = off;
    note_taken(s, entry);
    return LP_OK;
}

void lp_device_drop_slot(lp_session *s, uint32_t entry)
{
    lp_device_session *d = s->on;
    lp_device_name *n = &d->name[entry];
    const int64_t bytes = lp_slot_bytes(&s->plan->entry[entry]);
    if (n->place == LP_SLOT_NONE)
        return;
    if (n->place == LP_SLOT_STAGING)
        lp_arena_map_give(&d->staging, n->slot_off, bytes);
    else if (n->place == LP_SLOT_SPILL)
        lp_arena_map_give(&d->spill, n->slot_off, bytes);
    else
        d->is_bounce_used = false;
    n->place = LP_SLOT_NONE;
    if (s->mode != LP_LAYERWISE)
        return;
    lp_device_note_held(s, entry, -1);
    if (!s->track[entry].is_complete) /* nothing of it was written */
        lp_device_note_coming(s, entry, 1);
}

lp_status lp_device_has_room(lp_session *s, uint32_t entry, lp_error *err)
{
    const lp_device_session *d = s->on;
    const lp_entry *e = &s->plan->entry[entry];
    const int64_t bytes = lp_slot_bytes(e);
    if (!e->reads || s->track[entry].is_complete || d->name[entry].place != LP_SLOT_NONE)
        return LP_OK;
    if (lp_play_is_safe(s, entry) && (lp_arena_map_fits(&d->staging, bytes) || can_compact(s, bytes)))
        return LP_OK;
    if (s->mode == LP_LAYERWISE && ((lp_play_is_safe(s, entry) && lp_arena_map_fits(&d->spill, bytes)) ||
                                    (!d->is_bounce_used && lp_device_is_last(s, entry))))
        return LP_OK;
    return lp_device_no_room(s, entry, err);
}
