/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical map of given boxes, and equality. docs/canonical-form.md has the theory. */
#include "traces/map_private.h"

lp_status lp_boxes_canon(lp_boxes *list, lp_error *err)
{
    /* A nested box is canonical as it is. */
    if (list->count == 0 || (list->count == 1 && !list->seg[0].tangled))
        return LP_OK;
    LP_TRY(lp_boxes_flatten(list, err));
    lp_boxes cut;
    lp_boxes_init(&cut, list->src_elem, list->dst_elem, list->alloc);
    const lp_status status = lp_boxes_peel(list, &cut, err);
    if (status != LP_OK) {
        lp_boxes_free(&cut);
        return status;
    }
    lp_boxes_free(list);
    *list = cut;
    return LP_OK;
}

lp_status lp_boxes_finish(const lp_map **out, lp_boxes *list, lp_error *err)
{
    LP_TRY(lp_boxes_canon(list, err));
    return lp_boxes_build(out, list, err);
}

static bool elements_are_legal(int32_t src_elem, int32_t dst_elem)
{
    const bool dst = dst_elem == 1 || dst_elem == 2 || dst_elem == 4 || dst_elem == 8;
    const bool src = src_elem == 0 || src_elem == 1 || src_elem == 2 || src_elem == 4 || src_elem == 8;
    return dst && src;
}

lp_status lp_map_from_boxes(const lp_map **out, int32_t src_elem, int32_t dst_elem, int32_t nbox, const lp_box *box,
                            const lp_alloc *alloc, lp_error *err)
{
    if (!elements_are_legal(src_elem, dst_elem))
        return lp_fail(err, LP_E_ARGUMENT, "a byte map from elements of %d to elements of %d bytes", src_elem,
                       dst_elem);
    if (nbox < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a byte map of %d boxes", nbox);
    lp_boxes list;
    lp_boxes_init(&list, src_elem, dst_elem, alloc);
    lp_status status = LP_OK;
    for (int32_t b = 0; b < nbox; b++) {
        lp_work w;
        w.src_off = box[b].src_off;
        w.dst_off = box[b].dst_off;
        w.run = box[b].run;
        w.rank = 0;
        for (int32_t m = 0; m < box[b].rank; m++) {
            LP_TRY_GOTO(lp_work_add(&w, box[b].mode[m], err), release_list);
        }
        LP_TRY_GOTO(lp_boxes_add(&list, &w, err), release_list);
    }
    status = lp_boxes_finish(out, &list, err);
release_list:
    lp_boxes_free(&list);
    return status;
}

bool lp_map_equal(const lp_map *a, const lp_map *b)
{
    if (a == b)
        return true;
    if (a->src_elem != b->src_elem || a->dst_elem != b->dst_elem || a->nbox != b->nbox || a->nmode != b->nmode)
        return false;
    for (int32_t i = 0; i < a->nbox; i++) {
        const lp_box *x = &a->box[i], *y = &b->box[i];
        if (x->src_off != y->src_off || x->dst_off != y->dst_off || x->run != y->run || x->rank != y->rank)
            return false;
        if (x->rank > 0 && memcmp(x->mode, y->mode, (size_t)x->rank * sizeof *x->mode) != 0)
            return false;
    }
    return true;
}
