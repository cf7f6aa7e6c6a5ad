/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The banker's rule (Dijkstra 1965), played through. A layerwise session takes a slot only if afterwards every unit
 * that has begun can still be completed, in some order: what it needs until its last name comes must fit what is free
 * by then. So no order of pushes ends in a state in which everything is refused, and the name that a refusal tells to
 * push first is taken. The last name of a unit needs nothing: it goes straight, or through the room that is kept aside.
 */
#include "replayer/device_session_play.h"

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

bool lp_play_is_coming(const lp_session *s, uint32_t entry)
{
    return s->track[entry].is_expected && !s->track[entry].is_complete && s->on->name[entry].place == LP_SLOT_NONE;
}

static uint32_t units_of(const lp_device_side *side, uint32_t entry)
{
    return side->entry_first_unit[entry + 1] - side->entry_first_unit[entry];
}

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

/* Names of several units, in the play of lp_play_is_safe: when `unit` has committed, those that no other unit waits for
 * give their slots back; those that came meanwhile keep theirs. */
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
        if (!has_slot && !d->shared_came[i] && lp_play_is_coming(s, entry)) {
            d->shared_came[i] = true;
            *free_bytes -= bytes;
        }
        if (--d->shared_left[i] == 0 && (has_slot || d->shared_came[i]))
            *free_bytes += bytes;
    }
}

bool lp_play_is_possible(const lp_session *s)
{
    return s->on->side->shared_count <= LP_SHARED_MAX;
}

/* Bytes that a unit still needs in the play: shared names that came for another one are there. */
static int64_t coming_in_play(const lp_session *s, uint32_t unit, uint32_t taking)
{
    const lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    int64_t bytes = d->unit_coming[unit];
    if (taking != LP_NONE && lp_play_is_coming(s, taking))
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
        if (other != entry && other != taking && !d->shared_came[i] && lp_play_is_coming(s, other) &&
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

/* Names of a unit stand by falling size. */
uint32_t lp_play_last(lp_session *s, uint32_t unit, uint32_t taking)
{
    lp_device_session *d = s->on;
    const lp_device_unit *u = &d->side->unit[unit];
    uint32_t *top = &d->unit_top[unit];
    while (*top < u->entry_count && !lp_play_is_coming(s, d->side->unit_entry[u->first_entry + *top]))
        (*top)++;
    for (uint32_t k = *top; k < u->entry_count; k++) {
        const uint32_t entry = d->side->unit_entry[u->first_entry + k];
        if (entry != taking && lp_play_is_coming(s, entry) && !came_in_play(d, entry) &&
            goes_straight(s, entry, unit, taking))
            return entry;
    }
    return LP_NONE;
}

int64_t lp_play_need(lp_session *s, uint32_t unit, uint32_t taking)
{
    const bool is_ours = taking != LP_NONE && waits_for(s->on->side, unit, taking);
    const uint32_t last = lp_play_last(s, unit, taking);
    return coming_in_play(s, unit, is_ours ? taking : LP_NONE) -
           (last == LP_NONE ? 0 : lp_slot_bytes(&s->plan->entry[last]));
}

void lp_play_begin(lp_session *s)
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
            if (is_in && lp_play_is_coming(s, side->shared[i]))
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
            const int64_t need = lp_play_need(s, unit, entry);
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

bool lp_play_is_safe(lp_session *s, uint32_t entry)
{
    lp_device_session *d = s->on;
    const int64_t free_bytes = d->staging.bytes - d->staging.used + d->spill.bytes - d->spill.used;
    if (s->mode != LP_LAYERWISE || !lp_play_is_possible(s) || lp_device_is_last(s, entry))
        return true;
    const uint32_t count = list_play(s, entry);
    lp_play_begin(s);
    const bool is_done = can_complete(s, entry, count, free_bytes - lp_slot_bytes(&s->plan->entry[entry]));
    for (uint32_t i = 0; i < count; i++)
        d->play[d->open[i]] = NOT_IN_PLAY;
    return is_done;
}
