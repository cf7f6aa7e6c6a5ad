/* SPDX-License-Identifier: Apache-2.0 */
/* Who gives which bytes to whom: the sender that this receiver has asked the least of so far, in stretches, beginning
 * with another sender at each receiver so that the load spreads over all. */
#include "replayer/sync_schedule.h"

/* How much is asked of one sender before another one may be chosen. */
enum { STRETCH = 4 << 20, LINE = 64 };

/* Senders with equal ranges of a name. */
typedef struct holder_class {
    lp_ranges ranges;
    uint64_t hash;
    int32_t *member;
    int64_t members, capacity;
    int64_t next; /* class of the same name, or -1 */
} holder_class;

struct lp_holdings {
    const lp_alloc *alloc;
    const lp_checkpoint *catalogue;
    int32_t senders;
    holder_class *class_;
    int64_t classes, capacity;
    int64_t *first; /* class by name, or -1 */
};

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
        lp_release(h->alloc, h->class_[i].member);
    }
    lp_release(h->alloc, h->class_);
    lp_release(h->alloc, h->first);
    lp_release(h->alloc, h);
}

static bool same_ranges(const lp_ranges *a, const lp_ranges *b)
{
    if (a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->item[i].lo != b->item[i].lo || a->item[i].hi != b->item[i].hi)
            return false;
    return true;
}

static uint64_t hash_ranges(const lp_ranges *r)
{
    return r->count == 0 ? 0 : lp_hash(r->item, (size_t)r->count * sizeof *r->item);
}

static lp_status add_member(lp_holdings *h, holder_class *c, int32_t sender, lp_error *err)
{
    void *items = c->member;
    if (!lp_grow(h->alloc, &items, &c->capacity, c->members + 1, sizeof *c->member))
        return lp_fail_memory(err);
    c->member = items;
    c->member[c->members++] = sender;
    return LP_OK;
}

lp_status lp_holdings_add(lp_holdings *h, int32_t sender, uint32_t name, const lp_ranges *ranges, lp_error *err)
{
    const uint64_t hash = hash_ranges(ranges);
    if (ranges->count == 0)
        return LP_OK;
    for (int64_t i = h->first[name]; i >= 0; i = h->class_[i].next)
        if (h->class_[i].hash == hash && same_ranges(&h->class_[i].ranges, ranges))
            return add_member(h, &h->class_[i], sender, err);
    void *items = h->class_;
    if (!lp_grow(h->alloc, &items, &h->capacity, h->classes + 1, sizeof *h->class_))
        return lp_fail_memory(err);
    h->class_ = items;
    holder_class *c = &h->class_[h->classes];
    *c = (holder_class){.hash = hash, .next = h->first[name]};
    lp_ranges_init(&c->ranges, h->alloc);
    h->first[name] = h->classes++;
    for (int64_t i = 0; i < ranges->count; i++)
        LP_TRY(lp_ranges_add(&c->ranges, ranges->item[i].lo, ranges->item[i].hi, err));
    lp_ranges_normalise(&c->ranges);
    return add_member(h, c, sender, err);
}

lp_status lp_holdings_add_all(lp_holdings *h, int32_t sender, lp_error *err)
{
    lp_ranges all;
    lp_status status = LP_OK;
    for (int64_t i = 0; i < lp_checkpoint_count(h->catalogue) && status == LP_OK; i++) {
        lp_ranges_init(&all, h->alloc);
        status = lp_ranges_add(&all, 0, lp_checkpoint_at(h->catalogue, i)->bytes, err);
        lp_ranges_normalise(&all);
        if (status == LP_OK)
            status = lp_holdings_add(h, sender, (uint32_t)i, &all, err);
        lp_ranges_free(&all);
    }
    return status;
}

/* ---- requests ---- */

lp_status lp_requests_init(lp_requests *r, int32_t receiver, int32_t senders, const lp_alloc *alloc, lp_error *err)
{
    *r = (lp_requests){.alloc = alloc, .receiver = receiver, .senders = senders};
    r->list = lp_allocate_zero(alloc, (size_t)senders * sizeof *r->list);
    if (r->list == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < senders; i++)
        lp_pieces_init(&r->list[i], alloc);
    return LP_OK;
}

void lp_requests_free(lp_requests *r)
{
    for (int32_t i = 0; r->list != NULL && i < r->senders; i++)
        lp_pieces_free(&r->list[i]);
    lp_release(r->alloc, r->list);
    lp_release(r->alloc, r->chosen);
    lp_release(r->alloc, r->allowed);
    lp_release(r->alloc, r->cursor);
    *r = (lp_requests){.alloc = r->alloc};
}

static lp_status reserve_classes(lp_requests *r, int64_t count, lp_error *err)
{
    int64_t **const array[3] = {&r->chosen, &r->allowed, &r->cursor};
    int64_t capacity = r->class_capacity;
    for (int i = 0; i < 3; i++) {
        void *items = *array[i];
        capacity = r->class_capacity;
        if (!lp_grow(r->alloc, &items, &capacity, count, sizeof(int64_t)))
            return lp_fail_memory(err);
        *array[i] = items;
    }
    r->class_capacity = capacity;
    return LP_OK;
}

/* The order in which this receiver prefers senders that it has asked equally much of. */
static int32_t distance(const lp_requests *r, int32_t sender)
{
    const int32_t d = (sender - r->receiver) % r->senders;
    return d < 0 ? d + r->senders : d;
}

static int32_t least_asked(const lp_requests *r, const holder_class *c)
{
    int32_t best = c->member[0];
    for (int64_t i = 1; i < c->members; i++) {
        const int32_t m = c->member[i];
        const int64_t a = r->list[m].bytes, b = r->list[best].bytes;
        if (a < b || (a == b && distance(r, m) < distance(r, best)))
            best = m;
    }
    return best;
}

typedef struct sweep {
    lp_requests *r;
    const lp_holdings *h;
    uint32_t name;
    int64_t classes;
} sweep;

/* Of the classes that hold byte x, the one to ask: one in use with something left, else the least asked. *end gets how
 * far its range goes. Returns its number among the classes of the name, or -1. */
static int64_t choose(sweep *w, int64_t x, int64_t *end)
{
    lp_requests *r = w->r;
    int64_t best = -1, number = 0;
    for (int64_t i = w->h->first[w->name]; i >= 0; i = w->h->class_[i].next, number++) {
        const holder_class *c = &w->h->class_[i];
        int64_t *at = &r->cursor[number];
        while (*at < c->ranges.count && c->ranges.item[*at].hi <= x)
            ++*at;
        if (*at == c->ranges.count || c->ranges.item[*at].lo > x)
            continue;
        if (r->allowed[number] <= 0) {
            r->chosen[number] = least_asked(r, c);
            r->allowed[number] = 0;
        }
        const bool in_use = r->allowed[number] > 0;
        const bool best_in_use = best >= 0 && r->allowed[best] > 0;
        const bool is_less = best < 0 || r->list[r->chosen[number]].bytes < r->list[r->chosen[best]].bytes ||
                             (r->list[r->chosen[number]].bytes == r->list[r->chosen[best]].bytes &&
                              distance(r, (int32_t)r->chosen[number]) < distance(r, (int32_t)r->chosen[best]));
        if (best < 0 || (in_use && !best_in_use) || (in_use == best_in_use && is_less)) {
            best = number;
            *end = c->ranges.item[*at].hi;
        }
    }
    return best;
}

static lp_status take_range(sweep *w, int64_t lo, int64_t hi, lp_error *err)
{
    lp_requests *r = w->r;
    while (lo < hi) {
        int64_t end = hi;
        const int64_t number = choose(w, lo, &end);
        if (number < 0) {
            const char *text = lp_checkpoint_at(w->h->catalogue, w->name)->name;
            return lp_fail_at(err, LP_E_UNSUPPORTED, text, lo, "byte %lld of '%s' is held by no sender", (long long)lo,
                              text);
        }
        end = end < hi ? end : hi;
        if (r->allowed[number] <= 0)
            r->allowed[number] = STRETCH;
        if (end - lo > r->allowed[number]) {
            const int64_t line = (lo + r->allowed[number]) / LINE * LINE;
            end = line > lo ? line : end;
        }
        LP_TRY(lp_pieces_add_range(&r->list[r->chosen[number]], w->name, lo, end, err));
        r->allowed[number] -= end - lo;
        lo = end;
    }
    return LP_OK;
}

lp_status lp_requests_add(lp_requests *r, const lp_holdings *h, uint32_t name, const lp_ranges *need, lp_error *err)
{
    sweep w = {.r = r, .h = h, .name = name};
    if (lp_checkpoint_at(h->catalogue, name)->bytes == 0)
        return lp_pieces_add(&r->list[0], &(lp_piece){.name = name, .count = 1}, err);
    for (int64_t i = h->first[name]; i >= 0; i = h->class_[i].next)
        w.classes++;
    LP_TRY(reserve_classes(r, w.classes + 1, err));
    for (int64_t i = 0; i < w.classes; i++)
        r->cursor[i] = r->allowed[i] = r->chosen[i] = 0;
    for (int64_t i = 0; i < need->count; i++)
        LP_TRY(take_range(&w, need->item[i].lo, need->item[i].hi, err));
    return LP_OK;
}

/* ---- steps ---- */

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

int32_t lp_step_receiver(int32_t sender, int32_t step, int32_t senders, int32_t receivers)
{
    const int32_t partner = (int32_t)(((int64_t)sender + step) % larger(senders, receivers));
    return partner < receivers ? partner : -1;
}

int32_t lp_step_sender(int32_t receiver, int32_t step, int32_t senders, int32_t receivers)
{
    const int32_t turn = larger(senders, receivers);
    const int32_t partner = (int32_t)(((int64_t)receiver - step + turn) % turn);
    return partner < senders ? partner : -1;
}
