/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for names that wait. A layerwise session takes a slot only if afterwards every unit that has begun can still be
 * completed, in some order: what it needs until its last name comes must fit what is free by then (the banker's
 * rule, Dijkstra 1965). So no order of pushes ends in a state in which everything is refused, and the name that a
 * refusal tells to push first is taken. The last name of a unit needs nothing: it goes straight, or through the room
 * that is kept aside. Free room that lies in pieces is moved together.
 */
#include "replayer/device_session.h"
#include "replayer/session.h"

#include <stdlib.h>

bool lp_device_is_last(const lp_session *s, uint32_t entry)
{
    const lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    for (uint32_t i = side->entry_first_unit[entry]; i < side->entry_first_unit[entry + 1]; i++)
        if (d->unit_left[side->entry_unit[i]] > 1)
            return false;
    return true;
}

/* ---- what units still need ---- */

/* A unit's part in a play. */
enum { NOT_IN_PLAY = 0, IN_PLAY, COMMITTED };

/* Still to come, and without a slot. */
static bool is_coming(const lp_session *s, uint32_t entry)
{
    return s->track[entry].is_expected && !s->track[entry].is_complete && s->on->name[entry].place == LP_SLOT_NONE;
}

static uint32_t units_of(const lp_device_side *side, uint32_t entry)
{
    return side->entry_first_unit[entry + 1] - side->entry_first_unit[entry];
}

/* The bytes of a name count as coming to its units (sign 1), or no longer (-1). */
void lp_device_note_coming(lp_session *s, uint32_t entry, int sign)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    const int64_t bytes = lp_slot_bytes(&s->plan->entry[entry]) * sign;
    for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1]; k++) {
        d->unit_coming[side->entry_unit[k]] += bytes;
        if (sign > 0)
            d->unit_top[side->entry_unit[k]] = 0;
    }
}

/* A slot that only one unit waits for is free when that unit has committed. */
void lp_device_note_held(lp_session *s, uint32_t entry, int sign)
{
    lp_device_session *d = s->on;
    if (units_of(d->side, entry) == 1)
        d->unit_held[d->side->entry_unit[d->side->entry_first_unit[entry]]] +=
            lp_slot_bytes(&s->plan->entry[entry]) * sign;
}

static bool came_in_play(const lp_device_session *d, uint32_t entry)
{
    if (units_of(d->side, entry) < 2)
        return false;
    for (uint32_t i = 0; i < d->side->shared_count; i++)
        if (d->side->shared[i] == entry)
            return d->shared_came[i];
    return false;
}

static bool waits_for(const lp_device_side *side, uint32_t unit, uint32_t entry)
{
    for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1]; k++)
        if (side->entry_unit[k] == unit)
            return true;
    return false;
}

/* Names of several units, in the play of is_safe: when `unit` has committed, those that no other unit waits for give
 * their slots back; those that came meanwhile keep theirs. */
static void settle_shared(lp_session *s, uint32_t unit, uint32_t taking, int64_t *free_bytes)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    for (uint32_t i = 0; i < side->shared_count; i++) {
        const uint32_t entry = side->shared[i];
        if (d->shared_left[i] == 0 || !waits_for(side, unit, entry))
            continue;
        const int64_t bytes = lp_slot_bytes(&s->plan->entry[entry]);
        const bool has_slot = entry == taking || d->name[entry].place != LP_SLOT_NONE;
        if (!has_slot && !d->shared_came[i] && is_coming(s, entry)) {
            d->shared_came[i] = true;
            *free_bytes -= bytes;
        }
        if (--d->shared_left[i] == 0 && (has_slot || d->shared_came[i]))
            *free_bytes += bytes;
    }
}

/* A play costs the square of the number of shared names. */
static bool is_playable(const lp_session *s)
{
    return s->on->side->shared_count <= LP_SHARED_MAX;
}

/* Bytes that a unit still needs in the play: shared names that came for another one are there. */
static int64_t coming_in_play(const lp_session *s, uint32_t unit, uint32_t taking)
{
    const lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    int64_t bytes = d->unit_coming[unit];
    if (taking != LP_NONE && is_coming(s, taking))
        bytes -= lp_slot_bytes(&s->plan->entry[taking]);
    for (uint32_t i = 0; i < side->shared_count; i++)
        if (d->shared_came[i] && waits_for(side, unit, side->shared[i]))
            bytes -= lp_slot_bytes(&s->plan->entry[side->shared[i]]);
    return bytes;
}

/* Bytes of names that both units still lack, but for `entry`. */
static int64_t common_in_play(const lp_session *s, uint32_t a, uint32_t b, uint32_t entry, uint32_t taking)
{
    const lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < side->shared_count; i++) {
        const uint32_t other = side->shared[i];
        if (other != entry && other != taking && !d->shared_came[i] && is_coming(s, other) &&
            waits_for(side, a, other) && waits_for(side, b, other))
            bytes += lp_slot_bytes(&s->plan->entry[other]);
    }
    return bytes;
}

/* Whether the name needs no slot when it is the last one of `unit`: its other units wait for nothing else by then. */
static bool goes_straight(const lp_session *s, uint32_t entry, uint32_t unit, uint32_t taking)
{
    const lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1]; k++) {
        const uint32_t other = side->entry_unit[k];
        const uint32_t taken = taking != LP_NONE && waits_for(side, other, taking) ? taking : LP_NONE;
        if (other != unit && d->unit_state[other] == 0 && d->play[other] != COMMITTED &&
            coming_in_play(s, other, taken) - common_in_play(s, unit, other, entry, taking) >
                lp_slot_bytes(&s->plan->entry[entry]))
            return false;
    }
    return true;
}

/* The largest name that may come last for a unit; LP_NONE: none is left, or all have to wait for other units. Names of
 * a unit stand by falling size. */
static uint32_t last_in_play(lp_session *s, uint32_t unit, uint32_t taking)
{
    lp_device_session *d = s->on;
    const lp_device_unit *u = &d->side->unit[unit];
    uint32_t *top = &d->unit_top[unit];
    while (*top < u->entry_count && !is_coming(s, d->side->unit_entry[u->first_entry + *top]))
        (*top)++;
    for (uint32_t k = *top; k < u->entry_count; k++) {
        const uint32_t entry = d->side->unit_entry[u->first_entry + k];
        if (entry != taking && is_coming(s, entry) && !came_in_play(d, entry) && goes_straight(s, entry, unit, taking))
            return entry;
    }
    return LP_NONE;
}

/* Bytes of slots that a unit needs until its last name comes. */
static int64_t need_in_play(lp_session *s, uint32_t unit, uint32_t taking)
{
    const bool is_ours = taking != LP_NONE && waits_for(s->on->side, unit, taking);
    const uint32_t last = last_in_play(s, unit, taking);
    return coming_in_play(s, unit, is_ours ? taking : LP_NONE) -
           (last == LP_NONE ? 0 : lp_slot_bytes(&s->plan->entry[last]));
}

static void begin_play(lp_session *s)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    for (uint32_t i = 0; i < side->shared_count; i++) {
        d->shared_left[i] = 0;
        d->shared_came[i] = false;
        for (uint32_t k = side->entry_first_unit[side->shared[i]]; k < side->entry_first_unit[side->shared[i] + 1]; k++)
            d->shared_left[i] += d->unit_state[side->entry_unit[k]] == 0;
    }
}

static void add_to_play(lp_device_session *d, uint32_t unit, uint32_t *count)
{
    if (d->unit_state[unit] != 0 || d->play[unit] != NOT_IN_PLAY)
        return;
    d->play[unit] = IN_PLAY;
    d->open[(*count)++] = unit;
}

static bool add_units_of(lp_device_session *d, uint32_t entry, uint32_t *count)
{
    const uint32_t before = *count;
    for (uint32_t k = d->side->entry_first_unit[entry]; k < d->side->entry_first_unit[entry + 1]; k++)
        add_to_play(d, d->side->entry_unit[k], count);
    return *count > before;
}

/* Units that hold slots, those that `entry` would open, and those that names open which are still to come for them. */
static uint32_t list_play(lp_session *s, uint32_t entry)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->open_count; i++)
        if (d->unit_state[d->open[i]] == 0)
            d->open[count++] = d->open[i];
    d->open_count = count;
    for (uint32_t i = 0; i < count; i++)
        d->play[d->open[i]] = IN_PLAY;
    (void)add_units_of(d, entry, &count);
    for (bool grows = true; grows;) {
        grows = false;
        for (uint32_t i = 0; i < side->shared_count; i++) {
            bool is_in = false;
            for (uint32_t k = side->entry_first_unit[side->shared[i]];
                 k < side->entry_first_unit[side->shared[i] + 1] && !is_in; k++)
                is_in = d->play[side->entry_unit[k]] != NOT_IN_PLAY;
            if (is_in && is_coming(s, side->shared[i]))
                grows = add_units_of(d, side->shared[i], &count) || grows;
        }
    }
    return count;
}

/* Plays: any unit that can be completed is, until none is left, or none can. */
static bool can_complete(lp_session *s, uint32_t entry, uint32_t count, int64_t free_bytes)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    const int64_t bytes = lp_slot_bytes(&s->plan->entry[entry]);
    uint32_t left = count;
    for (bool moves = true; moves && left > 0;) {
        moves = false;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t unit = d->open[i];
            const bool is_ours = waits_for(side, unit, entry);
            const int64_t need = need_in_play(s, unit, entry);
            /* A name that went straight to one unit is charged until the others, which need nothing, have taken it. */
            if (d->play[unit] == COMMITTED || (need > 0 && need > free_bytes))
                continue;
            d->play[unit] = COMMITTED;
            moves = true;
            left--;
            free_bytes += d->unit_held[unit] + (is_ours && units_of(side, entry) == 1 ? bytes : 0);
            settle_shared(s, unit, entry, &free_bytes);
        }
    }
    return left == 0;
}

static bool is_safe(lp_session *s, uint32_t entry)
{
    lp_device_session *d = s->on;
    const int64_t free_bytes = d->staging.bytes - d->staging.used + d->spill.bytes - d->spill.used;
    if (s->mode != LP_LAYERWISE || !is_playable(s) || lp_device_is_last(s, entry))
        return true;
    const uint32_t count = list_play(s, entry);
    begin_play(s);
    const bool is_done = can_complete(s, entry, count, free_bytes - lp_slot_bytes(&s->plan->entry[entry]));
    for (uint32_t i = 0; i < count; i++)
        d->play[d->open[i]] = NOT_IN_PLAY;
    return is_done;
}

/* ---- refusals ---- */

/* The smallest name that a unit lacks, but for the one that is to come last; that one when it is alone. */
static uint32_t next_of_unit(lp_session *s, uint32_t unit, uint32_t except)
{
    const lp_device_unit *u = &s->on->side->unit[unit];
    const uint32_t last = is_playable(s) ? last_in_play(s, unit, LP_NONE) : LP_NONE;
    for (uint32_t k = u->entry_count; k-- > 0;) {
        const uint32_t entry = s->on->side->unit_entry[u->first_entry + k];
        if (entry != except && entry != last && is_coming(s, entry))
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
    begin_play(s);
    for (uint32_t e = 0; e < s->plan->entry_count && best == LP_NONE; e++)
        if (e != entry && d->name[e].place != LP_SLOT_NONE && !s->track[e].is_complete)
            best = e;
    for (uint32_t i = 0; i < d->open_count && best == LP_NONE; i++)
        if (d->unit_state[d->open[i]] == 0 && (!is_playable(s) || need_in_play(s, d->open[i], LP_NONE) <= free_bytes))
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
    if (!is_safe(s, entry))
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
    if (is_safe(s, entry) && (lp_arena_map_fits(&d->staging, bytes) || can_compact(s, bytes)))
        return LP_OK;
    if (s->mode == LP_LAYERWISE && ((is_safe(s, entry) && lp_arena_map_fits(&d->spill, bytes)) ||
                                    (!d->is_bounce_used && lp_device_is_last(s, entry))))
        return LP_OK;
    return lp_device_no_room(s, entry, err);
}
