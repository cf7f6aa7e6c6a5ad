/* SPDX-License-Identifier: Apache-2.0 */
/* Who gives which bytes to whom: the sender that this receiver has asked the least of so far, in stretches, beginning
 * with another sender at each receiver so that the load spreads over all. */
#include "replayer/sync_holdings.h"

/* How much is asked of one sender before another one may be chosen. */
enum { STRETCH = 4 << 20, LINE = 64 };

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

static int32_t least_asked(const lp_requests *r, const lp_holder_class *c)
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
    lp_holdings *h;
    uint32_t name;
    int64_t classes;
} sweep;

/* The sender of a class that would be asked, and whether it is in use. */
static void consider(lp_requests *r, const lp_holder_class *c, int64_t number)
{
    if (r->allowed[number] > 0)
        return;
    r->chosen[number] = least_asked(r, c);
    r->allowed[number] = 0;
}

/* Whether class `number` is to be preferred to class `best`: one in use, then the sender that was asked less. */
static bool is_better(const lp_requests *r, int64_t number, int64_t best)
{
    if (best < 0)
        return true;
    const bool in_use = r->allowed[number] > 0, best_in_use = r->allowed[best] > 0;
    if (in_use != best_in_use)
        return in_use;
    const int32_t a = (int32_t)r->chosen[number], b = (int32_t)r->chosen[best];
    if (r->list[a].bytes != r->list[b].bytes)
        return r->list[a].bytes < r->list[b].bytes;
    return distance(r, a) < distance(r, b);
}

/* ---- run by run ---- */

static lp_status expand_class(lp_holder_class *c, lp_error *err)
{
    if (c->ranges.count > 0)
        return LP_OK;
    for (int64_t i = 0; i < c->pieces; i++)
        LP_TRY(lp_piece_ranges(&c->piece[i], &c->ranges, err));
    lp_ranges_normalise(&c->ranges);
    return LP_OK;
}

/* Of the classes that hold byte x, the one to ask; *end gets how far its range goes. Its number among the classes of
 * the name; LP_E_UNSUPPORTED when there is none. */
static lp_status choose_at(sweep *w, int64_t x, int64_t *best, int64_t *end, lp_error *err)
{
    lp_requests *r = w->r;
    int64_t number = 0;
    *best = -1;
    for (int64_t i = w->h->first[w->name]; i >= 0; i = w->h->class_[i].next, number++) {
        lp_holder_class *c = &w->h->class_[i];
        int64_t *at = &r->cursor[number];
        LP_TRY(expand_class(c, err));
        while (*at < c->ranges.count && c->ranges.item[*at].hi <= x)
            ++*at;
        if (*at == c->ranges.count || c->ranges.item[*at].lo > x)
            continue;
        consider(r, c, number);
        if (is_better(r, number, *best)) {
            *best = number;
            *end = c->ranges.item[*at].hi;
        }
    }
    if (*best >= 0)
        return LP_OK;
    const char *text = lp_checkpoint_at(w->h->catalogue, w->name)->name;
    return lp_fail_at(err, LP_E_UNSUPPORTED, text, x, "byte %lld of '%s' is held by no sender", (long long)x, text);
}

static lp_status take_range(sweep *w, int64_t lo, int64_t hi, lp_error *err)
{
    lp_requests *r = w->r;
    while (lo < hi) {
        int64_t end = hi, number = -1;
        LP_TRY(choose_at(w, lo, &number, &end, err));
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

/* ---- pieces as they are: where the runs of a piece lie in those of one class, step for step ---- */

static bool contains(const lp_holder_class *c, const lp_piece *p)
{
    const int64_t end = p->lo + (p->count - 1) * p->stride + p->run;
    for (int64_t i = 0; i < c->pieces; i++) {
        const lp_piece *q = &c->piece[i];
        if (q->count == 1) {
            if (q->lo <= p->lo && end <= q->lo + q->run)
                return true;
            continue;
        }
        if (q->lo > p->lo || (p->count > 1 && q->stride != p->stride))
            continue;
        const int64_t step = (p->lo - q->lo) / q->stride, into = (p->lo - q->lo) % q->stride;
        if (into + p->run <= q->run && step + p->count <= q->count)
            return true;
    }
    return false;
}

static int64_t choose_whole(sweep *w, const lp_piece *p)
{
    int64_t best = -1, number = 0;
    for (int64_t i = w->h->first[w->name]; i >= 0; i = w->h->class_[i].next, number++) {
        const lp_holder_class *c = &w->h->class_[i];
        if (!contains(c, p))
            continue;
        consider(w->r, c, number);
        if (is_better(w->r, number, best))
            best = number;
    }
    return best;
}

static lp_status take_piece(sweep *w, lp_piece p, lp_error *err)
{
    lp_requests *r = w->r;
    while (p.count > 0) {
        const int64_t number = p.run <= STRETCH ? choose_whole(w, &p) : -1;
        if (number < 0) {
            for (int64_t k = 0; k < p.count; k++)
                LP_TRY(take_range(w, p.lo + k * p.stride, p.lo + k * p.stride + p.run, err));
            return LP_OK;
        }
        if (r->allowed[number] <= 0)
            r->allowed[number] = STRETCH;
        lp_piece part = p;
        const int64_t fit = r->allowed[number] < p.run ? 1 : r->allowed[number] / p.run;
        part.count = fit < p.count ? fit : p.count;
        part.stride = part.count > 1 ? p.stride : 0;
        LP_TRY(lp_pieces_join(&r->list[r->chosen[number]], &part, err));
        r->allowed[number] -= part.count * part.run;
        if (r->allowed[number] < p.run) /* not enough for another run: somebody else's turn */
            r->allowed[number] = 0;
        p.lo += part.count * p.stride;
        p.count -= part.count;
        p.stride = p.count > 1 ? p.stride : 0;
    }
    return LP_OK;
}

lp_status lp_requests_add(lp_requests *r, lp_holdings *h, uint32_t name, const lp_piece *piece, int64_t count,
                          lp_error *err)
{
    sweep w = {.r = r, .h = h, .name = name};
    if (lp_checkpoint_at(h->catalogue, name)->bytes == 0)
        return lp_pieces_add(&r->list[0], &(lp_piece){.name = name, .count = 1}, err);
    for (int64_t i = h->first[name]; i >= 0; i = h->class_[i].next)
        w.classes++;
    LP_TRY(reserve_classes(r, w.classes + 1, err));
    for (int64_t i = 0; i < w.classes; i++)
        r->cursor[i] = r->allowed[i] = r->chosen[i] = 0;
    for (int64_t i = 0; i < count; i++)
        LP_TRY(take_piece(&w, piece[i], err));
    return LP_OK;
}

/* ---- steps ---- */

int32_t lp_steps(int32_t senders, int32_t receivers)
{
    return senders > receivers ? senders : receivers;
}

int32_t lp_step_receiver(int32_t sender, int32_t step, int32_t senders, int32_t receivers)
{
    const int32_t partner = (int32_t)(((int64_t)sender + step) % lp_steps(senders, receivers));
    return partner < receivers ? partner : -1;
}

int32_t lp_step_sender(int32_t receiver, int32_t step, int32_t senders, int32_t receivers)
{
    const int32_t turn = lp_steps(senders, receivers);
    const int32_t partner = (int32_t)(((int64_t)receiver - step + turn) % turn);
    return partner < senders ? partner : -1;
}
