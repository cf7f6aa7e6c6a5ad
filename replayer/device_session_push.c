/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes into device memory: judged as on the host, then either moved from where the caller has them, or copied to a
 * slot until the name is complete (and, in layerwise mode, its units are). A refusal for want of room leaves the
 * session as it was; any failure after that poisons it.
 */
#include "replayer/device_patch.h"
#include "replayer/device_session.h"
#include "replayer/device_session_pieces.h"

/* One push under way. */
typedef struct push {
    uint32_t entry;
    int64_t off, bytes;
    const void *data;
    const lp_form *form; /* NULL: row-major without gaps */
    bool on_device;
    const lp_piece *piece; /* of a frame; else NULL */
    const lp_piece *runs;  /* several runs, of which [off, off + bytes) is the span, dense at `data`; else NULL */
} push;

/* ---- where it comes from ---- */

static lp_status locate(const lp_session *s, const void *data, lp_source_memory memory, bool *on_device, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    const lp_source_memory said = memory == LP_SOURCE_ASK ? s->on->sources : memory;
    *on_device = said == LP_SOURCE_DEVICE;
    if (said != LP_SOURCE_ASK || data == NULL)
        return LP_OK;
    return lp_device_check(c, c->is_ours(c->context, data, on_device), "ask where a tensor lies", err);
}

/* A graph repeats what is on the stream, nothing that the host did meanwhile. */
static lp_status check_capture(const lp_session *s, const push *p, bool is_captured, lp_error *err)
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

static lp_status ask_capture(const lp_session *s, bool *is_captured, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    return lp_device_check(c, c->is_captured(c->context, s->on->stream, is_captured), "ask about the stream", err);
}

/* ---- copies ---- */

static uint8_t *slot_memory(const lp_device_session *d, const lp_device_name *n)
{
    return (n->place == LP_SLOT_SPILL ? d->side->spill : d->side->staging) + n->slot_off;
}

/* Where byte 0 of the tensor would be: an address that need not exist. */
static const void *slot_base(const lp_session *s, uint32_t entry)
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

static lp_status gather(lp_session *s, const push *p, lp_error *err)
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
static lp_status spread(lp_session *s, const push *p, lp_error *err)
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

static lp_status copy_in(lp_session *s, const push *p, lp_error *err)
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

/* ---- one push ---- */

/* Whether the name can be moved from where it is: whole, nothing of it arrived before, and nothing to wait for. */
static bool goes_straight(const lp_session *s, const push *p, bool is_committed_by_call)
{
    const lp_entry *e = &s->plan->entry[p->entry];
    return p->on_device && p->form == NULL && p->runs == NULL && p->off <= e->need_lo &&
           p->off + p->bytes >= e->need_hi && s->on->name[p->entry].place == LP_SLOT_NONE &&
           (s->mode != LP_LAYERWISE || is_committed_by_call);
}

/* Whether the parts of a name go to their places without waiting for the rest: pieces of frames, of names whose places
 * are few rows. Once it is so for a name it is for all of it. */
static bool goes_to_place(const lp_session *s, const push *p, lp_change_target target[LP_PATCH_TARGETS], int *count)
{
    const lp_device_name *n = &s->on->name[p->entry];
    const bool may = n->is_placed || (p->piece != NULL && s->mode != LP_LAYERWISE && n->place == LP_SLOT_NONE &&
                                      !s->track[p->entry].is_seen && !goes_straight(s, p, false));
    return may && s->plan->entry[p->entry].reads && lp_device_place_targets(s->plan, p->entry, target, count);
}

static bool needs_slot(const lp_session *s, const push *p, bool is_committed_by_call)
{
    const lp_entry *e = &s->plan->entry[p->entry];
    lp_change_target target[LP_PATCH_TARGETS];
    int count;
    return e->reads && !goes_to_place(s, p, target, &count) && !s->track[p->entry].is_complete &&
           !goes_straight(s, p, is_committed_by_call) && p->off < e->need_hi && p->off + p->bytes > e->need_lo;
}

/* Room, before anything is written; in direct mode what is complete makes room first. */
static lp_status reserve(lp_session *s, const push *p, bool is_committed_by_call, lp_error *err)
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

static uint32_t handle_of(const lp_session *s, const push *p)
{
    return s->plan->entry[p->entry].name;
}

static lp_status place(lp_session *s, const lp_piece *piece, const push *p, const lp_change_target *target, int targets,
                       lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    s->on->name[p->entry].is_placed = true;
    s->on->is_moving = true;
    return lp_device_check(c,
                           lp_device_place(c, target, targets, piece, p->data, s->on->stream, &s->report.bytes_written),
                           "copy to a tensor", err);
}

/* Copies and counts. */
static lp_status put(lp_session *s, const push *p, bool is_committed_by_call, lp_error *err)
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
        LP_TRY(copy_in(s, p, err));
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
        base = slot_base(s, p->entry);
    else if (s->plan->entry[p->entry].reads && is_straight)
        base = (const void *)((uintptr_t)p->data - (uintptr_t)p->off);
    return lp_device_complete(s, p->entry, base, err);
}

static lp_status push_one(lp_session *s, lp_handle handle, const lp_form *form, int64_t off, const void *data,
                          int64_t bytes, lp_source_memory memory, bool ends_call, lp_error *err)
{
    push p = {.entry = LP_NONE, .off = off, .bytes = bytes, .data = data, .form = form};
    bool is_captured = false;
    LP_TRY(lp_session_judge(s, handle, off, data, bytes, &p.entry, err));
    if (p.entry == LP_NONE) {
        s->report.names_ignored += off == 0;
        return LP_OK;
    }
    LP_TRY(locate(s, data, memory, &p.on_device, err));
    LP_TRY(ask_capture(s, &is_captured, err));
    LP_TRY(check_capture(s, &p, is_captured, err));
    LP_TRY(lp_session_reserve_track(s, p.entry, off, bytes, err));
    const bool is_committed = lp_device_is_last(s, p.entry);
    LP_TRY(reserve(s, &p, is_committed, err));
    lp_status status = put(s, &p, is_committed, err);
    if (status == LP_OK && ends_call)
        status = lp_device_flush(s, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}

/* One piece of a frame. */
static lp_status push_piece(lp_session *s, const lp_piece *piece, const void *data, lp_error *err)
{
    const bool has_runs = piece->count > 1;
    const lp_name_use use = lp_plan_use(s->plan, piece->name);
    push p = {.entry = s->plan->entry_of[piece->name],
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
    LP_TRY(reserve(s, &p, is_committed, err));
    lp_status status = put(s, &p, is_committed, err);
    if (status == LP_OK && s->mode == LP_LAYERWISE)
        status = lp_device_flush(s, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}

/* What was taken is moved, also when something behind it was refused; a session that failed moves nothing more. */
static lp_status flush_after(lp_session *s, lp_status status, lp_error *err)
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
    lp_status status = ask_capture(s, &is_captured, err);
    if (status == LP_OK && is_captured)
        status = lp_fail(err, LP_E_MISUSE, "the frames of a sync cannot be captured");
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        status = push_piece(s, &piece[i], at, err);
        at += lp_piece_bytes(&piece[i]);
    }
    return flush_after(s, status, err);
}

/* ---- entrances: each makes the device current and the one before again ---- */

static lp_status enter(lp_session *s, int *before, lp_error *err)
{
    const lp_device_calls *c = &s->on->side->calls;
    LP_TRY(lp_session_usable(s, err));
    return lp_device_check(c, c->enter(c->context, before), "use the device", err);
}

static void leave(lp_session *s, int before)
{
    s->on->side->calls.leave(s->on->side->calls.context, before);
}

lp_status lp_device_push_range(lp_session *s, lp_handle handle, int64_t off, const void *data, int64_t bytes,
                               lp_source_memory memory, lp_error *err)
{
    int before;
    LP_TRY(enter(s, &before, err));
    const lp_status status = push_one(s, handle, NULL, off, data, bytes, memory, true, err);
    leave(s, before);
    return status;
}

lp_status lp_device_push_strided(lp_session *s, lp_handle handle, const lp_form *form, const void *data,
                                 lp_source_memory memory, lp_error *err)
{
    int before;
    LP_TRY(enter(s, &before, err));
    const lp_status status = push_one(s, handle, form, 0, data, form->bytes, memory, true, err);
    leave(s, before);
    return status;
}

/* Judges all; *all_on_device says whether none has to be copied from the host. */
static lp_status judge_all(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                           bool *all_on_device, lp_error *err)
{
    const lp_plan *plan = s->plan;
    const int64_t names = lp_checkpoint_count(plan->catalogue);
    bool is_captured = false;
    LP_TRY(ask_capture(s, &is_captured, err));
    *all_on_device = true;
    s->stamp++;
    for (int64_t i = 0; i < count; i++) {
        push p = {.entry = LP_NONE, .data = data[i]};
        if (handle[i] < names) {
            const uint32_t e = plan->entry_of[handle[i]];
            p.bytes = e != LP_NONE ? plan->entry[e].bytes : lp_checkpoint_at(plan->catalogue, handle[i])->bytes;
        }
        LP_TRY(lp_session_judge(s, handle[i], 0, data[i], p.bytes, &p.entry, err));
        if (p.entry == LP_NONE)
            continue;
        if (s->entry_stamp[p.entry] == s->stamp) {
            const char *name = lp_checkpoint_at(plan->catalogue, handle[i])->name;
            return lp_fail_at(err, LP_E_DUPLICATE, name, 0, "'%s' is pushed twice in one call", name);
        }
        s->entry_stamp[p.entry] = s->stamp;
        LP_TRY(locate(s, data[i], LP_SOURCE_ASK, &p.on_device, err));
        *all_on_device = *all_on_device && (p.on_device || p.bytes == 0);
        if (is_captured)
            LP_TRY(check_capture(s, &p, is_captured, err));
    }
    return LP_OK;
}

/* unit_guess: what each unit would wait for after the call, for units whose unit_stamp is that of the call. */
static void guess_units(lp_session *s, const lp_handle *handle, int64_t count)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t entry = s->plan->entry_of[handle[i]];
        if (entry == LP_NONE)
            continue;
        for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1]; k++) {
            const uint32_t u = side->entry_unit[k];
            if (d->unit_stamp[u] != s->stamp)
                d->unit_guess[u] = d->unit_left[u];
            d->unit_stamp[u] = s->stamp;
            d->unit_guess[u]--;
        }
    }
}

static bool is_committed_by_call(const lp_session *s, uint32_t entry)
{
    const lp_device_session *d = s->on;
    for (uint32_t k = d->side->entry_first_unit[entry]; k < d->side->entry_first_unit[entry + 1]; k++)
        if (d->unit_guess[d->side->entry_unit[k]] > 0)
            return false;
    return true;
}

/* All in device memory: room for those that must wait is taken before the first is written, or for none of them. */
static lp_status push_straight(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                               lp_error *err)
{
    const bool is_layered = s->mode == LP_LAYERWISE;
    lp_status status = LP_OK;
    int64_t taken = 0;
    if (is_layered)
        guess_units(s, handle, count);
    for (; taken < count; taken++) {
        const uint32_t entry = s->plan->entry_of[handle[taken]];
        if (entry == LP_NONE)
            continue;
        const push p = {.entry = entry, .bytes = s->plan->entry[entry].bytes, .data = data[taken], .on_device = true};
        status = lp_session_reserve_track(s, entry, 0, p.bytes, err);
        if (status == LP_OK && is_layered)
            status = reserve(s, &p, is_committed_by_call(s, entry), err);
        if (status != LP_OK)
            break;
    }
    for (int64_t i = 0; status != LP_OK && i < taken; i++)
        if (s->plan->entry_of[handle[i]] != LP_NONE)
            lp_device_drop_slot(s, s->plan->entry_of[handle[i]]);
    LP_TRY(status);
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        const uint32_t entry = s->plan->entry_of[handle[i]];
        if (entry == LP_NONE) {
            s->report.names_ignored++;
            continue;
        }
        const push p = {.entry = entry, .bytes = s->plan->entry[entry].bytes, .data = data[i], .on_device = true};
        status = put(s, &p, is_layered && is_committed_by_call(s, entry), err);
    }
    if (status == LP_OK)
        status = lp_device_flush(s, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}

static lp_status push_many(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                           lp_error *err)
{
    bool all_on_device;
    LP_TRY(judge_all(s, handle, data, count, &all_on_device, err));
    if (all_on_device)
        return push_straight(s, handle, data, count, err);
    lp_status status = LP_OK;
    for (int64_t i = 0; i < count && status == LP_OK; i++)
        status = push_one(s, handle[i], NULL, 0, data[i], lp_checkpoint_at(s->plan->catalogue, handle[i])->bytes,
                          LP_SOURCE_ASK, s->mode == LP_LAYERWISE, err);
    return flush_after(s, status, err);
}

lp_status lp_device_push_many(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                              lp_error *err)
{
    int before;
    LP_TRY(enter(s, &before, err));
    const lp_status status = push_many(s, handle, data, count, err);
    leave(s, before);
    return status;
}

lp_status lp_device_push_pieces(lp_session *s, const lp_piece *piece, int64_t count, const void *data, lp_error *err)
{
    int before;
    LP_TRY(enter(s, &before, err));
    const lp_status status = push_pieces(s, piece, count, data, err);
    leave(s, before);
    return status;
}

lp_status lp_device_mark(lp_session *s, uint32_t entry, lp_error *err)
{
    int before;
    LP_TRY(enter(s, &before, err));
    s->has_written = true;
    s->track[entry].is_seen = true;
    lp_status status = lp_device_complete(s, entry, LP_NO_BYTES, err);
    if (status == LP_OK)
        status = lp_device_flush(s, err);
    leave(s, before);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}
