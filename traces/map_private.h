/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files map_*.c share: a box that is being worked on, lists of boxes, and the way from a list to a canonical
 * map. docs/canonical-form.md has the theory.
 */
#ifndef LOADPLAN_MAP_PRIVATE_H
#define LOADPLAN_MAP_PRIVATE_H

#include "traces/base.h"

/* More modes of extent >= 2 than this cannot be disjoint in 63 bits of addresses. */
enum { LP_MAP_RANK = 64 };

/* The work bound: boxes that interleave are expanded into at most this many runs. */
enum { LP_MAP_RUNS_MAX = 1 << 22 };

/* Addresses stay inside +-LP_MAP_FAR bytes, so that sums and differences of two of them cannot overflow. */
#define LP_MAP_FAR ((int64_t)1 << 61)

/* A box with room for modes, outermost first. Element sizes are known from the context. */
typedef struct lp_work {
    int64_t src_off, dst_off, run;
    int32_t rank;
    lp_mode mode[LP_MAP_RANK];
} lp_work;

/* A box in a list; its modes start at list->mode[mode]. */
typedef struct lp_seg {
    int64_t src_off, dst_off, run, mode;
    int32_t rank;
    bool tangled; /* not nested */
} lp_seg;

typedef struct lp_boxes {
    const lp_alloc *alloc;
    int32_t src_elem, dst_elem;
    lp_seg *seg;
    lp_mode *mode;
    int64_t count, capacity, nmode, mode_capacity;
} lp_boxes;

/* The modes of a box in a list; NULL when it has none, and then the list may have no modes at all. */
static inline const lp_mode *lp_seg_modes(const lp_boxes *list, const lp_seg *seg)
{
    return seg->rank > 0 ? list->mode + seg->mode : NULL;
}

typedef struct lp_span {
    int64_t lo, hi; /* [lo, hi) */
} lp_span;

/* ---- map_box.c: one box ---- */

/* Appends a mode inside those that are there; extent 1 is dropped. LP_E_LIMIT when there is no room. */
lp_status lp_work_add(lp_work *w, lp_mode mode, lp_error *err);

/* Bytes that the box touches. The box must have been tidied or stem from a map. */
lp_span lp_work_src(const lp_work *w, int32_t src_elem);
lp_span lp_work_dst(const lp_work *w, int32_t dst_elem);

int64_t lp_mode_product(const lp_mode *mode, int32_t rank); /* of the extents; saturates at INT64_MAX */

/* Brings a box of any kind into order: extents of 1 dropped, destination strides positive and falling, what continues
 * merged. *nested tells whether it is a nested box then. run == 0 afterwards: nothing is moved. LP_E_ARGUMENT: negative
 * extents, a destination stride of 0; LP_E_LIMIT: addresses beyond LP_MAP_FAR. */
lp_status lp_work_tidy(lp_work *w, int32_t src_elem, int32_t dst_elem, bool *nested, lp_error *err);

void lp_work_from_box(lp_work *w, const lp_box *box);

/* `count` steps of mode m, from step `first` on. */
lp_work lp_work_steps(const lp_work *w, int32_t m, int64_t first, int64_t count);

/* Divisions that round down and up; b > 0. */
static inline int64_t lp_floor_div(int64_t a, int64_t b)
{
    const int64_t q = a / b;
    return q * b > a ? q - 1 : q;
}
static inline int64_t lp_ceil_div(int64_t a, int64_t b)
{
    const int64_t q = a / b;
    return q * b < a ? q + 1 : q;
}
static inline int64_t lp_clamp(int64_t value, int64_t lo, int64_t hi)
{
    return value < lo ? lo : value > hi ? hi : value;
}

/* ---- map_list.c: lists of boxes ---- */

void lp_boxes_init(lp_boxes *list, int32_t src_elem, int32_t dst_elem, const lp_alloc *alloc);
void lp_boxes_free(lp_boxes *list);
lp_status lp_boxes_add(lp_boxes *list, const lp_work *w, lp_error *err); /* tidies a copy of it; drops empty ones */
lp_status lp_boxes_push(lp_boxes *list, const lp_seg *seg, const lp_mode *mode, lp_error *err); /* as it is */
lp_status lp_boxes_push_work(lp_boxes *list, const lp_work *w, lp_error *err);                  /* as it is, nested */
int64_t lp_seg_dst_hi(const lp_boxes *list, const lp_seg *seg); /* end of the destination of a nested box */

/* A map of the list as it stands: nested, disjoint, in order of addresses. One allocation. */
lp_status lp_boxes_build(const lp_map **out, const lp_boxes *list, lp_error *err);
/* The same of a single box. */
lp_status lp_work_build(const lp_map **out, const lp_work *w, int32_t src_elem, int32_t dst_elem, const lp_alloc *alloc,
                        lp_error *err);

/* ---- map_canon.c, map_flat.c, map_peel.c: the canonical form ---- */

/* Turns a list into the canonical one of the same byte function. LP_E_ARGUMENT: a destination byte is written twice;
 * LP_E_LIMIT: beyond the work bound. */
lp_status lp_boxes_canon(lp_boxes *list, lp_error *err);

/* Sorted by destination, nested, address intervals disjoint. Errors as above. */
lp_status lp_boxes_flatten(lp_boxes *list, lp_error *err);

/* Appends to *out the canonical cut of a flat list. */
lp_status lp_boxes_peel(const lp_boxes *flat, lp_boxes *out, lp_error *err);

/* lp_boxes_canon and lp_boxes_build. */
lp_status lp_boxes_finish(const lp_map **out, lp_boxes *list, lp_error *err);

/* ---- map_chain.c: one box after another ---- */

/* Carries the boxes of a map from A to B behind a box that reads B. `unit` is the size of an element in B, equal on
 * both sides. */
typedef struct lp_chain {
    lp_boxes *out; /* src_elem: of the inner side, dst_elem: of the outer side */
    int32_t unit;
    int64_t work; /* what is left of the bound */
} lp_chain;

/* Adds to chain->out what `outer` (sources in B) makes of `inner` (nested, destinations in B, dst_elem == unit).
 * LP_E_ARGUMENT: outer reads what inner does not write; LP_E_UNSUPPORTED: an element is cut; LP_E_LIMIT. */
lp_status lp_chain_box(lp_chain *chain, const lp_work *outer, const lp_work *inner, lp_error *err);

/* ---- map_range.c ---- */

/* Adds to *out the part of `w` whose sources lie in [lo, hi). LP_E_UNSUPPORTED: an element would be cut. */
lp_status lp_work_source_range(lp_boxes *out, const lp_work *w, int64_t lo, int64_t hi, int64_t *work, lp_error *err);

#endif
