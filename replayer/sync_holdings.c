/* SPDX-License-Identifier: Apache-2.0 */
/* What senders hold of each name: those with equal pieces are one class. */
#include "replayer/sync_holdings.h"

lp_status lp_holdings_new(lp_holdings **out, const lp_checkpoint *catalogue, int32_t senders, const lp_alloc *alloc,
                          lp_error *err)
{
    const int64_t names = lp_checkpoint_count(catalogue);
    lp_holdings *h = lp_allocate_zero(alloc, sizeof *h);
    if (h == NULL)
        return lp_fail_memory(err);
    *h = (lp_holdings){.alloc = alloc, .catalogue = catalogue, .senders = senders};
    h->first = lp_allocate(alloc, ((size_t)names + 1) * sizeof *h->first);
    if (h->first == NULL) {
        lp_holdings_free(h);
        return lp_fail_memory(err);
    }
    for (int64_t i = 0; i < names; i++)
        h->first[i] = -1;
    *out = h;
    return LP_OK;
}

void lp_holdings_free(lp_holdings *h)
{
    if (h == NULL)
        return;
    for (int64_t i = 0; i < h->classes; i++) {
        lp_ranges_free(&h->class_[i].ranges);
        lp_release(h->alloc, h->class_[i].piece);
        lp_release(h->alloc, h->class_[i].member);
    }
    lp_release(h->alloc, h->class_);
    lp_release(h->alloc, h->first);
    lp_release(h->alloc, h);
}

/* Field by field: a struct may have gaps. */
static bool same_pieces(const lp_piece *a, const lp_piece *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (a[i].lo != b[i].lo || a[i].run != b[i].run || a[i].stride != b[i].stride || a[i].count != b[i].count)
            return false;
    return true;
}

static uint64_t hash_pieces(const lp_piece *p, int64_t count)
{
    uint64_t hash = (uint64_t)count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t field[4] = {p[i].lo, p[i].run, p[i].stride, p[i].count};
        hash = hash * 0x9e3779b97f4a7c15u + lp_hash(field, sizeof field);
    }
    return hash;
}

static lp_status add_member(lp_holdings *h, lp_holder_class *c, int32_t sender, lp_error *err)
{
    void *items = c->member;
    if (!lp_grow(h->alloc, &items, &c->capacity, c->members + 1, sizeof *c->member))
        return lp_fail_memory(err);
    c->member = items;
    c->member[c->members++] = sender;
    return LP_OK;
}

lp_status lp_holdings_add(lp_holdings *h, int32_t sender, uint32_t name, const lp_piece *piece, int64_t count,
                          lp_error *err)
{
    const uint64_t hash = hash_pieces(piece, count);
    if (count == 0)
        return LP_OK;
    for (int64_t i = h->first[name]; i >= 0; i = h->class_[i].next)
        if (h->class_[i].hash == hash && h->class_[i].pieces == count && same_pieces(h->class_[i].piece, piece, count))
            return add_member(h, &h->class_[i], sender, err);
    void *items = h->class_;
    if (!lp_grow(h->alloc, &items, &h->capacity, h->classes + 1, sizeof *h->class_))
        return lp_fail_memory(err);
    h->class_ = items;
    lp_holder_class *c = &h->class_[h->classes];
    *c = (lp_holder_class){.hash = hash, .next = h->first[name], .pieces = count};
    lp_ranges_init(&c->ranges, h->alloc);
    c->piece = lp_allocate(h->alloc, (size_t)count * sizeof *c->piece);
    if (c->piece == NULL)
        return lp_fail_memory(err);
    memcpy(c->piece, piece, (size_t)count * sizeof *c->piece);
    h->first[name] = h->classes++;
    return add_member(h, c, sender, err);
}

lp_status lp_holdings_add_all(lp_holdings *h, int32_t sender, lp_error *err)
{
    for (int64_t i = 0; i < lp_checkpoint_count(h->catalogue); i++) {
        const int64_t bytes = lp_checkpoint_at(h->catalogue, i)->bytes;
        const lp_piece all = {.name = (uint32_t)i, .run = bytes, .count = 1};
        if (bytes > 0)
            LP_TRY(lp_holdings_add(h, sender, (uint32_t)i, &all, 1, err));
    }
    return LP_OK;
}
