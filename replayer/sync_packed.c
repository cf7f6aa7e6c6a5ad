/* SPDX-License-Identifier: Apache-2.0 */
/* Packed epochs: whole tensors, dealt out over the senders, to every receiver. Frames come in turns, one of each
 * sender. A sender gives its frame to one receiver after the other, each time to another one than the other senders do,
 * so that links are not shared. */
#include "replayer/sync_private.h"
#include "replayer/sync_schedule.h"
#include "replayer/transport_lane.h"

/* ---- partners ---- */

static int32_t count_receivers(const lp_sync *s, bool is_delta)
{
    int32_t count = 0;
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        count += s->is_delta[i] == is_delta;
    return count;
}

lp_status lp_sync_partners(lp_sync *s, bool is_delta, int32_t *peer, int32_t *peers, lp_error *err)
{
    const int32_t senders = s->round.senders, receivers = s->round.world - senders;
    const bool is_sender = s->round.rank < senders;
    const lp_lane *lane = s->transport.lane;
    *peers = 0;
    for (int32_t step = 0; step < lp_steps(senders, receivers); step++) {
        const int32_t partner = is_sender ? lp_step_receiver(s->round.rank, step, senders, receivers)
                                          : lp_step_sender(s->round.rank - senders, step, senders, receivers);
        const int32_t rank = is_sender ? senders + partner : partner;
        if (partner >= 0 && (!is_sender || s->is_delta[rank] == is_delta))
            peer[(*peers)++] = rank;
    }
    if (lane == NULL || senders == 1 || count_receivers(s, is_delta) < 2)
        return LP_OK;
    return lane->meet(s->transport.context, peer, *peers, is_sender, err);
}

/* ---- what is sent ---- */

typedef struct used_by {
    const lp_sync *s;
    bool to_delta;
} used_by;

/* Whether some receiver of the pass reads the name. */
static bool is_used(void *context, uint32_t name)
{
    const used_by *u = context;
    const lp_sync *s = u->s;
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] == u->to_delta && lp_bit(s->fact[i].used, name))
            return true;
    return false;
}

static lp_status plan_frames(const lp_sync *s, bool to_delta, int32_t sender, lp_pieces *out, lp_error *err)
{
    used_by u = {.s = s, .to_delta = to_delta};
    lp_pieces_init(out, s->alloc);
    LP_TRY(lp_sync_share_of(s, out, sender, is_used, &u, err));
    LP_TRY(lp_pieces_cut(out, s->bucket, err));
    return lp_pieces_align(out, err);
}

/* ---- senders ---- */

lp_status lp_packed_send(lp_sync *s, const lp_sync_source *source, bool to_delta, lp_error *err)
{
    lp_pieces p;
    lp_frame_out *frame = NULL;
    int32_t *peer = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *peer);
    lp_pieces_init(&p, s->alloc);
    int32_t peers = 0;
    lp_status status = peer == NULL ? lp_fail_memory(err) : lp_sync_partners(s, to_delta, peer, &peers, err);
    if (status == LP_OK && peers > 0)
        status = plan_frames(s, to_delta, s->round.rank, &p, err);
    if (status == LP_OK) {
        frame = lp_allocate(s->alloc, ((size_t)p.frame_count + 1) * sizeof *frame);
        status = frame == NULL ? lp_fail_memory(err) : LP_OK;
    }
    for (int64_t i = 0; i < p.frame_count && status == LP_OK; i++)
        frame[i] = (lp_frame_out){.pieces = &p, .number = i, .peer = peer, .peers = peers};
    if (status == LP_OK)
        status = lp_frames_send(s, source, frame, p.frame_count, err);
    lp_release(s->alloc, frame);
    lp_pieces_free(&p);
    lp_release(s->alloc, peer);
    return status;
}

/* ---- receivers ---- */

/* One frame of each sender a turn. sender: in the order of a turn. */
static lp_status order_frames(const lp_sync *s, const int32_t *sender, const lp_pieces *list, lp_frame_in **out,
                              int64_t *count, lp_error *err)
{
    int64_t total = 0, at = 0;
    for (int32_t i = 0; i < s->round.senders; i++)
        total += list[i].frame_count;
    lp_frame_in *frame = lp_allocate(s->alloc, ((size_t)total + 1) * sizeof *frame);
    if (frame == NULL)
        return lp_fail_memory(err);
    for (int64_t turn = 0; at < total; turn++)
        for (int32_t i = 0; i < s->round.senders; i++)
            if (turn < list[sender[i]].frame_count)
                frame[at++] = (lp_frame_in){.pieces = &list[sender[i]], .number = turn, .sender = sender[i]};
    *out = frame;
    *count = total;
    return LP_OK;
}

lp_status lp_packed_receive(lp_sync *s, const lp_sync_sink *sink, lp_error *err)
{
    lp_frame_in *frame = NULL;
    int64_t count = 0;
    int32_t senders = 0, *sender = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *sender);
    lp_pieces *list = lp_allocate_zero(s->alloc, (size_t)s->round.senders * sizeof *list);
    lp_status status =
        sender == NULL || list == NULL ? lp_fail_memory(err) : lp_sync_partners(s, false, sender, &senders, err);
    for (int32_t i = 0; i < s->round.senders && status == LP_OK; i++)
        status = plan_frames(s, false, i, &list[i], err);
    if (status == LP_OK)
        status = order_frames(s, sender, list, &frame, &count, err);
    if (status == LP_OK)
        status = lp_frames_receive(s, frame, count, sink, true, err);
    for (int32_t i = 0; list != NULL && i < s->round.senders; i++)
        lp_pieces_free(&list[i]);
    lp_release(s->alloc, list);
    lp_release(s->alloc, sender);
    lp_release(s->alloc, frame);
    return status;
}
