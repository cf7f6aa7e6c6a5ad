/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions on a device: begin and finish, outcomes of checks, digests. */
#include "replayer/device_session.h"
#include "replayer/session.h"

#include <stdio.h>

/* ---- begin ---- */

static lp_status allocate(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    const size_t entries = (size_t)s->plan->entry_count + 1, units = (size_t)side->unit_count + 1;
    const size_t jobs = (size_t)s->plan->job_count + 1;
    size_t items = (size_t)side->item_count + 2;
    d->name = lp_allocate_zero(s->alloc, entries * sizeof *d->name);
    d->done = lp_allocate(s->alloc, entries * sizeof *d->done);
    d->unit_left = lp_allocate_zero(s->alloc, units * sizeof *d->unit_left);
    d->unit_state = lp_allocate_zero(s->alloc, units * sizeof *d->unit_state);
    d->unit_ready = lp_allocate(s->alloc, units * sizeof *d->unit_ready);
    d->unit_stamp = lp_allocate_zero(s->alloc, units * sizeof *d->unit_stamp);
    d->unit_guess = lp_allocate_zero(s->alloc, units * sizeof *d->unit_guess);
    d->unit_coming = lp_allocate_zero(s->alloc, units * sizeof *d->unit_coming);
    d->unit_held = lp_allocate_zero(s->alloc, units * sizeof *d->unit_held);
    d->unit_top = lp_allocate_zero(s->alloc, units * sizeof *d->unit_top);
    d->is_unit_open = lp_allocate_zero(s->alloc, units * sizeof *d->is_unit_open);
    d->play = lp_allocate_zero(s->alloc, units * sizeof *d->play);
    d->open = lp_allocate(s->alloc, 2 * units * sizeof *d->open);
    d->shared_left = lp_allocate(s->alloc, ((size_t)side->shared_count + 1) * sizeof *d->shared_left);
    d->shared_came = lp_allocate(s->alloc, ((size_t)side->shared_count + 1) * sizeof *d->shared_came);
    d->push_item = lp_allocate(s->alloc, items * sizeof *d->push_item);
    d->push_base = lp_allocate(s->alloc, items * sizeof *d->push_base);
    d->wave = lp_allocate(s->alloc, jobs * sizeof *d->wave);
    d->next_wave = lp_allocate(s->alloc, jobs * sizeof *d->next_wave);
    const bool is_whole = d->name != NULL && d->done != NULL && d->unit_left != NULL && d->unit_state != NULL &&
                          d->unit_ready != NULL && d->unit_stamp != NULL && d->unit_guess != NULL &&
                          d->unit_coming != NULL && d->unit_held != NULL && d->unit_top != NULL &&
                          d->is_unit_open != NULL && d->play != NULL && d->open != NULL && d->shared_left != NULL &&
                          d->shared_came != NULL && d->push_item != NULL && d->push_base != NULL && d->wave != NULL &&
                          d->next_wave != NULL;
    return is_whole ? LP_OK : lp_fail_memory(err);
}

/* A layerwise session keeps room for one name aside: what comes out of the spill, or the name that everything else
 * waits for. */
static lp_status lay_out(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    LP_TRY(lp_arena_map_init(&d->staging, side->staging_bytes, s->alloc, err));
    LP_TRY(lp_arena_map_init(&d->spill, side->spill_bytes, s->alloc, err));
    d->bounce_off = -1;
    if (s->mode != LP_LAYERWISE || side->largest == 0)
        return LP_OK;
    LP_TRY(lp_arena_map_take(&d->staging, side->largest, &d->bounce_off, err));
    d->staging_peak = d->staging.used;
    if (d->bounce_off >= 0)
        return LP_OK;
    return lp_fail(err, LP_E_LIMIT,
                   "layerwise needs room for the largest name, %lld bytes of device staging; it has %lld",
                   (long long)side->largest, (long long)side->staging_bytes);
}

lp_status lp_device_begin(lp_session *s, const lp_session_options *o, lp_error *err)
{
    lp_device_side *side = s->plan->side;
    if ((int)o->sources < LP_SOURCE_ASK || o->sources > LP_SOURCE_DEVICE)
        return lp_fail(err, LP_E_ARGUMENT, "there is no source memory %d", (int)o->sources);
    s->on = lp_allocate_zero(s->alloc, sizeof *s->on);
    if (s->on == NULL)
        return lp_fail_memory(err);
    s->on->side = side;
    s->on->stream = o->stream;
    s->on->sources = o->sources;
    LP_TRY(allocate(s, err));
    LP_TRY(lay_out(s, err));
    for (uint32_t u = 0; u < side->unit_count; u++)
        for (uint32_t k = side->unit[u].first_entry; k < side->unit[u].first_entry + side->unit[u].entry_count; k++)
            s->on->unit_left[u] += s->track[side->unit_entry[k]].is_expected;
    for (uint32_t e = 0; e < s->plan->entry_count; e++)
        if (s->track[e].is_expected)
            lp_device_note_coming(s, e, 1);
    return LP_OK;
}

static lp_status start(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    lp_plan *plan = s->plan;
    const lp_device_calls *c = &d->side->calls;
    lp_dummy values;
    if (d->side->derives != NULL)
        LP_TRY(lp_device_check(c, c->derives_forget(c->context, d->side->derives, d->stream), "start a session", err));
    if (s->mode != LP_COLD && s->mode != LP_DUMMY)
        return LP_OK;
    lp_plan_start_over(plan);
    d->is_moving = true;
    for (uint32_t i = 0; i < plan->storage_count; i++)
        if (plan->storage[i].bytes > 0)
            LP_TRY(lp_device_check(c, c->clear(c->context, plan->storage[i].base, plan->storage[i].bytes, d->stream),
                                   "clear a tensor", err));
    for (uint32_t i = 0; s->mode == LP_DUMMY && i < plan->rows->ndest; i++)
        if (lp_dummy_of(plan, i, &values))
            LP_TRY(lp_device_check(c, c->dummy(c->context, &values, d->stream), "write dummy values", err));
    return LP_OK;
}

lp_status lp_device_start(lp_session *s, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    int before;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    const lp_status status = start(s, err);
    c->leave(c->context, before);
    return status;
}

/* ---- outcomes ---- */

/* What the checks found when they last ran: the first that failed, as LP_E_VALUE. */
static lp_status read_outcomes(const lp_plan *plan, void *stream, lp_error *err)
{
    const lp_device_side *side = plan->side;
    const lp_device_calls *c = &side->calls;
    if (side->derives == NULL)
        return lp_device_check(c, c->wait(c->context, stream), "load", err);
    LP_TRY(lp_device_check(c, c->derives_outcomes(c->context, side->derives, side->outcome, stream), "load", err));
    for (uint32_t i = 0; i < side->check_count; i++) {
        const lp_derive_outcome *o = &side->outcome[i];
        const lp_derive_check check = {.failed = true, .index = o->index, .a = o->a, .b = o->b};
        if (o->index >= 0)
            return lp_session_check_failed(plan, side->check_job[i], &check, err);
    }
    return LP_OK;
}

lp_status lp_plan_checks(const lp_plan *plan, void *stream, lp_error *err)
{
    int before;
    if (plan->side == NULL)
        return lp_fail(err, LP_E_UNSUPPORTED, "the plan is bound to host memory: finish says what its checks found");
    const lp_device_calls *c = &plan->side->calls;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    const lp_status status = read_outcomes(plan, stream, err);
    c->leave(c->context, before);
    return status;
}

/* ---- finish ---- */

static lp_status finish(lp_session *s, lp_error *err)
{
    lp_device_session *d = s->on;
    const lp_device_calls *c = &d->side->calls;
    bool is_captured = false;
    LP_TRY(lp_device_check(c, c->is_captured(c->context, d->stream, &is_captured), "ask about the stream", err));
    if (is_captured) {
        lp_fail(err, LP_E_MISUSE, "the stream is being captured: nothing has been moved yet");
        lp_hint(err, "end the capture and launch the graph before finish");
        return LP_E_MISUSE;
    }
    s->has_written = true;
    lp_status status = lp_device_commit_rest(s, err);
    if (status == LP_OK)
        status = read_outcomes(s->plan, d->stream, err);
    const bool is_done = status == LP_OK || status == LP_E_VALUE; /* otherwise the end of the session waits */
    d->is_moving = d->is_moving && !is_done;
    s->report.staging_peak_bytes = d->spill_peak;
    s->report.device_staging_peak_bytes = d->staging_peak + d->side->stage_bytes;
    return is_done ? status : lp_session_poison(s, status, err);
}

lp_status lp_device_finish(lp_session *s, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    int before;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    const lp_status status = finish(s, err);
    c->leave(c->context, before);
    return status;
}

/* What is under way reads slots and the caller's tensors: it is waited for, whatever it comes to. */
void lp_device_end(lp_session *s)
{
    lp_device_session *d = s->on;
    int before;
    if (d == NULL)
        return;
    const lp_device_calls *c = &d->side->calls;
    if (d->is_moving) {
        const bool has_entered = c->enter(c->context, &before) == 0;
        (void)c->wait(c->context, d->stream);
        if (has_entered)
            c->leave(c->context, before);
    }
    lp_arena_map_free(&d->staging);
    lp_arena_map_free(&d->spill);
    void *const owned[] = {d->name,       d->unit_left,         d->unit_state,  d->unit_ready, d->done,
                           d->push_item,  (void *)d->push_base, d->wave,        d->next_wave,  d->unit_stamp,
                           d->unit_guess, d->unit_coming,       d->unit_held,   d->unit_top,   d->is_unit_open,
                           d->open,       d->shared_left,       d->shared_came, d->play};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        lp_release(s->alloc, owned[i]);
    lp_release(s->alloc, d);
    s->on = NULL;
}

/* ---- digests and bytes ---- */

lp_status lp_device_digests(const lp_plan *plan, uint32_t first, uint32_t count,
                            uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], void *stream, lp_error *err)
{
    const lp_device_calls *c = &plan->side->calls;
    int before;
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    const lp_status status = c->digests(c->context, plan, first, count, plan->side->sums, digest, stream, err);
    c->leave(c->context, before);
    return status;
}

lp_status lp_device_fetch(const lp_plan *from, lp_plan *to, lp_error *err)
{
    const lp_device_calls *c = &from->side->calls;
    int before;
    lp_status status = LP_OK;
    if (from->storage_count != to->storage_count)
        return lp_fail(err, LP_E_INTERNAL, "the plans are not of the same rows");
    LP_TRY(lp_device_check(c, c->enter(c->context, &before), "use the device", err));
    for (uint32_t i = 0; i < from->storage_count && status == LP_OK; i++) {
        const lp_storage *a = &from->storage[i], *b = &to->storage[i];
        if (a->bytes != b->bytes)
            status = lp_fail(err, LP_E_INTERNAL, "the plans are not of the same rows");
        else if (a->bytes > 0)
            status = lp_device_check(c, c->copy(c->context, b->base, a->base, a->bytes, NULL),
                                     "copy a tensor to the host", err);
    }
    const int code = c->wait(c->context, NULL); /* also after a failure: what was started writes to host memory */
    if (status == LP_OK)
        status = lp_device_check(c, code, "copy the tensors to the host", err);
    c->leave(c->context, before);
    return status;
}
