/* SPDX-License-Identifier: Apache-2.0 */
/* Do two maps do the same to the same bytes? By their forms, which are equal for equal functions up to the work bound
 * of docs/canonical-form.md; beyond it by walking both side by side. */
#include "traces/diff_private.h"
#include "traces/map_private.h"

enum { CURSOR_RANK_MAX = 64 };

/* Stands on what is left of one run. Boxes must not interleave: each ends before the next begins. */
typedef struct cursor {
    const lp_map *map;
    int64_t dst_off, src_off; /* of the record */
    int32_t box;
    int64_t index[CURSOR_RANK_MAX];
    int64_t dst, src, count; /* elements */
    bool ended;
} cursor;

static bool is_walkable(const lp_map *map)
{
    int64_t end = INT64_MIN;
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *box = &map->box[b];
        if (box->rank > CURSOR_RANK_MAX || box->dst_off < end)
            return false;
        end = box->dst_off + box->run * map->dst_elem;
        for (int32_t k = 0; k < box->rank; k++)
            end += (box->mode[k].extent - 1) * box->mode[k].dst_stride;
    }
    return true;
}

static void load_run(cursor *c)
{
    const lp_box *box = &c->map->box[c->box];
    c->dst = c->dst_off + box->dst_off;
    c->src = c->src_off + box->src_off;
    for (int32_t k = 0; k < box->rank; k++) {
        c->dst += c->index[k] * box->mode[k].dst_stride;
        c->src += c->index[k] * box->mode[k].src_stride;
    }
    c->count = box->run;
}

static void start(cursor *c, const lp_record *r)
{
    *c = (cursor){.map = r->map, .dst_off = r->dst_off, .src_off = r->src_off, .ended = r->map->nbox == 0};
    if (!c->ended)
        load_run(c);
}

static void advance(cursor *c, int64_t elements)
{
    c->dst += elements * c->map->dst_elem;
    c->src += elements * c->map->src_elem;
    c->count -= elements;
    if (c->count > 0)
        return;
    const lp_box *box = &c->map->box[c->box];
    int32_t k = box->rank - 1;
    while (k >= 0 && ++c->index[k] == box->mode[k].extent)
        c->index[k--] = 0;
    if (k < 0 && ++c->box == c->map->nbox)
        c->ended = true;
    else
        load_run(c);
}

static int64_t runs_of(const lp_map *map)
{
    int64_t runs = 0;
    for (int32_t b = 0; b < map->nbox; b++)
        if (!lp_add(runs, lp_mode_product(map->box[b].mode, map->box[b].rank), &runs))
            return INT64_MAX;
    return runs;
}

static bool forms_equal(lp_differ *d, const lp_map *a, const lp_map *b, lp_error *err, lp_status *status)
{
    const uint32_t number = lp_pooled_number(a);
    if (number >= d->equal_count) {
        const int64_t known = d->equal_count;
        if (!lp_grow(d->alloc, (void **)&d->equal, &d->equal_count, (int64_t)number + 1, sizeof *d->equal)) {
            *status = lp_fail_memory(err);
            return false;
        }
        for (int64_t i = known; i < d->equal_count; i++)
            d->equal[i] = NULL;
    }
    if (d->equal[number] == b)
        return true;
    if (!lp_map_equal(a, b))
        return false;
    d->equal[number] = b;
    return true;
}

lp_status lp_diff_same_bytes(lp_differ *d, const lp_record *a, const lp_record *b, bool *same, bool *known,
                             lp_error *err)
{
    lp_status status = LP_OK;
    const bool equal = forms_equal(d, a->map, b->map, err, &status);
    LP_TRY(status);
    *known = true;
    *same = equal && a->src_off == b->src_off && a->dst_off == b->dst_off;
    const lp_map *x = a->map, *y = b->map;
    if (*same || x->dst_bytes != y->dst_bytes || x->src_elem != y->src_elem || x->dst_elem != y->dst_elem)
        return LP_OK;
    if (equal || a->dst_off + x->dst_hi != b->dst_off + y->dst_hi || a->dst_off != b->dst_off ||
        (runs_of(x) <= LP_MAP_RUNS_MAX && runs_of(y) <= LP_MAP_RUNS_MAX))
        return LP_OK;
    *known = is_walkable(x) && is_walkable(y);
    cursor p, q;
    start(&p, a);
    start(&q, b);
    while (*known && !p.ended && !q.ended) {
        if (p.dst != q.dst || p.src != q.src)
            return LP_OK;
        const int64_t step = p.count < q.count ? p.count : q.count;
        advance(&p, step);
        advance(&q, step);
        *known = --d->runs_left > 0;
    }
    *same = *known;
    return LP_OK;
}
