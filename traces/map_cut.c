/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subtract and intersect: a map is parted by the destination bytes that another one writes. Both sides are nested, so
 * they are compared mode by mode from the outermost: equal steps are parted inside one step, unequal ones are taken
 * apart where they must be. What comes out is put into canonical form again.
 */
#include "traces/map_private.h"

/* What a piece is to be parted by: a box of destination bytes; the same box one step earlier, where both reach into a
 * step; or boxes [first, end) of a list. */
typedef struct knife {
    const lp_work *box, *earlier;
    int64_t first, end;
} knife;

typedef struct parting {
    lp_boxes *inside, *outside; /* where pieces go; NULL: nowhere */
    int32_t src_elem, dst_elem; /* of the map that is parted */
    int64_t work;
    const lp_boxes *cut; /* all boxes of the knife: nested, disjoint, in order, elements of one byte */
    int32_t nprefix;     /* outer modes that the boxes at hand are inside of */
    lp_mode prefix[LP_MAP_RANK];
} parting;

typedef lp_status (*piece_fn)(parting *p, const lp_work *a, const knife *k, lp_error *err);

static lp_status keep(const parting *p, lp_boxes *list, const lp_work *a, lp_error *err)
{
    if (list == NULL)
        return LP_OK;
    lp_work w;
    w.src_off = a->src_off;
    w.dst_off = a->dst_off;
    w.run = a->run;
    w.rank = 0;
    for (int32_t m = 0; m < p->nprefix; m++)
        LP_TRY(lp_work_add(&w, p->prefix[m], err));
    for (int32_t m = 0; m < a->rank; m++)
        LP_TRY(lp_work_add(&w, a->mode[m], err));
    return lp_boxes_add(list, &w, err);
}

static lp_status keep_inside(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    (void)k;
    return keep(p, p->inside, a, err);
}

static lp_status keep_outside(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    (void)k;
    return keep(p, p->outside, a, err);
}

static lp_status spend(parting *p, lp_error *err)
{
    if (p->work-- <= 0)
        return lp_fail(err, LP_E_LIMIT, "parting a byte map takes more than %d steps", LP_MAP_RUNS_MAX);
    return LP_OK;
}

static lp_status cuts_element(lp_error *err)
{
    return lp_fail(err, LP_E_UNSUPPORTED, "an element of a cast or a fill would be cut");
}

/* Cuts a nested box at destination address x: pieces before it go to `low`, the others to `high`. */
static lp_status cut_at(parting *p, const lp_work *a, int64_t x, piece_fn low, piece_fn high, const knife *k,
                        lp_error *err)
{
    const lp_span span = lp_work_dst(a, p->dst_elem);
    if (x <= span.lo)
        return high(p, a, k, err);
    if (x >= span.hi)
        return low(p, a, k, err);
    LP_TRY(spend(p, err));
    if (a->rank == 0) {
        if ((x - a->dst_off) % p->dst_elem != 0)
            return cuts_element(err);
        lp_work part;
        part.src_off = a->src_off;
        part.dst_off = a->dst_off;
        part.run = (x - a->dst_off) / p->dst_elem;
        part.rank = 0;
        LP_TRY(low(p, &part, k, err));
        part.src_off += part.run * p->src_elem;
        part.dst_off = x;
        part.run = a->run - part.run;
        return high(p, &part, k, err);
    }
    const int64_t step = (x - a->dst_off) / a->mode[0].dst_stride;
    const int64_t after = a->mode[0].extent - step - 1;
    if (step > 0) {
        const lp_work part = lp_work_steps(a, 0, 0, step);
        LP_TRY(low(p, &part, k, err));
    }
    const lp_work part = lp_work_steps(a, 0, step, 1);
    LP_TRY(cut_at(p, &part, x, low, high, k, err));
    if (after > 0) {
        const lp_work rest = lp_work_steps(a, 0, step + 1, after);
        LP_TRY(high(p, &rest, k, err));
    }
    return LP_OK;
}

static lp_status part_by_box(parting *p, const lp_work *a, const knife *k, lp_error *err);

static lp_status part_by_earlier(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    const knife earlier = {.box = k->earlier};
    return part_by_box(p, a, &earlier, err);
}

/* Steps [first, end) of `a` meet steps of the knife in the same way: part one of them. The step `b_first` of `a` is the
 * one in which the knife's step 0 starts. direct: a step of the knife starts here; spilled: the one before reaches in.
 */
static lp_status part_steps(parting *p, const lp_work *a, const lp_work *b, int64_t first, int64_t end, int64_t b_first,
                            bool direct, bool spilled, lp_error *err)
{
    const lp_mode step = a->mode[0];
    if (end <= first)
        return LP_OK;
    if (p->nprefix >= LP_MAP_RANK)
        return lp_fail(err, LP_E_LIMIT, "a box of a byte map has at most %d strides", LP_MAP_RANK);
    const lp_work one = lp_work_steps(a, 0, first, 1);
    lp_work here = lp_work_steps(b, 0, 0, 1);
    here.dst_off += (first - b_first) * step.dst_stride;
    lp_work earlier = here;
    earlier.dst_off -= step.dst_stride;
    const knife k = {.box = &here, .earlier = &earlier};
    p->prefix[p->nprefix++] = (lp_mode){end - first, step.src_stride, step.dst_stride};
    lp_status status;
    if (direct && spilled) /* one ends before the other starts */
        status = cut_at(p, &one, here.dst_off, part_by_earlier, part_by_box, &k, err);
    else if (direct)
        status = part_by_box(p, &one, &k, err);
    else if (spilled)
        status = part_by_earlier(p, &one, &k, err);
    else
        status = keep_outside(p, &one, NULL, err);
    p->nprefix--;
    return status;
}

/* Both sides step by the same outermost stride. */
static lp_status part_equal_steps(parting *p, const lp_work *a, const lp_work *b, lp_error *err)
{
    const int64_t width = a->mode[0].dst_stride, extent = a->mode[0].extent, b_extent = b->mode[0].extent;
    const int64_t q = lp_floor_div(b->dst_off - a->dst_off, width);
    /* The ranges of steps in which the knife's boxes start, and into which they reach. */
    const int64_t bound[6] = {0,
                              lp_clamp(q, 0, extent),
                              lp_clamp(q + 1, 0, extent),
                              lp_clamp(q + b_extent, 0, extent),
                              lp_clamp(q + b_extent + 1, 0, extent),
                              extent};
    for (int i = 0; i < 5; i++) {
        const int64_t at = bound[i];
        const bool direct = at >= q && at < q + b_extent;
        const bool spilled = at > q && at <= q + b_extent;
        LP_TRY(part_steps(p, a, b, at, bound[i + 1], q, direct, spilled, err));
    }
    return LP_OK;
}

/* A run against steps of the knife: whole steps become a mode, the ends stay runs. */
static lp_status part_run(parting *p, const lp_work *a, const lp_work *b, lp_error *err)
{
    const int64_t width = b->mode[0].dst_stride, elem = p->dst_elem;
    const int64_t bytes = a->run * elem;
    const int64_t into = (a->dst_off - b->dst_off) % width;
    int64_t head = into == 0 ? 0 : into > 0 ? width - into : -into;
    head = head < bytes ? head : bytes;
    const int64_t steps = (bytes - head) / width, tail = (bytes - head) % width;
    if (head % elem != 0 || (steps > 0 && width % elem != 0))
        return cuts_element(err);
    const knife k = {.box = b};
    lp_work part;
    const int64_t length[3] = {head, steps > 0 ? width : 0, tail};
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        if (length[i] == 0)
            continue;
        part.src_off = a->src_off + at / elem * p->src_elem;
        part.dst_off = a->dst_off + at;
        part.run = length[i] / elem;
        part.rank = 0;
        at += length[i];
        if (i == 1) {
            LP_TRY(lp_work_add(&part, (lp_mode){steps, part.run * p->src_elem, width}, err));
            at += (steps - 1) * width;
        }
        LP_TRY(part_by_box(p, &part, &k, err));
    }
    return LP_OK;
}

/* The knife's steps are the larger ones: find the one that `a` lies in, or halve `a` between two of them. */
static lp_status part_by_steps(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    const lp_work *b = k->box;
    const int64_t width = b->mode[0].dst_stride;
    const lp_span span = lp_work_dst(a, p->dst_elem);
    const int64_t first = lp_clamp(lp_floor_div(span.lo - b->dst_off, width), 0, b->mode[0].extent - 1);
    const int64_t last = lp_clamp(lp_floor_div(span.hi - 1 - b->dst_off, width), 0, b->mode[0].extent - 1);
    if (first == last) {
        const lp_work one = lp_work_steps(b, 0, first, 1);
        const knife inner = {.box = &one};
        return part_by_box(p, a, &inner, err);
    }
    const int64_t middle = first + (last - first) / 2 + 1;
    return cut_at(p, a, b->dst_off + middle * width, part_by_box, part_by_box, k, err);
}

/* Splits a box into one whose outermost steps go together by `group` (at least two such groups), and the steps that are
 * left over, if any: rest->run == 0 otherwise. */
static void regroup(const lp_work *w, int64_t group, lp_work *grouped, lp_work *rest)
{
    const lp_mode step = w->mode[0];
    const int64_t groups = step.extent / group, left = step.extent % group;
    rest->run = 0;
    if (left > 0)
        *rest = lp_work_steps(w, 0, groups * group, left);
    *grouped = *w;
    memmove(grouped->mode + 1, w->mode, (size_t)w->rank * sizeof *w->mode);
    grouped->rank++;
    grouped->mode[0] = (lp_mode){groups, step.src_stride * group, step.dst_stride * group};
    grouped->mode[1].extent = group;
}

static bool can_regroup(const lp_work *w, int64_t wanted)
{
    const lp_mode step = w->mode[0];
    return wanted % step.dst_stride == 0 && step.extent / (wanted / step.dst_stride) >= 2 && w->rank < LP_MAP_RANK;
}

/* What of `a` lies between the ends of the knife's box, which has modes. */
static lp_status part_overlap(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    const lp_work *b = k->box;
    const int64_t width = b->mode[0].dst_stride;
    LP_TRY(spend(p, err));
    if (a->rank == 0) {
        const int64_t into = lp_floor_div(a->dst_off - b->dst_off, width);
        if (lp_floor_div(a->dst_off + a->run * p->dst_elem - 1 - b->dst_off, width) == into)
            return part_by_steps(p, a, k, err);
        return part_run(p, a, b, err);
    }
    const int64_t own = a->mode[0].dst_stride;
    if (own == width)
        return part_equal_steps(p, a, b, err);
    lp_work grouped, rest;
    if (own < width && can_regroup(a, width)) {
        regroup(a, width / own, &grouped, &rest);
        LP_TRY(part_by_box(p, &grouped, k, err));
        return rest.run > 0 ? part_by_box(p, &rest, k, err) : LP_OK;
    }
    if (own < width)
        return part_by_steps(p, a, k, err);
    if (can_regroup(b, own)) {
        regroup(b, own / width, &grouped, &rest);
        const knife two = {.box = &rest, .earlier = &grouped};
        return rest.run > 0 ? cut_at(p, a, rest.dst_off, part_by_earlier, part_by_box, &two, err)
                            : part_by_earlier(p, a, &two, err);
    }
    for (int64_t i = 0; i < a->mode[0].extent; i++) {
        const lp_work one = lp_work_steps(a, 0, i, 1);
        LP_TRY(part_by_box(p, &one, k, err));
    }
    return LP_OK;
}

static lp_status below_end(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    return k->box->rank == 0 ? keep_inside(p, a, k, err) : part_overlap(p, a, k, err);
}

static lp_status above_start(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    return cut_at(p, a, lp_work_dst(k->box, 1).hi, below_end, keep_outside, k, err);
}

static lp_status part_by_box(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    return cut_at(p, a, k->box->dst_off, keep_outside, above_start, k, err);
}

/* ---- lists ---- */

static lp_status part_by_list(parting *p, const lp_work *a, const knife *k, lp_error *err)
{
    const lp_span span = lp_work_dst(a, p->dst_elem);
    int64_t lo = k->first, hi = k->end;
    while (lo < hi) { /* the first box that ends behind the start of `a` */
        const int64_t middle = lo + (hi - lo) / 2;
        if (lp_seg_dst_hi(p->cut, &p->cut->seg[middle]) <= span.lo)
            lo = middle + 1;
        else
            hi = middle;
    }
    const int64_t first = lo;
    for (hi = k->end; lo < hi;) { /* the first that starts behind its end */
        const int64_t middle = lo + (hi - lo) / 2;
        if (p->cut->seg[middle].dst_off < span.hi)
            lo = middle + 1;
        else
            hi = middle;
    }
    if (first == lo)
        return keep_outside(p, a, k, err);
    const lp_seg *seg = &p->cut->seg[first + (lo - first) / 2];
    const knife part = {.first = first, .end = lo};
    if (lo - first > 1)
        return cut_at(p, a, seg->dst_off, part_by_list, part_by_list, &part, err);
    const lp_box box = {0, seg->dst_off, seg->run, seg->rank, lp_seg_modes(p->cut, seg)};
    lp_work one;
    lp_work_from_box(&one, &box);
    const knife single = {.box = &one};
    return part_by_box(p, a, &single, err);
}

/* The destination bytes of a map, shifted, as a canonical list of its own: sources do not cut it. */
static lp_status make_knife(lp_boxes *list, const lp_map *map, int64_t shift, lp_error *err)
{
    if (shift < -LP_MAP_FAR || shift > LP_MAP_FAR)
        return lp_fail(err, LP_E_LIMIT, "the addresses of a byte map do not fit");
    for (int32_t b = 0; b < map->nbox; b++) {
        lp_work w;
        lp_work_from_box(&w, &map->box[b]);
        w.src_off = 0;
        w.dst_off += shift;
        w.run *= map->dst_elem;
        LP_TRY(lp_boxes_add(list, &w, err));
    }
    return lp_boxes_canon(list, err);
}

static lp_status part(const lp_map **out, const lp_map *map, const lp_map *with, int64_t shift, bool inside,
                      const lp_alloc *alloc, lp_error *err)
{
    lp_boxes pieces, cut;
    lp_boxes_init(&pieces, map->src_elem, map->dst_elem, alloc);
    lp_boxes_init(&cut, 0, 1, alloc);
    parting p = {.inside = inside ? &pieces : NULL,
                 .outside = inside ? NULL : &pieces,
                 .src_elem = map->src_elem,
                 .dst_elem = map->dst_elem,
                 .work = LP_MAP_RUNS_MAX,
                 .cut = &cut};
    lp_status status;
    LP_TRY_GOTO(make_knife(&cut, with, shift, err), release);
    const knife all = {.first = 0, .end = cut.count};
    for (int32_t b = 0; b < map->nbox; b++) {
        lp_work w;
        lp_work_from_box(&w, &map->box[b]);
        LP_TRY_GOTO(part_by_list(&p, &w, &all, err), release);
    }
    status = lp_boxes_finish(out, &pieces, err);
release:
    lp_boxes_free(&pieces);
    lp_boxes_free(&cut);
    return status;
}

lp_status lp_map_subtract(const lp_map **out, const lp_map *map, const lp_map *cut, int64_t cut_shift,
                          const lp_alloc *alloc, lp_error *err)
{
    return part(out, map, cut, cut_shift, false, alloc, err);
}

lp_status lp_map_intersect(const lp_map **out, const lp_map *map, const lp_map *with, int64_t with_shift,
                           const lp_alloc *alloc, lp_error *err)
{
    return part(out, map, with, with_shift, true, alloc, err);
}
