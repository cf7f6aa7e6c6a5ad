/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which names the ranks of a cold start share. Where the exchange costs more than reading again, a name is read by
 * every rank, as long as all such reading together stays below a twentieth of the union. Where all shared names
 * together do, as of models that are experts for the most part, nothing is exchanged: each rank then loads as if it
 * were alone.
 */
#include "replayer/sync_cold_maker.h"

#include <stdlib.h>

enum { MARGIN = 20 }; /* a twentieth */

typedef struct name_cost {
    uint32_t name;
    int64_t total, all; /* bytes that ranks need, together and as a union */
} name_cost;

static bool same_pieces(const lp_piece *a, const lp_piece *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (a[i].lo != b[i].lo || a[i].run != b[i].run || a[i].stride != b[i].stride || a[i].count != b[i].count)
            return false;
    return true;
}

/* The class of a rank's pieces, old or new. */
static lp_status classify(lp_cold_maker *m, int32_t rank, const lp_piece *piece, int64_t count,
                          const lp_piece **of_class, int64_t *of_class_count, lp_error *err)
{
    for (int32_t k = 0; k < m->classes; k++)
        if (of_class_count[k] == count && same_pieces(of_class[k], piece, count)) {
            m->class_of[rank] = k;
            m->members[k]++;
            return LP_OK;
        }
    const int32_t k = m->classes++;
    lp_ranges *r = &m->range[k];
    m->class_of[rank] = k;
    m->members[k] = 1;
    of_class[k] = piece;
    of_class_count[k] = count;
    r->count = r->bytes = 0;
    for (int64_t i = 0; i < count; i++)
        LP_TRY(lp_piece_ranges(&piece[i], r, err));
    lp_ranges_normalise(r);
    return LP_OK;
}

lp_status lp_cold_needs_of(lp_cold_maker *m, uint32_t name, lp_ranges *all, int64_t *total, lp_error *err)
{
    const lp_alloc *alloc = m->needs->alloc;
    const lp_piece **of_class = lp_allocate(alloc, (size_t)m->needs->ranks * sizeof *of_class);
    int64_t *of_class_count = lp_allocate(alloc, (size_t)m->needs->ranks * sizeof *of_class_count);
    lp_status status = of_class == NULL || of_class_count == NULL ? lp_fail_memory(err) : LP_OK;
    *total = 0;
    m->classes = 0;
    for (int32_t i = 0; i < m->needs->ranks && status == LP_OK; i++) {
        int64_t count;
        const lp_piece *p = lp_world_pieces(m->needs, i, name, &m->cursor[i], &count);
        m->class_of[i] = -1;
        if (count > 0)
            status = classify(m, i, p, count, of_class, of_class_count, err);
    }
    for (int32_t k = 0; k < m->classes && status == LP_OK; k++) {
        *total += m->range[k].bytes * m->members[k];
        for (int64_t i = 0; i < m->range[k].count && status == LP_OK; i++)
            status = lp_ranges_add(all, m->range[k].item[i].lo, m->range[k].item[i].hi, err);
    }
    lp_ranges_normalise(all);
    lp_release(alloc, (void *)of_class);
    lp_release(alloc, of_class_count);
    return status;
}

void lp_cold_needs_again(lp_cold_maker *m)
{
    for (int32_t i = 0; i < m->needs->ranks; i++)
        m->cursor[i] = 0;
}

/* ---- the choice ---- */

static int by_excess(const void *a, const void *b)
{
    const name_cost *x = a, *y = b;
    const int64_t d = (x->total - x->all) - (y->total - y->all);
    return d != 0 ? (d < 0 ? -1 : 1) : x->name < y->name ? -1 : x->name > y->name;
}

static lp_status measure(lp_cold_maker *m, name_cost *cost, int64_t *count, lp_error *err)
{
    lp_cold_costs *c = &m->out->costs;
    lp_cold_needs_again(m);
    for (uint32_t name = 0; name < lp_checkpoint_count(m->needs->catalogue); name++) {
        lp_ranges all;
        int64_t total;
        lp_ranges_init(&all, m->needs->alloc);
        const lp_status status = lp_cold_needs_of(m, name, &all, &total, err);
        const int64_t bytes = all.bytes;
        lp_ranges_free(&all);
        LP_TRY(status);
        m->out->needed[name] = total;
        m->out->once[name] = bytes;
        c->names += total > 0;
        c->bytes_needed += total;
        c->bytes_union += bytes;
        if (total > bytes)
            cost[(*count)++] = (name_cost){.name = name, .total = total, .all = bytes};
        else
            c->bytes_own += bytes;
    }
    return LP_OK;
}

/* What the two ways take, by rates of the storage that all ranks read from and of the link of one rank. */
static bool reading_again_is_cheaper(const name_cost *n, int32_t ranks, const lp_cold_rates *r)
{
    const double own = (double)n->total / (double)r->storage;
    const double exchange = (double)(n->total - n->all) / (double)ranks / (double)r->link;
    return own < (double)n->all / (double)r->storage + exchange + (double)r->message_ns * 1e-9;
}

lp_status lp_cold_choose(lp_cold_maker *m, const lp_cold_rates *rates, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(m->needs->catalogue);
    lp_cold_costs *c = &m->out->costs;
    int64_t count = 0, excess = 0;
    name_cost *cost = lp_allocate(m->needs->alloc, ((size_t)names + 1) * sizeof *cost);
    if (cost == NULL)
        return lp_fail_memory(err);
    const lp_status status = measure(m, cost, &count, err);
    if (status == LP_OK && count > 0)
        qsort(cost, (size_t)count, sizeof *cost, by_excess);
    const bool is_apart = c->bytes_needed - c->bytes_union <= c->bytes_union / MARGIN;
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        const int64_t more = cost[i].total - cost[i].all;
        if (is_apart ||
            (excess + more <= c->bytes_union / MARGIN && reading_again_is_cheaper(&cost[i], m->needs->ranks, rates))) {
            excess += more;
            c->bytes_own += cost[i].total;
            continue;
        }
        m->out->is_shared[cost[i].name] = true;
        c->names_shared++;
        c->bytes_shared += cost[i].all;
    }
    c->bytes_read = c->bytes_own + c->bytes_shared;
    m->stream = c->bytes_shared;
    lp_release(m->needs->alloc, cost);
    return status;
}
