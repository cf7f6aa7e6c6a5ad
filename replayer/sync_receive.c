/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs from begin to end at receivers: what a plan needs, which way its bytes come, and the session they go into. */
#include "replayer/sync_private.h"

#include "replayer/device_patch.h"
#include "replayer/device_session.h"
#include "replayer/device_session_pieces.h"
#include "replayer/session_patch.h"
#include "replayer/sync_sum.h"
#include "replayer/transport_lane.h"

static lp_status push(void *context, uint32_t name, int64_t off, const void *data, int64_t bytes, lp_error *err)
{
    const lp_session *s = context;
    if (lp_plan_use(s->plan, name) == LP_USE_FALLBACK)
        return LP_OK; /* another rank can load it */
    return lp_push_handle_range(context, name, off, data, bytes, err);
}

static lp_status patch(void *context, uint32_t name, int64_t off, const void *data, int64_t bytes, lp_error *err)
{
    return lp_session_patch(context, name, off, data, bytes, err);
}

static lp_status keep(void *context, uint32_t name, lp_error *err)
{
    return lp_session_keep(context, name, err);
}

static lp_status open_patch(void *context, uint32_t name, lp_error *err)
{
    return lp_device_patch_open(context, name, err);
}

static lp_status pieces(void *context, const lp_piece *piece, int64_t count, const void *data, lp_error *err)
{
    return lp_device_push_pieces(context, piece, count, data, err);
}

static lp_status receive_frames(lp_sync *s, lp_plan *plan, lp_session *session, void *stream, lp_error *err)
{
    const lp_sync_sink sink = {.context = session,
                               .push = push,
                               .patch = patch,
                               .keep = keep,
                               .pieces = pieces,
                               .stream = stream,
                               .open = open_patch};
    if (s->mode == LP_SYNC_SLICED)
        return lp_sliced_receive(s, plan, &sink, err);
    if (s->is_delta[s->round.rank])
        return lp_delta_receive(s, plan, &sink, err);
    s->report.mode = LP_SYNC_PACKED;
    return lp_packed_receive(s, &sink, err);
}

static int add_range(void *total, int64_t lo, int64_t hi)
{
    *(int64_t *)total += hi - lo;
    return 0;
}

/* What a receiver reads of each name, and what a delta has to bring whole. */
static lp_status say_needs(lp_sync *s, const lp_plan *plan, uint8_t *used, uint8_t *whole, lp_error *err)
{
    s->report.bytes_needed = 0;
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue); i++) {
        if (lp_plan_use(plan, i) != LP_USE_LOADED)
            continue;
        used[i / 8] = (uint8_t)(used[i / 8] | 1u << (i % 8));
        if (!lp_patch_is_possible(plan, i))
            whole[i / 8] = (uint8_t)(whole[i / 8] | 1u << (i % 8));
        LP_TRY(lp_plan_reads(plan, i, add_range, &s->report.bytes_needed, err));
    }
    return LP_OK;
}

/* What is replayed while messages come leaves processors to them. */
static void leave_processors(const lp_sync *s, const lp_plan *plan, int processors)
{
    const lp_device_side *side = plan->side;
    if (s->uses_lane && side->program != NULL && side->calls.program_leave != NULL)
        side->calls.program_leave(side->calls.context, side->program, processors);
}

static lp_status receive_into(lp_sync *s, lp_plan *plan, const lp_session_options *options, lp_error *err)
{
    lp_session *session = NULL;
    lp_session_options o = *options;
    if (plan->side != NULL)
        o.sources = LP_SOURCE_HOST; /* pageable, so it has been read when a push returns */
    /* Memory is cleared for a cold start, but not for changes to what it holds. */
    if (s->is_delta[s->round.rank])
        o.mode = LP_DIRECT;
    s->held = 0;
    LP_TRY(lp_begin(&session, plan, &o, err));
    leave_processors(s, plan, LP_LANE_LEFT);
    lp_status status = receive_frames(s, plan, session, o.stream, err);
    leave_processors(s, plan, 0);
    if (status == LP_OK)
        status = lp_finish(session, &s->report.load, err);
    else
        lp_abort(session, err->text);
    lp_session_close(session);
    if (status != LP_OK)
        return status;
    status = lp_sync_all_say_yes(s, err);
    if (status != LP_OK)
        lp_sync_spoil(s);
    return status;
}

/* Payloads stay on the device when they come into its memory and the plan is bound to that. */
static lp_status choose_way(lp_sync *s, const lp_plan *plan, lp_error *err)
{
    const lp_device_side *side = plan->side;
    s->uses_lane = false;
    if (s->transport.lane == NULL || side == NULL)
        return lp_flow_buckets(s, false, true, err);
    LP_TRY(lp_flow_buckets(s, false, false, err));
    const lp_device_calls *c = &side->calls;
    LP_TRY(
        lp_device_check(c, c->is_ours(c->context, s->bucket_memory[0], &s->uses_lane), "ask where buckets lie", err));
    return lp_flow_buckets(s, false, !s->uses_lane, err);
}

/* Changes come to plans of host memory, and to those on the device that messages come to. */
static lp_status takes_changes(lp_sync *s, const lp_plan *plan, lp_load_mode mode, bool *yes, lp_error *err)
{
    const lp_transport *t = &s->transport;
    *yes = plan->side == NULL;
    if (mode == LP_LAYERWISE || mode == LP_META)
        *yes = false;
    else if (plan->side != NULL && t->lane != NULL && t->lane->device->apply != NULL) {
        const lp_device_calls *c = &plan->side->calls;
        void *own = s->bucket_memory[0] == NULL ? t->take(t->context, LP_SYNC_BUCKET_LEAST) : NULL;
        const void *at = own != NULL ? own : s->bucket_memory[0];
        const int code = at == NULL ? 0 : c->is_ours(c->context, at, yes);
        if (own != NULL)
            t->give_back(t->context, own);
        return lp_device_check(c, code, "ask where messages lie", err);
    }
    return LP_OK;
}

static lp_status receive_epoch(lp_sync *s, lp_plan *plan, const lp_session_options *options, int64_t epoch,
                               lp_error *err)
{
    const int64_t map = lp_bitmap_bytes(s);
    uint8_t *used = lp_allocate_zero(s->alloc, 2 * (size_t)map + 1), *whole = used == NULL ? NULL : used + map;
    lp_fact mine = {.wanted = epoch, .used = used, .whole = whole};
    if (lp_patch_is_stale(plan))
        s->held = 0; /* some other load went wrong */
    lp_status status = used == NULL ? lp_fail_memory(err) : say_needs(s, plan, used, whole, err);
    if (status == LP_OK)
        status = takes_changes(s, plan, options->mode, &mine.takes_delta, err);
    const int64_t needed = s->report.bytes_needed;
    if (status == LP_OK)
        status = lp_sync_agree(s, &mine, err);
    s->report.bytes_needed = needed;
    lp_release(s->alloc, used);
    LP_TRY(status);
    LP_TRY(lp_sync_content(s, NULL, err));
    if (s->mode != LP_SYNC_SLICED)
        LP_TRY(lp_sync_shares(s, NULL, err));
    LP_TRY(choose_way(s, plan, err));
    return receive_into(s, plan, options, err);
}

lp_status lp_sync_recv(lp_sync *s, lp_plan *plan, const lp_session_options *options, int64_t epoch,
                       lp_sync_report *report, lp_error *err)
{
    const lp_session_options cold = {.mode = LP_COLD};
    lp_error own = {.code = LP_OK};
    err = err == NULL ? &own : err;
    if (s->options.is_sender || epoch < 0 || plan->trace != s->trace)
        return lp_fail(err, LP_E_MISUSE,
                       s->options.is_sender ? "this sync was opened to send"
                       : epoch < 0          ? "an epoch below 0"
                                            : "the plan is of another trace than the sync");
    if (s->plan != plan) /* the last epoch went into other memory */
        s->held = 0;
    s->plan = plan;
    const lp_status status = receive_epoch(s, plan, options == NULL ? &cold : options, epoch, err);
    return lp_sync_end(s, status, report, err);
}
