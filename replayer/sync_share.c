/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares: which sender speaks for which bytes when everything goes to everybody, or is compared with a shadow. Senders
 * that hold everything deal tensors out by size. Where senders hold parts, as trainers do, each byte is taken from one
 * that has it, by the rule of sliced epochs; all ranks hear what is held and come to the same shares.
 */
#include "replayer/sync_private.h"
#include "replayer/sync_schedule.h"
#include "replayer/sync_source.h"

enum { LINE = 64 };

lp_status lp_sync_share(const lp_sync *s, lp_pieces *out, int32_t index, int32_t count,
                        bool (*use)(void *context, uint32_t name), void *context, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(s->catalogue);
    int64_t total = 0, at = 0;
    for (int64_t i = 0; i < names; i++)
        if (use == NULL || use(context, (uint32_t)i))
            total += lp_checkpoint_at(s->catalogue, i)->bytes;
    /* Bounds are rounded to whole lines of the tensor that they fall into, equally for both neighbours. */
    const int64_t part = total / count, rest = total % count;
    const int64_t lo = part * index + (index < rest ? index : rest);
    const int64_t hi = lo + part + (index < rest);
    for (int64_t i = 0; i < names; i++) {
        if (use != NULL && !use(context, (uint32_t)i))
            continue;
        const int64_t bytes = lp_checkpoint_at(s->catalogue, i)->bytes;
        int64_t from = lo - at, to = hi - at;
        from = from <= 0 ? 0 : from >= bytes ? bytes : from / LINE * LINE;
        to = to <= 0 ? 0 : to >= bytes ? bytes : to / LINE * LINE;
        if (bytes == 0 ? index == 0 : from < to)
            LP_TRY(lp_pieces_add_range(out, (uint32_t)i, from, to, err));
        at += bytes;
    }
    return LP_OK;
}

/* ---- what senders hold ---- */

typedef struct held_list {
    lp_pieces pieces;
    uint32_t name;
} held_list;

static lp_status add_held(void *to, int64_t lo, int64_t hi, lp_error *err)
{
    held_list *l = to;
    return lp_pieces_add_range(&l->pieces, l->name, lo, hi, err);
}

static bool is_used_by_any(const lp_sync *s, uint32_t name)
{
    for (int32_t i = s->round.senders; i < s->round.world; i++)
        if (lp_bit(s->fact[i].used, name))
            return true;
    return false;
}

/* "A": everything; "P": the pieces that follow. */
lp_status lp_sync_say_holdings(lp_sync *s, const lp_sync_source *source, lp_text *out, lp_error *err)
{
    held_list held = {.name = 0};
    lp_status status = LP_OK;
    lp_text_add(out, source->holds == NULL ? "A" : "P", 1);
    if (source->holds == NULL)
        return out->failed ? lp_fail_memory(err) : LP_OK;
    lp_pieces_init(&held.pieces, s->alloc);
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue) && status == LP_OK; i++) {
        held.name = i;
        if (is_used_by_any(s, i))
            status = source->holds(source->context, i, add_held, &held, err);
    }
    if (status == LP_OK)
        status = lp_pieces_put(&held.pieces, out, err);
    lp_pieces_free(&held.pieces);
    return status;
}

/* Pieces of one name stand together. */
static lp_status take_pieces(lp_holdings *h, int32_t sender, const lp_pieces *p, lp_error *err)
{
    for (int64_t i = 0, end; i < p->count; i = end) {
        for (end = i + 1; end < p->count && p->piece[end].name == p->piece[i].name;)
            end++;
        LP_TRY(lp_holdings_add(h, sender, p->piece[i].name, &p->piece[i], end - i, err));
    }
    return LP_OK;
}

lp_status lp_sync_take_holdings(lp_sync *s, const lp_block *all, lp_holdings *h, lp_error *err)
{
    lp_status status = LP_OK;
    for (int32_t i = 0; i < s->round.senders && status == LP_OK; i++) {
        const uint8_t *data = all[i].data;
        lp_pieces p;
        if (all[i].bytes < 1 || (data[0] != 'A' && data[0] != 'P'))
            return lp_fail(err, LP_E_CORRUPT, "sender %d does not say what it holds", i);
        if (data[0] == 'A') {
            status = lp_holdings_add_all(h, i, err);
            continue;
        }
        lp_pieces_init(&p, s->alloc);
        status = lp_pieces_get(&p, data + 1, all[i].bytes - 1, s->catalogue, err);
        if (status == LP_OK)
            status = take_pieces(h, i, &p, err);
        lp_pieces_free(&p);
    }
    return status;
}

/* ---- shares of senders that hold parts ---- */

static lp_status deal_out(lp_sync *s, const lp_block *all, lp_requests *r, lp_error *err)
{
    lp_holdings *h = NULL;
    LP_TRY(lp_holdings_new(&h, s->catalogue, s->round.senders, s->alloc, err));
    lp_status status = lp_sync_take_holdings(s, all, h, err);
    for (uint32_t i = 0; i < lp_checkpoint_count(s->catalogue) && status == LP_OK; i++) {
        const lp_piece whole = {.name = i, .run = lp_checkpoint_at(s->catalogue, i)->bytes, .count = 1};
        if (is_used_by_any(s, i))
            status = lp_requests_add(r, h, i, &whole, 1, err);
    }
    lp_holdings_free(h);
    return status;
}

void lp_sync_shares_free(lp_sync *s)
{
    for (int32_t i = 0; i < s->share_count; i++)
        lp_pieces_free(&s->share[i]);
    lp_release(s->alloc, s->share);
    s->share = NULL;
    s->share_count = 0;
    s->share_key = 0;
}

/* 0: no two epochs are known to have the same. What is held whole needs no name. */
static uint64_t serial_of(const lp_sync_source *source)
{
    return source->holds == NULL ? UINT64_MAX : source->packer != NULL ? source->packer->serial : 0;
}

void lp_sync_shares_of(lp_sync *s, const lp_sync_source *source)
{
    const uint64_t serial = serial_of(source);
    if (serial == 0 || serial != s->share_serial)
        s->share_key = 0;
    s->share_serial = serial;
}

static uint64_t add_key(uint64_t key, const void *data, size_t bytes)
{
    const uint64_t pair[2] = {key, lp_hash(data, bytes)};
    return lp_hash(pair, sizeof pair);
}

/* What shares depend on, beside what senders hold. */
static uint64_t make_key(const lp_sync *s)
{
    uint64_t key = (uint64_t)s->round.senders;
    for (int32_t i = 0; i < s->round.world; i++) {
        const lp_fact *f = &s->fact[i];
        key = add_key(key, f->set, sizeof f->set);
        key = add_key(key, f->group, strlen(f->group));
        if (f->used != NULL)
            key = add_key(key, f->used, (size_t)lp_bitmap_bytes(s));
    }
    return key != 0 ? key : 1;
}

/* Whether every rank has shares of this key, so that nobody holds anything else than when they were made. */
static bool are_made(const lp_sync *s, uint64_t key)
{
    for (int32_t i = 0; i < s->round.world; i++)
        if (s->fact[i].share_key != key)
            return false;
    return true;
}

static lp_status make_shares(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    const lp_block *all = NULL;
    bool is_whole = true;
    lp_text held;
    lp_requests r = {.alloc = s->alloc};
    lp_text_init(&held, s->alloc);
    lp_status status = source == NULL ? LP_OK : lp_sync_say_holdings(s, source, &held, err);
    if (status == LP_OK)
        status = s->transport.gather(s->transport.context, held.data, held.bytes, &all, err);
    lp_text_free(&held);
    LP_TRY(status);
    for (int32_t i = 0; i < s->round.senders; i++)
        is_whole = is_whole && all[i].bytes == 1 && *(const uint8_t *)all[i].data == 'A';
    if (is_whole)
        return LP_OK;
    status = lp_requests_init(&r, 0, s->round.senders, s->alloc, err);
    if (status == LP_OK)
        status = deal_out(s, all, &r, err);
    if (status == LP_OK) {
        s->share = r.list;
        s->share_count = s->round.senders;
        r.list = NULL;
    }
    lp_requests_free(&r);
    return status;
}

lp_status lp_sync_shares(lp_sync *s, const lp_sync_source *source, lp_error *err)
{
    const uint64_t key = make_key(s);
    if (are_made(s, key))
        return LP_OK;
    lp_sync_shares_free(s);
    LP_TRY(make_shares(s, source, err));
    s->share_key = key;
    return LP_OK;
}

lp_status lp_sync_share_of(const lp_sync *s, lp_pieces *out, int32_t sender, bool (*use)(void *context, uint32_t name),
                           void *context, lp_error *err)
{
    if (s->share == NULL)
        return lp_sync_share(s, out, sender, s->round.senders, use, context, err);
    for (int64_t i = 0; i < s->share[sender].count; i++)
        if (use == NULL || use(context, s->share[sender].piece[i].name))
            LP_TRY(lp_pieces_add(out, &s->share[sender].piece[i], err));
    return LP_OK;
}
