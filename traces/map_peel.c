/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical cut of a byte function into nested boxes. From the lowest destination address: take the longest run,
 * then repeat what was taken as often as it recurs at one constant step, and go on with the whole of that, until
 * nothing recurs. A box must end where a run ends; what sticks out is left to the next box. The result depends on the
 * byte function alone, however it was given; docs/canonical-form.md proves that and what follows from it.
 *
 * The function is given as a flat list. Nothing is expanded: a recurrence is found by comparing modes where a box of
 * the list has the wanted structure, and run by run only where it has not.
 */
#include "traces/map_private.h"

/* Comparisons after which nothing recurs any more (beyond the work bound the form may depend on the input's), and runs
 * that boxes may reach over in vain before boxes are only tried whole. */
enum { COMPARE_MAX = 1 << 24, WASTE_MAX = 1 << 22 };

typedef struct cursor {
    int64_t seg, at; /* element `at` of box `seg` */
} cursor;

typedef struct peeler {
    const lp_boxes *in;
    lp_boxes *out;
    int64_t compared, wasted;
} peeler;

static int64_t seg_elements(const peeler *p, int64_t seg)
{
    const lp_seg *s = &p->in->seg[seg];
    return s->run * lp_mode_product(lp_seg_modes(p->in, s), s->rank);
}

static void advance(const peeler *p, cursor *c, int64_t elements)
{
    c->at += elements;
    while (c->seg < p->in->count) {
        const int64_t all = seg_elements(p, c->seg);
        if (c->at < all)
            return;
        c->at -= all;
        c->seg++;
    }
}

/* The largest nested box that starts at the cursor and lies in one box of the list; false at the end. `modes` = false
 * gives its first run alone. */
static bool piece_at(const peeler *p, cursor c, bool modes, lp_work *w)
{
    if (c.seg >= p->in->count)
        return false;
    const lp_seg *s = &p->in->seg[c.seg];
    const lp_mode *mode = lp_seg_modes(p->in, s);
    const int64_t skipped = c.at % s->run;
    int64_t index = c.at / s->run;
    w->src_off = s->src_off + skipped * p->in->src_elem;
    w->dst_off = s->dst_off + skipped * p->in->dst_elem;
    w->run = s->run - skipped;
    w->rank = 0;
    int32_t top = 0;    /* outermost mode of the piece */
    int64_t passed = 0; /* steps of it that lie behind */
    for (int32_t m = s->rank - 1; m >= 0 && index > 0; m--) {
        const int64_t digit = index % mode[m].extent;
        index /= mode[m].extent;
        w->src_off += digit * mode[m].src_stride;
        w->dst_off += digit * mode[m].dst_stride;
        if (passed == 0 && digit > 0) {
            top = m;
            passed = digit;
        }
    }
    if (!modes || skipped > 0)
        return true;
    for (int32_t m = top; m < s->rank; m++) {
        const int64_t extent = m == top ? mode[m].extent - passed : mode[m].extent;
        if (extent > 1) {
            w->mode[w->rank] = mode[m];
            w->mode[w->rank++].extent = extent;
        }
    }
    return true;
}

static int64_t elements_of(const lp_work *w, int32_t from)
{
    return w->run * lp_mode_product(w->mode + from, w->rank - from);
}

/* Whether `piece` starts with the part of `w` inside mode `from` - 1; *copies: how often in a row, each (dst_step,
 * src_step) further. */
static bool starts_with(const lp_work *piece, const lp_work *w, int32_t from, int64_t dst_step, int64_t src_step,
                        int64_t *copies)
{
    const int32_t inner = w->rank - from;
    *copies = 1;
    if (piece->rank < inner)
        return false;
    if (inner == 0 ? piece->run < w->run : piece->run != w->run)
        return false;
    const lp_mode *a = piece->mode + (piece->rank - inner), *b = w->mode + from;
    for (int32_t m = inner - 1; m >= 0; m--) {
        if (a[m].dst_stride != b[m].dst_stride || a[m].src_stride != b[m].src_stride)
            return false;
        if (m == 0 ? a[m].extent < b[m].extent : a[m].extent != b[m].extent)
            return false;
    }
    const bool whole = inner == 0 ? piece->run == w->run : a[0].extent == b[0].extent;
    if (whole && piece->rank > inner && a[-1].dst_stride == dst_step && a[-1].src_stride == src_step)
        *copies = a[-1].extent;
    return true;
}

/* Run by run: whether `run` elements at (dst, src) come next. */
static bool match_run(peeler *p, cursor *c, int64_t dst, int64_t src, int64_t run)
{
    while (run > 0) {
        lp_work next;
        if (!piece_at(p, *c, false, &next) || next.dst_off != dst || next.src_off != src)
            return false;
        const int64_t taken = next.run < run ? next.run : run;
        advance(p, c, taken);
        run -= taken;
        dst += taken * p->in->dst_elem;
        src += taken * p->in->src_elem;
        p->compared++;
    }
    return true;
}

/* Whether a copy of the part of `w` inside mode `from` - 1 comes next, at (dst, src). Leaves the cursor behind it. */
static bool match_block(peeler *p, cursor *c, const lp_work *w, int32_t from, int64_t dst, int64_t src)
{
    lp_work piece;
    int64_t copies;
    if (p->compared >= COMPARE_MAX || !piece_at(p, *c, true, &piece) || piece.dst_off != dst || piece.src_off != src)
        return false;
    p->compared++;
    if (starts_with(&piece, w, from, 0, 0, &copies)) {
        advance(p, c, elements_of(w, from));
        return true;
    }
    if (from == w->rank)
        return match_run(p, c, dst, src, w->run);
    for (int64_t i = 0; i < w->mode[from].extent; i++)
        if (!match_block(p, c, w, from + 1, dst + i * w->mode[from].dst_stride, src + i * w->mode[from].src_stride))
            return false;
    return true;
}

/* How many copies of the part of `w` inside mode `from` - 1 come next, the first at (dst, src), each one step further:
 * some of them or none. Moves the cursor behind those. */
static int64_t match_copies(peeler *p, cursor *c, const lp_work *w, int32_t from, int64_t dst, int64_t src,
                            int64_t dst_step, int64_t src_step)
{
    lp_work piece;
    int64_t copies;
    if (!piece_at(p, *c, true, &piece) || piece.dst_off != dst || piece.src_off != src)
        return 0;
    if (starts_with(&piece, w, from, dst_step, src_step, &copies)) {
        advance(p, c, copies * elements_of(w, from));
        return copies;
    }
    cursor trial = *c;
    if (!match_block(p, &trial, w, from, dst, src))
        return 0;
    *c = trial;
    return 1;
}

/* Whether a copy of what lies inside mode m, one step of m further, goes on in the middle of a run. */
static bool joins(const lp_work *w, int32_t m, int32_t src_elem, int32_t dst_elem)
{
    int64_t dst = w->run * dst_elem, src = w->run * src_elem;
    for (int32_t i = m + 1; i < w->rank; i++) {
        dst += (w->mode[i].extent - 1) * w->mode[i].dst_stride;
        src += (w->mode[i].extent - 1) * w->mode[i].src_stride;
    }
    return w->mode[m].dst_stride == dst && w->mode[m].src_stride == src;
}

/* Whether what comes at the cursor goes on with the last run of the box before it. */
static bool goes_on(const peeler *p, cursor c, const lp_work *w)
{
    lp_work next;
    int64_t dst = w->dst_off + w->run * p->in->dst_elem, src = w->src_off + w->run * p->in->src_elem;
    for (int32_t i = 0; i < w->rank; i++) {
        dst += (w->mode[i].extent - 1) * w->mode[i].dst_stride;
        src += (w->mode[i].extent - 1) * w->mode[i].src_stride;
    }
    return piece_at(p, c, false, &next) && next.dst_off == dst && next.src_off == src;
}

static void drop_outer(lp_work *w, int32_t modes)
{
    w->rank -= modes;
    if (modes > 0)
        memmove(w->mode, w->mode + modes, (size_t)w->rank * sizeof *w->mode);
}

/* The box that recurrence gives at *c; moves the cursor behind it. Returns whether its last run goes on behind it. */
static bool grow(peeler *p, cursor *c, lp_work *w)
{
    const cursor start = *c;
    piece_at(p, *c, true, w);
    advance(p, c, elements_of(w, 0));
    while (w->rank == 0 && goes_on(p, *c, w)) {
        lp_work next;
        piece_at(p, *c, false, &next);
        w->run += next.run;
        advance(p, c, next.run);
    }
    const bool whole_only = p->wasted > WASTE_MAX;
    for (int32_t m = w->rank - 1; whole_only && m >= 0; m--) {
        if (joins(w, m, p->in->src_elem, p->in->dst_elem)) {
            drop_outer(w, m + 1);
            *c = start;
            advance(p, c, elements_of(w, 0));
            return true;
        }
    }
    for (;;) {
        while (w->rank > 0) {
            lp_mode *top = &w->mode[0];
            const int64_t copies =
                match_copies(p, c, w, 1, w->dst_off + top->extent * top->dst_stride,
                             w->src_off + top->extent * top->src_stride, top->dst_stride, top->src_stride);
            if (copies == 0)
                break;
            top->extent += copies;
        }
        const bool open = goes_on(p, *c, w);
        lp_work next;
        if ((whole_only && open) || w->rank == LP_MAP_RANK || !piece_at(p, *c, false, &next))
            return open;
        const int64_t dst_step = next.dst_off - w->dst_off, src_step = next.src_off - w->src_off;
        const int64_t copies = match_copies(p, c, w, 0, next.dst_off, next.src_off, dst_step, src_step);
        if (copies == 0)
            return open;
        memmove(w->mode + 1, w->mode, (size_t)w->rank * sizeof *w->mode);
        w->mode[0] = (lp_mode){copies + 1, src_step, dst_step};
        w->rank++;
    }
}

/* Shortens a box whose last run goes on behind it to the largest part of it that ends where a run ends. */
static void clip(const peeler *p, lp_work *w)
{
    int32_t m = 0;
    while (m < w->rank - 1 && joins(w, m, p->in->src_elem, p->in->dst_elem))
        m++;
    drop_outer(w, m);
    if (--w->mode[0].extent == 1)
        drop_outer(w, 1);
}

lp_status lp_boxes_peel(const lp_boxes *flat, lp_boxes *out, lp_error *err)
{
    peeler p = {.in = flat, .out = out};
    cursor c = {0, 0};
    while (c.seg < flat->count) {
        lp_work w;
        cursor end = c;
        if (grow(&p, &end, &w)) {
            const int64_t reached = lp_mode_product(w.mode, w.rank);
            if (w.rank > 0)
                clip(&p, &w);
            const int64_t waste = reached - lp_mode_product(w.mode, w.rank);
            p.wasted = waste > WASTE_MAX ? (int64_t)WASTE_MAX + 1 : p.wasted + waste;
            end = c;
            advance(&p, &end, elements_of(&w, 0));
        }
        if (out->count >= LP_MAP_BOXES_MAX)
            return lp_fail(err, LP_E_LIMIT, "a byte map falls into more than %d boxes", LP_MAP_BOXES_MAX);
        LP_TRY(lp_boxes_push_work(out, &w, err));
        c = end;
    }
    return LP_OK;
}
