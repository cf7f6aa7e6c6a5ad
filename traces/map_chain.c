/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One box after another: outer reads B, inner writes B. The destination addresses of a nested box are a mixed-radix
 * number, one digit per mode. Digit by digit from the outermost, the modes of the outer box either step by whole
 * digits, and are finished, or stay inside one digit, and are left to the next one. A mode that does neither is cut
 * where the digit changes if it divides the digit, else taken apart step by step.
 */
#include "traces/map_private.h"

/* What is left to do of an outer box: modes whose src_stride still counts in B, and those that are finished. */
typedef struct link {
    lp_work done;       /* its src_off and modes count in the source of the inner box */
    int64_t b_off, run; /* of the rest, relative to the digit at hand */
    int32_t rank;
    lp_mode mode[LP_MAP_RANK]; /* src_stride in B */
} link;

static lp_status chain_level(lp_chain *chain, const link *l, const lp_work *inner, int32_t level, lp_error *err);

static lp_status unwritten(lp_error *err)
{
    return lp_fail(err, LP_E_ARGUMENT, "a byte map reads bytes that the one before it does not write");
}

/* [lo, hi) of the bytes of B that the rest reads; modes that `skip` says apart. */
static lp_span rest_span(const lp_chain *chain, const link *l, int32_t skip, bool run)
{
    lp_span span = {l->b_off, l->b_off + (run ? l->run * chain->unit : 1)};
    for (int32_t m = 0; m < l->rank; m++) {
        const int64_t reach = (l->mode[m].extent - 1) * l->mode[m].src_stride;
        if (m == skip)
            continue;
        if (reach < 0)
            span.lo += reach;
        else
            span.hi += reach;
    }
    return span;
}

static void remove_mode(link *l, int32_t m)
{
    l->rank--;
    memmove(l->mode + m, l->mode + m + 1, (size_t)(l->rank - m) * sizeof *l->mode);
}

/* The inner box is down to its run: what is left must lie inside it, element on element. */
static lp_status chain_run(lp_chain *chain, const link *l, const lp_work *inner, lp_error *err)
{
    const int32_t unit = chain->unit, src_elem = chain->out->src_elem;
    const lp_span span = rest_span(chain, l, -1, true);
    if (span.lo < 0 || span.hi > inner->run * unit)
        return unwritten(err);
    lp_work w = l->done;
    bool whole = l->b_off % unit == 0;
    w.src_off += l->b_off / unit * src_elem;
    w.run = l->run;
    for (int32_t m = 0; m < l->rank; m++) {
        lp_mode mode = l->mode[m];
        whole = whole && mode.src_stride % unit == 0;
        mode.src_stride = mode.src_stride / unit * src_elem;
        LP_TRY(lp_work_add(&w, mode, err));
    }
    if (!whole)
        return lp_fail(err, LP_E_UNSUPPORTED, "a byte map cuts elements of a cast or a fill");
    return lp_boxes_add(chain->out, &w, err);
}

/* Steps of m from `first` on, `count` of them, as a call of its own. */
static lp_status chain_steps(lp_chain *chain, const link *l, int32_t m, int64_t first, int64_t count,
                             const lp_work *inner, int32_t level, lp_error *err)
{
    if (count <= 0)
        return LP_OK;
    if (chain->work-- <= 0)
        return lp_fail(err, LP_E_LIMIT, "the chain of two byte maps falls into more than %d pieces", LP_MAP_RUNS_MAX);
    link part = *l;
    part.b_off += first * l->mode[m].src_stride;
    part.done.dst_off += first * l->mode[m].dst_stride;
    if (count == 1)
        remove_mode(&part, m);
    else
        part.mode[m].extent = count;
    return chain_level(chain, &part, inner, level, err);
}

/* The run crosses into the next digit: cut it there. */
static lp_status cut_run(lp_chain *chain, const link *l, const lp_work *inner, int32_t level, lp_error *err)
{
    const int64_t width = inner->mode[level].dst_stride;
    int64_t first = 0;
    while (first < l->run) {
        if (chain->work-- <= 0)
            return lp_fail(err, LP_E_LIMIT, "the chain of two byte maps falls into more than %d pieces",
                           LP_MAP_RUNS_MAX);
        const int64_t at = l->b_off + first * chain->unit;
        const int64_t left = (lp_floor_div(at, width) + 1) * width - at;
        const bool even = at % width == 0 && width % chain->unit == 0;
        link part = *l;
        part.b_off = at;
        part.done.dst_off += first * chain->out->dst_elem;
        part.run = left / chain->unit;
        if (left % chain->unit != 0 && part.run < l->run - first)
            return lp_fail(err, LP_E_UNSUPPORTED, "a byte map cuts elements of a cast or a fill");
        if (part.run > l->run - first)
            part.run = l->run - first;
        /* Whole digits go together, as a mode that steps by one digit. */
        int64_t digits = 1;
        if (even && part.rank < LP_MAP_RANK && (l->run - first) / part.run > 1) {
            digits = (l->run - first) / part.run;
            part.mode[part.rank++] = (lp_mode){digits, width, part.run * chain->out->dst_elem};
        }
        first += part.run * digits;
        LP_TRY(chain_level(chain, &part, inner, level, err));
    }
    return LP_OK;
}

/* The rest crosses into another digit: cut the mode with the largest step, or else the run. */
static lp_status cut_rest(lp_chain *chain, const link *whole, const lp_work *inner, int32_t level, lp_error *err)
{
    const int64_t width = inner->mode[level].dst_stride;
    link flipped;
    const link *l = whole;
    int32_t m = -1;
    int64_t step = 0;
    for (int32_t i = 0; i < l->rank; i++) {
        const int64_t own = l->mode[i].src_stride;
        if (own % width != 0 && (own < 0 ? -own : own) > step) {
            step = own < 0 ? -own : own;
            m = i;
        }
    }
    if (m < 0)
        return cut_run(chain, l, inner, level, err);
    if (l->mode[m].src_stride < 0) {
        flipped = *l;
        lp_mode *mode = &flipped.mode[m];
        flipped.b_off += (mode->extent - 1) * mode->src_stride;
        flipped.done.dst_off += (mode->extent - 1) * mode->dst_stride;
        mode->src_stride = -mode->src_stride;
        mode->dst_stride = -mode->dst_stride;
        l = &flipped;
    }
    const int64_t extent = l->mode[m].extent;
    /* Steps that divide the digit, with everything else inside one of them, change digit between steps only. Modes that
     * step by whole digits do not matter here. */
    link others = *l;
    for (int32_t i = l->rank - 1; i >= 0; i--)
        if (i == m || l->mode[i].src_stride % width == 0)
            remove_mode(&others, i);
    const lp_span rest = rest_span(chain, &others, -1, true);
    const int64_t cell = lp_floor_div(rest.lo, step);
    if (width % step != 0 || lp_floor_div(rest.hi - 1, step) != cell) {
        for (int64_t i = 0; i < extent; i++)
            LP_TRY(chain_steps(chain, l, m, i, 1, inner, level, err));
        return LP_OK;
    }
    const int64_t per_digit = width / step;
    const int64_t inside = cell - lp_floor_div(cell, per_digit) * per_digit;
    int64_t head = inside == 0 ? 0 : per_digit - inside;
    head = head < extent ? head : extent;
    const int64_t digits = (extent - head) / per_digit, tail = (extent - head) % per_digit;
    LP_TRY(chain_steps(chain, l, m, 0, head, inner, level, err));
    if (digits > 0) {
        link part = *l;
        part.b_off += head * step;
        part.done.dst_off += head * l->mode[m].dst_stride;
        part.mode[m].extent = per_digit;
        if (per_digit == 1)
            remove_mode(&part, m);
        if (digits > 1) {
            if (part.rank >= LP_MAP_RANK)
                return lp_fail(err, LP_E_LIMIT, "a box of a byte map has at most %d strides", LP_MAP_RANK);
            part.mode[part.rank++] = (lp_mode){digits, width, per_digit * l->mode[m].dst_stride};
        }
        LP_TRY(chain_level(chain, &part, inner, level, err));
    }
    return chain_steps(chain, l, m, head + digits * per_digit, tail, inner, level, err);
}

static lp_status chain_level(lp_chain *chain, const link *l, const lp_work *inner, int32_t level, lp_error *err)
{
    if (level == inner->rank)
        return chain_run(chain, l, inner, err);
    const lp_mode digit = inner->mode[level];
    const int64_t width = digit.dst_stride;
    link next = *l;
    int64_t low = 0, high = 0; /* digits that the finished modes add */
    next.rank = 0;
    for (int32_t m = 0; m < l->rank; m++) {
        lp_mode mode = l->mode[m];
        if (mode.src_stride % width != 0) {
            next.mode[next.rank++] = mode;
            continue;
        }
        const int64_t digits = mode.src_stride / width;
        if (digits < 0)
            low += (mode.extent - 1) * digits;
        else
            high += (mode.extent - 1) * digits;
        mode.src_stride = digits * digit.src_stride;
        LP_TRY(lp_work_add(&next.done, mode, err));
    }
    const lp_span rest = rest_span(chain, &next, -1, true);
    const int64_t at = lp_floor_div(rest.lo, width);
    if (lp_floor_div(rest.hi - 1, width) != at)
        return cut_rest(chain, l, inner, level, err);
    if (at + low < 0 || at + high >= digit.extent)
        return unwritten(err);
    next.b_off -= at * width;
    next.done.src_off += at * digit.src_stride;
    return chain_level(chain, &next, inner, level + 1, err);
}

lp_status lp_chain_box(lp_chain *chain, const lp_work *outer, const lp_work *inner, lp_error *err)
{
    link l = {.b_off = outer->src_off - inner->dst_off, .run = outer->run, .rank = outer->rank};
    l.done.src_off = inner->src_off;
    l.done.dst_off = outer->dst_off;
    l.done.rank = 0;
    memcpy(l.mode, outer->mode, (size_t)outer->rank * sizeof *l.mode);
    if (lp_mode_product(outer->mode, outer->rank) == INT64_MAX)
        return lp_fail(err, LP_E_LIMIT, "a byte map repeats too often");
    return chain_level(chain, &l, inner, 0, err);
}
