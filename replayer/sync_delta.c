/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delta epochs. Every sender keeps a copy of its share of the bytes of the last epoch, the shadow, compares and sends
 * what changed to the receivers that hold exactly that epoch. Receivers write the changes through the same maps as a
 * load, and run every derive again, so the result is that of a load of everything.
 */
#include "replayer/sync_delta.h"

void lp_shadow_free(struct lp_shadow *shadow, const lp_alloc *alloc)
{
    if (shadow == NULL)
        return;
    lp_pieces_free(&shadow->share);
    lp_device_shadow_close(shadow->on);
    lp_release(alloc, shadow->bytes);
    lp_release(alloc, shadow);
}

static lp_status new_shadow(lp_sync *s, const lp_sync_source *source, lp_pieces *share, lp_error *err)
{
    lp_shadow_free(s->shadow, s->alloc);
    s->shadow = lp_allocate_zero(s->alloc, sizeof *s->shadow);
    if (s->shadow == NULL) {
        lp_pieces_free(share);
        return lp_fail_memory(err);
    }
    s->shadow->share = *share;
    if (lp_delta_is_on_device(s, source))
        return lp_device_shadow_open(s, err);
    s->shadow->bytes = lp_allocate_zero(s->alloc, (size_t)share->bytes + 1);
    if (s->shadow->bytes == NULL)
        return lp_fail(err, LP_E_MEMORY, "no memory for a shadow of %lld bytes", (long long)share->bytes);
    return LP_OK;
}

void lp_shadow_release(lp_sync *s)
{
    if (s->shadow == NULL || s->shadow->on == NULL)
        return;
    lp_shadow_free(s->shadow, s->alloc);
    s->shadow = NULL;
}

/* The shadow of the share that this sender has now: the one that it had, or a new one that is empty. */
static lp_status take_shadow(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    lp_pieces share;
    lp_pieces_init(&share, s->alloc);
    const lp_status status = lp_delta_share(s, s->round.rank, &share, err);
    if (status == LP_OK && (s->shadow == NULL || !lp_delta_same_share(&s->shadow->share, &share) ||
                            (s->shadow->on != NULL) != lp_delta_is_on_device(s, source)))
        return new_shadow(s, source, &share, err);
    lp_pieces_free(&share);
    return status;
}

/* ---- senders ---- */

bool lp_delta_is_whole(const lp_sync *s, uint32_t name)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] && lp_bit(s->fact[i].whole, name))
            return true;
    return false;
}

bool lp_delta_is_read(const lp_sync *s, uint32_t name)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->is_delta[i] && lp_bit(s->fact[i].used, name))
            return true;
    return false;
}

/* Layerwise sessions, and plans on a device that messages do not come to, never take changes: for them alone nothing is
 * kept. */
static bool is_shadow_of_use(const lp_sync *s)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (s->fact[i].takes_delta)
            return true;
    return false;
}

lp_status lp_delta_send(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    int32_t peers = 0;
    if (!is_shadow_of_use(s)) {
        lp_shadow_free(s->shadow, s->alloc);
        s->shadow = NULL;
        return LP_OK;
    }
    LP_TRY(take_shadow(s, source, err));
    s->report.shadow_bytes = s->shadow->share.bytes;
    int32_t *peer = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *peer);
    if (peer == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_sync_partners(s, true, peer, &peers, err);
    if (status == LP_OK)
        status = s->shadow->on != NULL ? lp_device_shadow_send(s, source, peer, peers, err)
                                       : lp_delta_send_from_host(s, source, peer, peers, err);
    s->shadow->is_filled = status == LP_OK;
    lp_release(s->alloc, peer);
    return status;
}

/* ---- receivers ---- */

enum { SHORT = 4096, SHORT_ONES = 64 }; /* bytes of a change that takes no time to speak of, and how many of them */

typedef struct application {
    lp_sync *s;
    const lp_sync_sink *sink;
    int64_t changes;
} application;

static lp_status apply(void *context, uint32_t name, int64_t off, const uint8_t *data, int64_t bytes,
                       lp_change_form form, lp_error *err)
{
    application *a = context;
    const lp_fact *me = &a->s->fact[a->s->round.rank];
    if (a->changes++ % SHORT_ONES == 0 || bytes > SHORT)
        lp_sync_alive(a->s);
    if (!lp_bit(me->used, name))
        return LP_OK;
    if (!lp_bit(me->whole, name))
        return a->sink->patch(a->sink->context, name, off, data, bytes, err);
    if (form != LP_CHANGE_ALL)
        return lp_fail(err, LP_E_CORRUPT, "changes came where the whole of '%s' was due",
                       lp_checkpoint_at(a->s->catalogue, name)->name);
    return a->sink->push(a->sink->context, name, off, data, bytes, err);
}

lp_status lp_delta_turns_open(lp_delta_turns *t, lp_sync *s, lp_error *err)
{
    const size_t count = (size_t)s->round.world;
    *t = (lp_delta_turns){.alloc = s->alloc, .at = -1};
    t->sender = lp_allocate(s->alloc, count * sizeof *t->sender);
    t->next = lp_allocate_zero(s->alloc, count * sizeof *t->next);
    t->sequence = lp_allocate_zero(s->alloc, count * sizeof *t->sequence);
    if (t->sender == NULL || t->next == NULL || t->sequence == NULL)
        return lp_fail_memory(err);
    return lp_sync_partners(s, true, t->sender, &t->senders, err);
}

void lp_delta_turns_close(lp_delta_turns *t)
{
    lp_release(t->alloc, t->sender);
    lp_release(t->alloc, t->next);
    lp_release(t->alloc, t->sequence);
}

int32_t lp_delta_turn(lp_delta_turns *t)
{
    for (int32_t i = 0; i < t->senders; i++) {
        t->at = (t->at + 1) % t->senders;
        if (t->next[t->sender[t->at]] >= 0)
            return t->sender[t->at];
    }
    return -1;
}

static lp_status receive_changes(application *a, lp_inflow *in, lp_delta_turns *t, lp_error *err)
{
    lp_sync *s = a->s;
    int32_t sender = lp_delta_turn(t);
    if (sender >= 0)
        LP_TRY(lp_in_post(in, sender, t->sequence[sender]++, t->next[sender], err));
    while (sender >= 0) {
        lp_frame frame;
        const uint8_t *payload = NULL;
        LP_TRY(lp_in_take(in, &frame, &payload, err));
        t->next[sender] = frame.next_bytes;
        const int32_t other = lp_delta_turn(t);
        if (other >= 0)
            LP_TRY(lp_in_post(in, other, t->sequence[other]++, t->next[other], err));
        if (frame.bytes > 0)
            LP_TRY(lp_delta_get_frame(payload, frame.bytes, s->catalogue, apply, a, err));
        sender = other;
    }
    return LP_OK;
}

/* What did not change is as it was: names are complete without it. */
static lp_status keep_rest(lp_sync *s, const lp_sync_sink *sink, lp_error *err)
{
    const lp_fact *me = &s->fact[s->round.rank];
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue); i++)
        if (lp_bit(me->used, i) && !lp_bit(me->whole, i))
            LP_TRY(sink->keep(sink->context, i, err));
    return LP_OK;
}

static lp_status receive_on_host(lp_sync *s, const lp_sync_sink *sink, lp_error *err)
{
    application a = {.s = s, .sink = sink};
    lp_delta_turns turns;
    lp_inflow in;
    lp_in_init(&in, s);
    lp_status status = lp_delta_turns_open(&turns, s, err);
    if (status == LP_OK)
        status = receive_changes(&a, &in, &turns, err);
    lp_in_free(&in);
    lp_delta_turns_close(&turns);
    return status;
}

lp_status lp_delta_receive(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err)
{
    LP_TRY(s->uses_lane ? lp_delta_apply(s, plan, sink, err) : receive_on_host(s, sink, err));
    return keep_rest(s, sink, err);
}
