/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mixed-radix grid of the coverage sweep. Where the strides of all boxes form a divisibility chain, an address has
 * one digit per stride and every nested box is a product of digit intervals, up to cuts where an interval would carry
 * into the next digit. Strides outside the chain are enumerated, step by step.
 */
#include "traces/cover_private.h"

#include <stdlib.h>

enum { CANDIDATES_MAX = 256 };

/* A stride and how many pieces its modes would cost if it stayed outside the chain. */
typedef struct candidate {
    int64_t stride, cost;
} candidate;

static int by_stride(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    return (a->stride > b->stride) - (a->stride < b->stride);
}

static int by_cost_falling(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    if (a->cost != b->cost)
        return a->cost < b->cost ? 1 : -1;
    return by_stride(pa, pb);
}

static int64_t add_saturated(int64_t a, int64_t b)
{
    int64_t sum;
    return lp_add(a, b, &sum) ? sum : INT64_MAX;
}

/* Distinct strides of all boxes, rising, at most CANDIDATES_MAX of them: the costliest ones. */
static lp_status collect_strides(const lp_alloc *alloc, const lp_cover_box *box, int64_t count, candidate **out,
                                 int64_t *n, lp_error *err)
{
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++)
        total += box[i].rank;
    candidate *c = lp_allocate(alloc, (size_t)total * sizeof(*c));
    if (!c)
        return lp_fail_memory(err);
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++)
        for (int32_t m = 0; m < box[i].rank; m++) {
            const lp_mode *mode = &box[i].mode[m];
            if (used > 0 && c[used - 1].stride == mode->dst_stride)
                c[used - 1].cost = add_saturated(c[used - 1].cost, mode->extent);
            else
                c[used++] = (candidate){mode->dst_stride, mode->extent};
        }
    qsort(c, (size_t)used, sizeof(*c), by_stride);
    int64_t distinct = 0;
    for (int64_t i = 0; i < used; i++) {
        if (distinct > 0 && c[distinct - 1].stride == c[i].stride)
            c[distinct - 1].cost = add_saturated(c[distinct - 1].cost, c[i].cost);
        else
            c[distinct++] = c[i];
    }
    if (distinct > CANDIDATES_MAX) {
        qsort(c, (size_t)distinct, sizeof(*c), by_cost_falling);
        distinct = CANDIDATES_MAX;
        qsort(c, (size_t)distinct, sizeof(*c), by_stride);
    }
    *out = c;
    *n = distinct;
    return LP_OK;
}

/* The chain of strides, each dividing the next, whose total cost is highest. */
static void choose_chain(lp_cover_grid *g, const candidate *c, int64_t n)
{
    int64_t best[CANDIDATES_MAX];
    int previous[CANDIDATES_MAX];
    int last = -1;
    for (int i = 0; i < (int)n; i++) {
        best[i] = 0;
        previous[i] = -1;
        for (int j = 0; j < i; j++)
            if (c[i].stride % c[j].stride == 0 && best[j] >= best[i]) {
                best[i] = best[j];
                previous[i] = j;
            }
        best[i] = add_saturated(best[i], c[i].cost);
        if (last < 0 || best[i] > best[last])
            last = i;
    }
    int length = 0;
    for (int i = last; i >= 0; i = previous[i])
        length += c[i].stride > 1;
    g->levels = length + 1;
    g->stride[0] = 1;
    for (int i = last; i >= 0; i = previous[i])
        if (c[i].stride > 1)
            g->stride[length--] = c[i].stride;
    for (int k = 0; k + 1 < g->levels; k++)
        g->radix[k] = g->stride[k + 1] / g->stride[k];
    g->radix[g->levels - 1] = INT64_MAX;
}

static int level_of(const lp_cover_grid *g, int64_t stride)
{
    for (int k = 0; k < g->levels; k++)
        if (g->stride[k] == stride)
            return k;
    return -1;
}

/* How many times the steps outside the chain repeat a box; saturates. */
static int64_t repeats_of(const lp_cover_grid *g, const lp_cover_box *b)
{
    int64_t repeats = 1;
    for (int32_t m = 0; m < b->rank; m++)
        if (level_of(g, b->mode[m].dst_stride) < 0 && !lp_mul(repeats, b->mode[m].extent, &repeats))
            return INT64_MAX;
    return repeats;
}

typedef struct cutter {
    lp_cover_grid *g;
    const lp_cover_box *box;
    int64_t extent[LP_COVER_LEVELS];      /* steps of the box per level */
    lp_cover_span digit[LP_COVER_LEVELS]; /* of the piece being made */
    bool fits;
} cutter;

static bool put_piece(cutter *c)
{
    lp_cover_grid *g = c->g;
    if (g->npiece >= LP_COVER_PIECES_MAX || (g->npiece + 1) * g->levels > LP_COVER_INTERVALS_MAX) {
        c->fits = false;
        return true;
    }
    if (!lp_grow(g->alloc, (void **)&g->piece, &g->piece_capacity, g->npiece + 1, sizeof(*g->piece)) ||
        !lp_grow(g->alloc, (void **)&g->span, &g->span_capacity, (g->npiece + 1) * g->levels, sizeof(*g->span)))
        return false;
    g->piece[g->npiece] = (lp_cover_piece){c->box->item, c->box->tag, c->box->class};
    memcpy(&g->span[g->npiece * g->levels], c->digit, (size_t)g->levels * sizeof(*c->digit));
    g->npiece++;
    return true;
}

/*
 * Gives digits to level k and above: `value` is what the lower levels left of the offset, in units of this stride, and
 * `extent` the steps here. An interval that reaches beyond the radix is cut into a head, whole blocks and a tail, each
 * of which carries a constant (the blocks: a range) into the next level. Whole blocks exist only where the next level
 * has no steps of its own, because boxes are nested.
 */
static bool cut(cutter *c, int k, int64_t value, int64_t extent)
{
    const lp_cover_grid *g = c->g;
    if (!c->fits)
        return true;
    if (k == g->levels - 1) {
        c->digit[k] = (lp_cover_span){value, value + extent};
        return put_piece(c);
    }
    const int64_t radix = g->radix[k], low = value % radix, next = value / radix, more = c->extent[k + 1];
    if (extent <= radix - low) {
        c->digit[k] = (lp_cover_span){low, low + extent};
        return cut(c, k + 1, next, more);
    }
    int64_t rest = extent, carry = next;
    if (low > 0) {
        c->digit[k] = (lp_cover_span){low, radix};
        if (!cut(c, k + 1, carry, more))
            return false;
        rest -= radix - low;
        carry++;
    }
    const int64_t blocks = rest / radix, tail = rest % radix;
    if (blocks > 0) {
        if (more > 1 && blocks > 1) { /* not nested: refuse to judge */
            c->fits = false;
            return true;
        }
        c->digit[k] = (lp_cover_span){0, radix};
        if (!cut(c, k + 1, carry, more > 1 ? more : blocks))
            return false;
    }
    if (tail > 0) {
        c->digit[k] = (lp_cover_span){0, tail};
        return cut(c, k + 1, carry + blocks, more);
    }
    return true;
}

/* Cuts one box, once for each combination of its steps outside the chain. */
static bool add_box(cutter *c)
{
    const lp_cover_grid *g = c->g;
    const lp_cover_box *b = c->box;
    for (int k = 0; k < g->levels; k++)
        c->extent[k] = 1;
    c->extent[0] = b->run;
    int64_t repeats = repeats_of(g, b);
    for (int32_t m = 0; m < b->rank; m++) {
        const int k = level_of(g, b->mode[m].dst_stride);
        if (k >= 0) {
            if (c->extent[k] != 1) /* not nested */
                c->fits = false;
            c->extent[k] = b->mode[m].extent;
        }
    }
    for (int64_t i = 0; i < repeats && c->fits; i++) {
        int64_t offset = b->lo - g->base, rest = i;
        for (int32_t m = b->rank; m-- > 0;)
            if (level_of(g, b->mode[m].dst_stride) < 0) {
                offset += rest % b->mode[m].extent * b->mode[m].dst_stride;
                rest /= b->mode[m].extent;
            }
        if (!cut(c, 0, offset, c->extent[0]))
            return false;
    }
    return true;
}

lp_status lp_cover_grid_build(lp_cover_grid *g, const lp_cover_box *box, int64_t count, int64_t base, bool *fits,
                              lp_error *err)
{
    candidate *strides = NULL;
    int64_t n = 0;
    LP_TRY(collect_strides(g->alloc, box, count, &strides, &n, err));
    choose_chain(g, strides, n);
    lp_release(g->alloc, strides);
    g->base = base;
    g->npiece = 0;

    int64_t pieces = 0;
    for (int64_t i = 0; i < count; i++)
        pieces = add_saturated(pieces, repeats_of(g, &box[i]));
    *fits = pieces <= LP_COVER_PIECES_MAX && pieces <= LP_COVER_INTERVALS_MAX / g->levels;
    cutter c = {.g = g, .fits = *fits};
    for (int64_t i = 0; i < count && c.fits; i++) {
        c.box = &box[i];
        if (!add_box(&c))
            return lp_fail_memory(err);
    }
    *fits = c.fits;
    return LP_OK;
}

void lp_cover_grid_free(lp_cover_grid *g)
{
    lp_release(g->alloc, g->piece);
    lp_release(g->alloc, g->span);
    *g = (lp_cover_grid){.alloc = g->alloc};
}
