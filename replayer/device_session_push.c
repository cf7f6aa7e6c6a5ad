/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes into device memory: judged as on the host, then either moved from where the caller has them, or copied to a
 * slot until the name is complete (and, in layerwise mode, its units are). A refusal for want of room leaves the
 * session as it was; any failure after that poisons it.
 */
#include "replayer/device_session_push.h"

#include "replayer/device_patch.h"
#include "replayer/device_session_pieces.h"

/* ---- where it comes from ---- */

lp_status lp_push_locate(const lp_session *s, const void *data, lp_source_memory memory, bool *on_device, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    const lp_source_memory said = memory == LP_SOURCE_ASK ? s->on->sources : memory;
    *on_device = said == LP_SOURCE_DEVICE;
    if (said != LP_SOURCE_ASK || data == NULL)
        return LP_OK;
    return lp_device_check(c, c->is_ours(c->context, data, on_device), "ask where a tensor lies", err);
}

lp_status lp_push_check_capture(const lp_session *s, const lp_device_push *p, bool is_captured, lp_error *err)
{
    const lp_entry *e = &s->plan->entry[p->entry];
    if (!is_captured)
        return LP_OK;
    const char *name = lp_checkpoint_at(s->plan->catalogue, e->name)->name;
    if (!s->on->side->captures) {
        lp_fail_at(err, LP_E_MISUSE, name, -1, "the push of '%s' cannot be captured: the plan was bound without", name);
        lp_hint(err, "set `captures` in the options of bind");
        return LP_E_MISUSE;
    }
    const bool is_whole = p->off <= e->need_lo && p->off + p->bytes >= e->need_hi && p->form == NULL;
    if (s->mode == LP_DIRECT && p->on_device && is_whole && s->on->name[p->entry].place == LP_SLOT_NONE)
        return LP_OK;
    lp_fail_at(err, LP_E_MISUSE, name, -1, "the push of '%s' cannot be captured", name);
    lp_hint(err, "into a graph go whole tensors in device memory, row-major without gaps, in direct mode");
    return LP_E_MISUSE;
}

lp_status lp_push_ask_capture(const lp_session *s, bool *is_captured, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    return lp_device_check(c, c->is_captured(c->context, s->on->stream, is_captured), "ask about the stream", err);
}

/* ---- one push ---- */

/* Whether the name can be moved from where it is: whole, nothing of it arrived before, and nothing to wait for. */
static bool goes_straight(const lp_session *s, const lp_device_push *p, bool is_committed_by_call)
{
    const lp_entry *e = &s->plan->entry[p->entry];
    return p->on_device && p->form == NULL && p->runs == NULL && p->off <= e->need_lo &&
           p->off + p->bytes >= e->need_hi && s->on->name[p->entry].place == LP_SLOT_NONE &&
           (s->mode != LP_LAYERWISE || is_committed_by_call);
}

/* Whether the parts of a name go to their places without waiting for the rest: pieces of frames, of names whose places
 * are few rows. Once it is so for a name it is for all of it. */
static bool goes_to_place(const lp_session *s, const lp_device_push *p, lp_change_target target[LP_PATCH_TARGETS],
                          int *count)
{
    const lp_device_name *n = &s->on->name[p->entry];
    const bool may = n->is_placed || (p->piece != NULL && s->mode != LP_LAYERWISE && n->place == LP_SLOT_NONE &&
                                      !s->track[p->entry].is_seen && !goes_straight(s, p, false));
    return may && s->plan->entry[p->entry].reads && lp_device_place_targets(s->plan, p->entry, target, count);
}

static bool needs_slot(const lp_session *s, const lp_device_push *p, bool is_committed_by_call)
{
    const lp_entry *e = &s->plan->entry[p->entry];
    lp_change_target target[LP_PATCH_TARGETS];
    int count;
    return e->reads && !goes_to_place(s, p, target, &count) && !s->track[p->entry].is_complete &&
           !goes_straight(s, p, is_committed_by_call) && p->off < e->need_hi && p->off + p->bytes > e->need_lo;
}

lp_status lp_push_reserve(lp_session *s, const lp_device_push *p, bool is_committed_by_call, lp_error *err)
{
    const bool is_strided = p->form != NULL && p->on_device;
    if (!needs_slot(s, p, is_committed_by_call))
        return LP_OK;
    lp_status status = lp_device_take_slot(s, p->entry, err);
    if (status == LP_E_LIMIT && s->on->done_count > 0) {
        status = lp_device_flush(s, err);
        if (status != LP_OK)
            return lp_session_poison(s, status, err);
        status = lp_device_take_slot(s, p->entry, err);
    }
    if (status == LP_OK && is_strided && s->on->name[p->entry].place == LP_SLOT_SPILL && s->on->is_bounce_used) {
        lp_device_drop_slot(s, p->entry);
        return lp_device_no_room(s, p->entry, err);
    }
    return status;
}

static uint32_t handle_of(const lp_session *s, const lp_device_push *p)
{
    return s->plan->entry[p->entry].name;
}

static lp_status place(lp_session *s, const lp_piece *piece, const lp_device_push *p, const lp_change_target *target,
                       int targets, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    s->on->name[p->entry].is_placed = true;
    s->on->is_moving = true;
    return lp_device_check(c,
                           lp_device_place(c, target, targets, piece, p->data, s->on->stream, &s->report.bytes_written),
                           "copy to a tensor", err);
}

lp_status lp_push_put(lp_session *s, const lp_device_push *p, bool is_committed_by_call, lp_error *err)
{
    lp_track *track = &s->track[p->entry];
    const bool is_straight = goes_straight(s, p, is_committed_by_call);
    const lp_piece whole = {.name = handle_of(s, p), .lo = p->off, .run = p->bytes, .count = 1};
    lp_change_target target[LP_PATCH_TARGETS];
    int targets = 0;
    bool is_complete = false;
    const bool is_placed = goes_to_place(s, p, target, &targets);
    if (!track->is_seen)
        s->plan->entry[p->entry].is_dirty = true;
    track->is_seen = true;
    s->has_written = true;
    if (is_placed)
        LP_TRY(place(s, p->piece != NULL ? p->piece : &whole, p, target, targets, err));
    else if (needs_slot(s, p, is_committed_by_call))
        LP_TRY(lp_push_copy_in(s, p, err));
    if (p->runs != NULL)
        lp_session_count_runs(s, p->entry, p->runs->lo, p->runs->run, p->runs->stride, p->runs->count, &is_complete);
    else
        lp_session_count(s, p->entry, p->off, p->bytes, &is_complete);
    if (!is_complete)
        return LP_OK;
    if (is_placed) {
        lp_device_keep(s, p->entry);
        return LP_OK;
    }
    const void *base = LP_NO_BYTES;
    if (s->on->name[p->entry].place != LP_SLOT_NONE)
        base = lp_push_slot_base(s, p->entry);
    else if (s->plan->entry[p->entry].reads && is_straight)
        base = (const void *)((uintptr_t)p->data - (uintptr_t)p->off);
    return lp_device_complete(s, p->entry, base, err);
}

lp_status lp_push_one(lp_session *s, lp_handle handle, const lp_form *form, int64_t off, const void *data,
                      int64_t bytes, lp_source_memory memory, bool ends_call, lp_error *err)
{
    lp_device_push p = {.entry = LP_NONE, .off = off, .bytes = bytes, .data = data, .form = form};
    bool is_captured = false;
    LP_TRY(lp_session_judge(s, handle, off, data, bytes, &p.entry, err));
    if (p.entry == LP_NONE) {
        s->report.names_ignored += off == 0;
        return LP_OK;
    }
    LP_TRY(lp_push_locate(s, data, memory, &p.on_device, err));
    LP_TRY(lp_push_ask_capture(s, &is_captured, err));
    LP_TRY(lp_push_check_capture(s, &p, is_captured, err));
    LP_TRY(lp_session_reserve_track(s, p.entry, off, bytes, err));
    const bool is_committed = lp_device_is_last(s, p.entry);
    LP_TRY(lp_push_reserve(s, &p, is_committed, err));
    lp_status status = lp_push_put(s, &p, is_committed, err);
    if (status == LP_OK && ends_call)
        status = lp_device_flush(s, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}

/* One piece of a frame. */
static lp_status push_piece(lp_session *s, const lp_piece *piece, const void *data, lp_error *err)
{
    const bool has_runs = piece->count > 1;
    const lp_name_use use = lp_plan_use(s->plan, piece->name);
    lp_device_push p = {.entry = s->plan->entry_of[piece->name],
                        .off = piece->lo,
                        .bytes = (piece->count - 1) * piece->stride + piece->run,
                        .data = data,
                        .on_device = true,
                        .piece = piece,
                        .runs = has_runs ? piece : NULL};
    if (use != LP_USE_LOADED) { /* another rank can load it, or needs it */
        s->report.names_ignored += use == LP_USE_NONE && piece->lo == 0;
        return LP_OK;
    }
    if (!has_runs)
        LP_TRY(lp_session_judge(s, piece->name, p.off, data, p.bytes, &p.entry, err));
    LP_TRY(has_runs ? lp_session_reserve_need(s, p.entry, err)
                    : lp_session_reserve_track(s, p.entry, p.off, p.bytes, err));
    const bool is_committed = lp_device_is_last(s, p.entry);
    LP_TRY(lp_push_reserve(s, &p, is_committed, err));
    lp_status status = lp_push_put(s, &p, is_committed, err);
    if (status == LP_OK && s->mode == LP_LAYERWISE)
        status = lp_device_flush(s, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}

lp_status lp_push_flush_after(lp_session *s, lp_status status, lp_error *err)
{
    lp_error later = {.code = LP_OK};
    const bool is_open = status == LP_OK || s->state == LP_SESSION_OPEN;
    const lp_status flushed = is_open ? lp_device_flush(s, status == LP_OK ? err : &later) : LP_OK;
    if (flushed != LP_OK)
        return lp_session_poison(s, flushed, status == LP_OK ? err : &later);
    return status;
}

static lp_status push_pieces(lp_session *s, const lp_piece *piece, int64_t count, const void *data, lp_error *err)
{
    const uint8_t *at = data;
    bool is_captured = false;
    lp_status status = lp_push_ask_capture(s, &is_captured, err);
    if (status == LP_OK && is_captured)
        status = lp_fail(err, LP_E_MISUSE, "the frames of a sync cannot be captured");
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        status = push_piece(s, &piece[i], at, err);
        at += lp_piece_bytes(&piece[i]);
    }
    return lp_push_flush_after(s, status, err);
}

/* ---- entrances: each makes the device current and the one before again ---- */

lp_status lp_push_enter(lp_session *s, int *before, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    LP_TRY(lp_session_usable(s, err));
    return lp_device_check(c, c->enter(c->context, before), "use the device", err);
}

void lp_push_leave(lp_session *s, int before)
{
    s->on->side->calls.leave(s->on->side->calls.context, before);
}

lp_status lp_device_push_range(lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                               lp_source_memory memory, lp_error *err)
{
    int before;
    LP_TRY(lp_push_enter(s, &before, err));
    const lp_status status = lp_push_one(s, handle, NULL, off, data, bytes, memory, true, err);
    lp_push_leave(s, before);
    return status;
}

lp_status lp_device_push_strided(lp_session *s, lp_handle handle, const lp_form *form, const void *data,
                                 lp_source_memory memory, lp_error *err)
{
    int before;
    LP_TRY(lp_push_enter(s, &before, err));
    const lp_status status = lp_push_one(s, handle, form, 0, data, form->bytes, memory, true, err);
    lp_push_leave(s, before);
    return status;
}

lp_status lp_device_push_pieces(lp_session *s, const lp_piece *piece, int64_t count, const void *data, lp_error *err)
{
    int before;
    LP_TRY(lp_push_enter(s, &before, err));
    const lp_status status = push_pieces(s, piece, count, data, err);
    lp_push_leave(s, before);
    return status;
}

lp_status lp_device_mark(lp_session *s, uint32_t entry, lp_error *err)
{
    int before;
    LP_TRY(lp_push_enter(s, &before, err));
    s->has_written = true;
    s->track[entry].is_seen = true;
    lp_status status = lp_device_complete(s, entry, LP_NO_BYTES, err);
    if (status == LP_OK)
        status = lp_device_flush(s, err);
    lp_push_leave(s, before);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}
