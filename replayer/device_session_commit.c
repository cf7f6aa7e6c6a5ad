/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From complete names to live tensors. In direct mode (and in cold starts) a name is pushed as soon as it is complete,
 * everything that one call completed in one push. In layerwise mode it waits until all of its units are complete; a
 * unit is one push and the derives into it.
 */
#include "replayer/device_session.h"
#include "replayer/session.h"

#include <stdlib.h>

/* ---- pushes ---- */

/* What is listed in push_item, and the fills of begin before or with it. */
static lp_status push(lp_session *s, uint32_t count, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_calls *c = &d->side->calls;
    for (uint32_t i = 0; i < count; i++)
        s->report.bytes_written += d->side->item[d->push_item[i]].bytes;
    if (!d->has_filled && d->side->fill_item != LP_NONE) {
        d->push_item[count] = d->side->fill_item; /* it is the last item */
        d->push_base[count++] = LP_NO_BYTES;
        s->report.bytes_written += d->side->item[d->side->fill_item].bytes;
    }
    d->has_filled = true;
    if (count == 0)
        return LP_OK;
    d->is_moving = true;
    return c->program_push(c->context, d->side->program, d->push_item, d->push_base, count, d->stream, err);
}

/* ---- derives ---- */

static void finish_job(lp_session *s, uint32_t number)
{
    const lp_derive *derive = s->plan->job[number].derive;
    s->job[number].is_done = true;
    s->report.derives_run++;
    s->report.bytes_written += derive->map == NULL ? 0 : derive->map->dst_bytes;
}

/* Runs d->wave, then what waited for nothing else, and so on. Jobs of other units than `unit` (of none: LP_NONE) come
 * in their own time; in direct mode all jobs count as of one unit. */
static lp_status run_waves(lp_session *s, uint32_t count, uint32_t unit, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_plan *plan = s->plan;
    const lp_device_calls *c = &d->side->calls;
    if (count > 0)
        LP_TRY(push(s, 0, err)); /* a derive may read what begin fills */
    while (count > 0) {
        uint32_t next = 0;
        d->is_moving = true;
        LP_TRY(lp_device_check(c, c->derives_run(c->context, d->side->derives, d->wave, count, d->stream),
                               "start the derives", err));
        for (uint32_t i = 0; i < count; i++) {
            const lp_job *job = &plan->job[d->wave[i]];
            finish_job(s, d->wave[i]);
            for (uint32_t k = 0; k < job->next_count; k++) {
                const uint32_t after = plan->job_next[job->first_next + k];
                const uint32_t group = plan->job[after].group;
                const uint32_t of = group == LP_NONE ? LP_NONE : d->side->unit_of_group[group];
                if (s->job[after].will_run && --s->job[after].waiting == 0 && (s->mode != LP_LAYERWISE || of == unit))
                    d->next_wave[next++] = after;
            }
        }
        uint32_t *const keep = d->wave;
        d->wave = d->next_wave;
        d->next_wave = keep;
        count = next;
    }
    return LP_OK;
}

static bool is_ready(const lp_session *s, uint32_t job)
{
    return s->job[job].will_run && !s->job[job].is_done && s->job[job].waiting == 0;
}

/* ---- direct ---- */

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Items rise with entries, so entries are put in order: a few are sorted, many are found by a look at all. */
static void order_done(lp_session *s)
{
    lp_device_session *d = s->on;
    const uint32_t entries = s->plan->entry_count;
    bool is_rising = true;
    for (uint32_t i = 1; i < d->done_count && is_rising; i++)
        is_rising = d->done[i] > d->done[i - 1];
    if (is_rising)
        return;
    if (d->done_count < entries / 16) {
        qsort(d->done, d->done_count, sizeof *d->done, by_number);
        return;
    }
    d->done_count = 0;
    for (uint32_t e = 0; e < entries; e++)
        if (d->name[e].base != NULL)
            d->done[d->done_count++] = e;
}

static lp_status push_done(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    uint32_t count = 0;
    order_done(s);
    for (uint32_t i = 0; i < d->done_count; i++)
        for (uint32_t item = side->entry_item[d->done[i]]; item < side->entry_item[d->done[i] + 1]; item++) {
            d->push_item[count] = item;
            d->push_base[count++] = d->name[d->done[i]].base;
        }
    const lp_status status = count > 0 ? push(s, count, err) : LP_OK;
    for (uint32_t i = 0; i < d->done_count; i++) {
        d->name[d->done[i]].base = NULL;
        lp_device_drop_slot(s, d->done[i]); /* what writes there next is behind the push */
    }
    d->done_count = 0;
    return status;
}

/* ---- layerwise ---- */

static const void *base_in_bounce(const lp_device_session *d, const lp_entry *e, int64_t at)
{
    return (const void *)((uintptr_t)(d->side->staging + d->bounce_off + at) - (uintptr_t)lp_slot_lo(e));
}

/* Brings names that wait in the spill to the bounce, as many as fit at a time, and pushes their items. */
static lp_status push_spilled(lp_session *s, const lp_device_unit *u, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    const lp_device_calls *c = &side->calls;
    uint32_t count = 0, last = LP_NONE;
    int64_t at = 0;
    for (uint32_t k = u->first_item; k < u->first_item + u->item_count; k++) {
        const uint32_t item = side->unit_item[k], entry = side->item[item].entry;
        const lp_entry *e = &s->plan->entry[entry];
        const lp_device_name *n = &d->name[entry];
        if (n->base == NULL || n->place != LP_SLOT_SPILL)
            continue;
        if (entry != last) {
            const int64_t bytes = lp_slot_bytes(e);
            if (at + bytes > side->largest) {
                LP_TRY(push(s, count, err));
                count = 0;
                at = 0;
            }
            d->is_moving = d->is_spill_read = true;
            LP_TRY(lp_device_check(
                c, c->copy(c->context, side->staging + d->bounce_off + at, side->spill + n->slot_off, bytes, d->stream),
                "copy from the spill", err));
            d->push_base[count] = base_in_bounce(d, e, at);
            at += bytes;
        } else {
            d->push_base[count] = d->push_base[count - 1]; /* its items follow one another, but for full rounds */
        }
        d->push_item[count++] = item;
        last = entry;
    }
    return count > 0 ? push(s, count, err) : LP_OK;
}

/* A name is done with when all of its units have taken it. */
static void release_names(lp_session *s, const lp_device_unit *u)
{
    lp_device_session *d = s->on;
    for (uint32_t k = u->first_entry; k < u->first_entry + u->entry_count; k++) {
        const uint32_t entry = d->side->unit_entry[k];
        lp_device_name *n = &d->name[entry];
        if (n->base == NULL || --n->units_left > 0)
            continue;
        n->base = NULL;
        lp_device_drop_slot(s, entry);
    }
}

static lp_status commit(lp_session *s, uint32_t number, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    const lp_device_unit *u = &side->unit[number];
    uint32_t count = 0, pushed = 0;
    d->unit_state[number] = 1;
    for (uint32_t k = u->first_item; k < u->first_item + u->item_count; k++) {
        const lp_device_name *n = &d->name[side->item[side->unit_item[k]].entry];
        pushed += n->base != NULL;
        if (n->base == NULL || n->place == LP_SLOT_SPILL)
            continue;
        d->push_item[count] = side->unit_item[k];
        d->push_base[count++] = n->base;
    }
    LP_TRY(push(s, count, err));
    LP_TRY(push_spilled(s, u, err));
    release_names(s, u);
    count = 0;
    for (uint32_t k = u->first_job; k < u->first_job + u->job_count; k++)
        if (is_ready(s, side->unit_job[k]))
            d->wave[count++] = side->unit_job[k];
    s->report.groups_committed += pushed > 0 || count > 0;
    return run_waves(s, count, number, err);
}

static lp_status commit_ready(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    for (uint32_t i = 0; i < d->unit_ready_count; i++)
        LP_TRY(commit(s, d->unit_ready[i], err));
    d->unit_ready_count = 0;
    return LP_OK;
}

/* ---- both ---- */

/* Only checks read it, which have no unit: what they stage is scratch and can be filled at once. */
static lp_status push_staged(lp_session *s, uint32_t entry, lp_error *err)
{
    lp_device_session *d = s->on;
    uint32_t count = 0;
    for (uint32_t i = d->side->entry_item[entry]; i < d->side->entry_item[entry + 1]; i++) {
        d->push_item[count] = i;
        d->push_base[count++] = d->name[entry].base;
    }
    const lp_status status = count > 0 ? push(s, count, err) : LP_OK;
    d->name[entry].base = NULL;
    lp_device_drop_slot(s, entry);
    return status;
}

/* The name is complete: jobs that waited for nothing else are ready. */
static void note_jobs(lp_session *s, const lp_entry *e)
{
    for (uint32_t i = 0; i < e->job_count; i++) {
        const uint32_t job = s->plan->entry_job[e->first_job + i];
        if (s->job[job].will_run && --s->job[job].waiting == 0)
            s->ready[s->ready_count++] = job;
    }
}

void lp_device_keep(lp_session *s, uint32_t entry)
{
    const lp_entry *e = &s->plan->entry[entry];
    s->track[entry].is_seen = s->track[entry].is_complete = true;
    s->report.names_loaded += e->use == LP_USE_LOADED;
    note_jobs(s, e);
}

lp_status lp_device_complete(lp_session *s, uint32_t entry, const void *base, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_plan *plan = s->plan;
    const lp_entry *e = &plan->entry[entry];
    lp_device_name *n = &d->name[entry];
    s->track[entry].is_complete = true;
    s->report.names_loaded += e->use == LP_USE_LOADED;
    n->base = base;
    note_jobs(s, e);
    if (s->mode != LP_LAYERWISE) {
        d->done[d->done_count++] = entry;
        return LP_OK;
    }
    s->ready_count = 0; /* found by unit */
    if (n->place == LP_SLOT_NONE)
        lp_device_note_coming(s, entry, -1);
    const uint32_t first = d->side->entry_first_unit[entry], end = d->side->entry_first_unit[entry + 1];
    n->units_left = end - first;
    if (first == end)
        return push_staged(s, entry, err);
    for (uint32_t i = first; i < end; i++)
        if (--d->unit_left[d->side->entry_unit[i]] == 0)
            d->unit_ready[d->unit_ready_count++] = d->side->entry_unit[i];
    return LP_OK;
}

lp_status lp_device_flush(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    if (s->mode == LP_LAYERWISE)
        return commit_ready(s, err);
    LP_TRY(push_done(s, err));
    const uint32_t count = s->ready_count;
    if (count > 0)
        memcpy(d->wave, s->ready, count * sizeof *d->wave);
    s->ready_count = 0;
    return run_waves(s, count, LP_NONE, err);
}

/* Units that wait for fallback names, or for nothing; then the checks, and derives that nobody pushes for. */
lp_status lp_device_commit_rest(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    uint32_t count = 0;
    LP_TRY(lp_device_flush(s, err));
    LP_TRY(push(s, 0, err)); /* fills, if nothing else was pushed */
    if (s->mode != LP_LAYERWISE)
        return LP_OK;
    for (uint32_t u = 0; u < d->side->unit_count; u++)
        if (d->unit_state[u] == 0)
            LP_TRY(commit(s, u, err));
    for (uint32_t j = 0; j < s->plan->job_count; j++)
        if (is_ready(s, j))
            d->wave[count++] = j;
    return run_waves(s, count, LP_NONE, err);
}
