/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sliced epochs: to each receiver the bytes that it needs and no others, from whichever sender holds them. Once for a
 * set of ranks the senders say what they hold and the receivers ask for what they need; the lists are kept and used in
 * every later epoch. Payloads travel without descriptions, since both sides have the list.
 */
#include "replayer/sync_private.h"
#include "replayer/sync_schedule.h"

struct lp_slices {
    const lp_alloc *alloc;
    uint8_t key[32]; /* of ranks and plans; zeros: not made yet */
    int32_t count;
    lp_pieces *list; /* at a sender by receiver, at a receiver by sender */
};

void lp_slices_free(struct lp_slices *slices)
{
    if (slices == NULL)
        return;
    for (int32_t i = 0; slices->list != NULL && i < slices->count; i++)
        lp_pieces_free(&slices->list[i]);
    lp_release(slices->alloc, slices->list);
    lp_release(slices->alloc, slices);
}

static lp_status new_slices(lp_sync *s, int32_t count, lp_error *err)
{
    lp_slices_free(s->slices);
    s->slices = lp_allocate_zero(s->alloc, sizeof *s->slices);
    if (s->slices == NULL)
        return lp_fail_memory(err);
    s->slices->alloc = s->alloc;
    s->slices->list = lp_allocate_zero(s->alloc, ((size_t)count + 1) * sizeof *s->slices->list);
    if (s->slices->list == NULL)
        return lp_fail_memory(err);
    s->slices->count = count;
    for (int32_t i = 0; i < count; i++)
        lp_pieces_init(&s->slices->list[i], s->alloc);
    return LP_OK;
}

/* What a schedule depends on. */
static lp_status make_key(lp_sync *s, uint8_t key[32], lp_error *err)
{
    lp_sha256 h;
    lp_sha256_begin(&h);
    lp_sha256_text(&h, "loadplan schedule 1");
    lp_sha256_i64(&h, s->bucket);
    lp_sha256_i64(&h, s->round.senders);
    for (int32_t i = 0; i < s->round.world; i++) {
        lp_sha256_text(&h, s->transport.name(s->transport.context, i));
        lp_sha256_add(&h, s->fact[i].set, 32);
        lp_sha256_add(&h, s->fact[i].used, s->fact[i].used == NULL ? 0 : (size_t)lp_bitmap_bytes(s));
    }
    return lp_sha256_end(&h, key) ? LP_OK : lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
}

/* Whether every rank still has the schedule for this key. */
static lp_status is_made(lp_sync *s, const uint8_t key[32], bool *yes, lp_error *err)
{
    static const uint8_t none[32] = {0};
    const lp_block *all = NULL;
    LP_TRY(s->transport.gather(s->transport.context, s->slices == NULL ? none : s->slices->key, 32, &all, err));
    *yes = true;
    for (int32_t i = 0; i < s->round.world; i++)
        *yes = *yes && all[i].bytes == 32 && memcmp(all[i].data, key, 32) == 0;
    return LP_OK;
}

/* ---- what receivers ask for ---- */

typedef struct need_list {
    lp_pieces pieces;
    uint32_t name;
    lp_status status;
    lp_error *err;
} need_list;

static int add_need(void *context, int64_t lo, int64_t hi)
{
    need_list *n = context;
    n->status = lp_pieces_add_range(&n->pieces, n->name, lo, hi, n->err);
    return n->status != LP_OK;
}

static lp_status ask(lp_sync *s, const lp_plan *plan, lp_holdings *h, lp_requests *r, lp_error *err)
{
    lp_status status = LP_OK;
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue) && status == LP_OK; i++) {
        need_list need = {.name = i, .status = LP_OK, .err = err};
        if (lp_plan_use(plan, i) != LP_USE_LOADED)
            continue;
        lp_pieces_init(&need.pieces, s->alloc);
        status = lp_plan_reads(plan, i, add_need, &need, err);
        status = status == LP_OK ? need.status : status;
        if (status == LP_OK && need.pieces.count == 0) /* fills only: seen is all that it takes */
            status = lp_pieces_add(&r->list[0], &(lp_piece){.name = i, .count = 1}, err);
        else if (status == LP_OK)
            status = lp_requests_add(r, h, i, need.pieces.piece, need.pieces.count, err);
        lp_pieces_free(&need.pieces);
    }
    return status;
}

/* ---- the exchange of lists ---- */

static lp_status send_requests(lp_sync *s, const lp_requests *r, lp_text *text, lp_error *err)
{
    const lp_transport *t = &s->transport;
    const int32_t senders = s->round.senders;
    const lp_block *all = NULL;
    int64_t ticket = 0;
    uint8_t *sizes = lp_allocate(s->alloc, 8 * (size_t)senders);
    lp_transfer *transfer = lp_allocate(s->alloc, (size_t)senders * sizeof *transfer);
    lp_status status = sizes == NULL || transfer == NULL ? lp_fail_memory(err) : LP_OK;
    for (int32_t i = 0; i < senders && status == LP_OK; i++) {
        lp_text_init(&text[i], s->alloc);
        status = lp_pieces_put(&r->list[i], &text[i], err);
        uint8_t *at = sizes + (size_t)8 * (size_t)i;
        for (int b = 0; b < 8; b++)
            at[b] = (uint8_t)((uint64_t)text[i].bytes >> (8 * b));
        transfer[i] =
            (lp_transfer){.peer = i, .is_send = true, .is_host = true, .data = text[i].data, .bytes = text[i].bytes};
    }
    if (status == LP_OK)
        status = t->gather(t->context, sizes, 8 * (int64_t)senders, &all, err);
    if (status == LP_OK)
        status = t->start(t->context, transfer, senders, &ticket, err);
    if (status == LP_OK)
        status = t->wait(t->context, ticket, err);
    lp_release(s->alloc, sizes);
    lp_release(s->alloc, transfer);
    return status;
}

static int64_t size_in(const lp_block *block, int32_t sender, int32_t senders)
{
    const uint8_t *at = (const uint8_t *)block->data + (size_t)8 * (size_t)sender;
    uint64_t value = 0;
    if (block->bytes != 8 * (int64_t)senders)
        return -1;
    for (int b = 0; b < 8; b++)
        value |= (uint64_t)at[b] << (8 * b);
    return value > (uint64_t)LP_GATHER_MAX * 64 ? -1 : (int64_t)value;
}

static lp_status receive_requests(lp_sync *s, lp_error *err)
{
    const lp_transport *t = &s->transport;
    const int32_t receivers = s->round.world - s->round.senders;
    const lp_block *all = NULL;
    int64_t ticket = 0;
    lp_transfer *transfer = lp_allocate_zero(s->alloc, ((size_t)receivers + 1) * sizeof *transfer);
    lp_status status = transfer == NULL ? lp_fail_memory(err) : LP_OK;
    if (status == LP_OK)
        status = t->gather(t->context, NULL, 0, &all, err);
    for (int32_t i = 0; i < receivers && status == LP_OK; i++) {
        const int64_t bytes = size_in(&all[s->round.senders + i], s->round.rank, s->round.senders);
        if (bytes < 0) {
            status = lp_fail(err, LP_E_CORRUPT, "receiver %d does not say what it asks for", i);
            break;
        }
        transfer[i] = (lp_transfer){.peer = s->round.senders + i,
                                    .is_host = true,
                                    .data = lp_allocate(s->alloc, (size_t)bytes + 1),
                                    .bytes = bytes};
        if (transfer[i].data == NULL)
            status = lp_fail_memory(err);
    }
    if (status == LP_OK)
        status = t->start(t->context, transfer, receivers, &ticket, err);
    if (status == LP_OK) {
        status = t->wait(t->context, ticket, err);
        for (int32_t i = 0; i < receivers && status == LP_OK; i++)
            status = lp_pieces_get(&s->slices->list[i], transfer[i].data, transfer[i].bytes, s->catalogue, err);
    }
    for (int32_t i = 0; transfer != NULL && i < receivers; i++)
        lp_release(s->alloc, transfer[i].data);
    lp_release(s->alloc, transfer);
    return status;
}

static lp_status cut_all(lp_sync *s, const uint8_t key[32], lp_error *err)
{
    for (int32_t i = 0; i < s->slices->count; i++) {
        LP_TRY(lp_pieces_cut(&s->slices->list[i], s->bucket, err));
        LP_TRY(lp_pieces_align(&s->slices->list[i], err));
    }
    memcpy(s->slices->key, key, 32);
    return LP_OK;
}

/* ---- senders ---- */

static lp_status make_send_lists(lp_sync *s, const lp_sync_source *source, const uint8_t key[32], lp_error *err)
{
    const lp_block *all = NULL;
    lp_text held;
    lp_text_init(&held, s->alloc);
    lp_status status = new_slices(s, s->round.world - s->round.senders, err);
    if (status == LP_OK)
        status = lp_sync_say_holdings(s, source, &held, err);
    if (status == LP_OK)
        status = s->transport.gather(s->transport.context, held.data, held.bytes, &all, err);
    lp_text_free(&held);
    LP_TRY(status);
    LP_TRY(receive_requests(s, err));
    return cut_all(s, key, err);
}

static int64_t most_frames(const struct lp_slices *l)
{
    int64_t most = 0;
    for (int32_t i = 0; i < l->count; i++)
        most = l->list[i].frame_count > most ? l->list[i].frame_count : most;
    return most;
}

static int64_t all_frames(const struct lp_slices *l)
{
    int64_t count = 0;
    for (int32_t i = 0; i < l->count; i++)
        count += l->list[i].frame_count;
    return count;
}

/* Turn by turn, and in each by the steps that all ranks go through in the same order. peer: by receiver. */
static int64_t order_out(const lp_sync *s, int32_t *peer, lp_frame_out *frame)
{
    const int32_t receivers = s->round.world - s->round.senders;
    const int32_t steps = lp_steps(s->round.senders, receivers);
    int64_t count = 0;
    for (int32_t i = 0; i < receivers; i++)
        peer[i] = s->round.senders + i;
    for (int64_t turn = 0, turns = most_frames(s->slices); turn < turns; turn++)
        for (int32_t step = 0; step < steps; step++) {
            const int32_t to = lp_step_receiver(s->round.rank, step, s->round.senders, receivers);
            if (to >= 0 && turn < s->slices->list[to].frame_count)
                frame[count++] =
                    (lp_frame_out){.pieces = &s->slices->list[to], .number = turn, .peer = &peer[to], .peers = 1};
        }
    return count;
}

lp_status lp_sliced_send(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    uint8_t key[32];
    bool is_known = false;
    LP_TRY(make_key(s, key, err));
    LP_TRY(is_made(s, key, &is_known, err));
    if (!is_known)
        LP_TRY(make_send_lists(s, source, key, err));
    int32_t *peer = lp_allocate(s->alloc, ((size_t)s->slices->count + 1) * sizeof *peer);
    lp_frame_out *frame = lp_allocate(s->alloc, ((size_t)all_frames(s->slices) + 1) * sizeof *frame);
    lp_status status = peer == NULL || frame == NULL ? lp_fail_memory(err) : LP_OK;
    if (status == LP_OK)
        status = lp_frames_send(s, source, frame, order_out(s, peer, frame), err);
    lp_release(s->alloc, peer);
    lp_release(s->alloc, frame);
    return status;
}

/* ---- receivers ---- */

static lp_status make_receive_lists(lp_sync *s, const lp_plan *plan, const uint8_t key[32], lp_error *err)
{
    const int32_t senders = s->round.senders;
    const lp_block *all = NULL;
    lp_holdings *h = NULL;
    lp_requests r = {.alloc = s->alloc};
    lp_text *text = lp_allocate_zero(s->alloc, (size_t)senders * sizeof *text);
    lp_status status = text == NULL ? lp_fail_memory(err) : new_slices(s, senders, err);
    if (status == LP_OK)
        status = s->transport.gather(s->transport.context, NULL, 0, &all, err);
    if (status == LP_OK)
        status = lp_holdings_new(&h, s->catalogue, senders, s->alloc, err);
    if (status == LP_OK)
        status = lp_sync_take_holdings(s, all, h, err);
    if (status == LP_OK)
        status = lp_requests_init(&r, s->round.rank - senders, senders, s->alloc, err);
    if (status == LP_OK)
        status = ask(s, plan, h, &r, err);
    if (status == LP_OK)
        status = send_requests(s, &r, text, err);
    for (int32_t i = 0; i < senders && status == LP_OK; i++) {
        lp_pieces_free(&s->slices->list[i]);
        s->slices->list[i] = r.list[i];
        lp_pieces_init(&r.list[i], s->alloc);
    }
    if (status == LP_OK)
        status = cut_all(s, key, err);
    for (int32_t i = 0; text != NULL && i < senders; i++)
        lp_text_free(&text[i]);
    lp_release(s->alloc, text);
    lp_requests_free(&r);
    lp_holdings_free(h);
    return status;
}

static int64_t order_in(const lp_sync *s, lp_frame_in *frame)
{
    const int32_t me = s->round.rank - s->round.senders, receivers = s->round.world - s->round.senders;
    const int32_t steps = lp_steps(s->round.senders, receivers);
    int64_t count = 0;
    for (int64_t turn = 0, turns = most_frames(s->slices); turn < turns; turn++)
        for (int32_t step = 0; step < steps; step++) {
            const int32_t from = lp_step_sender(me, step, s->round.senders, receivers);
            if (from >= 0 && turn < s->slices->list[from].frame_count)
                frame[count++] = (lp_frame_in){.pieces = &s->slices->list[from], .number = turn, .sender = from};
        }
    return count;
}

lp_status lp_sliced_receive(lp_sync *s, const lp_plan *plan, const lp_sync_sink *sink, lp_error *err)
{
    uint8_t key[32];
    bool is_known = false;
    LP_TRY(make_key(s, key, err));
    LP_TRY(is_made(s, key, &is_known, err));
    if (!is_known)
        LP_TRY(make_receive_lists(s, plan, key, err));
    lp_frame_in *frame = lp_allocate(s->alloc, ((size_t)all_frames(s->slices) + 1) * sizeof *frame);
    if (frame == NULL)
        return lp_fail_memory(err);
    const lp_status status = lp_frames_receive(s, frame, order_in(s, frame), sink, false, err);
    lp_release(s->alloc, frame);
    return status;
}
